"""The program's folder of checkpoints, and what a failure has cost since the newest one."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from jaxsif.launch.checkpoints import FailedAttempt, Saved, find_saved, parse_step


@pytest.mark.parametrize(
    ("name", "step"),
    [
        *(("400", 400), ("step_400", 400), ("ckpt-400.npz", 400), ("checkpoint_400.msgpack", 400)),
        *(("step_400_rank_3.npz", 400), ("step400", 400), ("v2_epoch3-step-400.ckpt", 400)),
        *(("model", -1), ("v2_model", -1), ("README.md", -1)),
    ],
)
def test_the_step_of_a_checkpoint(name: str, step: int) -> None:
    assert parse_step(name) == step


@pytest.mark.parametrize("name", ["10", "step_10.npy"], ids=["slurm/train, slurm/checkpoint", "programs/again.py"])
def test_the_pattern_for_progress_knows_the_projects_own_examples(tmp_path: Path, name: str) -> None:
    """The tests of these programs in the cluster see the names that they write."""
    (tmp_path / name).touch()
    assert find_saved(str(tmp_path)).step == 10


def test_a_folder_of_checkpoints_that_cannot_be_read_ends_nothing(tmp_path: Path) -> None:
    assert find_saved(str(tmp_path / "missing")) == find_saved(None) == Saved()
    assert find_saved(str(tmp_path)) == Saved()
    (tmp_path / "file").touch()
    assert find_saved(str(tmp_path / "file")) == Saved()


def test_a_half_written_checkpoint_is_no_progress(tmp_path: Path) -> None:
    for name in ("10", "20", "30.orbax-checkpoint-tmp-7", ".40", "50.partial"):
        (tmp_path / name).mkdir()
    assert find_saved(str(tmp_path)).step == 20
    (tmp_path / "10/commit_success.txt").touch()
    assert find_saved(str(tmp_path)).step == 10


@pytest.mark.parametrize("name", ["attempt_3_step_40", "partition_3_step_40", "temperature_2_step_40", "apart_40"])
def test_a_word_that_only_looks_half_written(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    for half in ("50.tmp", "tmpk3x_50", "step_50_temp", "part-50", "50.incomplete"):
        (tmp_path / half).mkdir()
    assert find_saved(str(tmp_path)).step == 40


def test_a_checkpoint_is_complete_when_it_is_renamed(tmp_path: Path) -> None:
    """Its data are older, and it may have several parts."""
    before = time.time() - 1
    for name in ("10", "20", "step_20"):
        (tmp_path / "part").touch()
        os.utime(tmp_path / "part", (0, 0))
        (tmp_path / "part").rename(tmp_path / name)
    found = find_saved(str(tmp_path))
    assert (found.step, found.steps) == (20, {10, 20})
    assert before <= found.time <= time.time() + 1


BEGIN, END = 1000.0, 1100.0


def saved(*steps: int, at: float = 1060.0) -> Saved:
    return Saved(max(steps, default=-1), at, frozenset(steps))


@pytest.mark.parametrize(
    ("before", "after", "since"),
    [
        (saved(), saved(), BEGIN),
        (saved(), saved(10), 1060.0),
        (saved(10, at=900), saved(10, at=900), BEGIN),
        (saved(10, at=900), saved(10, 20), 1060.0),
        (saved(20), saved(10), None),
        (saved(), saved(10, at=0), None),
        (saved(), saved(10, at=END + 1), None),
    ],
    ids=["nothing", "the first", "no new one", "a new one", "removed", "of an unknown time", "by another clock"],
)
def test_the_last_progress(before: Saved, after: Saved, since: float | None) -> None:
    assert FailedAttempt(BEGIN, END, before, after).last_progress == since


@pytest.mark.parametrize(
    ("before", "after", "turns", "repeated"),
    [
        (saved(), saved(), 7, 7),
        (saved(), saved(), 0, None),
        (saved(), saved(10, 20), 25, 4),  # from step 0 or 1: at least
        (saved(10, 20), saved(10, 20, 30), 18, 8),
        (saved(20), saved(20), 7, 7),
        (saved(20), saved(30), 18, 8),
        (saved(20), saved(30), 9, None),  # seen before the checkpoint
        (saved(20), saved(10), 5, None),
        (saved(), saved(1, 2), 250, None),  # the names count epochs
        (saved(50), saved(51), 24, None),
        (saved(10, 20), saved(10, 20, 30), 38, None),  # the loop also counts steps that were skipped
        (saved(300), saved(400), 1, None),  # an iteration is an epoch
    ],
)
def test_how_many_iterations_are_computed_twice(before: Saved, after: Saved, turns: int, repeated: int | None) -> None:
    assert FailedAttempt(BEGIN, END, before, after).count_repeated(turns) == repeated
