"""This host: Slurm, a container runtime, GPUs, the job that this process is in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from jaxsif.job.allocation import Allocation, take_counts, take_nodes
from jaxsif.job.counts import Counts
from jaxsif.job.nodelist import expand
from jaxsif.plan.host_list import NO_HOSTS, HostList
from jaxsif.runtime import Runtime


class Host(NamedTuple):
    """This host, as jaxsif/launch/probe.py found it."""

    srun: bool  # Slurm's srun is on the PATH
    runtime: Runtime | None  # Apptainer or SingularityCE
    python: str  # this interpreter, which the nodes have too
    package: str  # the folder jaxsif of this installation
    gpus: int = 0  # NVIDIA devices of this machine; of srun's nodes, Slurm knows
    allocation: Allocation | None = None  # the job that this process is in
    job_gpus: Counts | None = None  # GPUs on each node of the job, if Slurm had to be asked
    host_list: HostList = NO_HOSTS  # where mpirun may start tasks
    environ: Mapping[str, str] = MappingProxyType({})  # the variables of this process
    # Columns and lines of the terminal that is our standard output; none if it is not a terminal.
    window: tuple[int, ...] = ()
    # With --max-restarts: this host with all nodes of the job, of which the run has a part.
    whole: Host | None = None

    def take(self, names: Sequence[str]) -> Host:
        """Return this host with only these of its job's nodes."""
        assert self.allocation
        numbers = {name: index for index, name in enumerate(expand(self.allocation.nodelist))}
        chosen = [numbers[name] for name in names]
        gpus = None if self.job_gpus is None else take_counts(self.job_gpus, chosen)
        return self._replace(allocation=take_nodes(self.allocation, chosen), job_gpus=gpus)
