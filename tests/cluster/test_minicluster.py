"""The cluster in a box itself: a second one beside the first, started, killed, repaired and stopped."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import MINICLUSTER, Cluster

FIRST = Path(os.environ.get("MINICLUSTER_DIR") or MINICLUSTER.parents[2] / "build/cluster")


class Box:
    """A second cluster, in a folder of its own, on the first one's root file system."""

    def __init__(self, home: Path) -> None:
        self.environ = {**os.environ, "MINICLUSTER_DIR": str(home), "MINICLUSTER_NODES": "2"}
        self.home = home

    def start(self, *argv: str, **environ: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [MINICLUSTER, *argv],
            env={**self.environ, **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *argv: str, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
        with self.start(*argv, **environ) as process:
            out, err = process.communicate(stdin, timeout=120)
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def processes(self) -> list[str]:
        """The processes of this box, as the host sees them: their environment or command line names its folder."""
        found = subprocess.run(
            ["pgrep", "-af", f"box-init.sh {self.home}|node-init.sh {self.home}"],
            capture_output=True,
            text=True,
            check=False,
        )
        return found.stdout.splitlines()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    for name in ("rootfs-trixie", "rootfs-trixie.recipe"):
        (tmp_path / name).symlink_to(FIRST / name)
    one = Box(tmp_path)
    yield one
    one.run("reset")


def test_up_down_and_up_again(box: Box, cluster: Cluster) -> None:
    begin = time.monotonic()
    up = box.run("up")
    assert up.returncode == 0, up.stderr
    assert time.monotonic() - begin < 15
    assert re.fullmatch(
        r"starting login, node1, node2\n"
        r"cluster is up after [\d.]+ s: 2 nodes with 4 made-up GPUs each, trixie\n",
        up.stdout,
    )
    assert box.run("up").stdout == "cluster is up: 2 nodes with 4 made-up GPUs each, trixie\n"
    assert box.run("status").returncode == 0
    cut = subprocess.run(
        ["bash", "-c", '"$0" status | head -1; sleep 1', MINICLUSTER], env=box.environ, capture_output=True, check=True
    )
    assert cut.stderr == b""
    assert box.run("exec", "--", "sinfo", "-h", "-o", "%T %D").stdout == "idle 2\n"
    # The first cluster is another one.
    assert cluster.check("sinfo -h -o '%D'") == "4\n"
    assert box.run("down").stdout == "cluster is down\n"
    assert box.processes() == []
    assert box.run("down").stdout == "cluster was not up\n"
    assert box.run("status").returncode == 3
    assert cluster.check("sinfo -h -o '%D'") == "4\n"


def test_exec_passes_everything_through(box: Box) -> None:
    assert box.run("exec", "--", "true").stderr == "minicluster: error: the cluster is not up\n  try: minicluster up\n"
    box.run("up")
    done = box.run("exec", "--", "sh", "-c", "cat; echo err >&2; exit 7", stdin="in\n")
    assert (done.stdout, done.stderr, done.returncode) == ("in\n", "err\n", 7)
    assert box.run("exec", "--", "pwd").stdout == "/home/user\n"
    assert (
        box.run("exec", "--node", "node2", "--user", "root", "--", "sh", "-c", "hostname; id -un; pwd").stdout
        == "node2\nroot\n/root\n"
    )
    assert box.run("exec", "--", "printf", "%s|", "a b", "$HOME", "").stdout == "a b|$HOME||"
    assert "no node node9" in box.run("exec", "--node", "node9", "--", "true").stderr
    # Shared, and kept over a restart; a node's own disk is not.
    box.run("exec", "--node", "node1", "--", "sh", "-c", "echo shared >~/file; echo own >/tmp/file")
    box.run("down")
    box.run("up")
    assert box.run("exec", "--node", "node2", "--", "cat", "file").stdout == "shared\n"
    assert box.run("exec", "--node", "node1", "--", "ls", "/tmp").stdout == ""


def test_up_repairs_a_dead_daemon(box: Box) -> None:
    box.run("up")
    box.run("exec", "--user", "root", "--", "pkill", "-KILL", "slurmctld")
    assert box.run("status").returncode == 3
    assert box.run("up").returncode == 0
    assert box.run("exec", "--", "srun", "-N2", "true").returncode == 0


def test_another_shape_and_lines_for_slurm_conf(box: Box, tmp_path: Path) -> None:
    extra = tmp_path / "extra.conf"
    extra.write_text("KillWait=7\n")
    up = box.run("up", MINICLUSTER_NODES="3", MINICLUSTER_SLURM_CONF=str(extra))
    assert up.returncode == 0, up.stderr
    assert box.run("exec", "--", "sinfo", "-h", "-o", "%D").stdout == "3\n"
    assert "KillWait                = 7 sec" in box.run("exec", "--", "scontrol", "show", "config").stdout
    assert "another shape" in box.run("up").stdout
    assert box.run("exec", "--", "sinfo", "-h", "-o", "%D").stdout == "2\n"
