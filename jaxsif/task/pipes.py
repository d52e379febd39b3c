"""The last lines of a program: wait until they are read.

As long as the program lives, Slurm passes on whole lines. Output that is unread at the end
comes in pieces of 1024 bytes, between which lines of other tasks come (slurmstepd's
_task_build_message).
"""

from __future__ import annotations

import atexit
import os
from collections.abc import MutableMapping
from time import monotonic, sleep  # as they are now: a program may replace them

from .contract import DRAINS
from .watch.status_file import count_waiting, is_fifo

_LIMIT = 1.0  # seconds: who does not read now, does not read
_LOOK = 0.0005  # seconds between looks
_BEHIND = 0.01  # seconds: who takes longer to read has more to pass on
_PAUSE = 0.05  # seconds for that


def install(environ: MutableMapping[str, str]) -> None:
    """Have this process wait at its end, and none that it starts: their pipes may be read later.

    Exit handlers that other modules register later run before.
    """
    if environ.setdefault(DRAINS, str(os.getpid())) == str(os.getpid()):
        atexit.register(wait_for_readers)


def wait_for_readers() -> None:
    """Wait until the pipes of standard output and error are empty, for a second at most."""
    begin = monotonic()
    while any(map(_count_unread, (1, 2))) and monotonic() < begin + _LIMIT:
        sleep(_LOOK)
    if monotonic() > begin + _BEHIND:
        sleep(_PAUSE)


def _count_unread(descriptor: int) -> int:
    """Count the unread bytes in a pipe; 0 where the descriptor is no pipe, or closed."""
    return max(0, count_waiting(descriptor)) if is_fifo(descriptor) else 0
