"""One process of four on two nodes fails: the step is over within seconds, with its status, and its name is last."""

from __future__ import annotations

import re
import time

import pytest
from harness import Cluster, jaxsif_run

pytestmark = pytest.mark.core

FAILURES = {
    "raise": (1, r"failed: ValueError: boom, at step 3\n  from: .*/fail\.py:\d+"),
    "exit": (3, r"failed: sys\.exit\(3\)\n  from: .*/fail\.py:\d+"),
    "kill": (137, r"was killed by SIGKILL"),
    "segv": (139, r"was killed by SIGSEGV\n  from: .*/fail\.py:\d+"),
}
# Seconds from the failure to the launcher's end.
BOUND = 4.5


@pytest.mark.parametrize("culprit", [0, 2])
@pytest.mark.parametrize("kind", FAILURES)
def test_failure_ends_the_step(cluster: Cluster, folder: str, kind: str, culprit: int) -> None:
    status, message = FAILURES[kind]
    options = ["--nodes=2", "--ntasks-per-node=2", "--gpus-per-node=2", "--srun-args=--nodelist=node[1-2]"]
    script = f"cd {folder} && " + jaxsif_run(*options, "--", "python", "fail.py", kind, str(culprit))
    done = cluster.run(f"({script}); status=$?; date +%s.%N; exit $status")
    *output, ended = done.stdout.splitlines()
    failed = [float(line.split()[-1]) for line in output if f"process {culprit} fails at" in line]
    assert done.returncode == status
    assert len(failed) == 1
    assert float(ended) - failed[0] < BOUND
    node = f"node{1 + culprit // 2}"
    last_lines = "\n".join(done.stderr.splitlines()[-10:])
    assert re.search(rf"jaxsif: error: task {culprit} on {node} {message}", last_lines), done.stderr
    assert cluster.steps() == []


def test_traceback_stands_once_and_whole(cluster: Cluster, folder: str) -> None:
    done = cluster.run(
        f"cd {folder} && " + jaxsif_run("--nodes=1", "--gpus-per-node=2", "--", "python", "fail.py", "raise", "1")
    )
    # The neighbour has one of its own: its connection broke.
    traceback = rf'File "{folder}/fail.py", line \d+, in <module>\n    raise ValueError\("boom, at step 3"\)\n'
    assert (
        len(
            re.findall(
                rf"Traceback \(most recent call last\):\n  {traceback}ValueError: boom, at step 3\n", done.stderr
            )
        )
        == 1
    )


@pytest.mark.parametrize(("command", "status"), [("exit 0", 0), ("exit 1", 1), ("exit 7", 7), ("kill -TERM $$", 143)])
def test_exit_status_of_the_program(cluster: Cluster, command: str, status: int) -> None:
    done = cluster.run(jaxsif_run("--nodes=2", "--ntasks-per-node=1", "--", "bash", "-c", command))
    assert done.returncode == status
    assert bool(done.stderr) == bool(status)


def test_a_failed_helper_process_is_the_programs_own_affair(cluster: Cluster) -> None:
    script = "python -c 'raise ValueError(1)' 2>/dev/null; python -c 'import sys; sys.exit(4)'; echo fine"
    done = cluster.run(jaxsif_run("--nodes=1", "--", "bash", "-c", script))
    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", "")


def test_exit_handlers_run_after_a_failure_too(cluster: Cluster, folder: str) -> None:
    """JAX's own handler, the barrier, is left out; the program's get their moment, and not more than that."""
    program = (
        "import atexit, sys, time, jax; jax.distributed.initialize(); "
        "atexit.register(print, 'handler ran'); jax.process_index() or sys.exit(5); time.sleep(600)"
    )
    begin = time.monotonic()
    done = cluster.run(jaxsif_run("--nodes=2", "--gpus-per-node=1", "--", "python", "-c", program))
    assert done.returncode == 5
    assert done.stdout == "handler ran\n"
    assert time.monotonic() - begin < 60


def test_a_package_that_the_image_lacks(cluster: Cluster, folder: str) -> None:
    """The package has another name than the module; a module of the program's own is no package."""
    cluster.check(f"cd {folder} && mkdir lib && touch lib/mine.py && echo 'import mine' >own.py")

    def hint(*program: str) -> str:
        own = f"cd {folder} && export XDG_DATA_HOME={folder}/data && "  # a layer of another test may have the package
        done = cluster.run(own + jaxsif_run("--nodes=1", "--", "python", *program))
        assert done.returncode == 1
        assert "failed: ModuleNotFoundError: No module named '" in done.stderr
        return done.stderr.splitlines()[-1]

    assert hint("-c", "import PIL") == "  try:  pass --layer NAME after jaxsif layer create NAME pillow"
    assert hint("own.py") == f"  try:  pass --env PYTHONPATH={folder}/lib: mine is there"


def test_a_forgotten_initialize_is_warned_of(cluster: Cluster) -> None:
    two = ("--nodes=1", "--ntasks-per-node=2", "--gpus-per-node=2")
    program = ("--", "python", "-c", "import jax; jax.devices()")
    done = cluster.run(jaxsif_run(*two, *program))
    assert (done.returncode, done.stderr) == (
        0,
        "jaxsif: warning: 2 tasks ran JAX, and none called jax.distributed.initialize(): each computed on its own;"
        " if that is intended, pass --env JAXSIF_INDEPENDENT=1\n",
    )
    for argv in ((*two, "--env=JAXSIF_INDEPENDENT=1", *program), ("--nodes=1", *program), (*two, "--", "true")):
        done = cluster.run(jaxsif_run(*argv))
        assert (done.returncode, done.stderr) == (0, "")
