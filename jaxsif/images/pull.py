"""An image from elsewhere: downloaded beside its place, checked, and then renamed."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from jaxsif import process
from jaxsif.errors import HostError, JaxsifError
from jaxsif.images.download import (
    Count,
    Partial,
    Show,
    download,
    not_wanted,
    only_one,
    without_password,
)
from jaxsif.images.file import checksum, digest

_BY_RUNTIME = ("oras", "docker")
_BY_HTTP = ("https", "http")


class Wanted(NamedTuple):
    """What the image must be; None where that is open."""

    digest: str | None  # of its root file system, 'sha256:…'
    sha256: str | None  # of the whole file, hexadecimal

    def check(self, image: str) -> tuple[str, str]:
        """The digest of `image`, and what it is and should not be: '' when all is as wanted.

        Raises HostError for what is no image.
        """
        found = digest(image)
        if self.digest not in (None, found):
            return found, f"its digest is {found}"
        whole = checksum(image) if self.sha256 else None
        return found, "" if whole == self.sha256 else f"the file has sha256 {whole}"


def find_target(url: str, output: str | None) -> str:
    """The path of the file to make, absolute; a folder as `output` keeps the name that `url` has."""
    scheme, _, rest = url.partition("://")
    try:
        path = urlsplit(url).path
    except ValueError:
        scheme = ""
    if scheme not in (*_BY_HTTP, *_BY_RUNTIME) or not rest.strip("/"):
        raise JaxsifError(
            f"not an address of an image: {url}", "", "https://…, oras://… or docker://…"
        )
    if output and not os.path.isdir(output):
        return os.path.abspath(output)
    if scheme in _BY_RUNTIME:
        name = rest.rpartition("/")[2].replace(":", "_").replace("@", "_") + ".sif"
    else:
        name = os.path.basename(unquote(path))
    if name in ("", ".", "..", ".sif"):
        raise JaxsifError(
            f"no file name in the address {without_password(url)}",
            "",
            "name the file with --output",
        )
    return os.path.abspath(os.path.join(output or "", name))


def find_there(target: str, wanted: Wanted) -> str | None:
    """The digest of the image that is there already, as wanted; raises JaxsifError when something
    else is there.
    """
    if not os.path.exists(target):
        return None
    if wanted == Wanted(None, None):
        raise JaxsifError(
            f"{target} is there already",
            "",
            "--force replaces it, --digest tells whether it is the same",
        )
    found, problem = wanted.check(target)
    if problem:
        raise HostError(
            f"{target} is there, and is not what was asked for: {problem}",
            "",
            "--force replaces it",
        )
    return found


def pull_by_http(
    url: str, target: str, wanted: Wanted, timeout: float, show: Show, count: Count
) -> str:
    """Bring the image at an address of http to `target`, whole and as wanted; its digest. Raises
    HostError.

    When the network fails, what is there is kept beside it, hidden, for the next time.
    """
    folder, name = os.path.split(target)
    partial = Partial(os.path.join(folder, f".{name}.part"))
    with only_one(partial):
        download(url, partial, timeout, show, count)
        try:
            found = _take(partial.path, target, wanted, url)
        except HostError:
            partial.remove()
            raise
        partial.remove()
    return found


def pull_by_runtime(
    runtime: str, url: str, target: str, wanted: Wanted, environ: Mapping[str, str]
) -> str:
    """As `pull_by_http`, from a registry, which the runtime speaks to; nothing is kept when it
    fails.
    """
    folder, name = os.path.split(target)
    with tempfile.TemporaryDirectory(prefix=".pull-", dir=folder) as scratch:
        partial = os.path.join(scratch, name)
        temporary = {"APPTAINER_TMPDIR": scratch, "SINGULARITY_TMPDIR": scratch}
        argv = [runtime, "pull", "--disable-cache", partial, url]
        status = process.run_plain(argv, stdout=sys.stderr.buffer, environ={**environ, **temporary})
        if status:
            raise HostError(
                f"{runtime} pull failed (exit status {status}): {url}", "", "its message is above"
            )
        return _take(partial, target, wanted, url)


def _take(partial: str, target: str, wanted: Wanted, url: str) -> str:
    """Put the image in its place if it is as wanted; its digest."""
    try:
        found, problem = wanted.check(partial)
    except HostError as error:  # no image at all: a page that asks for a password, say
        found, problem = "", error.what
    if problem:
        raise not_wanted(url, problem)
    os.replace(partial, target)
    return found
