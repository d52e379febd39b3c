"""`jaxsif run --log-dir`: a file for each task and stream, and all else as without it."""

from __future__ import annotations

import re
import time

import pytest
from harness import Cluster, jaxsif_run

TWO_NODES = (
    "--nodes=2",
    "--ntasks-per-node=4",
    "--gpus-per-node=4",
    "--srun-args=--nodelist=node[1-2]",
    "--log-dir=logs",
)
COUNTS = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); echo $SLURM_PROCID $i; done; echo ends $SLURM_PROCID >&2"


def test_every_line_is_in_the_files(cluster: Cluster, folder: str) -> None:
    run = jaxsif_run(*TWO_NODES, "--", "sh", "-c", COUNTS)
    shown, kept = cluster.check(f"cd {folder}; {run} | sort | md5sum; cat logs/*.out | sort | md5sum").splitlines()
    assert shown == kept
    files = cluster.check(f"cd {folder}/logs && wc -l *").split()
    assert files == [word for task in range(8) for word in ("1", f"task-{task}.err", "100000", f"task-{task}.out")] + [
        "800008",
        "total",
    ]
    assert cluster.check(f"cd {folder}/logs && cat task-5.err; tail -1 task-5.out") == "ends 5\n5 100000\n"


@pytest.mark.usefixtures("ssh")
@pytest.mark.parametrize("launcher", ["srun", "mpirun", "local"])
def test_a_crash_is_diagnosed_and_in_its_file(cluster: Cluster, folder: str, launcher: str) -> None:
    where = {"srun": TWO_NODES, "mpirun": ("--hosts=node1:2,node2:2",), "local": ("--gpus-per-node=4",)}[launcher]
    run = jaxsif_run(f"--launcher={launcher}", *where, "--log-dir=logs", "--", "python", "hide.py", "threads")
    done = cluster.run(f"cd {folder} && {run}")
    assert done.returncode == 1
    assert re.search(
        r"jaxsif: error: task 2 on \S+ failed: ValueError: boom, at step 3\n  from: .*hide\.py:\d+", done.stderr
    )
    assert "ValueError: boom, at step 3" in cluster.check(f"cat {folder}/logs/task-2.err")
    assert "\036" not in cluster.check(f"cat {folder}/logs/*.err")


def test_nothing_is_overwritten(cluster: Cluster, folder: str) -> None:
    for word in ("one", "two", "three"):
        cluster.check(
            f"cd {folder} && {jaxsif_run('--nodes=1', '--ntasks-per-node=2', '--log-dir=logs', '--', 'echo', word)}"
        )
    texts = cluster.check(f"cd {folder}/logs && head -qn1 task-1.out task-1.2.out task-1.3.out; ls | wc -l")
    assert texts.split() == ["one", "two", "three", "12"]


def test_a_full_disk_is_a_warning(cluster: Cluster, folder: str) -> None:
    cluster.check(f"mkdir {folder}/logs && ln -s /dev/full {folder}/logs/task-1.out")
    run = jaxsif_run("--nodes=1", "--ntasks-per-node=2", "--log-dir=logs", "--", "sh", "-c", "echo task $SLURM_PROCID")
    done = cluster.run(f"cd {folder} && {run}")
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["task 0", "task 1"])
    assert re.search(r"jaxsif: warning: not all output is in the files of --log-dir \(task 1 on node\d\)", done.stderr)
    assert cluster.check(f"cat {folder}/logs/task-0.out") == "task 0\n"


def test_a_process_that_stays_does_not_hold_up_the_run(cluster: Cluster, folder: str) -> None:
    run = jaxsif_run("--nodes=1", "--ntasks-per-node=2", "--log-dir=logs", "--", "sh", "-c", "sleep 300 & echo begun")
    begin = time.monotonic()
    done = cluster.run(f"cd {folder} && {run}")
    assert (done.returncode, done.stdout) == (0, "begun\nbegun\n"), done.stderr
    assert time.monotonic() - begin < 60  # of 300


def test_commands_without_such_files_ignore_the_setting(cluster: Cluster, folder: str) -> None:
    """The folder is made by `jaxsif run`, so it may not be there yet."""
    cluster.write(f"{folder}/jaxsif.toml", '[run]\nlog-dir = "later"\n')
    load = f"module load jax/sif && cd {folder}"
    done = cluster.run(f"{load} && jaxsif submit --wait --time=2 --nodes=1 -- echo hello")
    assert (done.returncode, cluster.check(f"cat {folder}/echo-*.out")) == (0, "hello\n"), done.stderr
    done = cluster.run(f"{load} && jaxsif shell --gpus-per-node=1", stdin="echo hello")
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    assert cluster.run(f"ls {folder}/later").returncode != 0
