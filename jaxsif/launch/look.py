"""Look at this host: Slurm, a container runtime, GPUs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping

from jaxsif import process
from jaxsif.errors import HostError
from jaxsif.installation import PACKAGE
from jaxsif.job.allocation import Allocation, gpus_of, parse_job_gpus
from jaxsif.job.counts import Counts
from jaxsif.plan.host import Host
from jaxsif.plan.launcher import SRUN
from jaxsif.process import find_executable
from jaxsif.runtime import find_runtime
from jaxsif.settings.request import RunOptions
from jaxsif.task.contract import visible_gpus


def look(allocation: Allocation | None, environ: Mapping[str, str]) -> Host:
    """Return what any launcher needs to know; raises HostError for a runtime that cannot run."""
    return Host(
        srun=find_executable(SRUN, environ) is not None,
        runtime=find_runtime(environ),
        python=sys.executable,
        package=PACKAGE,
        allocation=allocation,
        environ=environ,
        window=_find_window(),
    )


def _find_window() -> tuple[int, ...]:
    """Return columns and lines of our standard output, (0, 0) where the terminal does not know
    them; nothing where it is no terminal.
    """
    try:
        return os.get_terminal_size(1)
    except OSError:
        return ()


def count_gpus(environ: Mapping[str, str]) -> int:
    """Return how many NVIDIA GPUs of this machine this process may use."""
    if "CUDA_VISIBLE_DEVICES" in environ:
        return len(visible_gpus(environ["CUDA_VISIBLE_DEVICES"]))
    return len([name for name in os.listdir("/dev") if re.fullmatch(r"nvidia\d+", name)])


def ask_for_gpus(asked: RunOptions, allocation: Allocation | None) -> Counts | None:
    """Return the job's GPUs on each node, of Slurm; None where nothing depends on them.

    The number of tasks may depend on them where the environment does not tell. Raises HostError.
    """
    if allocation is None or _knows_gpus(asked, allocation):
        return None
    try:
        details = process.output("scontrol", "--details", "show", "job", allocation.job_id)
    except (OSError, subprocess.CalledProcessError) as error:
        raise HostError(
            f"scontrol does not tell the GPUs of job {allocation.job_id}",
            "SLURM_JOB_ID (environment)",
            "pass --gpus-per-node=N or --ntasks-per-node=N,"
            " or unset SLURM_JOB_ID when that job is over",
        ) from error
    return parse_job_gpus(details)


def _knows_gpus(asked: RunOptions, allocation: Allocation) -> bool:
    """Whether the number of tasks and GPUs follows from what was asked and from the environment."""
    if asked.gpus or asked.gpus_per_node or all(map(gpus_of, allocation.parts)):
        return True
    tasks = (asked.ntasks_per_node, asked.ntasks, asked.per_node, allocation.ntasks)
    need_gpus = (allocation.gpus, asked.allow_uneven, asked.gpu_bind)
    return any(tasks) and not any(need_gpus)
