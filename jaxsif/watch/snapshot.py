"""A snapshot of a step: its tasks in groups that are doing the same thing, as text and as JSON.

Two tasks are doing the same thing if the kinds of their states and the user's own frames are equal.
The text has at most 25 lines for any number of tasks: the largest group comes first, and the odd
groups last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jaxsif.diagnose.reports import AT_THE_END
from jaxsif.errors import STUCK_TASK, Cause, Fault
from jaxsif.text import align, count_of, list_tasks, name_tasks, render_span, shorten_place
from jaxsif.watch.sample import MOST_LOOPS, NO_STATUS, STALE, Frame, Sample, Status
from jaxsif.watch.states import (
    DEADLOCK,
    DEVICES,
    FAILED,
    IDLE,
    INITIALIZE,
    LEFT,
    PROGRAMS,
    SHUTDOWN,
    STOPPED,
    THREADS,
    UNKNOWN,
    WAITING,
    State,
    describe_state,
    own_frames,
)

_MOST_GROUPS = 20  # in a text
MOST_NODES = 4  # by name
_MOST_PARTS = 4  # groups, each with its line in an error
_LONGEST_WORDS, _LONGEST_PLACE = 60, 60  # characters of a column
_LEAST_PLACE = 30  # characters of a loop's place
_UNCOUNTED = -1  # iterations of a loop that is too fast to count
_QUIET = 2.0  # seconds without computing after which the count of a loop is settled
# In words such as 'has ended, and is waiting for the others'.
_VERBS = re.compile(r"(^|, (?:and|but) (?=is|holds|has))(\w+)")
_PLURALS = {"is": "are", "has": "have", "goes": "go"}


class TaskGroup(NamedTuple):
    """Tasks that are doing the same thing."""

    state: State
    frames: tuple[Frame, ...]  # the user's own, innermost first
    samples: tuple[Sample, ...]  # by task

    @property
    def first(self) -> Sample:
        """Return the first task's sample."""
        return self.samples[0]

    @property
    def turns(self) -> tuple[int, int] | None:
        """Return the fewest and the most iterations of the loop, or None if there is no loop."""
        counts = [status.turns for status in self.counting]
        return (min(counts), max(counts)) if counts else None

    @property
    def counting(self) -> list[Status]:
        """Return the statuses of tasks that count a loop."""
        return [sample.status for sample in self.samples if sample.status.loop]

    @property
    def tasks(self) -> list[int]:
        """Return the numbers of the tasks, sorted."""
        return [sample.task for sample in self.samples]

    @property
    def size(self) -> int:
        """Return the number of tasks."""
        return len(self.samples)

    @property
    def waits(self) -> bool:
        """Return whether the tasks wait for other tasks."""
        return self.state.kind in WAITING

    @property
    def has_exited(self) -> bool:
        """Return whether the tasks no longer exist."""
        return self.state.kind in (LEFT, FAILED)

    @property
    def is_busy(self) -> bool:
        """Return whether the tasks neither wait for other tasks nor have exited."""
        return not self.waits and not self.has_exited

    @property
    def is_known(self) -> bool:
        """Return whether the state of the tasks is known."""
        return self.state.kind != UNKNOWN

    @property
    def nodes(self) -> list[str]:
        """Return the names of the nodes, in the order of the tasks."""
        return list(dict.fromkeys(sample.node for sample in self.samples))

    @property
    def place(self) -> str:
        """Return where the tasks are, such as 'train.py:41 step'."""
        if self.state.kind == SHUTDOWN and not self.frames:
            return AT_THE_END
        frame = next(iter(self.frames or self.first.frames), None)
        return frame.place if frame else self.first.command


class Snapshot(NamedTuple):
    """The state of all tasks of a step."""

    groups: tuple[TaskGroup, ...]  # the largest first
    silent: tuple[str, ...] = ()  # nodes that did not answer
    apart: frozenset[int] = frozenset()  # if all tasks wait, those that wait elsewhere
    unseen: int = 0  # tasks about which nothing is known, besides those of silent nodes
    note: str = ""  # another finding, for the text
    lost_threads: bool = False  # each task that waits for a lock has lost a thread or worker

    @property
    def size(self) -> int:
        """Return the number of tasks that were seen."""
        return _count_tasks(self.groups)

    @property
    def waiting(self) -> list[TaskGroup]:
        """Return the groups of tasks that wait for others."""
        return [group for group in self.groups if group.waits]

    @property
    def odd(self) -> tuple[TaskGroup, ...]:
        """Return the groups that keep the others waiting, or () if these are not known.

        These are the tasks that have ended and wait in JAX, if any other task waits; else those at
        work; else, if all wait, those that ended without meeting the others, or the minority by
        line and iteration. Tasks at work in an earlier iteration than the ended ones keep these
        waiting. An unknown state proves nothing, and a task that was not seen may be the odd one.
        """
        busy = tuple(group for group in self.groups if group.is_busy)
        apart = tuple(group for group in self.groups if self.apart.issuperset(group.tasks))
        others = self._ended or busy or self._left or apart
        is_clear = bool(self.waiting) and all(group.is_known for group in others)
        return others if is_clear and self._may_be_odd(others) else ()

    @property
    def _computes_alike(self) -> bool:
        """Return whether all tasks compute at one place. Where tasks share too few CPUs, some of
        them use so little CPU time that they seem to wait.
        """
        places = {(group.frames, group.turns) for group in self.groups}
        are_devices = all(group.state in DEVICES for group in self.groups)
        computes = all(sample.cpu > IDLE for sample in list_samples(self.groups))
        return len(places) == 1 and are_devices and computes

    def _may_be_odd(self, groups: Sequence[TaskGroup]) -> bool:
        """Return whether these are at most half of the tasks, without others that exited; or any
        number that have ended, if the others wait in jax.distributed.initialize. False where a task
        was not seen, which may be the odd one, and where all compute alike.
        """
        if self.is_partial or self._computes_alike:
            return False
        if groups == self._left and {group.state.kind for group in self.waiting} == {INITIALIZE}:
            return True  # however many have ended, they will not come
        there = [group for group in self.groups if not group.has_exited or group in groups]
        return 2 * _count_tasks(groups) <= _count_tasks(there)

    @property
    def is_left(self) -> bool:
        """Return whether some tasks have ended, and all others wait for other tasks: not if those
        have GPUs, because the driver hides whether these compute.
        """
        others = [group for group in self.groups if group.state.kind != SHUTDOWN]
        may_compute = any(sample.gpu for sample in list_samples(others))
        return bool(self._ended) and not may_compute and not any(group.is_busy for group in others)

    @property
    def _ended(self) -> tuple[TaskGroup, ...]:
        """Return the groups of tasks that have ended while others wait, or the other groups if
        those have fewer tasks; () if they wait for one that is at work, or no longer exists.
        """
        ended = tuple(group for group in self.groups if group.state.kind == SHUTDOWN)
        there = (group for group in self.groups if not group.has_exited)
        others = tuple(group for group in there if group not in ended)
        busy = [group for group in others if group.is_busy]
        is_wait = ended and len(busy) < len(others) and not _is_behind(busy, ended)
        is_wait = is_wait and not _have_compiled(ended, others)
        return min(ended, others, key=_count_tasks) if is_wait else ()

    @property
    def _left(self) -> tuple[TaskGroup, ...]:
        """Return the groups of tasks that have ended without meeting those that wait in JAX."""
        return tuple(group for group in self.groups if group.state.kind == LEFT)

    @property
    def parted(self) -> tuple[TaskGroup, ...]:
        """Return all groups, if these are few and wait for each other at different lines; none is
        known to be at fault.
        """
        groups = self.groups
        are_apart = 1 < len({group.place for group in groups}) == len(groups) <= _MOST_PARTS
        wait = all(group.waits and group.frames for group in groups)
        return groups if are_apart and wait and not self.odd and not self.is_partial else ()

    @property
    def is_partial(self) -> bool:
        """Return whether some tasks are known only by reports of their waits, or not at all."""
        running = list_samples(group for group in self.groups if not group.has_exited)
        has_said = any(sample.pid == 0 for sample in running)
        return bool(self.silent or self.unseen or has_said)


def list_samples(groups: Iterable[TaskGroup]) -> Iterator[Sample]:
    """Return the samples of all tasks in these groups."""
    return (sample for group in groups for sample in group.samples)


def tasks_of(groups: Iterable[TaskGroup]) -> frozenset[int]:
    """Return the numbers of the tasks in these groups."""
    return frozenset(sample.task for sample in list_samples(groups))


def _is_behind(groups: Sequence[TaskGroup], others: Sequence[TaskGroup]) -> bool:
    """Return whether the tasks of `groups` are in earlier iterations of the loop that `others` are
    in, or were in last; they may be in another loop inside of it, as in a generator.
    """
    own, ahead = (
        [status for group in part for status in group.counting] for part in (groups, others)
    )
    places = {status.loop for status in ahead}
    if not own or len(places) != 1:
        return False
    (place,) = places
    counts = [dict([*status.around, (status.loop, status.turns)]) for status in own]
    behind = [count.get(place, _UNCOUNTED) for count in counts]
    return min(behind) > _UNCOUNTED and max(behind) < min(status.turns for status in ahead)


def _have_compiled(groups: Sequence[TaskGroup], others: Sequence[TaskGroup]) -> bool:
    """Return whether the tasks of `groups` have compiled the programs with which all waiting tasks
    of `others` wait for another task (--check-programs=stop): they wait for a third one.
    """
    waiting = [group for group in others if group.waits]
    if not waiting or any(group.state.kind != PROGRAMS for group in waiting):
        return False
    needed = max(sample.status.programs for sample in list_samples(waiting))
    return all(sample.status.programs >= needed for sample in list_samples(groups))


def _count_tasks(groups: Iterable[TaskGroup]) -> int:
    return sum(group.size for group in groups)


def make_snapshot(
    samples: Iterable[Sample],
    silent: Iterable[str] = (),
    unseen: int = 0,
    apart: frozenset[int] = frozenset(),
) -> Snapshot:
    """Return the snapshot of a step; if a task has several samples, the last one counts.

    If all tasks wait, those in `apart` are taken to keep the others waiting.
    """
    found: dict[tuple[str, tuple[Frame, ...], tuple[Frame, ...]], tuple[State, list[Sample]]] = {}
    for _, sample in sorted({sample.task: sample for sample in samples}.items()):
        state = describe_state(sample)
        own = own_frames(sample.frames, sample.status.own)
        key = (state.kind, own, own or sample.frames)
        found.setdefault(key, (state, []))[1].append(sample)
    groups = [TaskGroup(state, own, tuple(alike)) for (_, own, _), (state, alike) in found.items()]
    there = [group for group in groups if not group.has_exited]
    all_wait = all(group.waits for group in there)
    apart = apart or _find_minority(there) if all_wait else frozenset()
    parts = [part for group in groups for part in _split(group, apart)]
    parts.sort(key=lambda group: (-group.size, not group.waits, group.first.task))
    return Snapshot(tuple(parts), tuple(sorted(set(silent))), apart, unseen=unseen)


def _split(group: TaskGroup, apart: frozenset[int]) -> Iterator[TaskGroup]:
    """Yield the part of a group whose tasks are not in `apart`, and the part whose tasks are."""
    for is_apart in (False, True):
        samples = tuple(sample for sample in group.samples if (sample.task in apart) is is_apart)
        if samples:
            yield group._replace(samples=samples)


def _find_minority(groups: Sequence[TaskGroup]) -> frozenset[int]:
    """Return the minority of tasks that are not where the others wait, or none if there is no clear
    minority.

    Tasks that run the same program stop in the same iteration of the same loops, the outermost
    first. A task may be in another loop within an iteration, as process 0 is while it saves.
    """
    samples = list(list_samples(groups))
    majority = _compare_loops(samples, [group.place for group in groups for _ in group.samples])
    if majority:
        return frozenset(sample.task for sample, is_usual in zip(samples, majority) if not is_usual)
    # Process 0 saves and logs at its own lines, where it waits for its devices, and thus for the
    # others. If there are several other lines, one may be the cause of all the rest.
    most = max(groups, key=lambda group: group.size, default=None)
    lines: dict[str, set[int]] = {}
    for group in groups:
        if group is most or 0 not in group.tasks:
            lines.setdefault(group.place, set()).update(group.tasks)
    least = min(lines.values(), key=len, default=set[int]())
    is_odd = len(lines) == 2 and 2 * len(least) < len(set[int]().union(*lines.values()))
    return frozenset(least if is_odd else ())


def _compare_loops(samples: Sequence[Sample], lines: Sequence[str]) -> Sequence[bool]:
    """Return for each task, which is at one of `lines`, whether it is in the loops and iterations
    where most tasks are, or [] if there is no difference or the loops are unknown.
    """
    for depth in range(MOST_LOOPS if all(map(_stands, samples)) else 0):
        loops = [
            (*sample.status.around[depth : depth + 1], ("", _UNCOUNTED))[0] for sample in samples
        ]
        places, turns = [place for place, _ in loops], [turns for _, turns in loops]
        if len(set(places)) > 1:
            return [] if depth else _find_majority(places, places)
        if _UNCOUNTED in turns:
            return []
        if len(set(turns)) > 1:
            return _find_most_turns(turns, lines)
    return []


def _find_most_turns(turns: Sequence[int], lines: Sequence[str]) -> Sequence[bool]:
    """Return for each task whether it is in the iteration where most tasks are, or further; True
    for all if that is not clear. If tasks run ahead of their devices, one iteration more or less
    proves nothing, unless no task differs by more.

    If none is behind, those that are further are the odd ones, unless the others are at several
    lines: then they may all wait for one of these.
    """
    middle = sorted(turns)[len(turns) // 2]
    near = [abs(count - middle) <= 1 for count in turns]
    usual = _find_majority(turns, turns) if all(near) else _find_majority(near, [True])
    level = [is_usual or count > middle for is_usual, count in zip(usual, turns)]
    lines_of_usual = {line for line, is_usual in zip(lines, usual) if is_usual}
    return usual if all(level) and len(lines_of_usual) == 1 else level


def _find_majority(values: Sequence[object], wanted: Iterable[object]) -> Sequence[bool]:
    """Return for each value whether it is the majority's value, if that is one of `wanted`;
    otherwise True for all.
    """
    for value in set(wanted):
        if 2 * values.count(value) > len(values):
            return [sample == value for sample in values]
    return [True] * len(values)


def _stands(sample: Sample) -> bool:
    """Return whether the counts of a task are known and settled: while tasks move, their observers
    count at different times.
    """
    return sample.status != NO_STATUS and sample.status.quiet >= _QUIET and sample.age <= STALE


def render_text(snapshot: Snapshot, title: str) -> list[str]:
    """Return at most 25 lines of text, under a title such as 'step 12.0'."""
    shown = snapshot.groups[:_MOST_GROUPS]
    # The first one is the largest.
    widths = [len(text) for group in shown[:1] for text in count_of(group.size, "task").split()]
    rows = [_render_row(group, *widths) for group in shown]
    nodes = {sample.node for sample in list_samples(snapshot.groups)}
    there = f"{count_of(snapshot.size, 'task')} on {count_of(len(nodes), 'node')}"
    head = f"{title}: {there if snapshot.groups else 'no task was found'}"
    lines = [head, *(f"  {line}" for line in align(rows))]
    left = snapshot.groups[_MOST_GROUPS:]
    if left:
        largest = count_of(left[0].size, "task")
        lines.append(f"  {count_of(len(left), 'other group')}, the largest of {largest}")
    if snapshot.silent:
        lines.append(f"  no answer from {list_nodes(snapshot.silent)}")
    if snapshot.unseen:
        lines.append(f"  nothing is known about {count_of(snapshot.unseen, 'other task')}")
    odd = sorted(tasks_of(snapshot.odd))
    if odd:
        keeps = conjugate("is keeping", len(odd))
        lines.append(f"  likely: {name_tasks(odd)} {keeps} the others waiting")
    if snapshot.note:
        lines.append(f"  {snapshot.note}")
    return lines


def _render_row(group: TaskGroup, digits: int, letters: int) -> tuple[str, ...]:
    """Return the columns; the first begins with a padded number and `task` or `tasks`."""
    words = conjugate(group.state.words, group.size)[:_LONGEST_WORDS]
    number, noun = count_of(group.size, "task").split()
    nodes = f" on {', '.join(group.nodes)}" if len(group.nodes) <= MOST_NODES else ""
    what = f"{number:>{digits}} {noun:{letters}} {words}"
    place = _cut_place(group.place, _LONGEST_PLACE)
    return what, place, _render_turns(group), f"{name_tasks(group.tasks)}{nodes}"


def _render_turns(group: TaskGroup) -> str:
    """Return 'iteration 12044 of the loop at train.py:38', or '' if there is no loop; 'last in
    iteration …' for tasks whose frames are in no loop that is counted.

    An observer that can no longer write has missed up to a second of iterations. After a loop, it
    is not known whether the last iteration has begun, or the loop had run out.
    """
    if group.turns is None:
        return ""
    first, last = group.turns
    loops = {status.loop for status in group.counting}
    at = " of the loop at " if len(loops) == 1 else ""
    later = " or later" if all(sample.age > STALE for sample in group.samples) else ""
    # The main thread's loop may drive another thread, which is observed instead.
    is_inside = any(status.inside or status.thread for status in group.counting)
    if not is_inside and any(status.may_be_over for status in group.counting):
        first = max(first - 1, 0)
    words = f"{'' if is_inside else 'last in '}iteration {render_span(first, last)}{later}{at}"
    place = shorten_place(loops.pop()) if at else ""
    return words + _cut_place(place, max(_LEAST_PLACE, _LONGEST_PLACE - len(words)))


def _cut_place(place: str, room: int) -> str:
    """Return the end of a long place: it has the line."""
    return place if len(place) <= room else f"…{place[1 - room :]}"


def describe_odd(snapshot: Snapshot, seconds: float) -> tuple[str, str]:
    """Return the tasks that kept the others waiting, and where they are. For a task that has left
    the program, return its last loop, and where the others are.
    """
    if snapshot.odd:
        first = snapshot.odd[0]
        words = f"{'they' if first.size > 1 else 'it'} {conjugate(first.state.words, first.size)}"
        text = f"{_name(first)} kept the others waiting for {seconds:.0f} s: {words}"
        return text, _describe_place(first, snapshot)
    return _describe_without_odd(snapshot, seconds)


def _describe_without_odd(snapshot: Snapshot, seconds: float) -> tuple[str, str]:
    if snapshot.parted:
        where = ", ".join(f"{group.place} ({_name(group)})" for group in snapshot.parted)
        return f"tasks have been waiting for {seconds:.0f} s at different lines", where
    stuck = (group for group in snapshot.groups if group.state.kind in (STOPPED, DEADLOCK))
    first = next(stuck, snapshot.groups[0])
    if len(snapshot.groups) > 1 or snapshot.unseen:
        words = f"{_name(first)} {conjugate(first.state.words, first.size)}"
        others = (one for one in snapshot.groups if one.frames and not one.has_exited)
        elsewhere = next((one for one in others if one.place != first.place), None)
        text = f"tasks have been waiting for {seconds:.0f} s: {words}"
        return f"{text}{f'; {_locate(elsewhere)}' if elsewhere else ''}", first.place
    return f"all tasks have been waiting for {seconds:.0f} s: each {first.state.words}", first.place


def find_cause(snapshot: Snapshot, place: str) -> Cause:
    """Return the facts of a hang at `place`. A task that somebody has stopped (SIGSTOP) is not
    the fault of the program, which may hang elsewhere next time.
    """
    kinds = {group.state.kind for group in snapshot.odd}
    nodes = {node for group in snapshot.odd for node in group.nodes}
    # Which lines the smaller groups are at may depend on the time.
    are_equal = len({group.size for group in snapshot.parted}) == 1
    parts = snapshot.parted if are_equal else snapshot.parted[:1]
    places = sorted(group.place for group in parts) or [place]
    mark = () if STOPPED in kinds else ("hang", *places)
    return Cause(Fault.HANG, tuple(sorted(nodes)), STUCK_TASK if nodes else "", mark)


def _describe_place(group: TaskGroup, snapshot: Snapshot) -> str:
    """Describe where the odd tasks are: for those that wait for tasks, or have no frame, with the
    place of the others.
    """
    place = group.place if group.frames else _render_turns(group)
    if group.state.kind == THREADS:  # and not in its last loop
        place = ""
    if group.frames and not group.waits:
        return place
    return "; ".join(filter(None, (place, _locate_others(snapshot, place))))


def _locate_others(snapshot: Snapshot, place: str) -> str:
    there = [group for group in snapshot.groups if group.frames and not group.has_exited]
    others = [group for group in there if group not in snapshot.odd]
    elsewhere = next((group for group in others if group.place != place), None)
    if elsewhere is None:
        return ""
    are_together = len({group.place for group in others}) == 1
    return f"the others are at {elsewhere.place}" if are_together else _locate(elsewhere)


def _locate(group: TaskGroup) -> str:
    return f"{_name(group)} {conjugate('is', group.size)} at {group.place}"


def _name(group: TaskGroup) -> str:
    if group.size == 1:
        return f"task {group.first.task} on {group.first.node}"
    return name_tasks(group.tasks)


def list_nodes(nodes: Sequence[str]) -> str:
    """Return the names of the first few nodes, and how many others there are."""
    left = len(nodes) - MOST_NODES
    others = f" and {count_of(left, 'other node')}" if left > 0 else ""
    return f"{', '.join(nodes[:MOST_NODES])}{others}"


def conjugate(words: str, count: int) -> str:
    """Return words such as 'is waiting in a collective', inflected for this many tasks."""
    if count == 1:
        return words
    return _VERBS.sub(
        lambda found: found[1] + _PLURALS.get(found[2], found[2].removesuffix("s")), words
    )


def render_json(snapshot: Snapshot, step: str) -> dict[str, Any]:
    """Return the snapshot as values of JSON.

    step     the step, as requested
    tasks    the number of tasks that were seen
    silent   the names of nodes that did not answer
    unseen   the number of tasks about which nothing is known, besides those of silent nodes
    groups   the largest first, each with
      count, tasks     their number, and their list: '0-8,10'
      nodes            their names
      kind, words      their state: a stable word, and a text that may change
      odd              whether they keep the others waiting
      frames           the user's own, innermost first: [file, line, function]
      stack            all frames of the first task's main thread
      loop, turns      FILE:LINE of the user's loop, and [fewest, most] iterations, or null
      members          each task with node, pid, state, call, descriptor, file, threads, main_cpu,
                       cpu (CPU seconds per second), spent (CPU seconds), runs, read, written
                       (bytes), answered, age, box; runs and bytes are -1 if unknown
    """
    odd = set(map(id, snapshot.odd))
    return {
        "step": step,
        "tasks": snapshot.size,
        "silent": list(snapshot.silent),
        "unseen": snapshot.unseen,
        "groups": [
            {**_describe_group(group), "odd": id(group) in odd} for group in snapshot.groups
        ],
    }


def _describe_group(group: TaskGroup) -> Mapping[str, Any]:
    return {
        "count": group.size,
        "tasks": list_tasks(group.tasks, 1 << 30),
        "nodes": group.nodes,
        "kind": group.state.kind,
        "words": group.state.words,
        "frames": list(map(list, group.frames)),
        "stack": list(map(list, group.first.frames)),
        "loop": next((status.loop for status in group.counting), None),
        "turns": group.turns and list(group.turns),
        "members": list(map(_describe_member, group.samples)),
    }


def _describe_member(sample: Sample) -> Mapping[str, Any]:
    fields = sample._asdict()
    for left_out in ("frames", "gpu", "status"):
        del fields[left_out]
    status = sample.status
    box = {**status._asdict(), "around": list(map(list, status.around)), "own": [*status.own]}
    return {**fields, "box": None if sample.status == NO_STATUS else box}
