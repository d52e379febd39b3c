"""jaxsif run --max-restarts where a node is lost: in a second cluster, which is thrown away."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import MINICLUSTER, PROGRAMS, Cluster
from test_going_on import Done, Run, state_of, undisturbed  # noqa: F401
from test_minicluster import FIRST

OPTIONS = "--max-restarts=2 --hang-timeout=10 --on-hang=restart --checkpoints=checkpoints"


@contextmanager
def another_cluster(home: Path, nodes: int, **files: str) -> Iterator[tuple[Cluster, Path, str]]:
    """The first cluster's root file system and software, with nodes of its own, and a folder there.

    Of the `files`, `slurm` has lines for slurm.conf, and `topology` is topology.conf.
    """
    for folder in ("shared", "etc/slurm"):
        (home / folder).mkdir(parents=True)
    for name in ("rootfs-trixie", "rootfs-trixie.recipe", "shared/sw"):
        (home / name).symlink_to(FIRST / name)
    for name, text in files.items():
        (home / f"etc/slurm/{name}.conf").write_text(text)
    environ = {"MINICLUSTER_DIR": str(home), "MINICLUSTER_NODES": str(nodes)}
    if "slurm" in files:
        (home / "more.conf").write_text(files["slurm"])
        environ["MINICLUSTER_SLURM_CONF"] = str(home / "more.conf")
    subprocess.run([MINICLUSTER, "up"], env={**os.environ, **environ}, check=True, capture_output=True)
    try:
        cluster = Cluster(**environ)
        folder = cluster.check("mktemp -d ~/again.XXXXXX").strip()
        cluster.write(f"{folder}/again.py", (PROGRAMS / "again.py").read_text())
        yield cluster, home, folder
    finally:
        subprocess.run([MINICLUSTER, "reset"], env={**os.environ, **environ}, check=True, capture_output=True)


@pytest.fixture
def second(tmp_path: Path) -> Iterator[tuple[Cluster, Path, str]]:
    """A cluster with three nodes."""
    with another_cluster(tmp_path, 3) as made:
        yield made


def kill_node(home: Path, node: str) -> float:
    """Kill a node with all its processes, as a power cut does; return when."""
    first = ["pgrep", "-f", f"^/bin/bash .*node-init.sh {re.escape(str(home))} .* {node} "]
    found = subprocess.run(first, capture_output=True, text=True, check=True)
    os.kill(int(found.stdout), signal.SIGKILL)
    return time.time()


def seconds_to_go_on(done: Done, fault: float) -> float:
    """The seconds from the fault to the first step of the second attempt."""
    times = done.times("went on")
    assert len(times) == 2, done.text
    return times[1] - fault


def test_a_killed_node_is_replaced_by_a_spare(
    second: tuple[Cluster, Path, str],
    undisturbed: str,  # noqa: F811
    record_property: Callable[[str, object], None],
) -> None:
    cluster, home, folder = second
    run = Run(cluster, folder, 3, f"{OPTIONS} --spare-nodes=1", "none --steps=60")
    run.wait_saved()
    fault = kill_node(home, "node2")
    done = run.end()
    assert done.status == 0, done.text
    assert [nodes for _, nodes in done.starts] == ["node[1-2]", "node[1,3]"], done.text
    assert state_of(done) == undisturbed
    assert seconds_to_go_on(done, fault) < 90, done.text
    record_property("seconds", seconds_to_go_on(done, fault))


def test_a_node_whose_network_is_cut_is_replaced_by_a_spare(
    second: tuple[Cluster, Path, str],
    record_property: Callable[[str, object], None],
) -> None:
    """It comes back after the restart, and its tasks then commit nothing."""
    cluster, _, folder = second
    run = Run(cluster, folder, 3, f"{OPTIONS} --spare-nodes=1", "none --steps=400 --every=20")
    run.wait_saved(20)
    cluster.check("ip link set eth0 down", node="node2", user="root")
    fault = time.time()
    run.wait_for("attempt 2 on node1,node3", 120)
    cluster.check("ip link set eth0 up", node="node2", user="root")
    done = run.end()
    assert done.status == 0, done.text
    assert [nodes for _, nodes in done.starts] == ["node[1-2]", "node[1,3]"], done.text
    assert seconds_to_go_on(done, fault) < 90, done.text
    steps = cluster.check(f"ls {folder}/checkpoints").split()
    assert sorted(steps) == sorted(f"step_{step}.npy" for step in range(20, 401, 20)), steps
    whole = Run(
        cluster,
        cluster.check(
            f"cp -r {folder} {folder}.whole && cd {folder}.whole && rm -r checkpoints start-* && pwd"
        ).strip(),
        2,
        "",
        "none --steps=400 --every=20",
    ).end()
    assert state_of(done) == state_of(whole)
    record_property("seconds", seconds_to_go_on(done, fault))


def test_no_node_left_is_one_clear_error(second: tuple[Cluster, Path, str]) -> None:
    cluster, home, folder = second
    run = Run(cluster, folder, 2, OPTIONS, "none --steps=600")
    run.wait_saved()
    kill_node(home, "node2")
    done = run.end()
    assert done.status not in (0, 93), done.text
    assert len(done.starts) == 1
    assert "jaxsif: not starting again: 2 of 2 nodes must be usable" in done.err, done.err
    assert len(re.findall("^jaxsif: error: ", done.err, re.MULTILINE)) == 1, done.err


@pytest.mark.parametrize("fault", ["none", "kill --task=0 --at=50"])
def test_a_run_outlives_the_slurmd_of_a_node_which_is_left_out_later(
    second: tuple[Cluster, Path, str],
    undisturbed: str,  # noqa: F811
    fault: str,
) -> None:
    """Its step goes on without it, and Slurm notices nothing for five minutes."""
    cluster, _, folder = second
    run = Run(cluster, folder, 3, f"{OPTIONS} --spare-nodes=1", fault)
    run.wait_saved()
    cluster.check("pkill -KILL -x slurmd", node="node2", user="root")
    done = run.end()
    assert done.status == 0, done.text
    assert state_of(done) == undisturbed
    if fault == "none":
        assert [nodes for _, nodes in done.starts] == ["node[1-2]"], done.text
    else:
        assert [nodes for _, nodes in done.starts] == ["node[1-2]", "node[1,3]"], done.text
        # mixed*: Slurm has noticed.
        assert re.search(r"^jaxsif: node2 is left out: (no answer|mixed\*)$", done.err, re.MULTILINE), done.err


def test_spares_are_whole_segments(tmp_path: Path) -> None:
    """Where Slurm has blocks of two nodes, and the job has --segment."""
    blocks = "".join(f"BlockName=b{first} Nodes=node[{first}-{first + 1}]\n" for first in (1, 3))
    files = {"slurm": "TopologyPlugin=topology/block\n", "topology": f"{blocks}BlockSizes=2\n"}
    with another_cluster(tmp_path, 4, **files) as (cluster, _, folder):
        options = "--max-restarts=1 --checkpoints=checkpoints --segment=2"
        done = Run(cluster, folder, 4, f"{options} --spare-nodes=1", "none", job="--no-kill --segment=2").end()
        assert done.status == 2, done.text
        assert "3 of 4 nodes do not form whole segments of 2" in done.err, done.err
        fault = "bus --task=2 --at=33"
        done = Run(cluster, folder, 4, f"{options} --spare-nodes=2", fault, job="--no-kill --segment=2").end()
        assert done.status == 0, done.text
        assert [nodes for _, nodes in done.starts] == ["node[1-2]", "node[3-4]"], done.text


LIMIT = """\
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
SelectTypeParameters=CR_CPU_Memory
"""


def test_the_same_step_over_its_memory_limit_twice_is_not_started_again(tmp_path: Path) -> None:
    with another_cluster(tmp_path, 2, slurm=LIMIT) as (cluster, _, folder):
        fault = "hoard --starts=9 --seed=1"
        done = Run(cluster, folder, 2, "--max-restarts=3", fault, job="--no-kill --mem=1800").end()
        assert done.status == 93, done.text
        assert len(done.starts) == 2, done.text
        assert re.search(r"^jaxsif: error: step 1\.\d+ exceeded its memory limit$", done.err, re.MULTILINE), done.err
