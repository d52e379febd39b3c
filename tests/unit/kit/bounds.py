"""What every reader of input that jaxsif did not write must keep to: an error that people see, in bounded resources."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from jaxsif.errors import JaxsifError

_MOST_CPU = 1.0  # seconds
_MORE_TRIES = 2
_MOST_MEMORY = 200 << 10  # kB, beyond what the process had


def read_bounded(read: Callable[[], object]) -> JaxsifError | None:
    """Return the JaxsifError of `read`, which may raise nothing else, or None; fail where it takes too much."""
    found, took, more = _measure(read)
    for _ in range(_MORE_TRIES):
        if took <= _MOST_CPU:
            break
        # What the input costs, it costs each time; a machine that is lent to others has pauses, which the clock counts.
        found, took, more = _measure(read)
    assert took <= _MOST_CPU, f"{took:.1f} s of processor time"
    assert more <= _MOST_MEMORY, f"{more >> 10} MB of memory"
    return found


def least_seconds(work: Callable[[], object]) -> float:
    """Return the fewest seconds of processor time of several tries."""
    return min(map(_time, [work] * (1 + _MORE_TRIES)))


def _time(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def _measure(read: Callable[[], object]) -> tuple[JaxsifError | None, float, int]:
    """Return the error of `read`, its seconds of processor time, and its memory in kB."""
    Path("/proc/self/clear_refs").write_text("5")  # proc(5): the peak begins anew
    before, begin = _peak_memory(), time.process_time()
    try:
        read()
    except JaxsifError as error:
        found: JaxsifError | None = error
    else:
        found = None
    return found, time.process_time() - begin, _peak_memory() - before


def _peak_memory() -> int:
    """The largest resident memory of this process since the last reset, in kB."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])
