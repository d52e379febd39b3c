"""Whether a disk has room, asked before large files are written; and where small ones are written
fast.
"""

from __future__ import annotations

import os
import shutil

from jaxsif.errors import HostError

_MEMORY = "/dev/shm"


def check_space(folder: str, needed: int) -> None:
    """Raise HostError unless there are `needed` bytes for a file in `folder`."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise HostError(
            f"no room for {needed / 1e6:.0f} MB in {folder}: {free / 1e6:.0f} MB are free",
            folder,
            "make room there, or choose another folder",
        )


def fast_folder(needed: int, disk: str, memory: str = _MEMORY) -> str:
    """Return `memory`, if programs may run from there, and it and this host have `needed` bytes to
    spare; otherwise `disk`.
    """
    try:
        status = os.statvfs(memory)
    except OSError:
        return disk
    room = min(status.f_bavail * status.f_frsize, _available())
    usable = os.access(memory, os.W_OK) and not status.f_flag & os.ST_NOEXEC
    return memory if usable and room >= needed else disk


def _available() -> int:
    """Return the bytes of memory that this host could give without swapping."""
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))
