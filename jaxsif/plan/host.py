"""What this host has, as far as a plan needs it."""

from __future__ import annotations

from typing import NamedTuple

from jaxsif.job.counts import Counts
from jaxsif.plan import mpirun
from jaxsif.runtime import Runtime


class Host(NamedTuple):
    """What this host has; filled in by `host.probe`."""

    srun: bool  # Slurm's srun is on the PATH
    runtime: Runtime | None  # Apptainer or SingularityCE
    image: str | None  # the image's path; None without a runtime
    python: str  # this interpreter, which the nodes have too
    package: str  # the folder jaxsif of this installation
    port: int  # for JAX's coordinator, free here
    step: str  # a name that nobody can guess, by which the tasks of a node find each other
    gpus: int  # NVIDIA devices of this machine
    job_gpus: Counts | None  # GPUs on each node of the job, where Slurm had to be asked
    layers: tuple[str, ...] = ()  # files to mount over the image
    # For an image on the nodes' disks: its digest, and the file that it comes from.
    staged: tuple[str, ...] = ()
    # Under a policy: the image's digest, and the state of the file that has it.
    allowed: tuple[str, ...] = ()
    hosts: tuple[mpirun.Host, ...] = ()  # where mpirun may start tasks
    hosts_source: str = ""  # what named them
    # The folder of JAX's compile cache, which all nodes have; None for none.
    cache: str | None = None
    # The two of reports.py, by which reports are known; none where nobody reads them.
    nonces: tuple[str, ...] = ()
