"""What a plan is made of: what was asked for, and what this host has."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from jaxsif import mpirun
from jaxsif.apptainer import Runtime
from jaxsif.counts import Counts
from jaxsif.errors import HostError
from jaxsif.launchers import LOCAL, SRUN
from jaxsif.slurm import Allocation

NODE = "node"
TASK = "task"


class RunOptions(NamedTuple):
    """What the command line asks for; None where it says nothing."""

    command: tuple[str, ...]  # the program and its arguments
    launcher: str | None = None  # of launchers.LAUNCHERS
    nodes: int | None = None
    ntasks: int | None = None
    ntasks_per_node: int | None = None
    gpus_per_node: str | None = None  # N or TYPE:N
    gpus_per_task: int | None = None
    cpus_per_task: int | None = None
    gpu_bind: str | None = None  # as for srun
    per_node: bool = False  # one process on each node
    per_gpu: bool = False  # one process for each GPU
    allow_uneven: bool = False  # processes and nodes may have different numbers of GPUs
    share_gpus: bool = False  # several tasks may have one GPU
    time: str | None = None
    partition: str | None = None
    account: str | None = None
    constraint: str | None = None
    srun_args: tuple[str, ...] = ()  # further arguments of srun, as they are
    binds: tuple[str, ...] = ()  # SRC[:DEST[:OPTS]], as for the runtime
    env: tuple[tuple[str, str], ...] = ()  # variables for the container
    label: bool = False  # prefix output lines with the task's number
    coordinator_ports: str | None = None  # FIRST-LAST, from which one is taken
    node_address: str | None = None  # how tasks reach a node, %N its name
    init_timeout: int | None = None  # seconds, of jax.distributed.initialize
    heartbeat_timeout: int | None = None
    shutdown_timeout: int | None = None
    containers: str = NODE  # one container for all tasks of a node, or for each TASK
    hosts: str | None = None  # NAME:SLOTS,... for mpirun
    hostfile: str | None = None  # a file of them
    cleanenv: bool = False  # pass on what the table of environment.py names, and nothing else
    # What set each option, by its key; for errors.
    sources: Mapping[str, str] = MappingProxyType({})

    def source(self, key: str) -> str:
        """What set an option, such as 'run.ntasks-per-node in /sw/jaxsif/jaxsif.toml'."""
        return self.sources.get(key, f"--{key}")


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
