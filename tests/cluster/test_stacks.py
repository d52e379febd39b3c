"""`jaxsif stacks`: what the tasks of a running step do, whoever has started it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Cluster

BOXED = Path(__file__).parents[1] / "unit/kit/waiting_task.py"
Submit = Callable[[str, str, int], str]


@pytest.fixture
def submit(cluster: Cluster, folder: str) -> Submit:
    """Submits a job of some options and a command, waits for its step's tasks, and returns the job's number."""
    cluster.write(f"{folder}/waiting_task.py", BOXED.read_text())

    def submit(options: str, command: str, tasks: int) -> str:
        script = f"#!/bin/bash -l\n#SBATCH {options}\n{command}\n"
        cluster.write(f"{folder}/job.sh", script.replace(" : ", "\n#SBATCH hetjob\n#SBATCH "))
        job = cluster.check(f"cd {folder} && sbatch --parsable --time=2 --output=log job.sh").strip()
        count = f"cat {folder}/log 2>/dev/null | grep -c ready"
        cluster.check(
            f"for i in $(seq 150); do [ $({count}) -ge {tasks} ] && exit; sleep 0.2; done; cat {folder}/log; exit 1"
        )
        return job

    return submit


def stacks(cluster: Cluster, *words: str) -> tuple[list[str], float]:
    """The lines that it prints, and the seconds that it takes."""
    begin = time.monotonic()
    lines = cluster.check(f"module load jax/sif && jaxsif stacks {' '.join(words)}").splitlines()
    return lines, time.monotonic() - begin


def line_of(text: str) -> int:
    """The number of the last line of the task's program with this text."""
    return max(number for number, line in enumerate(BOXED.read_text().splitlines(), 1) if line.strip() == text)


def test_sixteen_tasks_on_four_nodes(cluster: Cluster, submit: Submit) -> None:
    """The step has all CPUs, memory and GPUs of its nodes; one task does something else."""
    what = "sh -c 'case $SLURM_PROCID in 5) what=sleep ;; *) what=lock ;; esac; exec python3 waiting_task.py $what'"
    options = "--nodes=4 --ntasks-per-node=4 --gpus-per-node=4 --exclusive --mem=0"
    job = submit(options, f"srun --exclusive --mem=0 --gpus-per-node=4 {what}", 16)
    lines, seconds = stacks(cluster)
    assert lines == [
        f"step {job}.0: 16 tasks on 4 nodes",
        f"  15 tasks are waiting in a collective  waiting_task.py:{line_of('held.acquire()')} lock   "
        "iteration 12 of the loop at train.py:38"
        "  tasks 0-4,6-15 on node1, node2, node3, node4",
        f"   1 task  is sleeping                  waiting_task.py:{line_of('time.sleep(100)')} sleep  "
        "iteration 12 of the loop at train.py:38"
        "  task 5 on node2",
        "  likely: task 5 is keeping the others waiting",
    ]
    assert seconds < 8  # a node has 10
    found = json.loads("\n".join(stacks(cluster, f"{job}.0", "--json")[0]))
    assert [(one["count"], one["kind"], one["odd"]) for one in found["groups"]] == [
        (15, "collective", False),
        (1, "sleep", True),
    ]
    assert found["silent"] == []
    assert cluster.steps() == [f"{job}.0", f"{job}.batch"]


PROGRAM = """import time; print("ready", flush=True); time.sleep(100)"""


@pytest.mark.parametrize(
    ("tasks_per_node", "command", "place"),
    [
        (1, f"srun python3 -c '{PROGRAM}'", r"\S.*"),
        # Of the processes of a task, the runtime's and the file system's are not the program.
        (2, f"module load jax/sif; srun apptainer exec $JAX_IMAGE python3 -c '{PROGRAM}'", r"\S.*"),
        # One container on each node, and a shell around each program.
        (2, "module load jax/sif; jaxsif run -- python waiting_task.py sleep", r"waiting_task.py:\d+ sleep .*"),
    ],
    ids=["host", "container", "jaxsif"],
)
def test_steps_of_every_kind(cluster: Cluster, submit: Submit, tasks_per_node: int, command: str, place: str) -> None:
    tasks = 2 * tasks_per_node
    options = f"--nodes=2 --ntasks-per-node={tasks_per_node} --gpus-per-node={tasks_per_node}"
    job = submit(options, command, tasks)
    lines, _ = stacks(cluster, f"{job}.0")
    assert lines[0] == f"step {job}.0: {tasks} tasks on 2 nodes"
    assert re.fullmatch(rf"  {tasks} tasks are sleeping  {place} tasks 0-{tasks - 1} on node1, node2", lines[1])


def test_both_components_of_a_heterogeneous_job(cluster: Cluster, submit: Submit) -> None:
    command = "srun --het-group=0,1 python3 waiting_task.py sleep"
    job = submit("--nodes=1 --ntasks=2 : --nodes=2 --ntasks=2", command, 4)
    lines, _ = stacks(cluster, job)
    assert lines[0] == f"step {job}.0: 4 tasks on 3 nodes"


def test_inside_a_job_it_is_that_one(cluster: Cluster, submit: Submit) -> None:
    first = submit("--nodes=1", "srun --overlap python3 waiting_task.py sleep", 1)
    submit("--nodes=1", "srun python3 waiting_task.py sleep", 1)
    inside = (
        f"srun --overlap --jobid={first} --nodes=1 --ntasks=1 bash -lc 'module load jax/sif && jaxsif stacks {first}.0'"
    )
    assert cluster.check(inside).startswith(f"step {first}.0: 1 task on 1 node\n")


@pytest.fixture
def frozen(cluster: Cluster) -> Iterator[Callable[[str], None]]:
    """Stops the slurmd of a node, which goes on after the test."""
    stopped: list[str] = []

    def freeze(node: str) -> None:
        cluster.check("kill -STOP $(cat /run/slurmd*.pid)", node=node, user="root")
        stopped.append(node)

    yield freeze
    for node in stopped:
        cluster.check("kill -CONT $(cat /run/slurmd*.pid)", node=node, user="root")


def test_a_node_that_does_not_answer(cluster: Cluster, submit: Submit, frozen: Callable[[str], None]) -> None:
    job = submit("--nodes=2 --ntasks-per-node=1", "srun python3 waiting_task.py sleep", 2)
    frozen("node2")
    lines, seconds = stacks(cluster, job)
    assert lines[0] == f"step {job}.0: 1 task on 1 node"
    assert lines[-1] == "  no answer from node2"
    assert seconds < 25


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("", "none of your jobs is running"),
        ("4000000", "job 4000000 is not running"),
        ("a.b", "not a Slurm step: 'a.b'"),
    ],
)
def test_no_step(cluster: Cluster, words: str, what: str) -> None:
    done = cluster.run(f"module load jax/sif && jaxsif stacks {words}")
    assert done.returncode == 2
    assert done.stderr.startswith(f"jaxsif: error: {what}")


def test_a_run_on_one_machine(cluster: Cluster, folder: str) -> None:
    cluster.write(f"{folder}/waiting_task.py", BOXED.read_text())
    run = "jaxsif run --launcher=local --ntasks-per-node=2 -- python waiting_task.py sleep >log 2>&1 & run=$!"
    wait = "for i in $(seq 100); do [ $(grep -c ready log) = 2 ] && break; sleep 0.2; done"
    # Without Slurm on the PATH.
    ask = "J=$(command -v jaxsif) && PATH= $J stacks $run"
    end = "kill $run; wait $run || true"
    done = cluster.run(f"cd {folder}; module load jax/sif; {run}; {wait}; {ask}; {end}; PATH= $J stacks $run")
    stacks = r"process \d+: 2 tasks on 1 node\n  2 tasks are sleeping  waiting_task.py:"
    assert re.match(stacks, done.stdout), done.stderr
    assert done.returncode == 2
    assert re.match(r"jaxsif: error: process \d+ has no tasks on this host\n", done.stderr), done.stderr
