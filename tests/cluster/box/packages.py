"""Apptainer's package: the version that the tests know, wherever there is one, kept for the next build.

Debian's unstable suite is its only source, and has one version, whichever that is today. Each downloaded package is
kept under its digest, and offered to apt beside the mirror. A pin lets apt take the known version from either of them,
and what is there where none has it.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import subprocess
from pathlib import Path

from .settings import REPOSITORY

KNOWN = "1.4.5-2"
_KEPT = REPOSITORY / "build/cache/packages"  # DIGEST.deb, and apt's index of them
_INSIDE = "/packages"  # the same folder while the root file system is made

_PIN = f"Package: apptainer\nPin: version {KNOWN}\nPin-Priority: 1001\n"
# apt would use the files of a "file:" source in place, where dpkg does not see them.
_ADD_KEPT = (
    f"""echo "deb [trusted=yes] copy:$1{_INSIDE} ./" >"$1"/etc/apt/sources.list.d/kept.list """
    f"""&& printf %s {shlex.quote(_PIN)} >"$1"/etc/apt/preferences.d/apptainer"""
)
_DOWNLOAD = f"""cd "$1{_INSIDE}" && APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-get download apptainer"""
_FORGET = f"""rm -r "$1{_INSIDE}" "$1"/etc/apt/sources.list.d/kept.list"""
HOOKS = (_ADD_KEPT, _DOWNLOAD, _FORGET)


def hook_options() -> list[str]:
    """Write apt's index of the kept packages; return the options of mmdebstrap that use them, and add to them."""
    _KEPT.mkdir(parents=True, exist_ok=True)
    discard_damaged(_KEPT)
    (_KEPT / "Packages").write_text(render_index(_KEPT))
    setup = (f"copy-in {shlex.quote(str(_KEPT))} /", _ADD_KEPT)
    customize = (_DOWNLOAD, f"copy-out {_INSIDE} {shlex.quote(str(_KEPT.parent))}", _FORGET)
    return [f"--setup-hook={hook}" for hook in setup] + [f"--customize-hook={hook}" for hook in customize]


def keep(folder: Path = _KEPT) -> None:
    """Name what was downloaded after its digest."""
    for path in folder.glob("*.deb"):
        path.rename(folder / f"{_digest(path)}.deb")


def discard_damaged(folder: Path) -> None:
    """Remove each package whose name is not its digest."""
    for path in folder.glob("*.deb"):
        if path.stem != _digest(path):
            path.unlink()


def render_index(folder: Path) -> str:
    """Return apt's index of the packages of a folder."""
    return "\n".join(map(_index, sorted(folder.glob("*.deb"))))


def describe(rootfs: Path) -> str:
    """Return a line that names the Apptainer of a root file system."""
    status = (rootfs / "var/lib/dpkg/status").read_text()
    found = re.search(r"^Package: apptainer\n(?:.+\n)*?Version: (.+)$", status, re.MULTILINE)
    version = found[1] if found else "none"
    known = "the version that the tests know" if version == KNOWN else f"neither mirror nor cache has {KNOWN}"
    return f"Apptainer {version}: {known}"


def _index(path: Path) -> str:
    """Return the entry of a package in apt's index."""
    fields = subprocess.run(["dpkg-deb", "--field", path], check=True, capture_output=True, text=True).stdout
    return f"{fields}Filename: ./{path.name}\nSize: {path.stat().st_size}\nSHA256: {path.stem}\n"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
