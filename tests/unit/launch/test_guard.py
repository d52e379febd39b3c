"""Which runs have a guard, and where."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from threading import Event, Thread

import pytest

from jaxsif.job.allocation import Allocation
from jaxsif.launch import guard

BATCH = {"SLURM_JOB_ID": "12", "ENVIRONMENT": "BATCH", "SLURMD_NODENAME": "node2"}
JOB = Allocation("12", 4, nodelist="node[1-4]")


@pytest.mark.parametrize(
    ("job", "environ", "nodes"),
    [
        (JOB, BATCH, ["node4", "node3", "node1"]),
        (JOB, {"SLURMD_NODENAME": "node1"}, []),  # salloc: the first node's interactive step ends the job
        (JOB, {"ENVIRONMENT": "BATCH"}, []),
        (JOB, {**BATCH, "SLURMD_NODENAME": "login"}, []),  # salloc in the script of another job
        (JOB._replace(in_step=True), BATCH, []),
        (Allocation("12", 1, nodelist="node2"), BATCH, []),
    ],
    ids=["a batch job", "salloc", "elsewhere", "another job", "a step", "one node"],
)
def test_where_the_guard_is(
    monkeypatch: pytest.MonkeyPatch, job: Allocation, environ: dict[str, str], nodes: list[str]
) -> None:
    """Spare nodes, which come last in the job, are the first."""
    kept: list[tuple[str, ...]] = []

    def keep(commands: Sequence[tuple[str, ...]], *_more: object) -> None:
        kept.extend(commands)

    monkeypatch.setattr(guard, "_keep_guard", keep)
    with guard.guarded(job, environ, print):
        pass
    assert [command for command in kept if f"{guard.PACKAGE}/node/guard.py" not in command] == []
    assert [word[11:] for command in kept for word in command if word.startswith("--nodelist=")] == nodes


@pytest.mark.parametrize(
    ("array", "name"), [({}, "12"), ({"SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "0"}, "12_0")]
)
def test_the_guard_takes_nothing_and_knows_the_job(array: dict[str, str], name: str) -> None:
    """And not the whole array."""
    command = " ".join(guard.make_commands({**BATCH, **array}, "node1", ["node3"])[0])
    assert command.startswith("srun --jobid=12 --overlap --mem=0 ")
    assert " --gres=none --job-name=jaxsif-guard --input=all --nodes=1 --ntasks=1 --nodelist=node3 " in command
    assert f"/jaxsif/node/guard.py 12 {name} node1 " in command


@pytest.mark.starts_processes
def test_each_reason_for_a_lost_guard_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_BEAT", 0.05)
    monkeypatch.setattr(guard, "_PAUSE", 0.01)
    told: list[str] = []
    over = Event()
    commands = [("sh", "-c", f"{say} >&2") for say in ("echo first; echo srun: error: node3 is down", "true")]
    thread = Thread(target=guard._keep_guard, args=(commands, os.environ, over, told.append))
    thread.start()
    time.sleep(1)
    over.set()
    thread.join()
    start = ": starting another one"
    ended = "warning: the guard of jaxsif run has ended"
    assert told == [f"{ended} (srun: error: node3 is down){start}", f"{ended}{start}"]
