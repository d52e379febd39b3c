"""The launchers: what starts the tasks, and in which words they differ.

A launcher is an entry here, one in layouts/choose.py (its layout) and one in launch.py (its
processes); plan.py writes its argument vector.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxsif.errors import HostError
from jaxsif.job.allocation import Allocation

SRUN = "srun"
LOCAL = "local"
MPIRUN = "mpirun"


class Launcher(NamedTuple):
    """What the rest of jaxsif says and asks of a launcher."""

    where: str  # it starts the tasks, for people
    spans_nodes: bool  # tasks run elsewhere, too: the nodes must have the runtime
    options: tuple[str, ...]  # of `jaxsif run` that only it takes, by their keys
    refuses: str  # who refuses a request
    remedy: str  # what tells why it did
    look: str  # what tells why tasks ended that said nothing


LAUNCHERS = {
    SRUN: Launcher(
        where="by srun",
        spans_nodes=True,
        options=("srun-args", "gpu-bind", "cpus-per-task"),
        refuses="Slurm",
        remedy="sinfo and sacctmgr show what there is",
        look="squeue and scontrol show job tell of time limits, cancelled jobs and lost nodes",
    ),
    LOCAL: Launcher(
        where="on this machine",
        spans_nodes=False,
        options=(),
        refuses="this machine",
        remedy="",
        look="the kernel's log tells of processes that it killed",
    ),
    MPIRUN: Launcher(
        where="by mpirun",
        spans_nodes=True,
        options=("hosts", "hostfile"),
        refuses="mpirun",
        remedy="mpirun --host NODE hostname shows whether it reaches a node, by ssh without a password",
        look="what mpirun says above, and the node's log, tell of lost nodes",
    ),
}


def choose_launcher(asked: str | None, has_srun: bool, allocation: Allocation | None) -> str:
    """The one asked for, else srun where there is one; raises HostError where srun is needed and
    missing.
    """
    chosen = asked or (SRUN if has_srun or allocation else LOCAL)
    if chosen == SRUN and not has_srun:
        raise HostError(
            "srun is not on the PATH", "--launcher srun" if asked else "SLURM_JOB_ID", "load Slurm"
        )
    return chosen
