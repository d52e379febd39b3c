"""What JAX says of a barrier that not all processes have reached in time -> a Barrier."""

from __future__ import annotations

import re
from typing import NamedTuple

from jaxsif.diagnose.symptoms import BARRIER

_LONGEST_NAME = 300  # letters
_MOST_BARRIERS, _MOST_MISSING = 100, 100
# The lines after the first one, see symptoms.BARRIER; then follow the numbers of missing tasks.
_REACHED = r"# of tasks that reached the barrier: (\d{1,9})/(\d{1,9})\.$"
_FIRST = r"The first task at the barrier: (\d{1,9})\. Some timed out task names:$"
_TASK = r"\d{1,9}$"


class Barrier(NamedTuple):
    """A place where JAX's processes wait for each other, and which not all of them have reached in
    time.
    """

    name: str  # JAX's, such as 'Shutdown'
    reached: int = 0  # processes
    processes: int = 0  # all
    first: int = -1  # the process that came first
    missing: tuple[int, ...] = ()  # some of those that have not come


class BarrierReader:
    """Reads the barriers of one stream, in which the lines of several tasks may alternate."""

    def __init__(self, found: list[Barrier]) -> None:
        self._found = found  # shared by all streams of a run; the first one is what went wrong
        self.open: dict[bytes, Barrier] = {}  # label -> the barrier whose lines are being read

    def read(self, label: bytes, line: str) -> None:
        """Learn from one more line of the task with that label; another line ends its barrier."""
        before = self.open.pop(label, None)
        after = self._read_line(before, line)
        if after is not None:
            self.open[label] = after

    def _read_line(self, before: Barrier | None, line: str) -> Barrier | None:
        """Return the barrier as it is known with one more line; None where the line ends it."""
        begin = BARRIER.match(line)
        if begin:
            return Barrier(_parse_name(begin["id"]))
        if before is None:
            return None
        reached, first = re.match(_REACHED, line), re.match(_FIRST, line)
        if reached:
            return before._replace(reached=int(reached[1]), processes=int(reached[2]))
        if first:
            return before._replace(first=int(first[1]))
        is_open = before.first >= 0 and len(before.missing) < _MOST_MISSING
        if is_open and re.match(_TASK, line) and int(line) not in before.missing:
            return self._add_missing(before, int(line))
        return None

    def _add_missing(self, before: Barrier, task: int) -> Barrier:
        """Keep and return the barrier with one more task that has not come."""
        if before in self._found:
            self._found.remove(before)
        after = before._replace(missing=(*before.missing, task))
        # Each task says the same.
        if after not in self._found and len(self._found) < _MOST_BARRIERS:
            self._found.append(after)
        return after


def _parse_name(id_: str) -> str:
    """Return the name in a barrier's id, NAME::NUMBER::NUMBER."""
    return re.sub(r"(::\d+)+$", "", id_)[:_LONGEST_NAME]
