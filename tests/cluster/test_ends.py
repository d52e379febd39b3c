"""Runs that end otherwise than by a crash: what the last error says, and that nothing is left."""

from __future__ import annotations

import re
import subprocess
import time

import pytest
from harness import PROGRAMS, Cluster, jaxsif_run, processes_left

OPTIONS = ("--nodes=2", "--ntasks-per-node=2", "--gpus-per-node=2", "--srun-args=--nodelist=node[1-2]")
# Ignores what asks it to end, so that only SIGKILL ends it.
STUBBORN = ("sh", "-c", "trap '' TERM INT; echo computes; sleep 1234; sleep 1234")


def line_of(text: str) -> int:
    """The number of the line of fail.py that has `text`."""
    lines = (PROGRAMS / "fail.py").read_text().splitlines()
    return 1 + next(index for index, line in enumerate(lines) if text in line)


SUMS, SLEEPS = line_of("total(jnp.ones"), line_of("time.sleep")


def start(cluster: Cluster, folder: str, *program: str, computing: int = 4) -> subprocess.Popen[str]:
    """A run in the folder, whose number is in the file `pid`, once so many tasks compute."""
    run = jaxsif_run(*OPTIONS, "--", *program)
    launcher = cluster.start(f"cd {folder} && echo $$ >pid && {run}")
    assert launcher.stdout is not None
    for _ in range(computing):
        while "computes" not in launcher.stdout.readline():
            assert launcher.poll() is None
    return launcher


def tasks_left(cluster: Cluster) -> str:
    """What runs of these tests on the nodes."""
    return processes_left(cluster, "[f]ail.py|[s]tart.sh|[s]leep 1234")


@pytest.mark.parametrize(
    ("kind", "status", "said"),
    [
        ("leave", 1, "ended with exit status 0, and 3 of 4 tasks did not"),
        ("absent", 134, "ended with exit status 0 and never reached jax.distributed.initialize, where the others "),
    ],
)
def test_a_task_that_leaves_is_named(cluster: Cluster, folder: str, kind: str, status: int, said: str) -> None:
    limit = ["--init-timeout=5"] if kind == "absent" else []
    script = jaxsif_run(*OPTIONS, *limit, "--", "python", "fail.py", kind, "2")
    done = cluster.run(f"cd {folder} && {script}")
    assert done.returncode == status
    error, where, hint = done.stderr.splitlines()[-3:]
    assert error.startswith(f"jaxsif: error: task 2 on node2 {said}"), done.stderr
    way = r"sys\.exit\(0\)" if kind == "absent" else r"os\._exit\(0\)"
    others = r"the others were at \S+/fail\.py:\d+ \(tasks? [013,-]+\)"
    assert re.fullmatch(rf"  from: {way}, at \S+/fail\.py:\d+; {others}", where), done.stderr
    assert hint.startswith("  try:  ")


@pytest.mark.parametrize(("name", "status"), [("INT", 130), ("TERM", 143)])
def test_a_signal_tells_where_tasks_hang(cluster: Cluster, folder: str, name: str, status: int) -> None:
    launcher = start(cluster, folder, "python", "fail.py", "stay", "2", computing=3)
    time.sleep(1)  # the fourth comes to its line
    begin = time.monotonic()
    cluster.check(f"kill -{name} $(cat {folder}/pid)")
    _, err = launcher.communicate(timeout=20)
    assert time.monotonic() - begin < 5  # SIGKILL comes then
    assert launcher.returncode == status
    # srun may drop what the last of the tasks says.
    line = rf"jaxsif: tasks were at \S+/fail\.py:{SLEEPS} \(task 2\), \S+/fail\.py:{SUMS} \(tasks? [013,-]+\)"
    assert re.fullmatch(line, err.splitlines()[-1]), err
    assert tasks_left(cluster) == ""


def test_a_second_ctrl_c_ends_what_ignores_the_first(cluster: Cluster, folder: str) -> None:
    launcher = start(cluster, folder, *STUBBORN)
    cluster.check(f"kill -INT $(cat {folder}/pid); sleep 0.2; kill -INT $(cat {folder}/pid)")
    launcher.communicate(timeout=10)
    assert launcher.returncode == 130
    cluster.wait_steps(0)
    assert tasks_left(cluster) == ""


@pytest.mark.parametrize("end", ["kill -INT $(cat pid)", "scancel --me"])
def test_a_task_that_came_to_its_end_is_named_when_somebody_ends_the_run(
    cluster: Cluster, folder: str, end: str
) -> None:
    """Its neighbours wait for it in a sum, and it for them in JAX's barrier."""
    launcher = start(cluster, folder, "python", "fail.py", "end", "2", computing=3)
    time.sleep(1)
    cluster.check(f"cd {folder} && {end}")
    _, err = launcher.communicate(timeout=20)
    assert launcher.returncode == (130 if "INT" in end else 143)
    error, where, _ = err.splitlines()[-3:]
    assert error == "jaxsif: error: task 2 on node2 reached the end of the program, and 3 of 4 tasks did not", err
    assert re.search(rf"the others were at \S+/fail\.py:{SUMS} \(tasks? [013,-]+\)$", where), err
    assert ("the run was cancelled: step " in where) == ("scancel" in end)


def test_nobody_is_blamed_for_a_cancelled_run(cluster: Cluster, folder: str) -> None:
    launcher = start(cluster, folder, "python", "fail.py", "none", "0")
    cluster.check("scancel --me")
    _, err = launcher.communicate(timeout=20)
    assert launcher.returncode == 143
    error, where, hint = err.splitlines()[-3:]
    assert re.fullmatch(r"jaxsif: error: the run was cancelled: step \d+\.0", error), err
    assert re.match(rf"  from: tasks were at .*/fail\.py:{SUMS} \(tasks? ", where), err
    assert hint.startswith("  try:  see by whom, if Slurm keeps accounts: sacct --jobs=")


def test_nobody_is_blamed_for_the_time_limit(cluster: Cluster, folder: str) -> None:
    launcher = start(cluster, folder, "sh", "-c", "echo computes; sleep 1234")
    cluster.check("scontrol update JobId=$(squeue --me --noheader --format=%i) EndTime=now+1")
    _, err = launcher.communicate(timeout=90)  # Slurm looks every few seconds
    assert launcher.returncode == 143
    assert re.search(r"\njaxsif: error: job \d+ reached its time limit\n  try:  pass a longer --time", err), err


def test_tasks_that_live_on_at_the_time_limit_are_named(cluster: Cluster, folder: str) -> None:
    """Slurm kills the launcher with its tasks later; nothing is shown or kept then."""
    run = jaxsif_run(*OPTIONS, "--", *STUBBORN)
    cluster.write(f"{folder}/job.sh", f"#!/bin/bash\n{run}\n")
    cluster.check(f"cd {folder} && sbatch --nodes=2 --ntasks-per-node=2 --gpus-per-node=2 --output=log job.sh")
    wait = "for i in $(seq 300); do grep -q '{text}' log 2>/dev/null && break; sleep 0.2; done"
    cluster.check(f"cd {folder} && {wait.format(text='computes')}")
    cluster.check("scontrol update JobId=$(squeue --me --noheader --format=%i) EndTime=now+1")
    cluster.check(f"cd {folder} && {wait.format(text='^jaxsif: ')}")
    (line,) = re.findall("(?m)^jaxsif: .*$", cluster.check(["cat", f"{folder}/log"]))
    words = r"jaxsif: job \d+ reached its time limit; tasks 0-3 have not ended after 10 s"
    assert re.fullmatch(words, line)
    shown = cluster.check("module load jax/sif; jaxsif history show last; jaxsif explain last")
    assert re.search(r"^run \S+: it was ended from outside, exit status 143\n", shown), shown
    assert re.search(r"\n  error +job \d+ reached its time limit\n", shown), shown
    cluster.wait_completed()


def test_tasks_that_ctrl_c_had_to_kill_are_named(cluster: Cluster, folder: str) -> None:
    launcher = start(cluster, folder, *STUBBORN)
    cluster.check(f"kill -INT $(cat {folder}/pid)")
    _, err = launcher.communicate(timeout=20)
    assert launcher.returncode == 130
    assert err.endswith("jaxsif: srun killed tasks 0-3 before they had ended on SIGTERM\n"), err


def test_when_srun_is_killed_its_tasks_end(cluster: Cluster, folder: str) -> None:
    launcher = start(cluster, folder, *STUBBORN)
    begin = time.monotonic()
    cluster.check(f"pkill -KILL -x -P $(cat {folder}/pid) srun")
    _, err = launcher.communicate(timeout=20)
    assert launcher.returncode == 137
    assert "jaxsif: error: srun was killed by SIGKILL\n  from: this host\n" in err
    cluster.wait_steps(0)
    assert time.monotonic() - begin < 10
    assert tasks_left(cluster) == ""
    cluster.wait_completed()
    assert cluster.check("squeue --me --noheader") == ""


def test_when_the_launcher_is_killed_its_tasks_end(cluster: Cluster, folder: str) -> None:
    launcher = start(cluster, folder, *STUBBORN)
    begin = time.monotonic()
    cluster.check(f"kill -KILL $(cat {folder}/pid)")
    launcher.communicate(timeout=20)
    cluster.wait_steps(0)
    assert time.monotonic() - begin < 10
    assert tasks_left(cluster) == ""


@pytest.mark.parametrize("kind", ["io", "pure"])
def test_the_exception_of_a_callback_is_told(cluster: Cluster, folder: str, kind: str) -> None:
    done = cluster.run(f"cd {folder} && " + jaxsif_run("--nodes=1", "--", "python", "callback.py", kind))
    assert done.returncode == 1
    line = 1 + (PROGRAMS / "callback.py").read_text().splitlines().index('    raise ValueError("in the callback")')
    said = r"jaxsif: error: task 0 on node1 failed: ValueError: in the callback \(in a JAX callback\)"
    assert re.search(rf"{said}\n  from: {folder}/callback\.py:{line}\n$", done.stderr), done.stderr


def test_an_image_that_is_written_to_under_a_run_is_named(cluster: Cluster, folder: str) -> None:
    program = "import os, time; open('ready', 'w')\nwhile os.path.exists('ready'): time.sleep(0.1)\n"
    program += "import decimal, xml.dom.minidom, asyncio, sqlite3, jax"
    cluster.check(f"module load jax/sif && cp $JAX_IMAGE {folder}/mine.sif")
    run = jaxsif_run("--nodes=1", "--image=mine.sif", "--", "python", "-c", program)
    launcher = cluster.start(f"cd {folder} && {run}")
    cluster.check(f"cd {folder} && until [ -e ready ]; do sleep 0.1; done; truncate -s 20M mine.sif; rm ready")
    _, err = launcher.communicate(timeout=20)
    assert launcher.returncode not in (0, 125)
    assert f"{folder}/mine.sif, which was written to during the run\n  try:  copy a new image beside" in err


LATE = """\
import os, sys, time
def load():
    time.sleep(600)
if os.environ["SLURM_PROCID"] == sys.argv[1]:
    load()
import jax
jax.distributed.initialize()
"""


@pytest.mark.parametrize("late", [0, 2])
def test_a_process_that_does_not_come_is_named(cluster: Cluster, folder: str, late: int) -> None:
    """JAX ends those that wait for it, and speaks of none; with the lines where it was and where they were."""
    cluster.write(f"{folder}/late.py", LATE)
    run = jaxsif_run(*OPTIONS, "--init-timeout=5", "--", "python", "late.py", str(late))
    done = cluster.run(f"cd {folder} && {run}")
    assert done.returncode == 134
    never = rf"task {late} on node{1 + late // 2} never arrived"
    what = rf"{never}, and task \d on node\d timed out waiting at \S*/late.py:7"
    where = rf"  from: \S*/late.py:3, where task {late} on node\d was"
    assert re.search(rf"^jaxsif: error: {what}\n{where}$", done.stderr, re.MULTILINE), done.stderr


# Task 2 raises an exception; the others wait for it in a sum.
RAISES = """\
import sys

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

jax.distributed.initialize()


def main():
    if jax.process_index() == 2:
        raise ValueError("boom")
    multihost_utils.process_allgather(jnp.ones(2))


"""


@pytest.mark.parametrize(
    ("end", "status", "said"),
    [
        ("try:\n    main()\nfinally:\n    jax.distributed.shutdown()\n", 134, "ValueError: boom"),
        ("try:\n    main()\nexcept ValueError:\n    sys.exit(1)\n", 1, "ValueError: boom"),
        ("try:\n    main()\nexcept ValueError:\n    sys.exit(75)\n", 75, r"ValueError: boom \(then sys\.exit\(75\)\)"),
    ],
    ids=["a shutdown", "an exit", "an exit with a number"],
)
def test_an_exception_behind_another_end_is_named(
    cluster: Cluster, folder: str, end: str, status: int, said: str
) -> None:
    cluster.write(f"{folder}/raises.py", RAISES + end)
    done = cluster.run(f"cd {folder} && " + jaxsif_run(*OPTIONS, "--shutdown-timeout=5", "--", "python", "raises.py"))
    assert done.returncode == status, done.stderr
    found = re.search("(?m)^jaxsif: error: .*\n  from: .*$", done.stderr)
    assert found, done.stderr
    named = rf"jaxsif: error: task 2 on node2 failed: {said}\n  from: \S+/raises\.py:12"
    assert re.fullmatch(named, found[0]), done.stderr
