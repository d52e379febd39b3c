"""What is said of a wait: titles, ends, and who is named."""

from __future__ import annotations

from typing import Any

import pytest
from sights import MAIN, sight

from jaxsif.watch.picture import Picture, make_picture
from jaxsif.watch.rule import Level, Verdict
from jaxsif.watch.words import describe_odd, describe_verdict, describe_wait_over

READS = {"call": "read", "descriptor": 5, "file": "pipe", "frames": [["/home/ada/data.py", 57, "next_batch"], MAIN]}
ENDED = {"frames": [["/opt/jax/lib/python3.13/site-packages/jax/_src/distributed.py", 238, "shutdown"]]}
STOPPED = {"state": "T", "frames": []}


def picture(*silent: str, **odd: dict[str, Any]) -> Picture:
    """8 tasks on 4 nodes that wait in a sum, but for the odd ones: 't5' -> its fields."""
    return make_picture(
        (sight(task=task, node=f"n{task // 2}", **odd.get(f"t{task}", {})) for task in range(8)), silent
    )


@pytest.mark.parametrize(
    ("level", "title"),
    [
        (Level.BUSY, "tasks wait for others that compile, load or save, for 61 s"),
        (Level.WAIT, "tasks wait for 61 s"),
        (Level.HANG, "the program hangs: tasks wait for 61 s"),
    ],
)
def test_titles(level: Level, title: str) -> None:
    assert describe_verdict(Verdict(level, 61.2)) == title


def test_the_end() -> None:
    assert describe_wait_over(61.2) == "the wait is over, after 61 s: the tasks go on"


KEPT = "kept the others waiting for 61 s"
OTHERS = "iteration 12044 of the loop at train.py:38; the others are at train.py:41 step"


@pytest.mark.parametrize(
    ("found", "who", "place"),
    [
        (picture(t5=READS), f"task 5 on n2 {KEPT}: it reads from a pipe", "data.py:57 next_batch"),
        (picture(t4=READS, t5=READS), f"tasks 4-5 {KEPT}: they read from a pipe", "data.py:57 next_batch"),
        (picture(t5=ENDED), f"task 5 on n2 {KEPT}: it has ended, and waits for the others", OTHERS),
        (picture(t5=STOPPED), f"task 5 on n2 {KEPT}: it is stopped (SIGSTOP)", OTHERS),
        (
            picture(**{f"t{task}": READS for task in range(6)}),
            "tasks have waited for 61 s: tasks 0-5 read from a pipe",
            "data.py:57 next_batch",
        ),
        (picture(), "all tasks have waited for 61 s: each waits in a collective", "train.py:41 step"),
        (picture(t4=ENDED, t5=ENDED), f"tasks 4-5 {KEPT}: they have ended, and wait for the others", OTHERS),
    ],
)
def test_who_keeps_the_others_waiting(found: Picture, who: str, place: str) -> None:
    assert describe_odd(found, 61.2) == (who, place)
