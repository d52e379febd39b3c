"""Tasks that compile other programs than the others are named; harmless differences are not."""

from __future__ import annotations

import re
import subprocess

import pytest
from harness import Cluster, jaxsif_run

FOUR = ("--nodes=2", "--ntasks-per-node=2", "--gpus-per-node=2")
WARN, STOP = "--check-programs=warn", "--check-programs=stop"
# What process 1 does, and how it is told from what the others do.
PLACE = r"\S*census\.py:\d+"
MISMATCHES = {
    "dtype": rf"jit_loss for \(tensor<16xi32>\) at {PLACE}, [23] others for \(tensor<16xf32>\) at {PLACE}",
    "shape": rf"jit_loss for \(tensor<20xf32>\) at {PLACE}, [23] others for \(tensor<16xf32>\) at {PLACE}",
    "order": rf"jit_other for \(tensor<16xf32>\) at {PLACE}, [23] others jit_loss for \(tensor<16xf32>\) at .*",
    "only": rf"jit_other for \(tensor<16xf32>\) at {PLACE}, [23] others jit_loss for \(tensor<16xf32>\) at .*",
}
ALIKE = ("partitioning", "callback", "pure", "printing", "stages", "alone", "threads")


def run(cluster: Cluster, folder: str, option: str, *program: str) -> subprocess.CompletedProcess[str]:
    soon = [] if program[-1] in ALIKE else ["--shutdown-timeout=3"]
    argv = jaxsif_run(*FOUR, *soon, option, "--", "python", *program)
    return cluster.run(f"cd {folder} && {argv}")


@pytest.mark.parametrize("kind", MISMATCHES)
def test_another_program_is_warned_of(cluster: Cluster, folder: str, kind: str) -> None:
    done = run(cluster, folder, WARN, "census.py", kind)
    text = rf"^jaxsif: warning: task 1 compiled {MISMATCHES[kind]}: their results may be wrong$"
    assert len(re.findall(text, done.stderr, re.MULTILINE)) == 1, done.stderr


@pytest.mark.parametrize("kind", ["dtype", "shape", "order"])
def test_another_program_is_not_run(cluster: Cluster, folder: str, kind: str) -> None:
    """Task 1 notices it, and so does task 2, which compares its programs with those of task 1, and may end first: the
    others may not have compiled anything yet."""
    done = run(cluster, folder, STOP, "census.py", kind)
    assert done.returncode == 1
    mismatch = MISMATCHES[kind].replace("[23] others", "(?:[23] others|and task 0)")
    text = rf"^jaxsif: error: task 1 compiled {mismatch}; the run was ended$"
    assert re.search(text, done.stderr, re.MULTILINE), done.stderr
    assert "executed" not in done.stdout


@pytest.mark.parametrize("option", [WARN, STOP], ids=["warn", "stop"])
@pytest.mark.parametrize("kind", ALIKE)
def test_harmless_differences(cluster: Cluster, folder: str, kind: str, option: str) -> None:
    done = run(cluster, folder, option, "census.py", kind)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_example(cluster: Cluster, programs: str) -> None:
    done = run(cluster, f"{programs}/slurm/mistakes", WARN, "shapes.py")
    assert done.returncode == 0
    types = r"\(tensor<4xf32>\) at \S*shapes\.py:\d+, [23] others for \(tensor<8xf32>\)"
    assert re.search(rf"jaxsif: warning: task 3 compiled jit_mean for {types}", done.stderr), done.stderr
