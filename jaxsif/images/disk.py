"""Whether a disk has room, asked before a large file is written."""

from __future__ import annotations

import shutil

from jaxsif.errors import HostError


def check_space(folder: str, needed: int) -> None:
    """Raise HostError unless there are `needed` bytes for a file in `folder`."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise HostError(
            f"no room for {needed / 1e6:.0f} MB in {folder}: {free / 1e6:.0f} MB are free",
            folder,
            "make room there, or choose another folder",
        )
