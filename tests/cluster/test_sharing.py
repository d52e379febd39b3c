"""One container on each node: every task is as it would be in its own, and nothing is left, however they end."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from harness import Cluster, jaxsif_run

# What differs between any two runs.
OWN = {
    "JAX_COORDINATOR_ADDRESS",
    "JAXSIF_STEP",
    "JAXSIF_REPORT",
    "JAXSIF_COORDINATOR_PORT",
    "APPTAINER_COMMAND",
    "_",
    "SHLVL",
}
OWN |= {"SLURM_JOBID", "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME", "SLURM_TASK_PID"}
OWN |= {"SLURM_SRUN_COMM_PORT", "SLURM_STEP_LAUNCHER_PORT", "JAXSIF_DRAINS"}
# They contain the number of the task's process.
OWN |= {"JAX_MTLS_CA_FILE", "JAX_MTLS_CERT_FILE", "JAX_MTLS_KEY_FILE", "JAXSIF_STARTER"}


def mounts_and_processes(cluster: Cluster, node: str) -> str:
    """What a container could leave on a node: mounts, processes, folders, sockets."""
    script = (
        "cut -d' ' -f2- /proc/mounts | sort; pgrep -u user -a . | grep -v 'pgrep\\|bash -c'; ls -A /tmp /dev/shm;"
        " grep -c jaxsif /proc/net/unix"
    )
    return cluster.run(["bash", "-c", script], node=node).stdout


def wait_until_as_before(cluster: Cluster, node: str, before: str, timeout: float = 20) -> None:
    """The kernel and Slurm need a moment behind the end of a step."""
    deadline = time.monotonic() + timeout
    while (now := mounts_and_processes(cluster, node)) != before:
        assert time.monotonic() < deadline, f"{before}\n--- now ---\n{now}"
        time.sleep(0.1)


def show(cluster: Cluster, folder: str, containers: str) -> list[dict[str, Any]]:
    """What each of 4 tasks on 2 nodes sees, by its number."""
    options = ("--nodes=2", "--ntasks-per-node=2", "--gpus-per-node=2", "--env", "A=x,$y `z`\n", "--bind=/sw:/mnt")
    program = (f"--containers={containers}", "--", "python", "show.py", containers)
    cluster.wait_completed()
    cluster.check(f"cd {folder} && umask 027 && " + jaxsif_run(*options, *program))
    return [json.loads(cluster.check(f"cat {folder}/{containers}-{task}.json")) for task in range(4)]


def test_each_task_is_as_in_a_container_of_its_own(cluster: Cluster, folder: str) -> None:
    shared, alone = show(cluster, folder, "node"), show(cluster, folder, "task")
    assert shared[0].pop("namespace") == shared[1].pop("namespace")
    assert alone[0].pop("namespace") != alone[1].pop("namespace")
    for one, other in zip(shared[:2], alone):
        environ, expected = one.pop("environ"), other.pop("environ")
        differing = {name for name in {*environ, *expected} if environ.get(name) != expected.get(name)} - OWN
        assert differing == set(), {name: (environ.get(name), expected.get(name)) for name in differing}
        assert one == other


@contextmanager
def start_tasks(cluster: Cluster, folder: str, tasks: int, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The launcher of `tasks` tasks on one node, all of which are up, and stay until there is `folder`/go."""
    program = ("sh", "-c", "touch up.$SLURM_PROCID; until [ -e go ]; do sleep 0.1; done")
    run = jaxsif_run(f"--ntasks-per-node={tasks}", *options, "--", *program)
    with cluster.start(f"cd {folder} && {run}") as launcher:
        cluster.check(f"cd {folder} && until [ $(ls up.* 2>/dev/null | wc -l) = {tasks} ]; do sleep 0.1; done")
        try:
            yield launcher
        finally:
            cluster.check(f"touch {folder}/go")


def test_tasks_of_a_node_have_one_mount(cluster: Cluster, folder: str) -> None:
    with start_tasks(cluster, folder, 8, "--srun-args=-wnode2") as launcher:
        assert len(cluster.check(["pgrep", "-f", "^[^ ]*squashfuse_ll"], node="node2").split()) == 1
        cluster.check(f"touch {folder}/go")
        launcher.communicate(timeout=20)
    assert launcher.returncode == 0


def test_the_first_task_ends_first(cluster: Cluster) -> None:
    """What it started for all must outlive it."""
    program = 'if [ $SLURM_LOCALID = 0 ]; then exit; fi; sleep 2; python -c "import json; print(json.dumps([1]))"'
    done = cluster.run(jaxsif_run("--ntasks-per-node=3", "--srun-args=-wnode1", "--", "sh", "-c", program))
    assert (done.stdout, done.returncode) == ("[1]\n[1]\n", 0), done.stderr


def test_a_variable_set_for_all_is_the_same_for_all(cluster: Cluster) -> None:
    """Also one that each task has, with the value that the first one has."""
    run = jaxsif_run("--ntasks-per-node=2", "--env=SLURM_LOCALID=0", "--", "sh", "-c", "echo $SLURM_LOCALID")
    assert cluster.check(run) == "0\n0\n"


def test_another_user_learns_nothing_and_holds_nothing(cluster: Cluster, folder: str) -> None:
    """The keeper's socket can be seen by all on the node; who asks is looked at."""
    before = mounts_and_processes(cluster, "node4")
    ask = (
        "import re, socket\n"
        "(name,) = set(re.findall(r'@(jaxsif-\\S+)', open('/proc/net/unix').read()))\n"
        "held = []\n"
        "for _ in range(5):\n"
        "    held.append(socket.socket(socket.AF_UNIX))\n"
        "    held[-1].connect(chr(0) + name)\n"
        "    print(held[-1].recv(100))\n"
        "import time; time.sleep(60)\n"
    )
    with (
        start_tasks(cluster, folder, 2, "--srun-args=-wnode4", "--env=KEY=topsecret") as launcher,
        cluster.start(["python3", "-u", "-c", ask], node="node4", user="other") as spy,
    ):
        assert spy.stdout is not None
        assert [spy.stdout.readline() for _ in range(5)] == ["b''\n"] * 5
        cluster.check(f"touch {folder}/go")
        _, err = launcher.communicate(timeout=20)
        assert spy.poll() is None  # while it still holds its ends
        assert launcher.returncode == 0, err
        cluster.check(["pkill", "-f", "[c]onnect.chr"], node="node4", user="root")
    wait_until_as_before(cluster, "node4", before)


def test_descriptors_of_the_task_do_not_matter(cluster: Cluster) -> None:
    """One that is open already, where the socket would come to lie."""
    line = cluster.check(jaxsif_run("--ntasks-per-node=2", "--dry-run", "--", "ls", "-d", "/opt/jax")).strip()
    shim = "/usr/bin/python3 -IS"
    for number in range(3, 10):
        inherited = f"sh -c 'exec {number}</dev/null; exec \"$@\"' - {shim}"
        assert cluster.check(f"module load jax/sif; {line.replace(shim, inherited)}") == "/opt/jax\n" * 2


def test_a_runtime_that_is_not_on_the_node(cluster: Cluster, folder: str) -> None:
    """Each task says so itself, in one line."""
    cluster.check("ln -sf /usr/bin/apptainer /var/tmp/my-apptainer")  # on the login node's own disk
    run = jaxsif_run("--ntasks-per-node=2", "--", "true")
    done = cluster.run(f"export JAXSIF_RUNTIME=/var/tmp/my-apptainer; {run}")
    assert done.returncode == 125
    error = "jaxsif: error: node1 cannot execute /var/tmp/my-apptainer: No such file or directory\n"
    assert error in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("image", "message"), [("/etc/hostname", "not a SIF image"), ("/var/tmp/only-here.sif", "the image is not on node")]
)
def test_a_container_that_does_not_start_is_explained_as_ever(cluster: Cluster, image: str, message: str) -> None:
    cluster.run("module load jax/sif && cp -n $JAX_IMAGE /var/tmp/only-here.sif")  # on the login node's own disk
    done = cluster.run(jaxsif_run("--ntasks-per-node=2", "--image", image, "--", "true"), timeout=60)
    cluster.check("rm -f /var/tmp/only-here.sif")
    assert done.returncode in (125, 255)
    assert message in done.stderr


def test_an_image_that_ignores_its_arguments(cluster: Cluster, folder: str) -> None:
    """Its run script never starts what would keep the container: each task runs it, and no task starts."""
    build = (
        f"cd {folder} && apptainer --quiet build --sandbox own $JAX_IMAGE && cd own/.singularity.d && rm runscript && "
        "printf '#!/bin/sh\\necho always this\\n' >runscript && chmod +x runscript"
    )
    cluster.check(f"module load jax/sif && {build}", timeout=120)
    done = cluster.run(f"cd {folder} && " + jaxsif_run("--ntasks-per-node=2", "--image=own", "--", "true"))
    assert (done.stdout, done.returncode) == ("always this\n" * 2, 125), done.stderr
    assert "no task started (exit status 0)" in done.stderr


def test_many_starts(cluster: Cluster) -> None:
    """16 tasks of one node that end at once, some seconds later, or are killed: no failure, and nothing is left."""
    starts, killed = int(os.environ.get("STARTS", "12")), int(os.environ.get("KILLED", "4"))
    chance = random.Random(1)
    before = mounts_and_processes(cluster, "node3")
    common = "module load jax/sif; salloc --quiet --nodes=1 -w node3 --ntasks-per-node=16 bash -c "
    mixed = "jaxsif run -- sh -c 'if [ $((SLURM_PROCID % 4)) = 3 ]; then sleep SECONDS; fi' || echo failed $?"
    program = "; ".join(mixed.replace("SECONDS", str(chance.choice([0, 0, 0, 5]))) for _ in range(starts))
    done = cluster.run(common + json.dumps(program).replace("$", "\\$"), timeout=60 + 20 * starts)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    wait_until_as_before(cluster, "node3", before)
    for index in range(killed):
        number = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)[index % 3]
        script = "echo $$; " + jaxsif_run("--ntasks-per-node=16", "--srun-args=-wnode3", "--", "sleep", "60")
        with cluster.start(script) as launcher:
            assert launcher.stdout is not None
            launcher_pid = launcher.stdout.readline().strip()
            cluster.wait_steps(1)
            time.sleep(chance.random())
            if number == signal.SIGKILL:  # of the step: Slurm kills all that it finds on the node at once
                cluster.check(f"scancel --full --signal=KILL {cluster.steps()[0]}")
            else:
                cluster.check(f"kill -{number.value} {launcher_pid}")
            launcher.communicate(timeout=30)
        assert launcher.returncode != 0
        wait_until_as_before(cluster, "node3", before)
