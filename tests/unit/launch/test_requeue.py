"""When a job goes back into the queue after its program has been told to save."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxsif.launch.requeue import Requeue
from jaxsif.settings.options import RunOptions


def make_requeue(folder: Path, most: int = 2, restarts: str = "") -> Requeue:
    options = RunOptions(("python",), checkpoints=str(folder), max_requeues=most)
    environ = {"SLURM_JOB_ID": "4711", **({"SLURM_RESTART_COUNT": restarts} if restarts else {})}
    return Requeue(options, environ)


def test_only_after_a_newer_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "step_10").mkdir()
    requeue = make_requeue(tmp_path)
    assert requeue.refuse() == f"no new checkpoint in {tmp_path}"
    (tmp_path / "step_11").mkdir()
    assert requeue.refuse() == ""


@pytest.mark.parametrize(("restarts", "reason"), [("", ""), ("1", ""), ("2", "it has been requeued 2 times")])
def test_not_more_often_than_allowed(tmp_path: Path, restarts: str, reason: str) -> None:
    requeue = make_requeue(tmp_path, 2, restarts)
    (tmp_path / "step_1").mkdir()
    assert requeue.refuse() == reason


def test_without_a_folder_nothing_shows_progress() -> None:
    requeue = Requeue(RunOptions(("python",), max_requeues=2), {})
    assert requeue.refuse().startswith("without --checkpoints=DIR, ")


@pytest.mark.starts_processes
def test_where_scontrol_is_missing(tmp_path: Path) -> None:
    said: list[str] = []
    requeue = make_requeue(tmp_path)
    (tmp_path / "step_1").mkdir()
    requeue._environ = {"PATH": str(tmp_path)}
    requeue.requeue("the program has saved", said.append)
    assert said == [
        "the program has saved: job 4711 goes back into the queue",
        "warning: job 4711 is not requeued: No such file or directory (scontrol)",
    ]


def test_one_job_of_an_array_leaves_the_others_alone(tmp_path: Path) -> None:
    """Its number may be that of the whole array."""
    environ = {"SLURM_JOB_ID": "12", "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "3"}
    assert Requeue(RunOptions(("python",), max_requeues=2), environ)._job == "12_3"
