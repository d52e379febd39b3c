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
    """Find what any launcher needs; raise HostError for a runtime that cannot run."""
    try:
        window: tuple[int, ...] = os.get_terminal_size(1)  # (0, 0) where it does not know them
    except OSError:
        window = ()  # no terminal
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
    """Load the launcher of that name, a file of jaxsif/launch/launchers; without a name srun where
    Slurm is, else local.

    Raises HostError where srun is needed and missing.
    """
    if not has_srun and (name == SRUN or (allocation and not name)):
        source = "--launcher srun" if name else "SLURM_JOB_ID"
        raise HostError("srun is not on the PATH", source, "load Slurm")
    name = name or (SRUN if has_srun else LOCAL)
    return cast(Launcher, import_module(f"jaxsif.launch.launchers.{name}").LAUNCHER)


def count_gpus(environ: Mapping[str, str]) -> int:
    """Return how many NVIDIA GPUs of this machine this process may use."""
    if "CUDA_VISIBLE_DEVICES" in environ:
        return len(contract.visible_gpus(environ["CUDA_VISIBLE_DEVICES"]))
    return contract.count_gpus()


def query_gpus(options: RunOptions, allocation: Allocation | None) -> Counts | None:
    """Return the job's GPUs on each node, of Slurm; None where nothing depends on them.

    The number of tasks may depend on them where the environment does not tell. Raises HostError.
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
    """Whether the number of tasks and GPUs follows from what was asked and from the environment."""
    if options.gpus or options.gpus_per_node or all(map(gpus_of, allocation.parts)):
        return True
    tasks = (options.ntasks_per_node, options.ntasks, options.per_node, allocation.ntasks)
    need_gpus = (allocation.gpus, options.allow_uneven, options.gpu_bind)
    return any(tasks) and not any(need_gpus)
