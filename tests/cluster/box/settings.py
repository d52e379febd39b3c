"""Where a cluster lives and how large it is, from the environment."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jaxsif.errors import JaxsifError
from jaxsif.job.nodelist import expand

from .errors import BoxError

REPOSITORY = Path(__file__).resolve().parents[3]
SUITES = ("trixie", "sid")
MAX_NODES = 16
GPUS_PER_NODE = 4
CPUS_PER_NODE = 16
FREEZER = Path("/sys/fs/cgroup/freezer")  # of the first version of cgroups


@dataclass(frozen=True)
class Settings:
    """One cluster; every path is below `home`, so two clones never meet."""

    home: Path  # MINICLUSTER_DIR, build/cluster of this clone unless set
    node_names: tuple[str, ...]  # MINICLUSTER_NODES: the compute nodes, 1 to 16
    suite: str  # MINICLUSTER_SUITE: the Debian suite, and so the Slurm version
    extra_conf: Path | None  # MINICLUSTER_SLURM_CONF: lines to append to slurm.conf

    @property
    def rootfs(self) -> Path:
        """The root file system that all nodes share, read-only under their overlays."""
        return self.home / f"rootfs-{self.suite}"

    @property
    def has_freezer(self) -> bool:
        """Whether Slurm can keep the processes of a step together as on most clusters, by proctrack/cgroup."""
        return any(self.rootfs.glob("usr/lib/*/slurm-wlm/cgroup_v1.so")) and _lends_freezer()

    @property
    def logs(self) -> Path:
        """One folder a node, one file a daemon."""
        return self.home / "log"

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Settings:
        """Read MINICLUSTER_*; raises BoxError for a value that cannot be used."""
        nodes = _node_names(environ.get("MINICLUSTER_NODES", "4"))
        suite = environ.get("MINICLUSTER_SUITE", SUITES[0])
        if suite not in SUITES:
            raise BoxError(f"MINICLUSTER_SUITE={suite} is not one of {', '.join(SUITES)}")
        extra = environ.get("MINICLUSTER_SLURM_CONF")
        if extra and not Path(extra).is_file():
            raise BoxError(f"MINICLUSTER_SLURM_CONF={extra} is not a file")
        home = environ.get("MINICLUSTER_DIR") or REPOSITORY / "build" / "cluster"
        return cls(Path(home).resolve(), nodes, suite, Path(extra).resolve() if extra else None)


def _node_names(value: str) -> tuple[str, ...]:
    """node1, node2, … for a number; otherwise the names of a Slurm node list."""
    try:
        names = expand(f"node[1-{value}]" if value.isdecimal() else value)
    except JaxsifError:
        names = ()
    if not 1 <= len(names) <= MAX_NODES:
        raise BoxError(
            f"MINICLUSTER_NODES={value} is neither a number from 1 to {MAX_NODES} nor a list of such a length"
        )
    return names


@cache
def _lends_freezer() -> bool:
    """Whether this machine lets us make cgroups of the freezer, and mount them in a node; it needs real root."""
    mount = "unshare --mount --cgroup mount -t cgroup -o freezer cgroup /mnt"
    argv = ["sh", "-c", f'mkdir "$1" && {{ {mount}; code=$?; rmdir "$1"; exit $code; }}', "sh"]
    probe = FREEZER / f"minicluster-probe-{os.getpid()}"
    return (
        is_root()
        and FREEZER.is_dir()
        and not subprocess.run([*argv, probe], capture_output=True, check=False).returncode
    )


def is_root() -> bool:
    """True when namespaces need no user namespace around them."""
    return os.geteuid() == 0
