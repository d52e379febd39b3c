"""When to look at the tasks of a run, and what that says: nothing here asks a clock or a task.

A task tells when its main thread has stood still for the patience of the run, and when it goes on.
From the first such word on, `Waits.is_due` says when to look at all tasks, and `Waits.judge` how
bad what was seen is. A hang is a wait that cannot end, or a long one in which the tasks at fault
did nothing. Where a task that seems to wait for others moves, as in any loop, nothing is told.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator
from enum import IntEnum
from math import inf
from typing import NamedTuple

from jaxsif.watch.picture import Picture, TaskGroup, list_sights
from jaxsif.watch.sight import STALE, Sight
from jaxsif.watch.states import (
    CHECKPOINT,
    COMPILING,
    DEADLOCK,
    IDLE,
    INITIALIZE,
    INPUT,
    LOCK,
    SHUTDOWN,
    STOPPED,
    WAITING,
)

# When to look, in units of the patience; then at each doubling.
_LOOKS = (1, 2, 5, 10)
_NEARLY = 0.5  # units; a look so much before the first one is good enough
# By which waits for the same seem to begin at other times, as observers look once a second: at most
# so many seconds, and units.
_LAG, _LAG_UNITS = 1.9, 0.4
# Units from a look at which not all tasks have told where they are to another one; less than
# _NEARLY, so that it is not taken for the next look.
_ONCE_MORE = 0.4
# From when on it is a wait, and from when on a hang: of tasks that wait for another one, and of
# tasks that all wait at the same place.
_FOR_OTHERS, _ALIKE = (-inf, 5), (2, 10)
_NOT_TOLD = (2, inf)  # of tasks that may wait for anything
# A wait is told where it is so many times longer than those that ended at the same line.
_LEARNED = 2
_MOST_PLACES = 1000  # to remember

# Bytes a second, read and written; a task that moves more is at work. Its observer writes a box of
# 4 KiB each second, and each look has stacks written.
_WORKS_BYTES = 16_384
_MOST_BYTES = 1 << 80  # more than any task moves
# Units from the first look at a task that has done nothing since to a hang; less than the three
# between the second look and the third.
_IDLE_UNITS = 2.5
_IDLE_RUNS = 0.5  # a second, of threads that only look now and then whether there is work
# What others may have to wait for, as long as the task is at work.
_WORK = (COMPILING, CHECKPOINT, INPUT)
# No program comes back from there: it has ended and cannot do what the others wait for, or somebody
# has stopped it, or its only thread waits for a lock.
_ENDLESS = (SHUTDOWN, STOPPED, DEADLOCK)
# Where one of all tasks is in DEADLOCK, and the others in these, none can go on.
_LOCKED = {DEADLOCK, LOCK, *WAITING}


class Level(IntEnum):
    """How bad it is."""

    NOTHING = 0
    BUSY = 1  # tasks wait for some that are at work
    WAIT = 2
    HANG = 3  # no task that keeps others waiting is at work, or one cannot go on


_GRADES = (Level.NOTHING, Level.WAIT, Level.HANG)


class Verdict(NamedTuple):
    """What to tell of a picture."""

    level: Level
    seconds: float  # how long the longest wait has lasted


class _Wait(NamedTuple):
    since: float
    place: str
    looks: int = 0  # how many of its looks have been made


class _Sample(NamedTuple):
    """What a task had done by a time."""

    time: float
    cpu: float  # seconds, of all its processes
    moved: int  # bytes
    runs: int  # of its main thread
    others: int  # runs of its other threads of Python, where the main one waits for these
    turns: tuple[tuple[str, int], ...]  # of its loops

    @classmethod
    def of(cls, sight: Sight, kind: str, now: float) -> _Sample:
        """Return the sample of what was seen now; `kind` is the task's state."""
        others = sight.box.others if kind == LOCK else 0
        moved = _transferred(sight)
        return cls(now, sight.spent, moved, sight.runs, others, sight.box.around)

    def is_idle_until(self, later: _Sample, patience: float) -> bool:
        """Return whether a task has done nothing from here to a later sample. What has ended may
        have taken counts with it.
        """
        seconds = later.time - self.time
        return (
            later.turns == self.turns
            and abs(later.cpu - self.cpu) <= IDLE * seconds
            and abs(later.moved - self.moved) <= _WORKS_BYTES * seconds
            and abs(later.runs - self.runs) <= 1 + seconds / patience
            and abs(later.others - self.others) <= _IDLE_RUNS * seconds
        )


class _Told(NamedTuple):
    """A wait that was told."""

    level: Level
    since: float
    odd: frozenset[int]  # the tasks that keep the others waiting
    waiting: frozenset[int]  # the others

    def is_of(self, odd: frozenset[int]) -> bool:
        """Return whether these odd tasks, or none that are known, are of the same wait."""
        return not (self.odd and odd and self.odd.isdisjoint(odd))


class Waits:
    """All that one run has told of its waits. Times are seconds of one clock."""

    def __init__(self, patience: float, now: float, busy_timeout: float = inf) -> None:
        """`patience` is how long a task may stand still, `busy_timeout` how long others may wait
        for a task at work.
        """
        self._patience = patience
        self._busy_timeout = busy_timeout
        self._lag = min(_LAG, _LAG_UNITS * patience)
        self._waits: dict[int, _Wait] = {}  # by task
        self._learned: dict[str, float] = {}  # the longest wait that ended, by place
        self._told: list[_Told] = []  # of the waits that go on
        self._looked = now  # the last time
        self._once_more = inf  # when to look although no wait is due
        self._transferred: dict[int, int] = {}  # bytes by task, then
        self._idle: dict[int, _Sample] = {}  # by task: from then on it has done nothing

    def wait(self, task: int, seconds: float, place: str, now: float) -> None:
        """Note that a task has stood still for so many seconds."""
        if not self._waits:
            self._transferred, self._idle = {}, {}
        self._waits[task] = self._count_looks(_Wait(now - seconds, place), self._looked)

    def restart(self, now: float) -> None:
        """Let all waits begin now: nobody was there to hear of their ends."""
        self._waits = {task: _Wait(now, wait.place) for task, wait in self._waits.items()}
        self._transferred, self._idle = {}, {}

    def go_on(self, task: int, seconds: float, now: float) -> float | None:
        """Note that a task goes on after so many seconds, or has ended.

        Return how long the wait was, if it was told and this is its end.
        """
        wait = self._waits.pop(task, None)
        if wait is None:
            return None
        self._learn(task, wait.place, min(seconds, now - wait.since))
        over = [told for told in self._told if self._is_over(told, task)]
        self._told = [told for told in self._told if told not in over]
        is_last = over and not self._told
        return now - min(told.since for told in over) if is_last else None

    def _learn(self, task: int, place: str, seconds: float) -> None:
        """Note how long a wait was, unless it was one for tasks that were at work."""
        of_task = (one for one in self._told if task in one.odd | one.waiting)
        was_busy = any(one.level == Level.BUSY for one in of_task)
        is_known = place in self._learned or len(self._learned) < _MOST_PLACES
        if is_known and not was_busy:
            self._learned[place] = max(seconds, self._learned.get(place, 0))

    def _is_over(self, told: _Told, task: int) -> bool:
        """Return whether a wait is over when this task goes on."""
        is_its = task in told.odd | told.waiting
        return not self._waits or (is_its and told.waiting.isdisjoint(self._waits))

    def is_due(self, now: float) -> bool:
        """Return whether it is time to look at all tasks."""
        waits = self._waits.values()
        is_again = bool(waits) and now >= self._once_more
        return is_again or any(
            self._measure(one, now) >= _find_look(one.looks)
            or self._looked < one.since + self._busy_timeout <= now
            for one in waits
        )

    def _measure(self, wait: _Wait, now: float) -> float:
        """Return how long a wait has lasted, in units of the patience at its place."""
        learned = _LEARNED * self._learned.get(wait.place, 0)
        return (now - wait.since) / max(self._patience, learned)

    def _count_looks(self, wait: _Wait, looked: float) -> _Wait:
        """Return the wait with the looks that one at this time was, or nearly: tasks that wait for
        the same come to stand still one after the other. A look that counts as a later one must be
        so near to it that it weighs as much.
        """
        units = self._measure(wait, looked + self._lag)
        is_first = wait.looks == 0 and self._measure(wait, looked) + _NEARLY >= _find_look(0)
        looks = int(is_first) or wait.looks
        while _find_look(looks) <= units:
            looks += 1
        return wait._replace(looks=looks)

    def judge(self, picture: Picture, now: float) -> Verdict:
        """Return how bad what was seen is; NOTHING also where that was told already."""
        waiting = _list_tasks(picture.waiting)
        begin = self._find_begin(waiting, now)
        self._idle = dict(self._sample(picture, now))
        level = self._weigh(picture, begin, now) if self._waits else Level.NOTHING
        self._waits = {task: self._count_looks(one, now) for task, one in self._waits.items()}
        self._looked = now
        self._once_more = self._plan_again(picture, now)
        self._transferred = {one.task: _transferred(one) for one in list_sights(picture.groups)}
        found = _Told(level, begin, _list_tasks(picture.odd), waiting)
        return Verdict(self._tell(found), now - begin)

    def _sample(self, picture: Picture, now: float) -> Iterator[tuple[int, _Sample]]:
        """Yield the time from which on each task has done nothing, and what it had done by then."""
        for group in picture.groups:
            for sight in group.sights:
                sample = _Sample.of(sight, group.state.kind, now)
                before = self._idle.get(sight.task, sample)
                is_idle = before.is_idle_until(sample, self._patience)
                yield sight.task, before if is_idle else sample

    def _plan_again(self, picture: Picture, now: float) -> float:
        """Return when to look although no wait is due: soon after a look at which not all is known,
        but not twice in a row.
        """
        is_known = not picture.is_partial and all(map(self._is_known, picture.groups))
        is_done = is_known or self._once_more < inf
        return inf if is_done else now + _ONCE_MORE * self._patience

    def _is_known(self, group: TaskGroup) -> bool:
        """Return whether a group has told where it is; of input, that takes two looks."""
        is_first = self._transferred.keys().isdisjoint(_list_tasks([group]))
        return group.is_known and not (group.state.kind == INPUT and is_first)

    def _tell(self, found: _Told) -> Level:
        """Note that a wait is told, and return its level; NOTHING where that was told already."""
        same = [one for one in self._told if one.is_of(found.odd)]
        if found.level <= max((one.level for one in same), default=Level.NOTHING):
            return Level.NOTHING
        self._told = [*(one for one in self._told if one not in same), found]
        return found.level

    def _find_begin(self, waiting: Container[int], now: float) -> float:
        """Return when the first task began to wait for others. Where only others have told that
        they stand still, it was not before the last of them did.
        """
        begins = [wait.since for task, wait in self._waits.items() if task in waiting]
        others = max((wait.since for wait in self._waits.values()), default=now)
        return min(begins, default=others)

    def _find_units(self, begin: float, now: float) -> float:
        """Return how long the longest wait has lasted, in units of the patience at its place, but
        for the time in which nobody waited for another.
        """
        waits = self._waits.values()
        cut = (one._replace(since=max(one.since, begin)) for one in waits)
        return max((self._measure(one, now) for one in cut), default=0)

    def _weigh(self, picture: Picture, begin: float, now: float) -> Level:
        if self._is_progress(picture):
            return Level.NOTHING
        if self._is_endless(picture):
            return Level.HANG
        if self._is_at_work(picture, now):
            return Level.BUSY if picture.waiting else Level.NOTHING
        units = self._find_units(begin, now + self._lag)
        level = _grade(units, _FOR_OTHERS) if picture.odd else _weigh_without_odd(picture, units)
        if picture.odd and now + self._lag - begin >= self._busy_timeout:
            return Level.HANG
        return level if self._is_idle(picture, now) else min(level, Level.WAIT)

    def _is_endless(self, picture: Picture) -> bool:
        """Return whether the others wait for a task that cannot go on."""
        odd = _list_kinds(picture.odd)
        is_left = SHUTDOWN not in odd or picture.is_left
        return STOPPED in _list_kinds(picture.groups) or (
            bool(odd) and odd.issubset(_ENDLESS) and is_left
        )

    def _is_idle(self, picture: Picture, now: float) -> bool:
        """Return whether the tasks that keep the others waiting have long done nothing; all tasks,
        where none is known to. JAX itself bounds the wait in jax.distributed.initialize.

        A driver of GPUs hides whether they compute.
        """
        if picture.silent or picture.unseen:
            return False
        groups = picture.odd or picture.groups
        since = now - _IDLE_UNITS * self._patience
        is_initializing = _list_kinds(picture.waiting) == {INITIALIZE}
        return not is_initializing and all(
            self._idle[sight.task].time <= since and not (group.waits and sight.gpu)
            for group in groups
            for sight in group.sights
        )

    def _is_progress(self, picture: Picture) -> bool:
        """Return whether a task that seems to wait for others moves."""
        return any(
            sight.age <= STALE and sight.box.quiet < self._patience / 2
            for sight in list_sights(picture.waiting)
        )

    def _is_at_work(self, picture: Picture, now: float) -> bool:
        """Return whether the tasks that wait for nobody compile, load or save, and compute, read or
        write meanwhile; at the first look, they may.
        """
        others = [group for group in picture.groups if not group.waits]
        kinds = _list_kinds(others)
        least = _WORKS_BYTES * (now - self._looked)
        return (
            bool(kinds)
            and kinds.issubset(_WORK)
            and all(
                sight.cpu > IDLE
                or _transferred(sight) - self._transferred.get(sight.task, -_MOST_BYTES) > least
                for sight in list_sights(others)
            )
        )


def _weigh_without_odd(picture: Picture, units: float) -> Level:
    """Return how bad it is where nobody is odd: a node is silent, no task can go on, all wait at
    one place, a task has not told where it is, or nobody waits for another.
    """
    kinds = _list_kinds(picture.groups)
    is_locked = DEADLOCK in kinds and kinds <= _LOCKED
    if picture.silent or is_locked:
        return _grade(units, _FOR_OTHERS)
    if picture.waiting and not picture.is_partial:
        return _grade(units, _ALIKE)
    is_known = all(group.is_known for group in picture.groups)
    return _grade(units, _NOT_TOLD) if picture.waiting or not is_known else Level.NOTHING


def _grade(units: float, begins: tuple[float, float]) -> Level:
    """Return the level of a wait so long, where WAIT and HANG begin at these units."""
    return _GRADES[bisect_right(begins, units)]


def _find_look(number: int) -> int:
    """Return when to look for this time, in units of the patience; `number` counts from 0."""
    last = len(_LOOKS) - 1
    return _LOOKS[min(number, last)] << max(0, number - last)


def _list_tasks(groups: Iterable[TaskGroup]) -> frozenset[int]:
    return frozenset(sight.task for sight in list_sights(groups))


def _list_kinds(groups: Iterable[TaskGroup]) -> set[str]:
    return {group.state.kind for group in groups}


def _transferred(sight: Sight) -> int:
    return sight.read + sight.written
