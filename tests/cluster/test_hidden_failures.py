"""Failures that something hides: the error still names the task, the line and the exception, within a second."""

from __future__ import annotations

import re
import subprocess

import pytest
from harness import Cluster, jaxsif_run, processes_left

SHAPE = ("--nodes=2", "--ntasks-per-node=2", "--gpus-per-node=2", "--srun-args=--nodelist=node[1-2]")
RAISED = r"jaxsif: error: task 2 on node2 failed: ValueError: boom, at step 3\n  from: .*/hide\.py:\d+"
# Seconds from the failure to the launcher's end; the machine may have other work.
BOUND = 2.0


def run_timed(cluster: Cluster, folder: str, *argv: str) -> tuple[subprocess.CompletedProcess[str], float]:
    """How `jaxsif run` ended, and the seconds from the failure that the program prints to its end."""
    script = f"cd {folder} && " + jaxsif_run(*argv)
    done = cluster.run(f"({script}); status=$?; date +%s.%N; exit $status")
    *output, ended = done.stdout.splitlines()
    (failed,) = [float(line.split()[-1]) for line in output if "fails at" in line]
    return done, float(ended) - failed


@pytest.mark.parametrize("kind", ["threads", "output", "child", "daemon", "text"])
def test_a_failure_that_something_hides(cluster: Cluster, folder: str, kind: str) -> None:
    """A limit of processes, much output, children that live on, and text like Slurm's own."""
    done, seconds = run_timed(cluster, folder, *SHAPE, "--", "python", "hide.py", kind)
    said = "\n".join(done.stderr.splitlines()[-5:])
    error = r"jaxsif: error: task 2 on node2 ended with exit status 1" if kind == "output" else RAISED
    assert re.search(f"{RAISED}|{error}", said), said
    assert done.returncode == 1
    assert seconds < BOUND
    assert cluster.steps() == []
    assert processes_left(cluster, "[s]leep 30[01]") == ""
