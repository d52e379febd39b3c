"""Find the tasks that compile different programs from the other tasks for the same devices.

A collective in a program computes with the values of all processes that have the program's devices.
If one of these processes runs a different program, the numbers are wrong, and often nothing fails.

The main thread runs its programs in the order in which it compiles them, so each of them has a
number, which must agree, too. Other threads may compile in a different order in each task, and
their programs have no number: the programs of two tasks are compared as multisets, and a difference
counts only once it has lasted for a while. So the programs with numbers are tracked apart from
those without.

The tasks with the same devices form a group. Each of them is in a state: the multiset of the
programs that it has compiled so far. As long as all is well, a group has few states: once all its
tasks have reached a state, the group's other states are forgotten.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from jaxsif.diagnose.reports import ALIKE, HAS_ENDED, MAY_COMPILE, ProgramDifference, Report
from jaxsif.task.contract import focus_types, render_position
from jaxsif.text import count_of, enclose, name_tasks
from jaxsif.watch.sample import STALE, Sample
from jaxsif.watch.snapshot import conjugate
from jaxsif.watch.states import IDLE, WAITING, describe_state

# Seconds from a difference until it is reported: for programs of the main thread, to wait for the
# reports of more tasks; and for those of other threads, which may have to compile others first.
_PATIENCE, _LONG_PATIENCE = 0.7, 60.0
_MOST_PAIRS = 10  # pairs of programs to report in a run, each at most twice
_MOST_FOLLOWED = 400_000  # tasks, each counted in each of its groups
_MOST_STATES = 1000  # in a group, if some tasks are that many programs ahead
# Bytes between two inspections: an observer writes 4 KiB per second.
_MOST_MOVED = 100_000
WAITS = "waits"  # the state of the tasks behind if no task can continue
_STILL = 1.0  # seconds that a main thread has stood still, at the second inspection


class _State:
    """Tasks that have compiled the same multiset of programs."""

    def __init__(self, key: tuple[int, int], parent: _State | None, report: Report, now: float):
        self.key = key  # number of programs, sum of their hashes
        self.parent = parent  # the multiset without `report`; None for a group's first state
        self.report = report
        self.first = now  # when the first task arrived here; and the last
        self.last = now
        self.tasks: set[int] = set()  # that are here

    def find_path(self) -> list[_State]:
        """Return the states after the group's first one, up to this one."""
        path: list[_State] = []
        state = self
        while state.parent:
            path.append(state)
            state = state.parent
        return path[::-1]


class _Mismatch(NamedTuple):
    """Programs that should be the same, but are not."""

    one: Report
    one_tasks: Set[int]  # that compiled it
    other: Report
    other_count: int  # of the tasks that compiled the other
    is_sure: bool  # the other is right, whatever the remaining tasks compile
    before: str  # the types for which all tasks have compiled `one` before, or ''

    def render(self) -> ProgramDifference:
        """Blame neither program unless it is certain which one is right."""
        one, other = self.one, self.other
        if self.is_sure:
            others = count_of(self.other_count, "other")
        else:
            others = f"and {_name({other.task}, self.other_count)}"
        what, compared = one.name, other.types
        theirs = f"for ({focus_types(other.types, one.types)})"
        if (one.name, one.types) == (other.name, other.types):
            theirs = f"another {one.name} for the same types"
        elif one.name != other.name:
            if self.before:  # its types differ from those before: for example, of a last batch
                what, compared = f"{one.name} again", self.before
            is_next = self.before and not _is_later(other.at, one.at)
            has_gone_on = is_next or _is_later(one.at, other.at)
            theirs = f"{'went on to ' if has_gone_on else ''}{other.name} {theirs}"
        text = (
            f"{_name(self.one_tasks, len(self.one_tasks))} compiled {what}"
            f" for ({focus_types(one.types, compared)}){_render_place(one)},"
            f" {others} {theirs}{_render_place(other)}"
        )
        return ProgramDifference(text, "their results may be wrong")


class Lead(NamedTuple):
    """A program that some tasks have compiled, but others have not."""

    report: Report  # of the first task that has
    ahead: frozenset[int]  # tasks that have
    behind: frozenset[int]  # those that have not
    before: str = ""  # the types for which all tasks have compiled a program of that name before

    def render(self, how: str) -> ProgramDifference:
        """Describe the lead; `how` is the verb for the tasks behind, such as 'goes on'.

        The majority is taken to be right; if the tasks are split evenly, neither half is blamed.
        """
        program = self._render_program()
        ahead, behind = (_name(one, len(one)) for one in (self.ahead, self.behind))
        without = f"{conjugate(how, len(self.behind))} without"
        if len(self.ahead) > len(self.behind):
            text = f"{behind} {without} {program}, which {len(self.ahead)} others compiled"
        elif len(self.ahead) < len(self.behind):
            text = f"only {ahead} compiled {program}; {len(self.behind)} others {without} it"
        else:
            text = f"{ahead} compiled {program}; {behind} {without} it"
        outcome = "no task can continue" if how == WAITS else "the results may be wrong"
        return ProgramDifference(text, outcome, how)

    def _render_program(self) -> str:
        report = self.report
        name, types = report.name, focus_types(report.types, self.before)
        if self.before:
            name = f"another {name}" if self.before == report.types else f"{name} again"
        return f"{name} for ({types}){_render_place(report)}"

    def describe_again(self) -> ProgramDifference:
        """Describe a program that some tasks have compiled again."""
        ahead, behind = (_name(one, len(one)) for one in (self.ahead, self.behind))
        if len(self.ahead) <= len(self.behind):
            return ProgramDifference(f"only {ahead} compiled {self._render_program()}")
        lacking = f"{behind} {conjugate('has', len(self.behind))} not compiled"
        text = f"{lacking} {self._render_program()}, unlike {len(self.ahead)} others"
        return ProgramDifference(text, how=MAY_COMPILE)

    def describe(self) -> str:
        """Return a sentence about the minority of tasks, or '' if the tasks are split evenly."""
        few, many = sorted((self.ahead, self.behind), key=len)
        if len(few) == len(many):
            return ""
        verb = conjugate("has", len(few))
        denies = ("", " not") if few is self.ahead else (" not", "")
        program = f"{self.report.name}{_render_place(self.report)} in the main thread"
        first = f"{name_tasks(sorted(few))} {verb}{denies[0]} compiled {program}"
        return f"{first}, {len(many)} others have{denies[1]}"


def judge_lead(
    lead: Lead,
    ended: Set[int],
    received: Counter[int],
    samples: Mapping[int, Sample],
    before: Mapping[int, Sample],
) -> str:
    """Return how the tasks that are behind proceed without a program, as a verb for `render`, or ''
    if they may still compile the program.

    Tasks are inspected twice, seconds apart. The tasks in `ended` have reached the end of the
    program; `received` counts the reports of programs from each task.
    """
    left = lead.behind - ended
    if not left:
        return HAS_ENDED
    samples = _select_settled(samples, received)
    if 2 * len(_list_past(lead, samples) & left) > len(left):
        return "goes on"
    both = (lead.ahead | left) - ended
    if both <= samples.keys() & before.keys():
        return WAITS if all(_stands_still(samples[one], before[one]) for one in both) else ""
    return ""


def _select_settled(samples: Mapping[int, Sample], received: Counter[int]) -> dict[int, Sample]:
    """Return the samples of tasks whose reports of programs have all arrived: their work is seen
    immediately.
    """
    return {task: one for task, one in samples.items() if one.status.programs == received[task]}


def _list_past(lead: Lead, samples: Mapping[int, Sample]) -> set[int]:
    """Return the tasks behind that are in a later iteration than the one of the lead's program."""
    there = lead.behind & samples.keys()
    return {task for task in there if _is_later(lead.report.at, _position(samples[task]))}


def _position(sample: Sample) -> str:
    return render_position(sample.status.around)


def _is_later(at: str, later: str) -> bool:
    """Return whether the second of two positions is in a later iteration of the loops of both."""
    for theirs, own in zip(at.split(","), later.split(",")):
        (loop, _, turns), (own_loop, _, own_turns) = theirs.partition(":"), own.partition(":")
        if loop != own_loop or not turns or "-1" in (turns, own_turns):
            return False
        if turns != own_turns:
            return int(own_turns) > int(turns)
    return False


def _stands_still(sample: Sample, before: Sample) -> bool:
    """Return whether a task waits for others, and neither computes nor reads or writes; False for a
    task with GPUs, because the driver hides whether they compute.
    """
    is_quiet = sample.status.quiet >= _STILL and sample.age <= STALE and sample.cpu < IDLE
    moved = sample.moved - before.moved
    waits = describe_state(sample).kind in WAITING
    return is_quiet and waits and not sample.gpu and moved <= _MOST_MOVED


class _Group:
    """The tasks that have the same devices, with either their numbered or their other programs."""

    def __init__(self, now: float) -> None:
        self.torn = False  # some tasks may have compiled what others have not
        self._root = _State((0, 0), None, Report(-1, "", "program"), now)
        self._states = {self._root.key: self._root}
        self._members: dict[int, _State] = {}
        self._processes = 0  # that have the devices
        self._left = 0  # members that are no longer tracked
        self._common: dict[str, str] = {}  # types of programs that all have compiled, by name
        self._due = math.inf  # when to look for differences
        self._leads: list[Lead] | None = None  # unless a report has come since
        self.differing: list[Lead] = []  # of the tasks that are no longer tracked for that reason

    def __contains__(self, task: int) -> bool:
        return task in self._members

    def add(self, report: Report, now: float) -> None:
        """Move a task to its next state; stop tracking it if one of its reports was lost."""
        before = self._members.get(report.task, self._root)
        if not self._states or before is _LEFT:
            return
        self._processes, self._leads = report.processes, None
        # Another Python process of the same task starts with 1 again.
        if report.order not in (0, 1, before.report.order + 1):
            before.tasks.discard(report.task)
            self._leave({report.task})
            return
        count, total = before.key
        key = count + 1, total + hash(_identify(report))
        if key not in self._states:
            # As long as all tasks go one way, only the newest state has no state after it.
            self.torn = self.torn or before is not next(reversed(self._states.values()))
            self._states[key] = _State(key, before, report, now)
        state = self._states[key]
        before.tasks.discard(report.task)
        state.tasks.add(report.task)
        state.last = now
        self._members[report.task] = state
        self._due = now
        if len(state.tasks) + self._left >= report.processes:  # all are here
            passed = state.find_path() if len(self._common) < _MOST_STATES else []
            self._common.update((one.report.name, one.report.types) for one in passed)
            state.parent = None
            self._root = state
            self._states = {state.key: state}
            self.torn = False
        if len(self._states) > _MOST_STATES:  # no task can catch up: give up on the group
            self._states.clear()
            self.torn = False

    def find_mismatches(self, now: float) -> Iterator[_Mismatch]:
        """Yield each difference from the majority's programs, if the difference is certain at time
        `now`.

        The tasks that differ are no longer tracked, unless others may still change which programs
        the majority has.
        """
        if now < self._due:
            return
        taken = [state for state in self._states.values() if state.tasks]
        paths = {state.key: state.find_path() for state in taken}
        votes, decided = _count_votes(paths.values())
        # At each fork, the way of most tasks; on a tie, that of the lowest task number.
        reference = max(
            taken,
            key=lambda one: ([votes[passed.key] for passed in paths[one.key]], -min(one.tasks)),
            default=self._root,
        )
        usual = reference.find_path()
        followed = self._processes - self._left
        branches, self._due = _find_branches(paths.values(), usual, now)
        for (place, key), states in branches.items():
            tasks = frozenset(task for state in states for task in state.tasks)
            other = usual[place]
            is_sure = 2 * votes[other.key] > followed
            one = self._states[key].report
            before = self._common.get(one.name, "")
            yield _Mismatch(one, tasks, other.report, votes[other.key], is_sure, before)
            if is_sure or decided[place] == followed:
                self._due = now  # fewer tasks may decide the rest
                others = frozenset(self._members) - tasks
                self.differing.append(Lead(one, tasks, others, before))
                self._leave(tasks)
                for state in states:
                    state.tasks.clear()

    def find_leads(self, ntasks: int) -> list[Lead]:
        """Return each program that some tasks have compiled and others have not. If the group is
        torn, these may have compiled another one in its place.
        """
        if self._leads is None:
            self._leads = list(self._find_leads(ntasks))
        return self._leads

    def _find_leads(self, ntasks: int) -> Iterator[Lead]:
        everybody = range(ntasks if self._processes == ntasks else 0)  # known by their reports else
        missing = set(everybody).difference(self._members) if len(self._states) > 1 else set()
        known = missing.union(*(state.tasks for state in self._states.values()))
        for state, tasks in self._find_passed().items():
            behind = known - tasks
            if tasks and behind:
                before = self._common.get(state.report.name, "")
                yield Lead(state.report, frozenset(tasks), frozenset(behind), before)

    def _find_passed(self) -> dict[_State, set[int]]:
        """Return the tasks that have passed each state after the group's first one."""
        passed = {state: set(state.tasks) for state in self._states.values()}
        for state, tasks in reversed(passed.items()):  # a parent comes before the states after it
            if state.parent:
                passed[state.parent] |= tasks
        return {state: tasks for state, tasks in passed.items() if state.parent}

    def _leave(self, tasks: Set[int]) -> None:
        self._members.update(dict.fromkeys(tasks, _LEFT))
        self._left += len(tasks)
        self._leads = None


_LEFT = _State((0, 0), None, Report(-1, "", "program"), 0.0)


class ProgramCensus:
    """Compares the programs of all tasks of a run."""

    def __init__(self, ntasks: int = 0) -> None:
        """`ntasks` is the run's number of tasks, or 0 if it is not known."""
        self._ntasks = ntasks
        # By devices, and by whether the programs have numbers.
        self._groups: dict[tuple[str, bool], _Group] = {}
        self._followed = 0
        self._received: Counter[int] = Counter()  # reports, by task
        self._reported: dict[tuple[str, frozenset[str]], bool] = {}  # whether it was sure
        self.mismatch = ""  # the last one that is sure, in words

    def add(self, report: Report, now: float) -> None:
        """Add the report of a program, which arrived at the time `now`, in seconds.

        A report without the compared fields is ignored, as is a task beyond _MOST_FOLLOWED.
        """
        self._received[report.task] += 1
        is_program = report.group and report.digest and report.processes > 1
        key = report.group, report.order > 0
        group = self._groups.get(key) or _Group(now)
        is_new = report.task not in group
        if not is_program or (is_new and self._followed >= _MOST_FOLLOWED):
            return
        self._followed += is_new
        self._groups[key] = group
        group.add(report, now)

    def check(self, now: float, ended: bool = False) -> list[ProgramDifference]:
        """Return each mismatch that is certain at time `now`: once, and once more
        when it becomes certain which program is right.

        When the run has ended, numbered programs are compared immediately. Those of other threads
        are not: the run may have ended before the missing ones were compiled.
        """
        found = []
        for (name, has_numbers), group in self._groups.items():
            until = math.inf if ended and has_numbers else now
            for mismatch in group.find_mismatches(until) if group.torn else ():
                digests = frozenset((mismatch.one.digest, mismatch.other.digest))
                # Beside a lead, the other program is only the next one.
                follows = any((name, frozenset([one])) in self._reported for one in digests)
                if not follows and self._is_news((name, digests), mismatch.is_sure):
                    found.append(mismatch.render())
                    if mismatch.is_sure:
                        self.mismatch = found[-1].text
        return found

    def find_leads(self) -> list[Lead]:
        """Return the programs of main threads that only some tasks have compiled."""
        groups = (group for group in self._numbered if not group.torn)
        return [lead for group in groups for lead in group.find_leads(self._ntasks)]

    def find_apart(self, samples: Mapping[int, Sample]) -> frozenset[int]:
        """Return the tasks that stand in an iteration in which only they have compiled a program,
        while most others are in later ones, and none is in an earlier one; or no tasks.
        """
        settled = _select_settled(samples, self._received)
        known = [group.find_leads(self._ntasks) + group.differing for group in self._numbered]
        for lead in (lead for leads in known for lead in leads):
            at, most = lead.report.at, lead.report.processes // 2
            there = lead.ahead <= settled.keys() and all(
                f"{_position(settled[task])},".startswith(f"{at},") for task in lead.ahead
            )
            is_first = not any(_is_later(_position(one), at) for one in samples.values())
            if there and is_first and len(lead.ahead) <= most < len(_list_past(lead, settled)):
                return lead.ahead
        return frozenset()

    @property
    def _numbered(self) -> list[_Group]:
        """The groups of numbered programs: those of main threads."""
        return [group for (_, has_numbers), group in self._groups.items() if has_numbers]

    def describe_again(self) -> ProgramDifference:
        """Describe the first program that was compiled again; ALIKE if there is none."""
        return next((lead.describe_again() for lead in self.find_leads() if lead.before), ALIKE)

    def judge_leads(
        self, ended: Set[int], samples: Mapping[int, Sample], before: Mapping[int, Sample]
    ) -> list[tuple[Lead, ProgramDifference]]:
        """Return each program that some tasks certainly continue without, with its description;
        each program is returned only once.
        """
        judged = (
            (lead, judge_lead(lead, ended, self._received, samples, before))
            for lead in self.find_leads()
        )
        return [
            (lead, lead.render(how))
            for lead, how in judged
            if how and self._is_news((lead.report.group, frozenset([lead.report.digest])), True)
        ]

    def _is_news(self, key: tuple[str, frozenset[str]], is_sure: bool) -> bool:
        """Record that a mismatch was found; return whether to report it."""
        known = self._reported.get(key)
        is_news = len(self._reported) < _MOST_PAIRS if known is None else is_sure > known
        if is_news:
            self._reported[key] = is_sure
        return is_news


def _count_votes(
    paths: Iterable[Sequence[_State]],
) -> tuple[Counter[tuple[int, int]], Counter[int]]:
    """Return how many tasks have passed each state, by its key, and how many have passed each place
    of a path, in any state.
    """
    votes: Counter[tuple[int, int]] = Counter()
    decided: Counter[int] = Counter()
    for path in paths:
        for place, state in enumerate(path):
            votes[state.key] += len(path[-1].tasks)
            decided[place] += len(path[-1].tasks)
    return votes, decided


def _find_branches(
    paths: Iterable[Sequence[_State]], usual: Sequence[_State], now: float
) -> tuple[dict[tuple[int, tuple[int, int]], list[_State]], float]:
    """Return the last states of the paths that certainly differ from the usual path, by the place
    and key of the first differing state, and the time when the next difference becomes certain.
    """
    branches: dict[tuple[int, tuple[int, int]], list[_State]] = {}
    due = math.inf
    for own in paths:
        ends = _find_differences(own, usual)
        certain = [place for place, end in ends.items() if end <= now]
        due = min([due, *(end for end in ends.values() if end > now)])
        if certain:
            place = min(certain)
            branches.setdefault((place, own[place].key), []).append(own[-1])
    return branches, due


def _find_differences(own: Sequence[_State], usual: Sequence[_State]) -> dict[int, float]:
    """Return the places with a program on one path that the other path has nowhere, each with the
    time until which the missing program may still be reported.
    """
    reached = min(len(own), len(usual))
    differing = {*_find_excess(own[:reached], usual), *_find_excess(usual[:reached], own)}
    # If the numbers at a place differ, one is from a later Python process of its task.
    alike = (place for place in differing if own[place].report.order == usual[place].report.order)
    return {place: _find_end(own[place], usual[place]) for place in alike}


def _find_end(one: _State, other: _State) -> float:
    """Return the time until which two states are not known to differ."""
    if one.report.order:
        return max(one.first, other.first) + _PATIENCE
    return max(one.last, other.first) + _LONG_PATIENCE


def _find_excess(some: Sequence[_State], path: Sequence[_State]) -> Iterator[int]:
    """Yield the places of the programs in `some` that are not on `path`, or not as often."""
    counts = Counter(_identify(state.report) for state in path)
    for place, state in enumerate(some):
        program = _identify(state.report)
        counts[program] -= 1
        if counts[program] < 0:
            yield place


def _identify(report: Report) -> str:
    """Return the identity of a program, which is the same in each task.

    It is a text, because the hashes of tuples are so regular that their sums coincide.
    """
    return f"{report.digest} {report.order}"


def _name(tasks: Set[int], count: int) -> str:
    """Return 'task 1', or 'task 1 and 2 others' for three tasks."""
    others = f" and {count_of(count - 1, 'other')}" if count > 1 else ""
    return f"task {min(tasks)}{others}"


def _render_place(report: Report) -> str:
    return enclose(" at ", report.where)
