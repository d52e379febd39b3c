"""Probe this host: Slurm, a container runtime, GPUs; and choose the launcher."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import cast

from jaxsif import process
from jaxsif.errors import HostError
from jaxsif.installation import PACKAGE
from jaxsif.job.allocation import Allocation, gpus_of, parse_job_gpus
from jaxsif.job.counts import Counts
from jaxsif.plan.host import Host
from jaxsif.plan.launcher import LOCAL, SRUN, Launcher
from jaxsif.process import find_executable
from jaxsif.runtime import find_runtime
from jaxsif.settings.options import RunOptions
from jaxsif.task import contract


def probe_host(allocation: Allocation | None, environ: Mapping[str, str]) -> Host:
    """Collect the facts that any launcher needs; raise HostError for an unusable runtime."""
    try:
        window: tuple[int, ...] = os.get_terminal_size(1)  # (0, 0) if the terminal does not know
    except OSError:
        window = ()  # not a terminal
    return Host(
        srun=find_executable(SRUN, environ) is not None,
        runtime=find_runtime(environ),
        python=sys.executable,
        package=PACKAGE,
        allocation=allocation,
        environ=environ,
        window=window,
    )


def choose_launcher(name: str | None, has_srun: bool, allocation: Allocation | None) -> Launcher:
    """Load the launcher with this name, a file in jaxsif/launch/launchers; without a name, srun if
    Slurm is available, else local.

    Raise HostError if srun is needed but missing.
    """
    if not has_srun and (name == SRUN or (allocation and not name)):
        source = "--launcher srun" if name else "SLURM_JOB_ID"
        raise HostError("srun is not on the PATH", source, "load Slurm")
    name = name or (SRUN if has_srun else LOCAL)
    return cast(Launcher, import_module(f"jaxsif.launch.launchers.{name}").LAUNCHER)


def count_gpus(environ: Mapping[str, str]) -> int:
    """Return how many of this machine's NVIDIA GPUs this process may use."""
    if "CUDA_VISIBLE_DEVICES" in environ:
        return len(contract.visible_gpus(environ["CUDA_VISIBLE_DEVICES"]))
    return contract.count_gpus()


def query_gpus(options: RunOptions, allocation: Allocation | None) -> Counts | None:
    """Ask Slurm for the job's GPUs on each node; return None if nothing depends on them.

    The number of tasks may depend on the GPUs if the environment does not give that number. Raise
    HostError if Slurm does not answer.
    """
    if allocation is None or _knows_gpus(options, allocation):
        return None
    try:
        details = process.output("scontrol", "--details", "show", "job", allocation.job_id)
    except (OSError, subprocess.CalledProcessError) as error:
        raise HostError(
            f"scontrol does not report the GPUs of job {allocation.job_id}",
            "SLURM_JOB_ID (environment)",
            "pass --gpus-per-node=N or --ntasks-per-node=N,"
            " or unset SLURM_JOB_ID if that job is over",
        ) from error
    return parse_job_gpus(details)


def _knows_gpus(options: RunOptions, allocation: Allocation) -> bool:
    """Return whether the options and the environment determine the number of tasks and GPUs."""
    if options.gpus or options.gpus_per_node or all(map(gpus_of, allocation.parts)):
        return True
    tasks = (options.ntasks_per_node, options.ntasks, options.per_node, allocation.ntasks)
    need_gpus = (allocation.gpus, options.allow_uneven, options.gpu_bind)
    return any(tasks) and not any(need_gpus)
