"""tests/bench/beside.py: which of two revisions it calls slower, with times that are drawn."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from scripts import load_script

beside = load_script(Path(__file__).resolve().parents[2] / "tests/bench/beside.py")


def draw(seed: int, turns: int, factor: float) -> list[dict[str, tuple[float, ...]]]:
    """Times of a machine that drifts and has hiccups: a tenth of the runs takes three times as long."""
    chance = random.Random(seed)
    found = []
    for turn in range(turns):
        times: dict[str, tuple[float, ...]] = {"first": (), "second": ()}
        for position, side in enumerate(beside.ORDER):
            drift = 1 + (4 * turn + position) * 0.01
            noise = chance.lognormvariate(0, 0.05) * (3 if chance.random() < 0.1 else 1)
            times[side] = (*times[side], 0.2 * drift * noise * (factor if side == "second" else 1))
        found.append(times)
    return found


@pytest.mark.parametrize("turns", [10, 50])
def test_what_is_equal_is_not_slower(turns: int) -> None:
    """Of 200 measurements the interval misses 1 in at most 5 % and what chance adds; fewer are called slower."""
    found = [beside.summarize(draw(seed, turns, 1)) for seed in range(200)]
    assert sum(not low <= 1 <= high for _, low, high in found) <= 20
    assert sum(low > beside.BOUND for _, low, _ in found) <= 6


@pytest.mark.parametrize(("turns", "factor"), [(10, 1.3), (50, 1.1)])
def test_what_is_slower_is_found(turns: int, factor: float) -> None:
    found = [beside.summarize(draw(seed, turns, factor)) for seed in range(200)]
    assert sum(low > beside.BOUND for _, low, _ in found) >= 180
    assert all(low <= ratio <= high for ratio, low, high in found)


def test_a_line_and_its_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert beside.report("launch", [{"first": (0.1, 0.1), "second": (0.2, 0.2)}] * 3) is True
    assert beside.report("start", [{"first": (0.2, 0.2), "second": (0.1, 0.1)}] * 3) is False
    assert capsys.readouterr().out.splitlines() == [
        "launch    first 100.0 ms   second 200.0 ms   ratio 2.000, from 2.000 to 2.000   6 pairs: slower",
        "start     first 200.0 ms   second 100.0 ms   ratio 0.500, from 0.500 to 0.500   6 pairs: not slower",
    ]


@pytest.mark.parametrize(("number", "cut"), [(6, 1), (10, 2), (20, 6), (50, 18)])
def test_the_interval_is_that_of_the_tables(number: int, cut: int) -> None:
    """Of the sign test at 5 %, two-sided."""
    assert beside.find_interval(range(1, number + 1)) == ((number + 1) / 2, cut, number + 1 - cut)


def test_a_step_is_read_among_the_lines_of_gloo() -> None:
    assert beside.read_step('[Gloo] Rank 0 is connected\nstep {"step_seconds": 0.25}\n') == 0.25
