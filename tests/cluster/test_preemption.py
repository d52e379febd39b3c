"""Jobs that Slurm ends: what goes on goes on by itself with the same numbers, and what ends says why.

Each test has a cluster of its own, whose Slurm preempts.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import MINICLUSTER, PROGRAMS, Cluster
from test_going_on_nodes import kill_node
from test_minicluster import FIRST

CONF = """\
AuthInfo=cred_expire=5
KillWait=10
PreemptType=preempt/partition_prio
PreemptMode={mode}
{more}
PartitionName=low Nodes=ALL PriorityTier=1 GraceTime={grace} State=UP
PartitionName=high Nodes=ALL PriorityTier=10 State=UP
"""
SEND_USER_SIGNAL = "PreemptParameters=send_user_signal"
BY_PARENT = "ProctrackType=proctrack/linuxproc"  # Slurm signals each process of a task
TOLD = "jaxsif: the job is about to end: the program was told to save (SIGURG)"
Start = Callable[..., "Box"]


class Box:
    """A cluster of two nodes that preempts, and a job of it."""

    def __init__(self, home: Path, mode: str = "REQUEUE", grace: int = 60, more: str = "", nodes: int = 2) -> None:
        self.home = home
        (home / "shared").mkdir(parents=True)
        for name in ("rootfs-trixie", "rootfs-trixie.recipe", "shared/sw"):
            (home / name).symlink_to(FIRST / name)
        (home / "conf").write_text(CONF.format(mode=mode, grace=grace, more=more))
        environ = {
            "MINICLUSTER_DIR": str(home),
            "MINICLUSTER_NODES": str(nodes),
            "MINICLUSTER_SLURM_CONF": str(home / "conf"),
        }
        self.environ = {**os.environ, **environ}
        subprocess.run([MINICLUSTER, "up"], env=self.environ, check=True, capture_output=True)
        self.cluster = Cluster(**environ)
        self.folder = self.cluster.check("mktemp -d ~/notice.XXXXXX").strip()
        self.cluster.write(f"{self.folder}/notice.py", (PROGRAMS / "notice.py").read_text())
        self.job = ""

    def submit(self, options: str = "--requeue", program: str = "40", file: str = "notice.py") -> None:
        words = f"{options} --checkpoints=ck --partition=low --nodes=2 --ntasks-per-node=2 --output=out"
        line = f"module load jax/sif && cd {self.folder} && jaxsif submit {words} -- python {file} ck {program}"
        self.job = self.cluster.check(line).split()[-1]

    def read(self) -> str:
        return self.cluster.run(["cat", f"{self.folder}/out"]).stdout

    def wait_for(self, pattern: str, timeout: float = 150) -> str:
        """Wait until the job's output has this; return the output."""
        deadline = time.monotonic() + timeout
        while not re.search(pattern, self.read(), re.MULTILINE):
            assert time.monotonic() < deadline, self.read() + self.show()
            time.sleep(0.3)
        return self.read()

    def show(self) -> str:
        return self.cluster.run(["scontrol", "--oneliner", "show", "job", self.job]).stdout

    def wait_state(self, state: str, timeout: float = 150) -> str:
        deadline = time.monotonic() + timeout
        while f"JobState={state} " not in self.show():
            assert time.monotonic() < deadline, self.show() + self.read()
            time.sleep(0.3)
        return self.show()

    def preempt(self, after: str = "start from 0", sleep: float = 2) -> None:
        """Let a job of a higher partition take the nodes, and end."""
        self.wait_for(after)
        time.sleep(sleep)
        self.cluster.check("sbatch --partition=high --nodes=2 --exclusive --output=/dev/null --wrap 'sleep 2'")

    def hurry(self) -> None:
        """Let a job that waits after a requeue start now."""
        deadline = time.monotonic() + 60
        while "Reason=BeginTime" not in self.show():
            assert time.monotonic() < deadline, self.show() + self.read()
            time.sleep(0.5)
        time.sleep(11)  # the nodes refuse it until its old credential expires
        self.cluster.run(["scontrol", "update", "job", self.job, "StartTime=now"], user="root")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    boxes: list[Box] = []

    def begin(*args: object, **more: object) -> Box:
        boxes.append(Box(tmp_path / "box", *args, **more))  # type: ignore[arg-type]
        return boxes[-1]

    yield begin
    for box in boxes:
        subprocess.run([MINICLUSTER, "reset"], env=box.environ, check=True, capture_output=True)


@pytest.fixture(scope="module")
def undisturbed(cluster: Cluster) -> str:
    """The state after 40 steps without a stop."""
    folder = cluster.check("mktemp -d ~/notice.XXXXXX").strip()
    cluster.write(f"{folder}/notice.py", (PROGRAMS / "notice.py").read_text())
    run = "jaxsif run --nodes=2 --ntasks-per-node=2 --env JAX_ENABLE_PREEMPTION_SERVICE=1 -- python notice.py ck 40"
    out = cluster.check(f"module load jax/sif && cd {folder} && {run}")
    cluster.check(["rm", "-r", folder])
    return end_of(out)


def end_of(out: str) -> str:
    found = re.findall(r"^end (\S+) after 40$", out, re.MULTILINE)
    assert found, out
    return str(found[-1])


def saves(out: str) -> list[int]:
    return [int(step) for step in re.findall(r"^saved (\d+)$", out, re.MULTILINE)]


@pytest.mark.parametrize("more", ["", SEND_USER_SIGNAL, BY_PARENT], ids=["sigterm", "send_user_signal", "linuxproc"])
@pytest.mark.parametrize("mode", ["REQUEUE", "CANCEL"])
def test_a_grace_period_is_enough_to_save(start: Start, undisturbed: str, mode: str, more: str) -> None:
    box = start(mode, 60, more)
    box.submit()
    box.preempt()
    box.wait_for("back into the queue")
    box.hurry()
    out = box.wait_for("^end ")
    assert TOLD in out
    (step,) = saves(out)
    assert f"start from {step} in run 1" in out
    assert end_of(out) == undisturbed


def test_without_a_grace_period_a_requeued_job_resumes(start: Start, undisturbed: str) -> None:
    box = start("REQUEUE", 0)
    box.submit(program="40 --every=5")
    box.preempt("saved 10", 0.3)
    box.hurry()
    out = box.wait_for("^end ")
    assert TOLD not in out
    _, first, second = out.split("\nstart from ")
    assert second.startswith(f"{saves(first)[-1]} in run 1\n"), out
    assert end_of(out) == undisturbed


def test_without_a_grace_period_a_cancelled_job_says_why(start: Start) -> None:
    box = start("CANCEL", 0)
    box.submit(program="40 --every=5")
    box.preempt("saved 10", 0.3)
    box.wait_state("PREEMPTED")
    assert f"job {box.job} was preempted" in box.read()


def test_before_the_time_limit(start: Start, undisturbed: str) -> None:
    box = start()
    box.submit("--requeue --time=1 --sbatch-args=--signal=URG@50", "40 --slow=1")
    box.wait_for("back into the queue")
    box.cluster.check(["scontrol", "update", "job", box.job, "TimeLimit=10"], user="root")  # no second notice
    box.hurry()
    out = box.wait_for("^end ")
    (saved,) = saves(out)
    assert f"start from {saved} in run 1\n" in out
    assert end_of(out) == undisturbed


def test_a_chain_goes_on_where_requeues_are_forbidden(start: Start, undisturbed: str) -> None:
    box = start()
    box.submit("--chain=3 --time=1 --sbatch-args=--signal=URG@50 --sbatch-args=--open-mode=append", "40 --slow=0.6")
    out = box.wait_for("^end ", 240)
    assert end_of(out) == undisturbed
    assert "back into the queue" not in out


def test_a_request_by_hand(start: Start, undisturbed: str) -> None:
    """There is no notice: scontrol requeue ends all at once."""
    box = start()
    box.submit(program="40 --every=5")
    box.wait_for("saved 10")
    box.cluster.check(["scontrol", "requeue", box.job])
    box.hurry()
    assert end_of(box.wait_for("^end ")) == undisturbed


def test_a_lost_node_requeues_the_job(start: Start, undisturbed: str) -> None:
    box = start(more="SlurmdTimeout=10", nodes=3)
    box.submit(program="40 --every=5")
    box.wait_for("saved 10")
    kill_node(box.home, "node2")
    box.hurry()
    out = box.wait_for("^end ", 200)
    assert "in run 1" in out
    assert end_of(out) == undisturbed


def test_six_requeues_do_not_hold_the_job(start: Start) -> None:
    """MaxBatchRequeue is 5, and counts only those that Slurm decides on."""
    box = start()
    box.submit(program="4000 --slow=0.05")
    for turn in range(6):
        box.wait_for(f"in run {turn}$")
        time.sleep(1)
        box.cluster.check(["scancel", "--signal=URG", f"{box.job}.0"])
        box.wait_for(f"(?s)in run {turn}$.*back into the queue")
        box.hurry()
    box.wait_for("in run 6$")
    assert box.wait_state("RUNNING")


def test_a_program_that_finishes_in_the_grace_period(start: Start, undisturbed: str) -> None:
    """Slurm starts it once more, and that run ends at once."""
    box = start("REQUEUE", 60)
    box.submit("--requeue", "40 --every=40")
    box.cluster.check(["sed", "-i", "s/if multihost.*/if False:/", f"{box.folder}/notice.py"])
    box.preempt("start from 0", 3)
    box.wait_for("^end ")
    box.hurry()
    out = box.wait_for("in run 1$")
    box.wait_state("COMPLETED")
    assert end_of(out) == undisturbed


@pytest.mark.parametrize("seconds", [30, 150], ids=["short", "longer than heartbeats"])
def test_a_suspended_job_is_reported_and_goes_on(start: Start, undisturbed: str, seconds: int) -> None:
    """Where Slurm freezes all processes at once, JAX's heartbeats may outlive that."""
    box = start()
    box.submit("--max-restarts=1 --time=10", "40 --every=5")
    box.wait_for("saved 5")
    box.cluster.check(["scontrol", "suspend", box.job], user="root")
    time.sleep(seconds)
    box.cluster.check(["scontrol", "resume", box.job], user="root")
    out = box.wait_for("^end ")
    assert end_of(out) == undisturbed
    assert re.search(rf"^jaxsif: job {box.job} was suspended for {seconds // 10}\d s", out, re.MULTILINE), out
    assert ("JAX may end after 100 s (--heartbeat-timeout)" in out) is (seconds > 100)
    assert "attempt 2 on" not in out or seconds > 100


@pytest.mark.parametrize("when", ["--evaluate=15", "--compile=1500"], ids=["evaluation", "compile"])
def test_a_notice_at_any_time_is_kept_for_the_main_loop(start: Start, when: str) -> None:
    """The trap of a flag that is looked at only in the main loop."""
    box = start()
    box.submit(program=f"400 {when}")
    box.wait_for("start from 0")
    time.sleep(2)  # in the evaluation, or the compile, after 0.6 s
    box.cluster.check(["scancel", "--signal=URG", f"{box.job}.0"])
    out = box.wait_for("back into the queue")
    assert saves(out)[0] <= 6 if "evaluate" in when else saves(out)


def test_orbax_saves_on_preemption(start: Start, undisturbed: str, layer: str) -> None:
    box = start()
    box.cluster.write(f"{box.folder}/orbax_notice.py", (PROGRAMS / "orbax_notice.py").read_text())
    box.cluster.check("mkdir -p ~/.local/share/jaxsif && cp -r /sw/data/jaxsif/layers ~/.local/share/jaxsif/")
    box.submit(f"--requeue --layer={layer}", "40", "orbax_notice.py")
    box.preempt()
    box.wait_for("back into the queue")
    box.hurry()
    out = box.wait_for("^end ")
    assert f"start from {saves(out)[0]} in run 1" in out
    assert end_of(out) == undisturbed


def test_scancel_ends_a_run_that_takes_notices(start: Start) -> None:
    box = start()
    box.submit("--max-restarts=3")
    box.wait_for("start from 0")
    begun = time.monotonic()
    box.cluster.check(["scancel", box.job])
    box.wait_state("CANCELLED")
    assert time.monotonic() - begun < 8
    assert TOLD not in box.read()
    assert "starting again" not in box.read()


def test_sigterm_to_the_step_alone_ends_it(start: Start) -> None:
    """No grace period is behind it, so it is not taken for a notice."""
    box = start()
    box.submit("--requeue")
    box.wait_for("start from 0")
    box.cluster.check(shlex.join(["scancel", "--signal=TERM", f"{box.job}.0"]))
    box.wait_state("FAILED")
    assert TOLD not in box.read()


def test_a_step_that_hears_slurm_and_is_lost_is_reported(start: Start, undisturbed: str) -> None:
    box = start()
    box.submit("--max-restarts=1")
    box.wait_for("start from 0")
    kill = "until pkill -KILL -f '^[^ ]*python.*[s]ys.stdin.read'; do sleep 0.2; done"
    box.cluster.check(kill, node="node1", user="root")
    assert end_of(box.wait_for("^end ")) == undisturbed
    why = "the step that listens for Slurm's signals ended with 137"
    assert f"jaxsif: warning: {why}: tasks may not learn that the job is about to end\n" in box.read()
