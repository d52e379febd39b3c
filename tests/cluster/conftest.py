"""The real cluster for tests: brought up and installed by `make test-cluster` before pytest starts."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from builds import REPOSITORY
from examples import LAYER, PACKAGES
from harness import MINICLUSTER, PROGRAMS, Cluster
from share import pytest_addoption, pytest_collection_modifyitems, pytest_configure  # noqa: F401


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The cluster; fails, with what to do, where it is not up and installed."""
    one = Cluster()
    done = one.run("module load jax/sif && jaxsif --version")
    assert done.returncode == 0, f"no cluster with jaxsif in it: run `make test-cluster`\n{done.stdout}{done.stderr}"
    return one


@pytest.fixture(autouse=True)
def no_node_is_completing(request: pytest.FixtureRequest) -> None:
    """Tests expect their job on the first nodes; one that a test before has killed keeps its nodes for a moment."""
    if "cluster" in request.fixturenames:
        request.getfixturevalue("cluster").wait_completed()


_KEYS = """\
mkdir -p -m 700 ~/.ssh && cd ~/.ssh && { [ -e id_ed25519 ] || ssh-keygen -q -t ed25519 -N "" -f id_ed25519; } &&
cp id_ed25519.pub authorized_keys && printf "StrictHostKeyChecking no\\nLogLevel ERROR\\n" >config
"""
_SSH_NODES = ("node1", "node2")


@pytest.fixture(scope="session")
def ssh(cluster: Cluster) -> Iterator[None]:
    """An ssh server on two nodes, which lets the user in without a password, for mpirun."""
    cluster.check(_KEYS)
    for node in _SSH_NODES:
        cluster.check("mkdir -p /run/sshd && exec /usr/sbin/sshd -o PidFile=/run/sshd.pid", node=node, user="root")
    yield
    for node in _SSH_NODES:
        cluster.check("kill $(cat /run/sshd.pid)", node=node, user="root")
    cluster.check("rm -r ~/.ssh")


@pytest.fixture
def folder(cluster: Cluster) -> Iterator[str]:
    """A fresh folder in the user's home, on the shared file system, with tests/cluster/programs in it."""
    unpack = "import json, sys\nfor name, text in json.load(sys.stdin).items(): open(name, 'w').write(text)"
    programs = json.dumps({program.name: program.read_text() for program in PROGRAMS.glob("*.py")})
    make = f"cd $(mktemp -d ~/test.XXXXXX) && python3 -c {shlex.quote(unpack)} && pwd"
    path = cluster.check(make, stdin=programs).strip()
    yield path
    cluster.check(f"scancel --me && rm -rf {path}")


@pytest.fixture
def programs(cluster: Cluster, folder: str) -> str:
    """A fresh folder with a copy of slurm/ in it, as users make it."""
    cluster.check(f'module load jax/sif && cp -r "$JAXSIF_HOME/slurm" {folder}/slurm')
    return folder


@pytest.fixture(scope="session")
def layer(cluster: Cluster) -> str:
    """The name of a layer that has what some programs of slurm/ import.

    The cluster has no package index: the layer is made on the host's network, in /sw, and copied.
    """
    good = f"jaxsif layer show {LAYER} | grep -q '^status *ok$'"
    if cluster.run(f"module load jax/sif && {good}").returncode:
        create = "export XDG_DATA_HOME=/sw/data XDG_CACHE_HOME=/sw/data JAX_IMAGE=$(ls /sw/jaxsif/images/*-cpu.sif); "
        create += f"rm -rf /sw/data; exec /sw/jaxsif/*/bin/jaxsif layer create {LAYER} {' '.join(PACKAGES)}"
        made = subprocess.run(
            [MINICLUSTER, "sandbox", "--", "bash", "-c", create], capture_output=True, text=True, check=False
        )
        assert made.returncode == 0, made.stderr
        cluster.check(
            "mkdir -p ~/.local/share/jaxsif/layers && cp /sw/data/jaxsif/layers/* ~/.local/share/jaxsif/layers"
        )
    return LAYER


@pytest.fixture
def work() -> Path:
    """A folder that the runtime's sandbox sees: below this clone, like all that it builds."""
    folder = REPOSITORY / "build/test-image"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
