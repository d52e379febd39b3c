"""Barriers that not all processes reached: as JAX tells of them, and who is blamed."""

from __future__ import annotations

import pytest
from hosts import SRUN
from reporting import GONE, NONCES, barrier_text, ended, raised, started

from jaxsif.diagnose.barriers import Barrier
from jaxsif.diagnose.culprit import find_failure
from jaxsif.diagnose.facts import End
from jaxsif.diagnose.reports import Report, ReportFilter


@pytest.mark.parametrize("label", [False, True])
def test_barriers_are_read(label: bool) -> None:
    text = barrier_text("Shutdown", "1/4", 3, "1\n0")
    if label:
        text = b"".join(b"2: " + line for line in text.splitlines(True))
    one = ReportFilter(NONCES, label=label)
    assert one.feed(text) + one.feed(b"") == text
    assert one.barriers == [Barrier("Shutdown", 1, 4, 3, (1, 0))]


ALL_ABORTED = [started(), *(Report(task, f"node{task}", "exit", 134, where=f"train.py:{task}0") for task in range(4))]
HINT = "\n  try:  all processes must compute the same, equally often: see slurm/mistakes"
INIT_HINT = (
    "\n  try:  see what it does before, and whether it can reach task 0; --init-timeout says how long the others wait"
)


@pytest.mark.parametrize(
    ("barrier", "reports", "text"),
    [
        (
            Barrier("Shutdown", 1, 4, 3, (1, 0)),
            ALL_ABORTED,
            "task 3 on node3 came to the end of the program, and 3 of 4 did not\n"
            "  from: train.py:10, where task 1 on node1 was" + HINT,
        ),
        (
            Barrier("Shutdown", 2, 8, 3, (1, 0)),
            ALL_ABORTED,
            "task 3 on node3 came to the end of the program, and 6 of 8 did not; it was the first of 2\n"
            "  from: train.py:10, where task 1 on node1 was" + HINT,
        ),
        (
            Barrier("Shutdown", 3, 4, 1, (0,)),
            ALL_ABORTED,
            "task 0 on node0 did not come to the end of the program, and 3 of 4 did\n"
            "  from: train.py:00, where task 0 on node0 was" + HINT,
        ),
        (
            Barrier("[Init]Wait_for_all_tasks_to_register", 6, 8, 1, (5, 7)),
            [started(), raised(1, "JaxRuntimeError: DEADLINE_EXCEEDED: Barrier timed out"), ended(1, 1)],
            "task 5, task 7 did not come to jax.distributed.initialize, and 6 of 8 did" + INIT_HINT,
        ),
        (
            Barrier("Shutdown", 3, 4, 1, (0,)),
            [started(), ended(1, 134), raised(0, GONE, True), ended(0, 1)],
            "task 0 on node0 did not come to the end of the program, and 3 of 4 did\n"
            "  from: train.py:00, where task 0 on node0 was" + HINT,
        ),
        (
            Barrier("save", 3, 4, 1, (2,)),
            [started(), raised(0, "JaxRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: save::0."), ended(0, 1)],
            "task 2 did not come to the barrier save, and 3 of 4 did" + HINT,
        ),
        (
            Barrier("Shutdown", 60, 64, 1, (1, 2)),
            ALL_ABORTED,
            "task 1 on node1, task 2 on node2 and 2 more did not come to the end of the program, and 60 of 64 did\n"
            "  from: train.py:10, where task 1 on node1 was" + HINT,
        ),
    ],
    ids=[
        "one came",
        "two came",
        "one is missing",
        "initialize",
        "its neighbours were faster",
        "another barrier",
        "many are missing",
    ],
)
def test_the_odd_one_at_a_barrier(barrier: Barrier, reports: list[Report], text: str) -> None:
    failure = find_failure(End(134, SRUN), reports, [], [barrier])
    assert failure is not None
    assert failure.render() == f"jaxsif: error: {text}"


def test_a_barrier_that_the_program_went_on_from_is_no_cause() -> None:
    failure = find_failure(End(134, SRUN), ALL_ABORTED, [], [Barrier("save", 3, 4, 1, (2,))])
    assert failure is not None
    assert failure.what == "task 0 on node0 was killed by SIGABRT"


def test_a_barrier_without_a_name_is_no_cause() -> None:
    """A program may print one."""
    failure = find_failure(End(134, SRUN), ALL_ABORTED, [], [Barrier("", 3, 4, 1, (2,))])
    assert failure is not None
    assert failure.what == "task 0 on node0 was killed by SIGABRT"


def test_a_barrier_is_no_cause_where_a_task_failed_by_itself() -> None:
    reports = [*ALL_ABORTED, raised(2, "ValueError: shapes"), ended(2, 1)]
    failure = find_failure(End(134, SRUN), reports, [], [Barrier("Shutdown", 3, 4, 1, (2,))])
    assert failure is not None
    assert failure.what == "task 2 on node2 failed: ValueError: shapes"


def test_a_barriers_name_is_without_its_numbers() -> None:
    one = ReportFilter()
    one.feed(barrier_text("a::b::x::12", "1/4", 3, "1"))
    assert [barrier.name for barrier in one.barriers] == ["a::b::x"]
