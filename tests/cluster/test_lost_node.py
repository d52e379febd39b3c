"""A node that is killed with all its processes, as by a power cut: a second cluster, which is thrown away."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from drills import SHAPE, Drill
from harness import MINICLUSTER, Cluster, jaxsif_run
from test_minicluster import FIRST


@pytest.fixture
def second(tmp_path: Path) -> Iterator[tuple[Cluster, Path]]:
    """The first cluster's root file system and software, with two nodes of its own."""
    (tmp_path / "shared").mkdir()
    for name in ("rootfs-trixie", "rootfs-trixie.recipe", "shared/sw"):
        (tmp_path / name).symlink_to(FIRST / name)
    environ = {"MINICLUSTER_DIR": str(tmp_path), "MINICLUSTER_NODES": "2"}
    subprocess.run([MINICLUSTER, "up"], env={**os.environ, **environ}, check=True, capture_output=True)
    yield Cluster(**environ), tmp_path
    subprocess.run([MINICLUSTER, "reset"], env={**os.environ, **environ}, check=True, capture_output=True)


def test_a_node_that_is_killed_is_named_and_the_run_ends(second: tuple[Cluster, Path]) -> None:
    """Slurm alone would wait five minutes for it."""
    cluster, home = second
    run = Drill(cluster, "none", 7, *SHAPE)
    try:
        run.wait_alive()
        first = ["pgrep", "-f", f"^/bin/bash .*node-init.sh {re.escape(str(home))} .* node2 "]
        found = subprocess.run(first, capture_output=True, text=True, check=True)
        os.kill(int(found.stdout), signal.SIGKILL)
        begin = time.time()
        told = run.wait_until(lambda told: told.find("no answer from node2"), 40)
        assert told.find("^jaxsif: no answer from node2: ending the run$")[0].time - begin < 30, told.text
        told = run.wait(60)
        assert told.status == 1, told.text
        error = r"^jaxsif: error: no answer from node2, after task [01] on node1 failed; the run was ended$"
        assert told.find(error), told.text
    finally:
        run.end()


def test_a_node_that_cannot_be_reached_at_the_start_is_named(second: tuple[Cluster, Path]) -> None:
    """Slurm has not noticed yet that it is gone."""
    cluster, home = second
    first = ["pgrep", "-f", f"^/bin/bash .*node-init.sh {re.escape(str(home))} .* node2 "]
    found = subprocess.run(first, capture_output=True, text=True, check=True)
    os.kill(int(found.stdout), signal.SIGKILL)
    done = cluster.run(jaxsif_run(*SHAPE, "--", "true"))
    error = r"^jaxsif: error: node2 cannot be reached\n  from: srun\n  try:  list lost nodes .*--exclude=node2$"
    assert re.search(error, done.stderr, re.MULTILINE), done.stderr
    assert done.returncode == 125
