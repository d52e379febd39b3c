"""An image from elsewhere: downloaded next to its final path, checked, and then renamed."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from jaxsif import process
from jaxsif.errors import HostError, JaxsifError
from jaxsif.files import scratch_folder
from jaxsif.images.download import Watch, download, open_partial, unexpected, without_password
from jaxsif.images.file import checksum, digest
from jaxsif.runtime import Runtime

FROM_REGISTRY = ("oras", "docker")  # by the runtime
_BY_HTTP = ("https", "http")


class Expected(NamedTuple):
    """The digests that the image must have; None for any."""

    digest: str | None = None  # of its root file system, 'sha256:…'
    sha256: str | None = None  # of the whole file, hexadecimal

    def check(self, image: str) -> tuple[str, str]:
        """Compare an image; return its digest, and the difference or ''. Raise HostError for a file
        that is not an image.
        """
        found = digest(image)
        if self.digest not in (None, found):
            is_whole = self.digest == f"sha256:{checksum(image)}"
            more = ", and --digest has the SHA-256 of the file: pass it as --sha256"
            return found, f"its digest is {found}{more if is_whole else ''}"
        whole = checksum(image) if self.sha256 else None
        is_digest = found == f"sha256:{self.sha256}"
        other = ", and --sha256 has its digest: pass it as --digest" if is_digest else ""
        return found, "" if whole == self.sha256 else f"the file has sha256 {whole}{other}"


ANY = Expected()


def find_target(url: str, output: str | None) -> str:
    """Find the absolute path of the file to make; if `output` is a folder, keep the name from
    `url`. Raise JaxsifError for an address that cannot be an image's.
    """
    scheme, _, rest = url.partition("://")
    try:
        path = urlsplit(url).path
    except ValueError:
        scheme = ""
    if scheme not in (*_BY_HTTP, *FROM_REGISTRY) or not rest.strip("/"):
        raise JaxsifError(
            f"not the address of an image: {url}", "", "https://…, oras://… or docker://…"
        )
    if output and not os.path.isdir(output):
        target = os.path.abspath(output)
        folder = output if output.endswith("/") else os.path.dirname(target)
        if not os.path.isdir(folder):
            what = f"folder not found: {folder}"
            raise JaxsifError(what, "--output", "create the folder first")
        return target
    if scheme in FROM_REGISTRY:
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


def find_there(target: str, expected: Expected) -> str | None:
    """Return the digest of the image that already exists, if it is as expected, or None if nothing
    exists. Raise JaxsifError for anything else.
    """
    if not os.path.exists(target):
        return None
    if expected == ANY:
        raise JaxsifError(
            f"{target} already exists",
            "",
            "replace it with --force, or compare it with --digest",
        )
    found, problem = expected.check(target)
    if problem:
        raise HostError(
            f"{target} already exists, but is not what was asked for: {problem}",
            "",
            "--force replaces it",
        )
    return found


def pull_by_http(url: str, target: str, expected: Expected, watch: Watch) -> str:
    """Download the image at an http or https address to `target`, complete and as expected; return
    its digest. Raise HostError.

    If the network fails, the received bytes stay in a hidden file beside it for the next call.
    """
    folder, name = os.path.split(target)
    with open_partial(os.path.join(folder, f".{name}.part")) as partial:
        download(url, partial, watch)
        try:
            found = _take(partial.path, target, expected, url)
        except HostError:
            partial.remove()
            raise
        partial.remove()
    return found


def pull_by_runtime(
    runtime: Runtime, url: str, target: str, expected: Expected, environ: Mapping[str, str]
) -> str:
    """Do the same as `pull_by_http`, but from a registry, through the runtime; nothing is kept if
    the download fails.
    """
    folder, name = os.path.split(target)
    with scratch_folder(folder or os.curdir, ".pull-") as scratch:
        partial = os.path.join(scratch, name)
        temporary = {"APPTAINER_TMPDIR": scratch, "SINGULARITY_TMPDIR": scratch}
        argv = runtime.pull_argv(partial, url)
        status = process.run_plain(argv, stdout=sys.stderr.buffer, environ={**environ, **temporary})
        if status:
            raise HostError(
                f"{runtime.command} pull failed (exit status {status}): {url}",
                "",
                "its message is above",
            )
        return _take(partial, target, expected, url)


def _take(partial: str, target: str, expected: Expected, url: str) -> str:
    """Move the image to its final path if it is as expected; return its digest."""
    try:
        found, problem = expected.check(partial)
    except HostError as error:  # not an image at all, such as a login page
        found, problem = "", error.what
    if problem:
        raise unexpected(url, problem)
    os.replace(partial, target)
    return found
