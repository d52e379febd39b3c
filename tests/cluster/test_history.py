"""The history of runs: what a failure, a kill and a folder that cannot be written leave behind."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from harness import Cluster, jaxsif_run

OPTIONS = ("--nodes=2", "--ntasks-per-node=2", "--gpus-per-node=2", "--srun-args=--nodelist=node[1-2]")


def in_history(folder: str) -> str:
    """What begins a script whose runs are in a history of their own."""
    return f"cd {folder} && export XDG_STATE_HOME={folder}/state && "


def show(cluster: Cluster, folder: str, run: str = "last") -> dict[str, Any]:
    script = f"{in_history(folder)} module load jax/sif && jaxsif history show {run} --json"
    found: dict[str, Any] = json.loads(cluster.check(script))
    return found


def test_what_happened_is_told_afterwards(cluster: Cluster, folder: str) -> None:
    run = jaxsif_run(*OPTIONS, "--", "python", "fail.py", "raise", "2")
    done = cluster.run(in_history(folder) + run)
    assert done.returncode == 1
    found = show(cluster, folder)
    assert (found["status"], found["state"], found["tasks"], found["launcher"]) == (1, "failed", 4, "srun")
    assert found["error"]["what"] == "task 2 on node2 failed: ValueError: boom, at step 3"
    assert found["command"] == ["python", "fail.py", "raise", "2"]
    assert (found["nodes"], found["jaxsif"] != "") == ("node[1-2]", True)
    assert found["slurm"] == cluster.check("srun --version").split()[-1]
    first = next(end for end in found["exits"] if end["task"] == 2)
    assert (first["node"], first["status"], first["text"]) == ("node2", 1, "ValueError: boom, at step 3")
    assert cluster.check(f"cat {found['folder']}/stderr") == done.stderr
    modes = cluster.check(f"cd {found['folder']} && stat -c %a . run.json stderr").split()
    assert modes == ["700", "600", "600"]
    table = cluster.check(in_history(folder) + "module load jax/sif && jaxsif history").splitlines()
    assert table[-1].split()[:1] == [found["name"]]
    assert "failed 1" in table[-1]
    text = cluster.check(in_history(folder) + "module load jax/sif && jaxsif history show")
    assert "  error     task 2 on node2 failed: ValueError: boom, at step 3\n" in text


def test_none_is_kept_where_none_is_wanted(cluster: Cluster, folder: str) -> None:
    cluster.check(in_history(folder) + jaxsif_run("--launcher=local", "--no-history", "--", "true"))
    cluster.write(f"{folder}/jaxsif.toml", "[run]\nhistory = false\n")
    cluster.check(in_history(folder) + jaxsif_run("--launcher=local", "--", "true"))
    assert cluster.run(["ls", f"{folder}/state/jaxsif"]).returncode != 0
    cluster.check(in_history(folder) + jaxsif_run("--launcher=local", "--history", "--", "true"))
    assert len(cluster.check(["ls", f"{folder}/state/jaxsif/runs"]).split()) == 1


def test_what_was_seen_of_tasks_that_waited_is_kept(cluster: Cluster, folder: str) -> None:
    run = jaxsif_run(*OPTIONS, "--hang-timeout=5", "--on-hang=stop", "--", "python", "fail.py", "stay", "2")
    done = cluster.run(in_history(folder) + run)
    assert done.returncode == 124, done.stderr
    found = show(cluster, folder)
    assert (found["state"], found["status"]) == ("failed", 124)
    alarm = found["alarms"][-1]
    assert all(f"jaxsif: {line}\n" in done.stderr for line in alarm["lines"])
    odd = [group["tasks"] for group in alarm["picture"]["groups"] if group["odd"]]
    assert odd == ["2"]


def test_a_run_whose_launcher_is_killed_has_no_end(cluster: Cluster, folder: str) -> None:
    script = f"{in_history(folder)} echo $$ >pid && {jaxsif_run('--launcher=local', '--', 'sleep', '1234')}"
    launcher = cluster.start(script)
    begin = time.monotonic()
    while not cluster.run(f"ls {folder}/state/jaxsif/runs/*/run.json").stdout:
        assert time.monotonic() - begin < 30
    assert show(cluster, folder)["state"] == "runs"
    cluster.check(f"kill -9 $(cat {folder}/pid)")
    launcher.communicate(timeout=30)
    found = show(cluster, folder)
    assert (found["state"], found["end"], found["status"]) == ("unknown", None, None)


def test_a_run_in_a_job_is_known_on_the_login_node(cluster: Cluster, folder: str) -> None:
    script = f"#!/bin/bash\n{in_history(folder)} {jaxsif_run('--', 'sleep', '1234')}\n"
    cluster.write(f"{folder}/job.sh", script)
    job = cluster.check(f"cd {folder} && sbatch --parsable -N1 --gpus-per-node=1 job.sh").strip()
    try:
        begin = time.monotonic()
        while not cluster.run(f"ls {folder}/state/jaxsif/runs/*/run.json").stdout:
            assert time.monotonic() - begin < 60
        found = show(cluster, folder)
        assert (found["state"], found["variables"]["SLURM_JOB_ID"]) == ("job runs", job)
    finally:
        cluster.check(f"scancel --full {job}")
    begin = time.monotonic()
    while show(cluster, folder)["state"] == "job runs":
        assert time.monotonic() - begin < 60


def test_a_folder_that_cannot_be_made_fails_no_run(cluster: Cluster, folder: str) -> None:
    script = f"cd {folder} && export XDG_STATE_HOME=/proc && {jaxsif_run('--launcher=local', '--', 'echo', 'done')}"
    done = cluster.run(script)
    assert (done.returncode, done.stdout) == (0, "done\n")
    (warning,) = done.stderr.splitlines()
    assert warning.startswith("jaxsif: warning: no history of this run: ")


def test_no_runs_yet(cluster: Cluster, folder: str) -> None:
    said = cluster.check(in_history(folder) + "module load jax/sif && jaxsif history")
    assert said == f"no runs in {folder}/state/jaxsif/runs\n"


KILLED = """\
import os, signal, time
import jax
import jax.numpy as jnp

jax.distributed.initialize()
step = 0
while True:
    jnp.ones(3).sum().block_until_ready()
    time.sleep(0.1)
    step += 1
    if step == 40 and jax.process_index() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_iteration_of_a_task_that_was_killed_is_known(cluster: Cluster, folder: str) -> None:
    cluster.write(f"{folder}/killed.py", KILLED)
    done = cluster.run(in_history(folder) + jaxsif_run(*OPTIONS, "--", "python", "killed.py"))
    assert done.returncode == 137
    error, where, _ = done.stderr.splitlines()[-3:]
    assert error == "jaxsif: error: task 1 on node1 was killed by SIGKILL"
    found = re.fullmatch(r"  from: it was in iteration (\d+) or later of the loop at killed\.py:\d+", where)
    assert found, where
    assert 20 <= int(found[1]) <= 40  # it looks once a second
    first = next(end for end in show(cluster, folder)["exits"] if end["task"] == 1)
    assert first["doing"] == where.removeprefix("  from: ")
