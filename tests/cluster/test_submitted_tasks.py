"""Tasks of jobs of `jaxsif submit`: the status of the one that failed first, what `jaxsif stacks` sees of them."""

from __future__ import annotations

import shlex

import pytest
from harness import Cluster

FAILS = """
import os, sys, time
if os.environ["SLURM_PROCID"] == "2":
    {end}
time.sleep(60)
"""
# Task 1 stops in the middle of a loop, and the others wait for it in the next turn.
WAITS = """
import time, jax, numpy
jax.distributed.initialize()
from jax.experimental import multihost_utils
for step in range(1000):
    multihost_utils.process_allgather(numpy.ones(3))
    if step == 12 and jax.process_index() == 1:
        open("stopped", "w").close()
        time.sleep(100)
"""
TASKS = ("--time=2", "--nodes=2", "--ntasks-per-node=2")


def submit(folder: str, *argv: str) -> str:
    """The bash script that loads the module and executes `jaxsif submit` in a folder."""
    return f"module load jax/sif && cd {folder} && exec jaxsif submit {shlex.join((*TASKS, *argv))}"


@pytest.mark.parametrize(
    ("end", "options", "status"),
    [
        ("sys.exit(1)", (), 1),
        ("sys.exit(7)", ("--task-output=%j-%t.txt", "--error=my errors"), 7),
        ("os.kill(os.getpid(), 11)", (), 139),
        ("sys.exit(int(os.environ['SLURM_ARRAY_TASK_ID']))", ("--array=3-4",), 4),
    ],
    ids=["exit", "files", "signal", "array"],
)
def test_wait_ends_with_the_status_of_the_first_failure(
    cluster: Cluster, folder: str, end: str, options: tuple[str, ...], status: int
) -> None:
    """srun ends the other tasks by SIGTERM, and its own status is theirs: 143."""
    cluster.write(f"{folder}/a.py", FAILS.format(end=end))
    done = cluster.run(submit(folder, "--wait", *options, "--", "python", "a.py"))
    assert done.returncode == status, done.stderr
    assert done.stderr.endswith(f" ended: FAILED, exit status {status}\n")


def test_output_on_a_nodes_own_disk(cluster: Cluster, folder: str) -> None:
    cluster.write(f"{folder}/a.py", FAILS.format(end="sys.exit(1)"))
    done = cluster.run(submit(folder, "--wait", "--output=/tmp/%j.out", "--", "python", "a.py"))
    assert done.returncode == 143, done.stderr
    note = f"jaxsif: no /tmp/{done.stdout.strip()}.out here: submit in a folder that all nodes see\n"
    assert done.stderr.endswith(note), done.stderr


def test_stacks_shows_the_iterations(cluster: Cluster, folder: str) -> None:
    cluster.write(f"{folder}/a.py", WAITS)
    job = cluster.check(submit(folder, "--", "python", "a.py")).strip()
    cluster.check(f"cd {folder}; for i in $(seq 300); do [ ! -e stopped ] || break; sleep 0.1; done; sleep 3")
    shown = cluster.check(f"module load jax/sif && jaxsif stacks {job}; scancel {job}")
    assert "iteration 13 of the loop at a.py:5  tasks 0,2-3" in shown
    assert "iteration 12 of the loop at a.py:5  task 1 " in shown
    assert shown.endswith("likely: task 1 is keeping the others waiting\n")


@pytest.mark.parametrize("options", [("--time=abc",), ("--sbatch-args=--nonsense",)])
def test_options_that_sbatch_cannot_read(cluster: Cluster, folder: str, options: tuple[str, ...]) -> None:
    done = cluster.run(submit(folder, *options, "--", "true"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("jaxsif: error: sbatch refused the job: ")
    assert cluster.check(f"ls {folder}/jaxsif-jobs") == ""
