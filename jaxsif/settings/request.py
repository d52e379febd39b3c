"""What was asked for, of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from jaxsif.task.contract import WARN

NODE = "node"
TASK = "task"
OFF = "off"
AUTO = "auto"
REPORT = "report"


class RunOptions(NamedTuple):
    """What is asked for; the defaults here are those of the options, None where there is none."""

    command: tuple[str, ...]  # the program and its arguments
    launcher: str | None = None  # a file of jaxsif/launch/launchers
    nodes: int | None = None
    ntasks: int | None = None
    ntasks_per_node: int | None = None
    node_range: tuple[int, int] | None = None  # the fewest and the most nodes, instead of `nodes`
    gpus: str | None = None  # N or TYPE:N, over all nodes
    gpus_per_node: str | None = None  # N or TYPE:N
    gpus_per_task: int | None = None
    gpu_type: str = ""  # of gpus_per_task
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
    passed: tuple[str, ...] = ()  # srun's own options, in their long form, one word each
    srun_args: tuple[str, ...] = ()  # further arguments of srun, as they are
    binds: tuple[str, ...] = ()  # SRC[:DEST[:OPTS]], as for the runtime
    env: tuple[tuple[str, str], ...] = ()  # variables for the container
    label: bool = False  # prefix output lines with the task's number
    history: bool = True  # keep how the run ended
    coordinator_ports: str | None = None  # FIRST-LAST, from which one is taken
    node_address: str | None = None  # how tasks reach a node, %N its name
    coordinator_tls: str = AUTO  # certificates for the coordinator, where there can be; on, or OFF
    init_timeout: int | None = None  # seconds, of jax.distributed.initialize
    heartbeat_timeout: int | None = None
    shutdown_timeout: int | None = None
    hang_timeout: int | str = 60  # seconds that tasks may wait before that is told, or OFF
    on_hang: str = REPORT  # what is done then; STOP ends the run
    busy_timeout: int | str = OFF  # seconds that others may wait for a task at work
    check_programs: str = WARN  # what is done when tasks compile different programs; STOP, or OFF
    containers: str = NODE  # one container for all tasks of a node, or for each TASK
    hosts: str | None = None  # NAME:SLOTS,... for mpirun
    hostfile: str | None = None  # a file of them
    # Pass on what the table of container/environment.py names, and nothing else.
    cleanenv: bool = False
    # What set each option, by its key; for errors.
    sources: Mapping[str, str] = MappingProxyType({})

    @property
    def patience(self) -> int:
        """Return the seconds that tasks may wait before that is told; 0 where nobody asks."""
        return 0 if self.hang_timeout == OFF else int(self.hang_timeout)

    @property
    def busy_patience(self) -> float:
        """Return the seconds that others may wait for a task at work."""
        return math.inf if self.busy_timeout == OFF else int(self.busy_timeout)

    def source(self, key: str) -> str:
        """Return what set an option, such as 'run.ntasks-per-node in /sw/jaxsif/jaxsif.toml'."""
        return self.sources.get(key, f"--{key}")
