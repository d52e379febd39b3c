"""Runs that end otherwise than by a crash: who is named, and who is not blamed."""

from __future__ import annotations

import pytest

from jaxsif.culprit import End, find_failure
from jaxsif.errors import JaxsifError
from jaxsif.reports import Barrier, Report

STARTED = Report(0, "node1", "started", step="7.0")
CANCELLED = "slurmstepd-node1: error: *** STEP 7.0 ON node1 CANCELLED AT 2026-11-22T10:39:36 ***"
GAVE_UP = "F client.h:80] Terminating process because the JAX distributed service detected fatal errors."
GAVE_UP += " DEADLINE_EXCEEDED"
EXITED = "srun: error: node1: task 0: Exited with exit code 143"
ABORTED = Report(-1, "", "cancelled")  # srun: Job step aborted


def place(task: int) -> str:
    return f"node{1 + task // 2}"


def exit_of(task: int, status: int, where: str = "train.py:9") -> Report:
    return Report(task, place(task), "exit", status, where=where)


def gone(task: int) -> Report:
    return Report(
        task, place(task), "exception", text="ValueError: reset by peer", where="train.py:9", consequence=True
    )


def end_of(task: int) -> Report:
    return Report(task, place(task), "end")


def find(end: End, *reports: Report, errors: tuple[str, ...] = (), barriers: tuple[Barrier, ...] = ()) -> str:
    error = find_failure(end, [STARTED, *reports], errors, barriers)
    assert isinstance(error, JaxsifError)
    return error.render()


NEIGHBOURS = (gone(1), exit_of(1, 1), gone(3), exit_of(3, 1), exit_of(0, 143))
OTHERS = "the others were at train.py:9 (task 0, 1, 3)"


def test_a_task_that_left_with_status_0_is_the_cause() -> None:
    said = find(End(1, "srun", tasks=4), exit_of(2, 0, ""), *NEIGHBOURS, errors=(CANCELLED,))
    assert said.startswith("jaxsif: error: task 2 on node2 ended with exit status 0, and 3 of 4 tasks did not\n")
    assert OTHERS in said


def test_a_task_that_was_killed_comes_before_one_that_left() -> None:
    errors = ("srun: error: node1: task 1: Killed", CANCELLED)
    said = find(End(137, "srun", tasks=4), exit_of(2, 0, ""), gone(3), exit_of(3, 1), errors=errors)
    assert said.startswith("jaxsif: error: task 1 on node1 was killed by SIGKILL")


def test_tasks_that_ended_are_no_cause_of_an_error_of_another() -> None:
    failed = Report(3, "node2", "exception", text="ValueError: boom", where="train.py:4")
    said = find(End(1, "srun", tasks=4), exit_of(2, 0, ""), failed, exit_of(3, 1), exit_of(0, 143))
    assert said == "jaxsif: error: task 3 on node2 failed: ValueError: boom\n  from: train.py:4"


def test_many_tasks_that_ended_are_not_the_odd_ones() -> None:
    ended = [exit_of(task, 0, "") for task in range(3)]
    said = find(End(1, "srun", tasks=4), *ended, gone(3), exit_of(3, 1))
    assert said.startswith("jaxsif: error: task 3 on node2 failed: ValueError: reset by peer")


@pytest.mark.parametrize("barriers", [(), (Barrier("[Init]Wait_for_all_tasks_to_register", 3, 4, 0, (2,)),)])
def test_a_task_that_left_before_initialize(barriers: tuple[Barrier, ...]) -> None:
    aborted = [exit_of(3, 134), exit_of(0, 134), exit_of(1, 134)]
    errors = (GAVE_UP,)
    said = find(End(134, "srun", tasks=4), exit_of(2, 0, ""), *aborted, errors=errors, barriers=barriers)
    assert "task 2 on node2 ended with exit status 0 and never came to jax.distributed.initialize" in said
    assert OTHERS in said


TERMINATED = tuple(exit_of(task, 143) for task in range(4))


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("", "the run was cancelled: step 7.0"),
        (" DUE TO TIME LIMIT", "job 7 reached its time limit"),
        (" DUE TO PREEMPTION", "job 7 was preempted"),
        (" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", "job 7 lost a node"),
    ],
)
@pytest.mark.parametrize("early", [0, 2])
def test_what_ended_a_run_from_outside(reason: str, said: str, early: int) -> None:
    """A report of another node may come before what Slurm says."""
    errors = (f"{CANCELLED[:-4]}{reason} ***", EXITED)
    shown = find(End(143, "srun", tasks=4), *TERMINATED[:early], ABORTED, *TERMINATED[early:], errors=errors)
    assert shown.startswith(f"jaxsif: error: {said}\n  from: tasks were at train.py:9 (task 0, 1, 2, 3)\n  try:  ")


def test_what_a_cancelled_program_says_of_itself_is_no_cause() -> None:
    said = find(End(1, "srun", tasks=4), ABORTED, exit_of(2, 1), *TERMINATED, errors=(CANCELLED,))
    assert said.startswith("jaxsif: error: the run was cancelled: step 7.0\n")


def test_slurm_says_cancelled_of_a_failed_step_too() -> None:
    said = find(End(143, "srun", tasks=4), *TERMINATED, errors=(EXITED, CANCELLED))
    assert said.startswith("jaxsif: error: task 0 on node1 was killed by SIGTERM\n")


def test_a_failure_before_the_cancellation_is_the_cause() -> None:
    said = find(End(3, "srun", tasks=4), exit_of(2, 3, ""), ABORTED, *TERMINATED, errors=(CANCELLED,))
    assert said.startswith("jaxsif: error: task 2 on node2 ended with exit status 3")


@pytest.mark.parametrize("interrupted", [None, 2, 15])
def test_a_task_at_its_end_is_named_however_the_run_ends(interrupted: int | None) -> None:
    end = End(143, "srun", tasks=4, interrupted=interrupted)
    error = find_failure(end, [STARTED, end_of(2), ABORTED, *TERMINATED], [CANCELLED])
    assert error is not None
    assert error.what == "task 2 on node2 came to the end of the program, and 3 of 4 tasks did not"
    assert error.where.endswith(OTHERS)
    assert ("the run was cancelled" in error.where) == (interrupted is None)
    assert error.exit_code == (128 + interrupted if interrupted else 143)


def test_an_interrupted_run_is_nobodys_fault() -> None:
    assert find_failure(End(143, "srun", 4, interrupted=2), [STARTED, ABORTED, *TERMINATED], [CANCELLED]) is None
    ended = exit_of(2, 0, "")  # a program without JAX's processes may end when it likes
    assert find_failure(End(143, "srun", 4, interrupted=2), [STARTED, ended, *TERMINATED], [CANCELLED]) is None


def test_the_time_limit_is_told_to_whom_it_ended_with_the_job() -> None:
    errors = [f"{CANCELLED[:-4]} DUE TO TIME LIMIT ***"]
    error = find_failure(End(143, "srun", 4, interrupted=15), [STARTED, *TERMINATED], errors)
    assert error is not None
    assert (error.what, error.exit_code) == ("job 7 reached its time limit", 143)


def test_a_killed_srun_is_named() -> None:
    said = find(End(137, "srun", 4, killed=True), errors=())
    assert said.startswith("jaxsif: error: srun was killed by SIGKILL\n  from: this host\n")


def test_an_image_that_was_written_to() -> None:
    said = find(End(135, "srun", 1, changed_image="/sw/jax.sif"), exit_of(0, 135, ""))
    assert "from: /sw/jax.sif, which was written to during the run\n  try:  copy a new image" in said
