"""Wait at the end of a program until its last lines have been read.

While the program is alive, Slurm passes on whole lines. Output that is unread at the end comes in
pieces of 1024 bytes, interleaved with other tasks' lines (slurmstepd's _task_build_message).
"""

from __future__ import annotations

import atexit
import os
from collections.abc import MutableMapping
from time import monotonic, sleep  # imported now: a program may replace them

from .contract import DRAINS
from .watch.status_file import count_waiting, is_fifo

_LIMIT = 1.0  # seconds: a reader slower than this is not reading at all
_LOOK = 0.0005  # seconds between checks
_BEHIND = 0.01  # seconds: a slower reader has more output to pass on
_PAUSE = 0.05  # seconds for that


def install(environ: MutableMapping[str, str]) -> None:
    """Make this process wait at its end, but not its children: their pipes may be read later.

    Exit handlers that other modules register later run earlier.
    """
    if environ.setdefault(DRAINS, str(os.getpid())) == str(os.getpid()):
        atexit.register(wait_for_readers)


def wait_for_readers() -> None:
    """Wait until the pipes of standard output and standard error are empty, for at most a
    second.
    """
    begin = monotonic()
    while any(map(_count_unread, (1, 2))) and monotonic() < begin + _LIMIT:
        sleep(_LOOK)
    if monotonic() > begin + _BEHIND:
        sleep(_PAUSE)


def _count_unread(descriptor: int) -> int:
    """Count the unread bytes in a pipe; 0 if the descriptor is closed or not a pipe."""
    return max(0, count_waiting(descriptor)) if is_fifo(descriptor) else 0
