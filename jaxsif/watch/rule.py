"""Decide when to inspect the tasks of a run, and how bad a wait is, without reading a clock.

A task reports when its main thread has stood still for the run's hang timeout, and when it
continues. From the first report on, `Waits.is_due` decides when to inspect all tasks, and
`Waits.judge` weighs a snapshot of them. A hang is a wait that cannot end, or a long one in which
the tasks at fault did nothing. Nothing is reported if a task that seems to be waiting for others is
making progress, as in any loop.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator
from enum import IntEnum
from math import inf
from typing import NamedTuple

from jaxsif.watch.sample import STALE, Sample
from jaxsif.watch.snapshot import Snapshot, TaskGroup, list_samples, tasks_of
from jaxsif.watch.states import (
    CHECKPOINT,
    COMPILING,
    DEADLOCK,
    IDLE,
    INITIALIZE,
    INPUT,
    LEFT,
    LOCK,
    SHUTDOWN,
    STOPPED,
    WAITING,
)

# When to look, in units of the hang timeout; then at each doubling.
_LOOKS = (1, 2, 5, 10)
_NEARLY = 0.5  # units; a look this much before the first one is good enough
# Waits for the same thing may seem to begin at different times, as observers look once a second:
# at most this many seconds, and units, apart.
_LAG, _LAG_UNITS = 1.9, 0.4
# Units from a look at which some tasks have not reported where they are to another look; less than
# _NEARLY, so that it is not taken for the next scheduled one.
_ONCE_MORE = 0.4
# The units at which a wait and a hang begin: for tasks that wait for another one, and for tasks
# that all wait at the same place.
_FOR_OTHERS, _ALIKE = (-inf, 5), (2, 10)
_NOT_TOLD = (2, inf)  # for tasks that may wait for anything
# A wait is reported if it is this many times longer than those that ended at the same line.
_LEARNED = 2
_MOST_PLACES = 1000  # to remember

# Bytes per second, read and written; a task that moves more is at work. Its observer writes 4 KiB
# every second, and each inspection makes it write stacks.
_WORKS_BYTES = 16_384
_MOST_BYTES = 1 << 80  # more than any task moves
# Units without any work after which an idle task makes a hang; less than the three between the
# second look and the third.
_IDLE_UNITS = 2.5
_IDLE_RUNS = 0.5  # per second, of threads that only check now and then for work
# The states of tasks at work that others may have to wait for.
_WORK = (COMPILING, CHECKPOINT, INPUT)
# The states that no program leaves: it has ended and cannot do what the others wait for, or
# somebody has stopped it, or its only thread is waiting for a lock.
_ENDLESS = (SHUTDOWN, LEFT, STOPPED, DEADLOCK)
# If one task is in DEADLOCK, and the others are in these states, none can continue.
_LOCKED = {DEADLOCK, LOCK, *WAITING}


class Level(IntEnum):
    """The severity of a wait."""

    NOTHING = 0
    BUSY = 1  # tasks wait for some that are at work
    WAIT = 2
    HANG = 3  # no task that keeps others waiting is at work, or one cannot continue


_GRADES = (Level.NOTHING, Level.WAIT, Level.HANG)


_TITLES = {
    Level.BUSY: "tasks have been waiting {seconds:.0f} s for others to compile, load or save",
    Level.WAIT: "tasks have been waiting for {seconds:.0f} s",
    Level.HANG: "the program hangs: tasks have been waiting for {seconds:.0f} s",
}


class Verdict(NamedTuple):
    """The judgement of a snapshot."""

    level: Level
    seconds: float  # how long the longest wait has lasted

    @property
    def title(self) -> str:
        """The first line of a report."""
        return _TITLES[self.level].format(seconds=self.seconds)


class _Wait(NamedTuple):
    since: float
    place: str
    looks: int = 0  # number of its looks that have been made


class _Work(NamedTuple):
    """The work that a task had done at a point in time."""

    time: float
    cpu: float  # seconds, of all its processes
    moved: int  # bytes
    runs: int  # of its main thread
    waits: bool  # for other tasks
    others: int  # runs of its other Python threads, if the main one waits for them
    turns: tuple[tuple[str, int], ...]  # of its loops

    @classmethod
    def of(cls, sample: Sample, kind: str, now: float) -> _Work:
        """Return the work that a sample taken now shows; `kind` is the task's state."""
        waits, moved = kind in WAITING, sample.moved
        others = sample.status.others if kind == LOCK else 0
        return cls(now, sample.spent, moved, sample.runs, waits, others, sample.status.around)

    def is_idle_until(self, later: _Work, hang_timeout: float) -> bool:
        """Return whether a task has done nothing between this record of its work and a later one.

        Counts may have shrunk: the counts of a process are lost when it ends.
        """
        seconds = later.time - self.time
        # In block_until_ready, JAX wakes the main thread five times a second to handle signals.
        runs = 0 if self.waits or later.waits else later.runs - self.runs
        return (
            later.turns == self.turns
            and abs(later.cpu - self.cpu) <= IDLE * seconds
            and abs(later.moved - self.moved) <= _WORKS_BYTES * seconds
            and abs(runs) <= 1 + seconds / hang_timeout
            and abs(later.others - self.others) <= _IDLE_RUNS * seconds
        )


class _Report(NamedTuple):
    """A wait that was reported."""

    level: Level
    since: float
    odd: frozenset[int]  # the tasks that keep the others waiting
    waiting: frozenset[int]  # the others

    def is_of(self, odd: frozenset[int]) -> bool:
        """Return whether these odd tasks belong to the same wait; True if that is unknown."""
        return not (self.odd and odd and self.odd.isdisjoint(odd))


class Waits:
    """All reports of waits in one run. Times are seconds of one clock."""

    def __init__(self, hang_timeout: float, now: float, busy_timeout: float = inf) -> None:
        """`hang_timeout` bounds how long a task may stand still, `busy_timeout` how long others may
        wait for a task at work.
        """
        self._hang_timeout = hang_timeout
        self._busy_timeout = busy_timeout
        self._lag = min(_LAG, _LAG_UNITS * hang_timeout)
        self._waits: dict[int, _Wait] = {}  # by task
        self._learned: dict[str, float] = {}  # the longest wait that ended, by place
        self._reports: list[_Report] = []  # of waits that have not ended
        self._looked = now  # when tasks were last looked at
        self._once_more = inf  # when to look although no wait is due
        self._moved: dict[int, int] = {}  # bytes by task, at that look
        self._idle: dict[int, _Work] = {}  # by task: it has done nothing since

    def wait(self, task: int, seconds: float, place: str, now: float) -> None:
        """Record that a task has stood still for this many seconds."""
        if not self._waits:
            self._moved, self._idle = {}, {}
        self._waits[task] = self._count_looks(_Wait(now - seconds, place), self._looked)

    def restart(self, now: float) -> None:
        """Let all waits begin now: reports that they ended could not have arrived."""
        self._waits = {task: _Wait(now, wait.place) for task, wait in self._waits.items()}
        self._moved, self._idle = {}, {}

    def go_on(self, task: int, seconds: float, now: float) -> float | None:
        """Record that a task continues after this many seconds, or has ended.

        Return how long the wait was, if it was reported and this is its end.
        """
        wait = self._waits.pop(task, None)
        if wait is None:
            return None
        self._learn(task, wait.place, min(seconds, now - wait.since))
        over = [report for report in self._reports if self._is_over(report, task)]
        self._reports = [report for report in self._reports if report not in over]
        is_last = over and not self._reports
        return now - min(report.since for report in over) if is_last else None

    def _learn(self, task: int, place: str, seconds: float) -> None:
        """Record how long a wait was, unless the tasks waited for others at work."""
        of_task = (report for report in self._reports if task in report.odd | report.waiting)
        was_busy = any(report.level == Level.BUSY for report in of_task)
        is_known = place in self._learned or len(self._learned) < _MOST_PLACES
        if is_known and not was_busy:
            self._learned[place] = max(seconds, self._learned.get(place, 0))

    def _is_over(self, report: _Report, task: int) -> bool:
        """Return whether a wait is over when this task continues."""
        is_its = task in report.odd | report.waiting
        return not self._waits or (is_its and report.waiting.isdisjoint(self._waits))

    def is_due(self, now: float) -> bool:
        """Return whether it is time to inspect all tasks."""
        waits = self._waits.values()
        is_again = bool(waits) and now >= self._once_more
        return is_again or any(
            self._measure(wait, now) >= _find_look(wait.looks)
            or self._looked < wait.since + self._busy_timeout <= now
            for wait in waits
        )

    def _measure(self, wait: _Wait, now: float) -> float:
        """Return how long a wait has lasted, in units of the hang timeout that applies at its
        place.
        """
        learned = _LEARNED * self._learned.get(wait.place, 0)
        return (now - wait.since) / max(self._hang_timeout, learned)

    def _count_looks(self, wait: _Wait, looked: float) -> _Wait:
        """Return the wait with its count of looks, given a look at the time `looked`.

        A look shortly before a due one counts as that one, since tasks that wait for the same thing
        stop one after the other. For all but the first, the look must be near enough to carry the
        same weight.
        """
        units = self._measure(wait, looked + self._lag)
        is_first = wait.looks == 0 and self._measure(wait, looked) + _NEARLY >= _find_look(0)
        looks = int(is_first) or wait.looks
        while _find_look(looks) <= units:
            looks += 1
        return wait._replace(looks=looks)

    def judge(self, snapshot: Snapshot, now: float) -> Verdict:
        """Return how bad the wait in a snapshot is, or NOTHING if it was already reported."""
        waiting = tasks_of(snapshot.waiting)
        begin = self._find_begin(waiting, now)
        self._idle = dict(self._measure_work(snapshot, now))
        level = self._weigh(snapshot, begin, now) if self._waits else Level.NOTHING
        self._waits = {task: self._count_looks(wait, now) for task, wait in self._waits.items()}
        self._looked = now
        self._once_more = self._plan_again(snapshot, now)
        self._moved = {sample.task: sample.moved for sample in list_samples(snapshot.groups)}
        found = _Report(level, begin, tasks_of(snapshot.odd), waiting)
        return Verdict(self._note_report(found), now - begin)

    def _measure_work(self, snapshot: Snapshot, now: float) -> Iterator[tuple[int, _Work]]:
        """Yield each task with the work that it had done when it was last seen to make progress."""
        for group in snapshot.groups:
            for sample in group.samples:
                work = _Work.of(sample, group.state.kind, now)
                before = self._idle.get(sample.task, work)
                is_idle = before.is_idle_until(work, self._hang_timeout)
                yield sample.task, before if is_idle else work

    def _plan_again(self, snapshot: Snapshot, now: float) -> float:
        """Return when to look again although no wait is due: soon after an incomplete look, but not
        twice in a row.
        """
        is_known = not snapshot.is_partial and all(map(self._is_known, snapshot.groups))
        is_done = is_known or self._once_more < inf
        return inf if is_done else now + _ONCE_MORE * self._hang_timeout

    def _is_known(self, group: TaskGroup) -> bool:
        """Return whether the state of a group is known; it takes two looks to recognize a wait for
        input.
        """
        is_first = self._moved.keys().isdisjoint(tasks_of([group]))
        return group.is_known and not (group.state.kind == INPUT and is_first)

    def _note_report(self, found: _Report) -> Level:
        """Record that a wait is being reported, and return its level, or NOTHING if it was already
        reported.
        """
        same = [report for report in self._reports if report.is_of(found.odd)]
        if found.level <= max((report.level for report in same), default=Level.NOTHING):
            return Level.NOTHING
        self._reports = [*(report for report in self._reports if report not in same), found]
        return found.level

    def _find_begin(self, waiting: Container[int], now: float) -> float:
        """Return when the first of the waiting tasks began to wait for others. If only other tasks
        have reported that they stand still, return when the last of those stopped.
        """
        begins = [wait.since for task, wait in self._waits.items() if task in waiting]
        others = max((wait.since for wait in self._waits.values()), default=now)
        return min(begins, default=others)

    def _find_units(self, begin: float, now: float) -> float:
        """Return how long the longest wait has lasted, in units of the hang timeout that applies at
        its place, not counting the time in which no task waited for another.
        """
        cut = (wait._replace(since=max(wait.since, begin)) for wait in self._waits.values())
        return max((self._measure(wait, now) for wait in cut), default=0)

    def _weigh(self, snapshot: Snapshot, begin: float, now: float) -> Level:
        if self._is_progress(snapshot):
            return Level.NOTHING
        if self._is_endless(snapshot):
            return Level.HANG
        if self._is_at_work(snapshot, now):
            is_sure = all(map(self._is_known, snapshot.groups))  # else it is soon looked again
            return Level.BUSY if snapshot.waiting and is_sure else Level.NOTHING
        units = self._find_units(begin, now + self._lag)
        level = _grade(units, _FOR_OTHERS) if snapshot.odd else _weigh_without_odd(snapshot, units)
        if snapshot.odd and now - begin >= self._busy_timeout:  # never earlier than asked
            return Level.HANG
        return level if self._is_idle(snapshot, now) else min(level, Level.WAIT)

    def _is_endless(self, snapshot: Snapshot) -> bool:
        """Return whether the others wait for a task that cannot continue."""
        odd = _list_kinds(snapshot.odd)
        is_left = SHUTDOWN not in odd or snapshot.is_left
        return STOPPED in _list_kinds(snapshot.groups) or (
            bool(odd) and odd.issubset(_ENDLESS) and is_left
        )

    def _is_idle(self, snapshot: Snapshot, now: float) -> bool:
        """Return whether the tasks that keep the others waiting have done nothing for a long time;
        if no such task is known, whether all tasks have done nothing.

        False during jax.distributed.initialize, where JAX itself limits the wait, and for waiting
        tasks with GPUs, because the driver hides whether these compute.
        """
        if snapshot.silent or snapshot.unseen:
            return False
        groups = snapshot.odd or snapshot.groups
        since = now - _IDLE_UNITS * self._hang_timeout
        is_initializing = _list_kinds(snapshot.waiting) == {INITIALIZE}
        return not is_initializing and all(
            self._idle[sample.task].time <= since and not (group.waits and sample.gpu)
            for group in groups
            for sample in group.samples
        )

    def _is_progress(self, snapshot: Snapshot) -> bool:
        """Return whether a task that seems to be waiting for others is making progress."""
        return any(
            sample.age <= STALE and sample.status.quiet < self._hang_timeout / 2
            for sample in list_samples(snapshot.waiting)
        )

    def _is_at_work(self, snapshot: Snapshot, now: float) -> bool:
        """Return whether the tasks that do not wait for others are compiling, loading or saving,
        and also use CPU time or do I/O; at the first look, I/O is assumed.
        """
        others = [group for group in snapshot.groups if group.is_busy]
        kinds = _list_kinds(others)
        least = _WORKS_BYTES * (now - self._looked)
        return (
            bool(kinds)
            and kinds.issubset(_WORK)
            and all(
                sample.cpu > IDLE
                or sample.moved - self._moved.get(sample.task, -_MOST_BYTES) > least
                for sample in list_samples(others)
            )
        )


def _weigh_without_odd(snapshot: Snapshot, units: float) -> Level:
    """Return how bad a wait is if no task is odd: because a node is silent, no task can continue,
    all wait at one place, a task has not reported where it is, or no task waits for another.
    """
    kinds = _list_kinds(snapshot.groups)
    is_locked = kinds <= _LOCKED
    if snapshot.silent or (is_locked and DEADLOCK in kinds):
        return _grade(units, _FOR_OTHERS)
    if snapshot.waiting and not snapshot.is_partial:
        return _grade(units, _ALIKE)
    is_known = all(group.is_known for group in snapshot.groups)
    is_lost = is_locked and snapshot.lost_threads  # perhaps long ago, in an idle server
    may_wait = snapshot.waiting or not is_known or is_lost
    return _grade(units, _NOT_TOLD) if may_wait else Level.NOTHING


def _grade(units: float, begins: tuple[float, float]) -> Level:
    """Return the level of a wait of `units`; WAIT and HANG begin at the units `begins`."""
    return _GRADES[bisect_right(begins, units)]


def _find_look(number: int) -> int:
    """Return when look `number`, counted from 0, is due, in units of the hang timeout."""
    last = len(_LOOKS) - 1
    return _LOOKS[min(number, last)] << max(0, number - last)


def _list_kinds(groups: Iterable[TaskGroup]) -> set[str]:
    return {group.state.kind for group in groups}
