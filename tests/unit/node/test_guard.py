"""When the guard of a batch job ends it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest

from jaxsif.node import guard

NEVER = 10_000.0


class Clock:
    """The time, in a simulated job whose launcher writes every 5 s for 500 s, but for a silence."""

    def __init__(self, silence: tuple[float, float], closed: float) -> None:
        self.now = 0.0
        self.closed = closed  # when the input ends
        self._beats = [time for time in range(5, 500, 5) if not silence[0] < time <= silence[1]]

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def listen(self, seconds: float) -> bytes | None:
        come = [time for time in self._beats if time < self.closed]
        following = min([*come, self.closed])
        if following > self.now + seconds:
            self.now += seconds
            return None
        self.now = max(self.now, following)
        self._beats = [time for time in come if time > self.now]
        return b"." if come else b""


class OverError(Exception):
    """The simulation is over."""


def simulate(
    monkeypatch: pytest.MonkeyPatch,
    answers: Sequence[bool | None],
    silence: tuple[float, float] = (NEVER, NEVER),
    closed: float = NEVER,
    takes: float = 11.0,
) -> tuple[str, float]:
    """What the guard ends, and when. The last one of `answers` repeats; `takes` is the time of a check without one."""
    clock, number, ended = Clock(silence, closed), count(), []

    def takes_step() -> bool | None:
        if clock.now > 500:
            raise OverError
        answer = answers[min(next(number), len(answers) - 1)]
        clock.now += 0.2 if answer else takes
        return answer

    def end_job() -> bool:
        ended.append(clock.now)
        return True

    monkeypatch.setattr(guard, "time", clock)
    try:
        guard.watch(clock.listen, takes_step, end_job)
    except OverError:
        return "nothing", clock.now
    return "the job" if ended else "itself", clock.now


@pytest.mark.parametrize("takes", [0.1, 4.0, 11.0])
@pytest.mark.parametrize("closed", [NEVER, 101.0], ids=["silent", "closed"])
def test_a_lost_node_ends_the_job_within_a_minute(monkeypatch: pytest.MonkeyPatch, takes: float, closed: float) -> None:
    """But not within 30 s of silence, however fast the checks fail."""
    ended, now = simulate(monkeypatch, [False], (100, NEVER), closed, takes)
    assert ended == "the job"
    assert 130 <= now < 145


def test_a_stopped_launcher_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert simulate(monkeypatch, [True], (100, 145))[0] == "nothing"
    assert simulate(monkeypatch, [True], (100, NEVER))[0] == "nothing"


@pytest.mark.parametrize("unanswered", range(9))
def test_a_guard_without_a_network_changes_nothing(monkeypatch: pytest.MonkeyPatch, unanswered: int) -> None:
    """Nor when Slurm's controller can be reached again just after the check of the node has failed."""
    answers = [*[None] * unanswered, False, True]
    assert simulate(monkeypatch, answers, (100, 200))[0] == "nothing"
    assert simulate(monkeypatch, [*answers[:-1], None, False, True], (100, NEVER))[0] == "nothing"


def test_a_launcher_that_is_heard_again_starts_the_count_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two checks that failed."""
    assert simulate(monkeypatch, [False, False, True], (100, 125))[0] == "nothing"


def test_a_job_that_could_not_be_ended_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, tries = Clock((100, NEVER), NEVER), iter([False, False, True])
    monkeypatch.setattr(guard, "time", clock)
    guard.watch(clock.listen, lambda: False, lambda: next(tries))
    assert list(tries) == []


def test_the_guard_ends_with_a_killed_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its node still takes a step."""
    assert simulate(monkeypatch, [True], closed=101) == ("itself", 101.2)
