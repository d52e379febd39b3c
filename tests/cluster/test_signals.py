"""Signals to the launcher and to the step: passed on, and nothing is left behind."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import time

import pytest
from harness import MINICLUSTER, PROGRAMS, Cluster, jaxsif_run

OPTIONS = ("--nodes=2", "--ntasks-per-node=2", "--gpus-per-node=2")
# Seconds from the signal until Slurm has no step any more.
BOUND = 3.0


def processes_left(cluster: Cluster) -> str:
    """What runs of the programs of these tests on the nodes."""
    pattern = "python fail.py|start.sh|sleep 1234|apptainer"
    return "".join(cluster.run(["pgrep", "-fa", pattern], node=node).stdout for node in ("node1", "node2", "login"))


@pytest.mark.parametrize(("name", "status"), [("INT", 130), ("TERM", 143), ("HUP", 129)])
@pytest.mark.parametrize(
    "program",
    [("python", "fail.py", "none", "0"), ("sh", "-c", "echo computes; exec sleep 1234")],
    ids=["JAX", "sleep"],
)
def test_signal_to_the_launcher_ends_the_step(
    cluster: Cluster, folder: str, name: str, status: int, program: tuple[str, ...]
) -> None:
    run = jaxsif_run(*OPTIONS, "--", *program)
    with cluster.start(f"cd {folder} && echo $$ >pid && {run}") as launcher:
        assert launcher.stdout is not None
        for _ in range(4):
            while "computes" not in launcher.stdout.readline():  # JAX has its own ideas of SIGTERM from here on
                assert launcher.poll() is None
        cluster.check(f"kill -{name} $(cat {folder}/pid)")
        assert cluster.wait_steps(0) < BOUND
        launcher.communicate(timeout=10)
    assert launcher.returncode == status
    assert processes_left(cluster) == ""


def start_on_terminal(script: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start a bash script in the cluster; return its process, and the descriptor of its terminal's other side."""
    terminal, side = pty.openpty()
    argv = [MINICLUSTER, "exec", "--", "bash", "-lc", script]
    # setsid --ctty: the terminal is the session's own, so that its ^C becomes a signal.
    process = subprocess.Popen(["setsid", "--ctty", "--wait", *argv], stdin=side, stdout=side, stderr=side)
    os.close(side)
    return process, terminal


def test_ctrl_c_on_a_terminal(cluster: Cluster, folder: str) -> None:
    """One Ctrl-C, as the terminal sends it: to the launcher and to srun at once."""
    script = f"cd {folder} && " + jaxsif_run(*OPTIONS, "--", "python", "fail.py", "none", "0")
    process, terminal = start_on_terminal(script)
    output = b""
    while output.count(b"computes") < 4:
        output += os.read(terminal, 4096)
    begin = time.monotonic()
    os.write(terminal, b"\x03")
    assert process.wait(timeout=20) == 130
    cluster.wait_steps(0)
    assert time.monotonic() - begin < BOUND
    os.close(terminal)
    assert processes_left(cluster) == ""


def test_program_on_a_terminal_survives_ctrl_c(cluster: Cluster, folder: str) -> None:
    """As a Python that is waiting for input: the terminal signals start.sh, too."""
    program = (
        "import time\n"
        "print('ready')\n"
        "try:\n"
        "    time.sleep(20)\n"
        "except KeyboardInterrupt:\n"
        "    time.sleep(2)\n"
        "    print('goes on')"
    )
    run = jaxsif_run("--nodes=1", "--ntasks=1", "--srun-args=--pty", "--", "python", "-c", program)
    process, terminal = start_on_terminal(f"cd {folder} && {run}")
    output = b""
    while b"ready" not in output:
        output += os.read(terminal, 4096)
    os.write(terminal, b"\x03")
    while b"goes on" not in output:
        output += os.read(terminal, 4096)  # OSError if the program has ended
    assert process.wait(timeout=20) == 0
    os.close(terminal)


def test_program_for_another_processor_is_no_script(cluster: Cluster, folder: str) -> None:
    change = "b = bytearray(open('/bin/true', 'rb').read()); b[18] = 183; open('arm', 'wb').write(b)"
    cluster.check(f'cd {folder} && python3 -c "{change}" && chmod +x arm')
    done = cluster.run(f"cd {folder} && " + jaxsif_run("--nodes=1", "--ntasks=1", "--", "./arm"))
    assert done.returncode == 126, done.stderr
    assert "Exec format error" in done.stderr


def test_scancel_of_the_step_ends_jax(cluster: Cluster, folder: str) -> None:
    """SIGTERM to the tasks alone; JAX would log and ignore it until SIGKILL comes, 30 s later."""
    with cluster.start(f"cd {folder} && " + jaxsif_run(*OPTIONS, "--", "python", "fail.py", "none", "0")) as launcher:
        assert launcher.stdout is not None
        while "computes" not in launcher.stdout.readline():
            assert launcher.poll() is None
        step = cluster.steps()[0]
        cluster.check(["scancel", "--signal=TERM", step])
        assert cluster.wait_steps(0) < BOUND
        _, err = launcher.communicate(timeout=10)
    assert launcher.returncode == 128 + signal.SIGTERM
    assert re.fullmatch(r"jaxsif: error: task \d on node\d was killed by SIGTERM", err.splitlines()[-2]), err
    assert re.fullmatch(rf"  from: {folder}/fail.py:\d+", err.splitlines()[-1]), err
    assert processes_left(cluster) == ""


@pytest.mark.parametrize("tasks", [1, 2], ids=["a container for each task", "one container"])
def test_signal_for_the_program_reaches_it(cluster: Cluster, folder: str, tasks: int) -> None:
    """SIGURG, the signal that orders a checkpoint without ending what serves the image (docs/troubleshooting.md)."""
    program = (
        "import signal, sys, time\n"
        "def save(*_): import decimal, xml.dom; print('saved'); sys.exit(0)\n"
        "signal.signal(signal.SIGURG, save); print('ready'); time.sleep(60)"
    )
    run = jaxsif_run("--nodes=2", f"--ntasks-per-node={tasks}", "--", "python", "-c", program)
    with cluster.start(f"cd {folder} && echo $$ >pid && {run}") as launcher:
        assert launcher.stdout is not None
        assert [launcher.stdout.readline() for _ in range(2 * tasks)] == ["ready\n"] * 2 * tasks
        cluster.check(f"kill -URG $(cat {folder}/pid)")
        out, err = launcher.communicate(timeout=20)
    assert (launcher.returncode, out, err) == (0, "saved\n" * 2 * tasks, "")


@pytest.mark.parametrize(("name", "end"), [("USR1", "got SIGUSR1"), ("INT", "interrupted"), ("TERM", "got SIGTERM")])
@pytest.mark.parametrize("tasks", [1, 2], ids=["a container for each task", "one container"])
def test_slurms_signal_reaches_the_program_once(cluster: Cluster, folder: str, tasks: int, name: str, end: str) -> None:
    """Also where Slurm signals only the first process of a task; SIGINT is not ignored there."""
    program = (
        "import signal, sys, time\n"
        "def tell(number, _): print('got', signal.Signals(number).name)\n"
        "for number in (signal.SIGUSR1, signal.SIGTERM): signal.signal(number, tell)\n"
        "print('ready', sys.stdin.read())\n"
        "try:\n"
        "    time.sleep(8)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
        "sys.exit(7)"
    )
    run = jaxsif_run("--nodes=1", f"--ntasks-per-node={tasks}", "--", "python", "-c", program)
    with cluster.start(f"cd {folder} && {run} <<<input") as launcher:
        assert launcher.stdout is not None
        ready = [launcher.stdout.readline() + launcher.stdout.readline() for _ in range(tasks)]
        assert "".join(ready).split() == ["ready", "input"] * tasks
        cluster.check(["scancel", f"--signal={name}", cluster.steps()[0]])
        out, _ = launcher.communicate(timeout=20)
    assert (launcher.returncode, out) == (7, f"{end}\n" * tasks)


@pytest.mark.parametrize(("stream", "both"), [("stderr", "2>&1"), ("stdout", "2>&1"), ("stdout", "")])
def test_reader_of_the_output_goes_away(cluster: Cluster, folder: str, stream: str, both: str) -> None:
    """As in `jaxsif run … | head -1`: the step must not live on with nobody to read what it says."""
    program = f"import sys, time\nwhile True: print('line', file=sys.{stream}, flush=True); time.sleep(0.01)"
    run = jaxsif_run("--nodes=2", "--ntasks-per-node=1", "--", "python", "-c", program)
    done = cluster.run(f"({run}) {both} | head -n 1; echo ${{PIPESTATUS[0]}}", timeout=30)
    assert (done.stdout, done.stderr) == ("line\n141\n", "")
    assert cluster.steps() == []
    assert processes_left(cluster) == ""


def test_nohup_outlives_the_terminal(cluster: Cluster, folder: str) -> None:
    run = jaxsif_run("--nodes=1", "--", "sh", "-c", "touch ready; sleep 3; echo end").replace("exec ", "exec nohup ")
    with cluster.start(f"cd {folder} && echo $$ >pid && {run} 2>/dev/null") as launcher:
        cluster.check(f"cd {folder} && until [ -e ready ]; do sleep 0.1; done; kill -HUP $(cat pid)")
        out, _ = launcher.communicate(timeout=20)
    assert (launcher.returncode, out) == (0, "end\n")


LISTENS = """\
#!/bin/bash -l
#SBATCH --nodes=1 --output=/dev/null --time=5
module load jax/sif
jaxsif run --max-restarts 1 -- sleep 4
"""


def test_step_that_listens_leaves_no_status_in_the_job(cluster: Cluster, folder: str) -> None:
    cluster.write(f"{folder}/listens.sbatch", LISTENS)
    job = cluster.check(f"cd {folder} && sbatch --parsable listens.sbatch").strip()
    cluster.check(f"until squeue --steps --noheader --format=%i | grep -q {job}.1; do sleep 0.2; done", timeout=30)
    cluster.check(f"while squeue --noheader --jobs={job} | grep -q .; do sleep 0.2; done")
    shown = cluster.check(f"scontrol show --details job {job}")
    assert re.findall(r"(\w*ExitCode)=(\S+)", shown) == [("ExitCode", "0:0"), ("DerivedExitCode", "0:0")]


HANGS = """\
#!/bin/bash -l
#SBATCH --nodes=2 --ntasks-per-node=2 --gpus-per-node=2 --output=hang.out --time=5
module load jax/sif
exec jaxsif run -- python fail.py stay 2
"""


def test_of_a_program_that_hangs_the_odd_line_is_told(cluster: Cluster, folder: str) -> None:
    """One process sleeps while the others wait for it in a sum: no failure, until somebody cancels the job."""
    cluster.write(f"{folder}/hang.sbatch", HANGS)
    wait = 'until [ "$(grep -c computes hang.out)" = 3 ] && grep -q "fails at" hang.out; do sleep 0.2; done; sleep 1'
    script = f"job=$(sbatch --parsable hang.sbatch) && touch hang.out && {wait} && scancel $job"
    end = "while squeue --noheader --jobs=$job | grep -q .; do sleep 0.2; done; tail -n 1 hang.out"
    told = cluster.check(f"cd {folder} && {script} && {end}")
    sleeps, sums = (
        1 + next(i for i, line in enumerate((PROGRAMS / "fail.py").read_text().splitlines()) if text in line)
        for text in ("time.sleep", "total(jnp.ones")
    )
    # srun may drop what the last of the tasks says.
    line = rf"jaxsif: tasks were at \S+/fail\.py:{sleeps} \(task 2\), \S+/fail\.py:{sums} \(tasks? [013,-]+\)\n"
    assert re.fullmatch(line, told), told
