"""When to look at the tasks of a run, and what that says: nothing here asks a clock or a task.

A task tells when its main thread has stood still for the patience of the run, and when it goes on.
From the first such word on, `Waits.is_due` says when to look at all tasks, and `Waits.judge` how
bad it is what was seen. What waits may go on: a hang is what cannot, or has not for long. Where a
task that seems to wait for others moves, as in any loop, nothing is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from jaxsif.watch.picture import Picture
from jaxsif.watch.sight import NO_BOX, STALE, Sight
from jaxsif.watch.states import CHECKPOINT, COMPILING, INPUT, SHUTDOWN, STOPPED

# When to look, in units of the patience; then at each doubling.
_LOOKS = (1, 2, 5, 10)
_HANGS = 5  # from here on, tasks that wait for another one hang
_ALIKE_WAIT, _ALIKE_HANG = 2, 10  # and tasks that all wait at the same place
# A wait is told where it is so many times longer than those that ended at the same line.
_LEARNED = 5
_MOST_PLACES = 1000  # to remember

_WORKS = 0.05  # of a processor; a task that uses more is at work
# Bytes a second, read and written; one that moves more is, too. Its observer writes a box of 4 KiB
# each second, and each look has stacks written.
_WORKS_BYTES = 16_384
_MOST_BYTES = 1 << 80  # more than any task moves
# What others may have to wait for, as long as the task is at work.
_BUSY = (COMPILING, CHECKPOINT, INPUT)
# No program comes back from there: it has ended and cannot do what the others wait for, or somebody
# has stopped it.
_ENDLESS = (SHUTDOWN, STOPPED)


class Level(IntEnum):
    """How bad it is."""

    NOTHING = 0
    BUSY = 1  # tasks wait for some that are at work
    WAIT = 2
    HANG = 3


class Verdict(NamedTuple):
    """What to tell of a picture."""

    level: Level
    seconds: float  # how long the longest wait has lasted


class _Wait(NamedTuple):
    since: float
    place: str


class Waits:
    """All that one run has told of its waits. Times are seconds of one clock."""

    def __init__(self, patience: float, now: float) -> None:
        self._patience = patience
        self._waits: dict[int, _Wait] = {}  # by task
        self._learned: dict[str, float] = {}  # the longest wait that ended, by place
        self._looks = 0  # at the wait that goes on
        self._said = Level.NOTHING
        self._since = now  # when the wait that was told began
        self._looked = now  # the last time
        self._transferred: dict[int, int] = {}  # bytes by task, then

    def wait(self, task: int, seconds: float, place: str, now: float) -> None:
        """Note that a task has stood still for so many seconds."""
        if not self._waits:
            self._looks, self._transferred = 0, {}
        self._waits[task] = _Wait(now - seconds, place)

    def go_on(self, task: int, seconds: float, now: float) -> float | None:
        """Note that a task goes on after so many seconds, or has ended.

        Return how long the wait was, if it was told and this is its end.
        """
        wait = self._waits.pop(task, None)
        if wait is None:
            return None
        if wait.place in self._learned or len(self._learned) < _MOST_PLACES:
            self._learned[wait.place] = max(seconds, self._learned.get(wait.place, 0))
        if self._waits:
            return None
        was_told = self._said > Level.NOTHING
        self._looks, self._said = 0, Level.NOTHING
        return now - self._since if was_told else None

    def is_due(self, now: float) -> bool:
        """Return whether it is time to look at all tasks."""
        return self._units(now) >= self._next_look()

    def _units(self, now: float) -> float:
        """Return how long the longest wait has lasted, in units of the patience at its place."""
        waits = self._waits.values()
        return max(((now - one.since) / self._patience_at(one.place) for one in waits), default=0)

    def _patience_at(self, place: str) -> float:
        return max(self._patience, _LEARNED * self._learned.get(place, 0))

    def _next_look(self) -> int:
        last = len(_LOOKS) - 1
        return _LOOKS[min(self._looks, last)] << max(0, self._looks - last)

    def judge(self, picture: Picture, now: float) -> Verdict:
        """Return how bad it is what was seen; NOTHING also where that was told already."""
        self._looks += 1
        since = min((wait.since for wait in self._waits.values()), default=now)
        level = self._weigh(picture, now)
        self._looked = now
        self._transferred = {one.task: _transferred(one) for one in _sights(picture)}
        if level <= self._said:
            return Verdict(Level.NOTHING, now - since)
        self._said, self._since = level, since
        return Verdict(level, now - since)

    def _weigh(self, picture: Picture, now: float) -> Level:
        units = self._units(now)
        odd = {group.state.kind for group in picture.odd}
        if self._is_progress(picture):
            return Level.NOTHING
        if STOPPED in {group.state.kind for group in picture.groups}:
            return Level.HANG
        if not odd and not picture.silent:
            return _weigh_alike(picture, units)
        if odd and odd.issubset(_ENDLESS):
            return Level.HANG
        if odd and odd.issubset(_BUSY) and self._is_at_work(picture, now):
            return Level.BUSY
        return Level.HANG if units >= _HANGS else Level.WAIT

    def _is_progress(self, picture: Picture) -> bool:
        """Return whether a task that seems to wait for others moves."""
        return any(
            sight.box != NO_BOX and sight.age <= STALE and sight.box.quiet < self._patience / 2
            for group in picture.groups
            if group.waits
            for sight in group.sights
        )

    def _is_at_work(self, picture: Picture, now: float) -> bool:
        """Return whether the odd tasks compute, read or write; at the first look, they may."""
        odd = [sight for group in picture.odd for sight in group.sights]
        least = _WORKS_BYTES * (now - self._looked)
        return all(
            sight.cpu > _WORKS
            or _transferred(sight) - self._transferred.get(sight.task, -_MOST_BYTES) > least
            for sight in odd
        )


def _weigh_alike(picture: Picture, units: float) -> Level:
    """Return how bad it is where nobody is odd: all wait at one place, or nobody for another."""
    if not any(group.waits for group in picture.groups) or units < _ALIKE_WAIT:
        return Level.NOTHING
    return Level.HANG if units >= _ALIKE_HANG else Level.WAIT


def _sights(picture: Picture) -> Iterator[Sight]:
    return (sight for group in picture.groups for sight in group.sights)


def _transferred(sight: Sight) -> int:
    return sight.read + sight.written
