"""The base system of an image: a minimal Debian made by mmdebstrap, kept as one squashfs file."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path

from jaxsif import process
from jaxsif.builds.host_settings import apt_mirror, apt_settings
from jaxsif.builds.messages import end_of
from jaxsif.errors import HostError, Notify
from jaxsif.files import scratch_folder
from jaxsif.images.squashfs import SQFSTAR

_SUITE = "trixie"
# Documentation and translations: not read in an image.
_LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*")
# Whoever passes the image on must pass on the licences; apt's own example names Debian's mirrors.
_KEPT = ("/usr/share/doc/*/copyright", "/usr/share/doc/apt/examples/debian.sources")
# The same bytes whenever it is made: only this time, and .pyc files without their source's time.
_ENVIRON = {"SOURCE_DATE_EPOCH": "0"}
_COMPILE = (
    'chroot "$1" sh -c "python3 -m compileall -q -f --invalidation-mode unchecked-hash '
    '/usr/lib/python3*"'
)

# Remove mmdebstrap's copies of this host's files, and its mirror; a runtime binds the node's own
# hostname and resolv.conf over the empty files.
_FORGET = (
    'cd "$1/etc" && rm -f hostname resolv.conf apt/sources.list && touch hostname resolv.conf && '
    "mv ../usr/share/doc/apt/examples/debian.sources apt/sources.list.d/"
)


def base_path(packages: str, block: str, cache: Path) -> Path:
    """Return the cache's path for the base system with `packages`, Debian names separated by
    blanks.
    """
    made_of = [_SUITE, packages, *_LEFT_OUT, *_KEPT, _COMPILE, _FORGET, *_ENVIRON.values()]
    key = hashlib.sha256(" ".join([*made_of, *SQFSTAR, block]).encode()).hexdigest()[:16]
    return cache / f"base-{_SUITE}-{key}.sqfs"


def make_base(
    base: Path, packages: str, block: str, environ: Mapping[str, str], notify: Notify
) -> None:
    """Make the file that `base_path` names; raise HostError."""
    for program, package in (("mmdebstrap", "mmdebstrap"), ("sqfstar", "squashfs-tools")):
        if not shutil.which(program):
            raise HostError(
                f"{program} is not on the PATH",
                "the base system",
                f"install {package}, or make image BASE=docker://debian:13",
            )
    notify(f"making the base system: Debian {_SUITE} with {packages}")
    with scratch_folder(str(base.parent), ".base-") as scratch:
        tarball, partial = Path(scratch) / "base.tar", Path(scratch) / "base.sqfs"
        log = base.parent / "base.log"
        settings = {**environ, **_ENVIRON}
        argv = _mmdebstrap_argv(packages, Path(scratch))
        with open(tarball, "wb") as tar, open(log, "wb") as messages:
            status = process.run_plain(argv, stdout=tar, stderr=messages, environ=settings)
        if status:
            raise HostError(
                "mmdebstrap failed:",
                str(log),
                "see its messages, or choose another base: --base, or BASE of make image",
                end_of(log),
            )
        # Without device nodes: a user namespace cannot make them, and every container gets its own.
        argv = ["sqfstar", "-quiet", "-no-progress", *SQFSTAR, "-b", block, str(partial), "dev/*"]
        with open(tarball, "rb") as tar, open(log, "ab") as messages:
            status = process.run_plain(argv, tar, messages, messages, settings)
        if status:
            raise HostError(
                f"sqfstar failed with exit status {status}", str(log), "see its messages"
            )
        partial.replace(base)


def _mmdebstrap_argv(packages: str, scratch: Path) -> list[str]:
    apt_conf = scratch / "apt.conf"
    apt_conf.write_text(apt_settings())
    mirror = apt_mirror()  # if this host has none, mmdebstrap uses its default
    return [
        *("mmdebstrap", "--variant=minbase", "--format=tar"),
        f"--include={','.join(packages.split())}",
        *(f"--aptopt={apt_conf}", '--aptopt=Acquire::Languages "none"'),
        *(f"--customize-hook={hook}" for hook in (_COMPILE, _FORGET)),
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT),
        *(f"--dpkgopt=path-include={pattern}" for pattern in _KEPT),
        *(_SUITE, "-"),
        *filter(None, [mirror]),
    ]
