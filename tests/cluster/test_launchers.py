"""Labels, exit status, standard input, Ctrl-C and signals are the same with srun, mpirun and local processes."""

from __future__ import annotations

import os
import pty
import subprocess
import time

import pytest
from harness import MINICLUSTER, Cluster, jaxsif_run, processes_left

TASKS = 4
LAUNCHERS = {
    "srun": ("--nodes=2", "--ntasks-per-node=2"),
    "mpirun": ("--hosts=node1:2,node2:2",),
    "local": ("--launcher=local", "--ntasks-per-node=4"),
}
pytestmark = [
    pytest.mark.usefixtures("ssh"),
    pytest.mark.parametrize("options", LAUNCHERS.values(), ids=LAUNCHERS.keys()),
]
# As a program that computes: it ends when it is told to.
BUSY = "echo up; exec sleep 4321"


def test_label_exit_status_and_standard_input(cluster: Cluster, options: tuple[str, ...]) -> None:
    """One task fails, the others would go on for a minute."""
    program = (
        "echo out $SLURM_PROCID $SLURM_NTASKS; echo err >&2; sleep 0.7; "
        'if [ $SLURM_PROCID = 0 ]; then echo "$(cat)"; fi; if [ $SLURM_PROCID = 1 ]; then sleep 3; exit 7; fi; sleep 61'
    )
    begin = time.monotonic()
    done = cluster.run(jaxsif_run(*options, "--label", "--", "sh", "-c", program), stdin="abc\n")
    assert time.monotonic() - begin < 30
    assert done.returncode == 7
    assert sorted(done.stdout.splitlines()) == sorted([*(f"{task}: out {task} {TASKS}" for task in range(4)), "0: abc"])
    errors = done.stderr.splitlines()
    assert sorted(line for line in errors if line.endswith("err")) == [f"{task}: err" for task in range(4)]
    assert errors[-1].startswith("jaxsif: error: task 1 on ")
    assert errors[-1].endswith(" ended with exit status 7")
    assert processes_left(cluster, "[s]leep 61") == ""


def test_a_process_killed(cluster: Cluster, options: tuple[str, ...]) -> None:
    program = "sleep 0.7; [ $SLURM_PROCID != 2 ] || kill -9 $$; exec sleep 61"
    done = cluster.run(jaxsif_run(*options, "--", "sh", "-c", program))
    assert done.returncode == 137
    culprit = done.stderr.splitlines()[-2]
    assert culprit.startswith("jaxsif: error: task 2 on ")
    assert culprit.endswith(" was killed by SIGKILL")
    assert processes_left(cluster, "[s]leep 61") == ""


def test_ctrl_c_on_a_terminal(cluster: Cluster, options: tuple[str, ...]) -> None:
    """One Ctrl-C, as the terminal sends it: to the launcher and to what it has started at once."""
    terminal, side = pty.openpty()
    argv = [MINICLUSTER, "exec", "--", "bash", "-lc", jaxsif_run(*options, "--", "sh", "-c", BUSY)]
    # setsid --ctty: the terminal is the session's own, so that its ^C becomes a signal.
    process = subprocess.Popen(["setsid", "--ctty", "--wait", *argv], stdin=side, stdout=side, stderr=side)
    os.close(side)
    output = b""
    while output.count(b"up") < TASKS:
        output += os.read(terminal, 4096)
    begin = time.monotonic()
    os.write(terminal, b"\x03")
    assert process.wait(timeout=20) == 130
    assert time.monotonic() - begin < 4
    os.close(terminal)
    assert processes_left(cluster, "[s]leep 4321") == ""


def test_sigterm(cluster: Cluster, options: tuple[str, ...]) -> None:
    with cluster.start("echo $$; " + jaxsif_run(*options, "--", "sh", "-c", BUSY)) as launcher:
        assert launcher.stdout is not None
        pid, *up = [launcher.stdout.readline().strip() for _ in range(1 + TASKS)]
        assert up == ["up"] * TASKS
        begin = time.monotonic()
        cluster.check(["kill", "-TERM", pid])
        launcher.communicate(timeout=20)
        assert time.monotonic() - begin < 4
    assert launcher.returncode == 143
    assert processes_left(cluster, "[s]leep 4321") == ""


def test_signal_for_the_program(cluster: Cluster, options: tuple[str, ...]) -> None:
    """SIGURG; srun does not pass it on, and jaxsif goes to the nodes."""
    program = (
        "import signal, sys, time\n"
        "def save(*_): import decimal; print('saved'); sys.exit(0)\n"
        "signal.signal(signal.SIGURG, save); print('up'); time.sleep(60)"
    )
    with cluster.start("echo $$; " + jaxsif_run(*options, "--", "python", "-c", program)) as launcher:
        assert launcher.stdout is not None
        pid, *up = [launcher.stdout.readline().strip() for _ in range(1 + TASKS)]
        assert up == ["up"] * TASKS
        cluster.check(["kill", "-URG", pid])
        out, _ = launcher.communicate(timeout=20)
    assert (launcher.returncode, out) == (0, "saved\n" * TASKS)
