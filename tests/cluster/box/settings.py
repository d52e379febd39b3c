"""Where a cluster lives and how large it is, from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import BoxError

REPOSITORY = Path(__file__).resolve().parents[3]
SUITES = ("trixie", "sid")
MAX_NODES = 16
GPUS_PER_NODE = 4
CPUS_PER_NODE = 16


@dataclass(frozen=True)
class Settings:
    """One cluster; every path is below `home`, so two clones never meet."""

    home: Path  # MINICLUSTER_DIR, build/cluster of this clone unless set
    nodes: int  # MINICLUSTER_NODES: compute nodes, 1 to 16
    suite: str  # MINICLUSTER_SUITE: the Debian suite, and so the Slurm version
    extra_conf: Path | None  # MINICLUSTER_SLURM_CONF: lines to append to slurm.conf

    @property
    def rootfs(self) -> Path:
        """The root file system that all nodes share, read-only under their overlays."""
        return self.home / f"rootfs-{self.suite}"

    @property
    def logs(self) -> Path:
        """One folder a node, one file a daemon."""
        return self.home / "log"

    @property
    def node_names(self) -> tuple[str, ...]:
        """The compute nodes: node1, node2, …"""
        return tuple(f"node{i}" for i in range(1, self.nodes + 1))

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Settings:
        """Read MINICLUSTER_*; raises BoxError for a value that cannot be used."""
        nodes = environ.get("MINICLUSTER_NODES", "4")
        if not nodes.isdecimal() or not 1 <= int(nodes) <= MAX_NODES:
            raise BoxError(f"MINICLUSTER_NODES={nodes} is not a number from 1 to {MAX_NODES}")
        suite = environ.get("MINICLUSTER_SUITE", SUITES[0])
        if suite not in SUITES:
            raise BoxError(f"MINICLUSTER_SUITE={suite} is not one of {', '.join(SUITES)}")
        extra = environ.get("MINICLUSTER_SLURM_CONF")
        if extra and not Path(extra).is_file():
            raise BoxError(f"MINICLUSTER_SLURM_CONF={extra} is not a file")
        home = environ.get("MINICLUSTER_DIR") or REPOSITORY / "build" / "cluster"
        return cls(Path(home).resolve(), int(nodes), suite, Path(extra).resolve() if extra else None)


def is_root() -> bool:
    """True when namespaces need no user namespace around them."""
    return os.geteuid() == 0
