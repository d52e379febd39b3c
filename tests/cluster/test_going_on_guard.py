"""jaxsif run --max-restarts in a batch job whose first node is lost, and with it jaxsif itself."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import MINICLUSTER, PROGRAMS, Cluster
from test_going_on import END, START
from test_going_on_nodes import kill_node
from test_minicluster import FIRST

OPTIONS = "--max-restarts=2 --spare-nodes=1 --checkpoints=checkpoints"
NODES = ("node1", "node2", "node3", "node4")


@pytest.fixture(params=[20])
def second(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Cluster, Path, str]]:
    """The first cluster's root file system and software, with four nodes of its own, and a folder there.

    Slurm gives up a node that does not answer after these seconds; a requeued job waits until then.
    """
    (tmp_path / "shared").mkdir()
    for path in (*FIRST.glob("rootfs-*"), FIRST / "shared/sw"):
        (tmp_path / path.relative_to(FIRST)).symlink_to(path)
    (tmp_path / "extra.conf").write_text(f"SlurmdTimeout={request.param}\n")
    environ = {
        "MINICLUSTER_DIR": str(tmp_path),
        "MINICLUSTER_NODES": str(len(NODES)),
        "MINICLUSTER_SLURM_CONF": str(tmp_path / "extra.conf"),
    }
    subprocess.run([MINICLUSTER, "up"], env={**os.environ, **environ}, check=True, capture_output=True)
    cluster = Cluster(**environ)
    folder = cluster.check("mktemp -d ~/again.XXXXXX").strip()
    cluster.write(f"{folder}/again.py", (PROGRAMS / "again.py").read_text())
    yield cluster, tmp_path, folder
    subprocess.run([MINICLUSTER, "reset"], env={**os.environ, **environ}, check=True, capture_output=True)


class Job:
    """A batch job of three nodes, whose script runs programs/again.py on two of them, and the guard on the third."""

    def __init__(self, cluster: Cluster, folder: str, *sbatch: str, steps: int = 400, then: str = "exit") -> None:
        self.cluster = cluster
        self.folder = folder
        asked = "--no-kill --nodes=3 --ntasks-per-node=2 --gpus-per-node=2 --time=10 --open-mode=append --output=out"
        program = f"python again.py . none --steps={steps} --every=20"
        run = f"jaxsif run {OPTIONS} -- {program} </dev/null & echo $! >pid; wait $!; {then}"
        cluster.write(f"{folder}/job.sh", f"#!/bin/bash -l\nmodule load jax/sif\n{run}\n")
        submit = f"cd {folder} && sbatch --parsable {asked} {' '.join(sbatch)} job.sh"
        self.number = cluster.check(submit).strip()

    @property
    def output(self) -> str:
        return self.cluster.run(["cat", f"{self.folder}/out"]).stdout

    @property
    def facts(self) -> dict[str, str]:
        """What Slurm says of it."""
        return dict(re.findall(r"(\w+)=(\S*)", self.cluster.check(f"scontrol show job {self.number}")))

    def wait_for(self, word: str, value: str, timeout: float) -> float:
        """Wait until Slurm says this of the job; return when."""
        deadline = time.time() + timeout
        while self.facts[word] != value:
            assert time.time() < deadline, f"{self.facts}\n{self.output}"
            time.sleep(0.5)
        return time.time()

    def wait_reported(self, deed: str, name: str) -> float:
        """Wait for the guard's line; return when."""
        line = f"^jaxsif: no answer from node1, on which jaxsif run was running: job {name} was {deed}$"
        deadline = time.time() + 90
        while not re.search(line, self.output, re.MULTILINE):
            assert time.time() < deadline, f"{self.facts}\n{self.output}"
            time.sleep(0.5)
        return time.time()

    def wait_guarded(self) -> str:
        """Wait for the guard and a checkpoint; return the guard's node."""
        deadline = time.time() + 60
        saved = ["test", "-e", f"{self.folder}/checkpoints/step_20.npy"]
        while not (places := guards(self.cluster)) or self.cluster.run(saved).returncode:
            assert time.time() < deadline, self.output
        assert len(places) == 1, places
        return places[0]

    def send(self, name: str) -> None:
        """Signal jaxsif itself."""
        self.cluster.check(f"kill -{name} $(cat {self.folder}/pid)", node="node1")


def find(cluster: Cluster, pattern: str) -> list[str]:
    """The nodes with such a process."""
    return [node for node in NODES if cluster.run(["pgrep", "-f", pattern], node=node).returncode == 0]


def guards(cluster: Cluster) -> list[str]:
    """The nodes with a guard."""
    return find(cluster, "^[^ ]*python[^ ]* -IS [^ ]*/node/guard.py ")


def wait_gone(cluster: Cluster, timeout: float) -> None:
    """Wait until nothing is left of a guard, on any node, nor of its srun."""
    deadline = time.time() + timeout
    while left := find(cluster, "[n]ode/guard.py "):
        assert time.time() < deadline, left


def starts(output: str) -> list[tuple[int, str]]:
    """The step and the nodes of each start."""
    return [(int(step), nodes) for _, step, nodes in START.findall(output)]


def test_a_job_that_loses_its_first_node_is_requeued(
    second: tuple[Cluster, Path, str], record_property: Callable[[str, object], None]
) -> None:
    """And then ends as if nothing had happened, to the bit."""
    cluster, home, folder = second
    whole = cluster.check(f"cp -r {folder} {folder}.whole && echo {folder}.whole").strip()
    alone = Job(cluster, whole)
    alone.wait_for("JobState", "COMPLETED", 120)
    job = Job(cluster, folder, "--requeue", "--array=7")
    assert job.wait_guarded() == "node3"
    fault = kill_node(home, "node1")
    seconds = job.wait_reported("requeued", f"{job.number}_7") - fault
    record_property("seconds", seconds)
    assert 29 < seconds < 60  # killing the node takes a moment
    assert job.facts["Restarts"] == "1"
    job.wait_for("JobState", "PENDING", 60)
    cluster.check(f"scontrol update JobId={job.number} StartTime=now")  # Slurm waits for two minutes
    job.wait_for("JobState", "COMPLETED", 180)
    (first, _), (again, nodes) = starts(job.output)
    assert (first, again > 0, nodes) == (0, True, "node[2-3]"), job.output
    assert END.findall(job.output) == END.findall(alone.output)
    wait_gone(cluster, 5)


@pytest.mark.parametrize("second", [300], indirect=True)
def test_a_job_that_must_not_be_requeued_is_cancelled(
    second: tuple[Cluster, Path, str], record_property: Callable[[str, object], None]
) -> None:
    """While Slurm itself has not noticed anything yet."""
    cluster, home, folder = second
    job = Job(cluster, folder, "--no-requeue")
    job.wait_guarded()
    fault = kill_node(home, "node1")
    seconds = job.wait_reported("cancelled", job.number) - fault
    record_property("seconds", seconds)
    assert 29 < seconds < 60  # killing the node takes a moment
    assert job.facts["JobState"] in ("COMPLETING", "CANCELLED")
    wait_gone(cluster, 40)


@pytest.mark.parametrize("second", [300], indirect=True)
def test_a_stopped_launcher_and_a_guard_without_a_network_change_nothing(second: tuple[Cluster, Path, str]) -> None:
    cluster, _, folder = second
    job = Job(cluster, folder, steps=2400)
    node = job.wait_guarded()
    job.send("STOP")
    time.sleep(45)
    job.send("CONT")
    cluster.check("ip link set eth0 down", node=node, user="root")
    time.sleep(60)
    cluster.check("ip link set eth0 up", node=node, user="root")
    job.wait_for("JobState", "COMPLETED", 120)
    assert len(starts(job.output)) == 1, job.output
    assert "was requeued" not in job.output


@pytest.mark.parametrize("ending", ["its end", "KILL", "TERM", "scancel"])
def test_the_guard_ends_with_the_run(cluster: Cluster, folder: str, ending: str) -> None:
    """Also where the script continues after the run."""
    job = Job(cluster, folder, then="echo over; sleep 30")
    job.wait_guarded()
    if ending == "scancel":
        cluster.check(f"scancel {job.number}")
    elif ending != "its end":
        job.send(ending)
    else:
        cluster.check(["sh", "-c", f"until grep -q over {folder}/out; do sleep 0.1; done"], timeout=90)
    wait_gone(cluster, 3 if ending == "its end" else 15)
    job.wait_for("JobState", "CANCELLED" if ending == "scancel" else "RUNNING", 15)
    assert "was requeued" not in job.output
    assert "warning" not in job.output, job.output
