"""The rule against simulated runs of 4 to 1,000 tasks: what is said of a wait, when, and nothing twice."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.samples import MAIN, sample

from jaxsif.watch.rule import Level, Waits
from jaxsif.watch.sample import Sample
from jaxsif.watch.snapshot import Snapshot, make_snapshot

BUSY, WAIT, HANG = Level.BUSY, Level.WAIT, Level.HANG
SUM, ODD = "/home/ada/train.py:41", "/home/ada/odd.py:9"
ODD_FRAMES = [["/home/ada/odd.py", 9, "go"], MAIN]
ORBAX = ["/opt/jax/lib/python3.13/site-packages/orbax/checkpoint/save.py", 5, "save"]
LOOKS = (1, 2, 5, 10)
SPEED = 1 << 20  # bytes a second of who saves


class Way(NamedTuple):
    """How the odd tasks are while the others wait for them."""

    fields: Mapping[str, Any]  # of their samples
    said: tuple[tuple[Level, int], ...]  # what is said, and after how many times the patience
    tells: bool = False  # they tell that they stand still
    saves: bool = False
    computes: bool = False


SHUTDOWN = [["/opt/jax/lib/python3.13/site-packages/jax/_src/distributed.py", 238, "shutdown"]]
STALE = {"age": 100.0}
WAYS = {
    "sleep": Way({"call": "clock_nanosleep", "frames": ODD_FRAMES}, ((WAIT, 1), (HANG, 5)), tells=True),
    "pipe": Way({"call": "read", "file": "pipe", "frames": ODD_FRAMES}, ((WAIT, 1), (HANG, 5)), tells=True),
    "spin": Way({"state": "R", "call": "", "main_cpu": 1.0, "frames": ODD_FRAMES}, ((WAIT, 1),), computes=True),
    "hold": Way(
        {"state": "R", "call": "", "main_cpu": 1.0, "frames": ODD_FRAMES, **STALE}, ((WAIT, 1),), computes=True
    ),
    "deadlock": Way({"frames": ODD_FRAMES, "status": {"deadlock": True}}, ((HANG, 1),), tells=True),
    "stop": Way({"state": "T", "frames": [], **STALE}, ((HANG, 1),)),
    "shutdown": Way({"frames": SHUTDOWN}, ((HANG, 1),), tells=True),
    "compile": Way({"main_cpu": 1.0, "cpu": 1.0, "status": {"compiling": "f"}}, ((BUSY, 1),)),
    "save": Way({"call": "write", "frames": [ORBAX, *ODD_FRAMES]}, ((BUSY, 1),), tells=True, saves=True),
    "stuck": Way({"call": "write", "frames": [ORBAX, *ODD_FRAMES]}, ((BUSY, 1), (WAIT, 2), (HANG, 5)), tells=True),
}


class Phase(NamedTuple):
    """A part of a run, after which all tasks move."""

    way: str  # of WAYS; or how all tasks are: move, sleep at one place, or wait at one place
    odd: int  # number of odd tasks, of the first ones
    length: int  # in quarters of the patience


ALIKE = {"moves": (), "all sleep": (), "all wait": ((WAIT, 2), (HANG, 10))}
NOBODY = Way({}, ())


class Said(NamedTuple):
    """What the rule says in a phase."""

    phase: int
    level: Level | None  # None: the wait is over
    at: float  # seconds since the phase began; when it is over, how long the wait was


class Run:
    """A simulated run: a clock, tasks with their observers, and the launcher that asks the rule."""

    def __init__(self, tasks: int, patience: float) -> None:
        self.tasks, self.patience = tasks, patience
        self.waits = Waits(patience, 0.0)
        self.now, self.looks = 0.0, 0
        self.looks_of: list[int] = []  # by phase
        self._plain = sample()

    def play(self, phases: list[Phase]) -> Iterator[Said]:
        """What the rule says, in order."""
        for number, phase in enumerate(phases):
            begin, before = self.now, self.looks
            self._base = {"all sleep": sample(call="clock_nanosleep")}.get(phase.way, self._plain)
            self._odd = sample(**WAYS.get(phase.way, NOBODY).fields)
            for _ in range(phase.length):
                self.now += self.patience / 4
                self._tell(phase, self.now - begin)
                if self.waits.is_due(self.now):
                    self.looks += 1
                    verdict = self.waits.judge(self._look(phase, self.now - begin), self.now)
                    if verdict.level:
                        yield Said(number, verdict.level, self.now - begin)
            for seconds in self._move(phase, self.now - begin):
                yield Said(number, None, seconds)
            self.looks_of.append(self.looks - before)

    def _waiting(self, phase: Phase) -> Iterator[tuple[int, str]]:
        """The tasks that tell that they stand still, and where."""
        way = WAYS.get(phase.way, NOBODY)
        for task in range(0 if phase.way == "moves" else self.tasks):
            if task >= phase.odd:
                yield task, SUM
            elif way.tells:
                yield task, ODD

    def _tell(self, phase: Phase, quiet: float) -> None:
        if self.patience <= quiet < 1.25 * self.patience:
            for task, place in self._waiting(phase):
                self.waits.wait(task, quiet, place, self.now)

    def _move(self, phase: Phase, quiet: float) -> list[float]:
        if quiet < self.patience:
            return []
        ends = [self.waits.go_on(task, quiet, self.now) for task, _ in self._waiting(phase)]
        return [seconds for seconds in ends if seconds is not None]

    def _look(self, phase: Phase, quiet: float) -> Snapshot:
        way = WAYS.get(phase.way, NOBODY)
        odd = self._odd._replace(written=int(self.now * SPEED) if way.saves else 0, spent=self.now * way.computes)
        quiet = 0.0 if phase.way == "moves" else quiet
        status = self._base.status._replace(quiet=quiet)
        others = self._base._replace(status=status)
        return make_snapshot(
            (odd if task < phase.odd else others)._replace(task=task, node=f"n{task // 8}")
            for task in range(self.tasks)
        )


@st.composite
def runs(draw: st.DrawFn) -> tuple[Run, list[Phase]]:
    tasks = draw(st.one_of(st.integers(4, 16), st.integers(4, 1000)))
    patience = draw(st.sampled_from((1, 5, 60)))
    ways = st.sampled_from((*WAYS, *ALIKE))
    phase = st.builds(Phase, ways, st.integers(1, max(1, tasks // 2 - 1)), st.integers(1, 120))
    phases = draw(st.lists(phase, max_size=4))
    return Run(tasks, patience), [phase if phase.way in WAYS else phase._replace(odd=0) for phase in phases]


def expected(run: Run, phases: list[Phase]) -> Iterator[Said]:
    """What the rule says, by its docstrings."""
    learned = {SUM: 0.0, ODD: 0.0}
    for number, phase in enumerate(phases):
        way = WAYS.get(phase.way, Way({}, ALIKE.get(phase.way, ())))
        places = [] if phase.way == "moves" else [SUM, *([ODD] if way.tells else [])]
        patience = min((max(run.patience, 2 * learned[place]) for place in places), default=math.inf)
        length = phase.length * run.patience / 4
        said = [Said(number, level, units * patience) for level, units in way.said if units * patience <= length]
        yield from said
        if said:
            yield Said(number, None, length)
        was_busy = bool(said) and said[-1].level == BUSY
        if length >= run.patience and not was_busy:
            learned.update({place: max(length, learned[place]) for place in places})


@given(runs())
def test_each_level_is_said_once_in_its_time_and_so_is_the_end(drawn: tuple[Run, list[Phase]]) -> None:
    run, phases = drawn
    said = list(run.play(phases))
    assert [one[:2] for one in said] == [one[:2] for one in expected(run, phases)]
    for one, other in zip(said, expected(run, phases)):
        assert one.at == pytest.approx(other.at, abs=run.patience / 4 + 1e-6)


@given(runs())
def test_looks_are_few(drawn: tuple[Run, list[Phase]]) -> None:
    """Their number grows with the logarithm of the time; each of the two places has its own."""
    run, phases = drawn
    list(run.play(phases))
    for phase, looks in zip(phases, run.looks_of):
        assert looks <= 2 * (len(LOOKS) + max(0.0, math.log2(phase.length / 40))) + 1


def test_a_day_without_a_wait_takes_no_look() -> None:
    run = Run(4, 60.0)
    assert list(run.play([Phase("moves", 0, 24 * 60 * 4)])) == []
    assert run.looks == 0


def _look(rule: Waits, samples: list[Sample], now: float, *silent: str) -> Level:
    assert rule.is_due(now)
    return rule.judge(make_snapshot(samples, silent), now).level


def test_a_node_that_does_not_answer_is_told() -> None:
    rule, samples = Waits(60.0, 0.0), [sample(task=task) for task in range(4)]
    rule.wait(0, 60.0, SUM, 100.0)
    assert _look(rule, samples, 100.0, "node2") == WAIT
    assert _look(rule, samples, 340.0, "node2") == Level.NOTHING  # nothing proves that it hangs


def test_tasks_that_move_beside_one_that_stands_still_do_not_wait_for_it() -> None:
    """As a task that only logs, beside others in a loop with sums."""
    rule = Waits(60.0, 0.0)
    moving = [sample(task=task, status={"quiet": 0.0}) for task in range(3)]
    sleeps = sample(task=3, call="clock_nanosleep", frames=ODD_FRAMES)
    rule.wait(3, 60.0, ODD, 100.0)
    assert [_look(rule, [*moving, sleeps], now) for now in (100.0, 160.0, 400.0, 10_000.0)] == [Level.NOTHING] * 4


def test_bytes_of_the_observer_itself_are_no_work() -> None:
    """It writes 4 KiB a second; a task that reads its standard input does nothing else."""
    rule = Waits(5.0, 0.0)
    waiting = [sample(task=task) for task in range(3)]
    rule.wait(0, 5.0, SUM, 5.0)

    def reads(written: int) -> Sample:
        return sample(task=3, call="read", descriptor=0, file="pipe", frames=ODD_FRAMES, written=written)

    assert _look(rule, [*waiting, reads(0)], 5.0) == Level.NOTHING  # it may do more
    assert not rule.is_due(6.9)
    assert _look(rule, [*waiting, reads(2 * 4096 + 9000)], 7.0) == WAIT


def test_input_that_comes_is_no_wait() -> None:
    rule, waiting = Waits(5.0, 0.0), [sample(task=task) for task in range(3)]
    rule.wait(0, 5.0, SUM, 5.0)
    reads = sample(task=3, call="read", descriptor=0, file="pipe", frames=ODD_FRAMES)
    for now in (5.0, 7.0, 10.0, 25.0, 50.0):
        level = _look(rule, [*waiting, reads._replace(read=int(now * SPEED))], now)
        assert level == (BUSY if now == 7.0 else Level.NOTHING)


def test_jax_that_wakes_to_handle_signals_while_it_waits_is_no_work() -> None:
    """block_until_ready does so five times a second, in the odd task and in the others."""
    rule = Waits(5.0, 0.0)
    rule.wait(0, 5.0, SUM, 5.0)

    def look(now: float) -> Level:
        samples = [sample(task=task, runs=int(5 * now)) for task in range(3)]
        odd = sample(task=3, runs=int(5 * now), frames=ODD_FRAMES)
        return _look(rule, [*samples, odd], now)

    assert [look(now) for now in (5.0, 10.0, 25.0)] == [WAIT, Level.NOTHING, HANG]


def test_a_look_that_does_not_know_the_state_shows_no_work() -> None:
    """As on a busy node."""
    rule = Waits(5.0, 0.0)
    rule.wait(0, 5.0, SUM, 5.0)
    waiting = [sample(task=task) for task in range(3)]
    odd = sample(task=3, runs=500, frames=ODD_FRAMES)
    assert _look(rule, [*waiting, odd], 5.0) == WAIT
    assert _look(rule, [*waiting, odd._replace(frames=())], 15.0) == Level.NOTHING
    assert _look(rule, [*waiting, odd], 25.0) == HANG


def test_what_is_learned_is_bounded() -> None:
    rule = Waits(5.0, 0.0)
    for number in range(2000):
        rule.wait(0, 5.0, f"a.py:{number}", 5.0)
        rule.go_on(0, 9.0, 9.0)
    assert len(rule._learned) == 1000


def test_the_end_of_a_wait_that_nobody_told_is_nothing() -> None:
    assert Waits(5.0, 0.0).go_on(0, 9.0, 9.0) is None


SLEEP = {"call": "clock_nanosleep", "frames": ODD_FRAMES}


def _see(*odd: int, tasks: int = 6) -> list[Sample]:
    return [sample(task=task, **(SLEEP if task in odd else {})) for task in range(tasks)]


def test_another_wait_is_told_while_the_first_goes_on() -> None:
    """The task that kept the others waiting has come, and now another one does."""
    rule = Waits(60.0, 0.0)
    rule.wait(0, 60.0, SUM, 100.0)
    assert _look(rule, _see(5), 100.0) == WAIT
    assert _look(rule, _see(5, 3), 160.0) == Level.NOTHING
    assert _look(rule, _see(3), 340.0) == HANG


def test_another_wait_of_the_same_level_is_told() -> None:
    rule = Waits(60.0, 0.0)
    rule.wait(0, 60.0, SUM, 100.0)
    assert _look(rule, _see(5), 100.0) == WAIT
    assert _look(rule, _see(3), 160.0) == WAIT
    assert rule.go_on(0, 130.0, 170.0) == 130.0


def test_one_that_always_stands_still_hides_no_wait_and_makes_none_worse() -> None:
    """Such as a task that only serves requests, beside others in a loop with sums."""
    rule, day = Waits(60.0, 0.0), 86_400.0
    rule.wait(5, 60.0, ODD, 60.0)
    moving = [one._replace(status=one.status._replace(quiet=0.0)) for one in _see(5)]
    for now in (60.0, 120.0, 300.0, 600.0, 1200.0, day):
        assert _look(rule, moving, now) == Level.NOTHING
    for begin in (day, day + 3000.0):
        told = []
        for task in range(4):
            rule.wait(task, 60.0, f"{SUM}{begin}", begin + 61.0 + task / 4)
        for second in range(61, 400):
            if rule.is_due(begin + second):
                told.append((second, rule.judge(make_snapshot(_see(4, 5)), begin + second).level))
        assert [(second, level) for second, level in told if level] == [(61, WAIT), (301, HANG)]
        assert len(told) == 3
        ends = [rule.go_on(task, 400.0, begin + 401.0) for task in range(4)]
        assert ends == [None, None, None, 400.0]


def test_tasks_that_come_to_stand_still_one_after_the_other_take_one_look() -> None:
    rule, looks = Waits(5.0, 0.0), []
    for tenth in range(500):
        now = tenth / 10
        for task in range(10):
            if tenth == 50 + 2 * task:
                rule.wait(task, 5.0, SUM, now)
        if rule.is_due(now):
            looks.append(now)
            rule.judge(make_snapshot(_see(11, tasks=12)), now)
    assert looks == [5.0, 10.0, 25.0]


def test_tasks_that_come_a_moment_after_the_odd_one_wait_no_longer_for_the_word_hang() -> None:
    """The look is due by the first of all tasks; what the others wait for began a second later."""
    rule = Waits(5.0, 0.0)
    rule.wait(5, 5.0, ODD, 5.0)
    assert _look(rule, _see(5), 5.0) == WAIT
    rule.wait(0, 5.0, SUM, 6.0)
    assert _look(rule, _see(5), 10.0) == Level.NOTHING
    assert _look(rule, _see(5), 25.0) == HANG


def test_a_wait_for_tasks_at_work_is_not_learned() -> None:
    """A first compile takes minutes, at the line where all later waits are."""
    rule, busy = Waits(60.0, 0.0), {"main_cpu": 1.0, "cpu": 1.0, "status": {"compiling": "f"}}
    rule.wait(0, 60.0, SUM, 100.0)
    assert _look(rule, [*_see(tasks=3), sample(task=3, **busy)], 100.0) == BUSY
    rule.go_on(0, 1200.0, 1240.0)
    rule.wait(0, 60.0, SUM, 2000.0)
    assert _look(rule, _see(3, tasks=4), 2000.0) == WAIT


def test_what_goes_on_while_it_is_looked_at_is_no_wait() -> None:
    rule = Waits(60.0, 0.0)
    rule.wait(0, 60.0, SUM, 100.0)
    assert rule.is_due(100.0)
    rule.go_on(0, 61.0, 101.0)
    assert rule.judge(make_snapshot(_see(5)), 101.0).level == Level.NOTHING


def test_a_task_that_has_not_told_where_it_waits_is_blamed_for_nothing() -> None:
    """On a busy node its stack may come too late; it waits in the same collective as the others."""
    rule, late = Waits(5.0, 0.0), sample(task=3, frames=[], answered=False)
    rule.wait(0, 5.0, SUM, 5.0)
    snapshot = make_snapshot([*_see(tasks=3), late])
    assert snapshot.odd == ()
    assert rule.judge(snapshot, 5.0).level == Level.NOTHING
    assert not rule.is_due(6.9)
    assert _look(rule, _see(3, tasks=4), 7.0) == WAIT


def test_a_task_that_never_tells_where_it_waits_is_asked_twice_as_often_at_most() -> None:
    rule, looks = Waits(5.0, 0.0), []
    snapshot = make_snapshot([*_see(tasks=3), sample(task=3, frames=[], answered=False)])
    rule.wait(0, 5.0, SUM, 5.0)
    for tenth in range(50, 510):
        if rule.is_due(tenth / 10):
            looks.append(tenth / 10)
            rule.judge(snapshot, tenth / 10)
    assert looks == [5.0, 7.0, 10.0, 12.0, 25.0, 27.0, 50.0]


@pytest.mark.parametrize(("gpu", "level"), [(False, HANG), (True, WAIT)])
def test_a_task_that_may_compute_is_not_left_behind(gpu: bool, level: Level) -> None:
    """One task has ended, the others wait: each for another, or for its own GPU."""
    ended = [sample(task=0, frames=SHUTDOWN, gpu=gpu)]
    others = [sample(task=task, gpu=gpu) for task in range(1, 4)]
    rule = Waits(60.0, 0.0)
    for task in range(4):
        rule.wait(task, 60.0, SUM, 100.0)
    assert _look(rule, [*ended, *others], 100.0) == level
    for now in (400.0, 700.0):
        assert _look(rule, [*ended, *others], now) == Level.NOTHING


@pytest.mark.parametrize("busy_timeout", [8.0, 11.0, 12.0, 16.0, 20.0, 26.0])
def test_a_busy_task_is_a_hang_at_the_busy_timeout_and_no_earlier(busy_timeout: float) -> None:
    rule = Waits(5.0, 0.0, busy_timeout)
    tasks = [*_see(tasks=3), sample(task=3, **WAYS["spin"].fields)]
    for tenth in range(1, 300):
        now = tenth / 10
        if now in (5.0, 5.4, 5.9):  # they stand still one after the other
            rule.wait({5.0: 0, 5.4: 1, 5.9: 2}[now], 5.0, SUM, now)
        spent = tasks[3]._replace(spent=now)
        if rule.is_due(now) and rule.judge(make_snapshot([*tasks[:3], spent]), now).level == HANG:
            break
    assert now == busy_timeout
