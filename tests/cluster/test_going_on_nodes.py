"""jaxsif run --max-restarts where a node is lost: in a second cluster, which is thrown away."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import MINICLUSTER, PROGRAMS, Cluster
from test_going_on import Done, Run, state_of, undisturbed  # noqa: F401
from test_minicluster import FIRST

OPTIONS = "--max-restarts=2 --hang-timeout=10 --on-hang=restart --checkpoints=checkpoints"


@pytest.fixture
def second(tmp_path: Path) -> Iterator[tuple[Cluster, Path, str]]:
    """The first cluster's root file system and software, with three nodes of its own, and a folder there."""
    (tmp_path / "shared").mkdir()
    for name in ("rootfs-trixie", "rootfs-trixie.recipe", "shared/sw"):
        (tmp_path / name).symlink_to(FIRST / name)
    environ = {"MINICLUSTER_DIR": str(tmp_path), "MINICLUSTER_NODES": "3"}
    subprocess.run([MINICLUSTER, "up"], env={**os.environ, **environ}, check=True, capture_output=True)
    cluster = Cluster(**environ)
    folder = cluster.check("mktemp -d ~/again.XXXXXX").strip()
    cluster.write(f"{folder}/again.py", (PROGRAMS / "again.py").read_text())
    yield cluster, tmp_path, folder
    subprocess.run([MINICLUSTER, "reset"], env={**os.environ, **environ}, check=True, capture_output=True)


def kill_node(home: Path, node: str) -> float:
    """Kill a node with all its processes, as a power cut does; return when."""
    first = ["pgrep", "-f", f"^/bin/bash .*node-init.sh {re.escape(str(home))} .* {node} "]
    found = subprocess.run(first, capture_output=True, text=True, check=True)
    os.kill(int(found.stdout), signal.SIGKILL)
    return time.time()


def seconds_to_go_on(done: Done, fault: float) -> float:
    """The seconds from the fault to the first step of the second attempt."""
    times = re.findall(r"^went on (\S+)$", done.out, re.MULTILINE)
    assert len(times) == 2, done.text
    return float(times[1]) - fault


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
