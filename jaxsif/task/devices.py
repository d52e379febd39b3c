"""A task's Slurm variables -> the variables that tell JAX its devices.

The devices are first compared with the plan, and the free space in /dev/shm with NCCL's needs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, MutableMapping
from typing import NamedTuple

from . import contract
from .contract import Expectation, MisfitError, parse_number

# JAX's own variables, see jax/_src/distributed.py and jax/_src/config.py.
_LOCAL_DEVICE_IDS = "JAX_LOCAL_DEVICE_IDS"
_NUM_CPU_DEVICES = "JAX_NUM_CPU_DEVICES"
_PLATFORMS = "JAX_PLATFORMS"
_FORCED_CPU_DEVICES = "xla_force_host_platform_device_count"  # the older way, in XLA_FLAGS

# What to do about the wrong number of GPUs.
_SOME_GPUS = "leave --gpu-bind, --gpus and CUDA_VISIBLE_DEVICES to jaxsif, or"
_NO_GPUS = "request GPUs with --gpus-per-node=N; if the job has them,"

# NCCL passes data between processes of a node through files there: about 10 MB for each pair of
# neighbours, and up to about 100 MB for each process if GPUs do not reach each other directly.
# Without enough space it ends with an error or SIGBUS.
_SHM = "/dev/shm"
_SHM_PER_TASK = 128 << 20  # bytes
_SHM_ENOUGH = 1 << 30

# Under a bare srun nothing is planned, and tasks on one GPU are the user's own affair.
_NO_PLAN = "-:- share"


class Seen(NamedTuple):
    """A task's view of its node."""

    tasks: int
    gpus: int
    private: bool  # the GPUs are the task's own


def prepare(environ: MutableMapping[str, str]) -> None:
    """Complete `environ` for JAX, never replacing an existing value; raise MisfitError if the task
    does not match the plan.
    """
    ids = find_device_ids(environ)
    if not ids:
        return
    environ.setdefault(_LOCAL_DEVICE_IDS, ",".join(map(str, ids)))
    if environ.get(contract.FLAVOUR) != "cpu":
        if contract.COORDINATOR_PORT in environ:
            # Otherwise JAX silently runs on the CPU if it finds no usable GPU.
            environ.setdefault(_PLATFORMS, "cuda")
    elif _FORCED_CPU_DEVICES not in environ.get("XLA_FLAGS", ""):
        # The rehearsal: as many CPU devices as the task would have GPUs.
        environ.setdefault(_NUM_CPU_DEVICES, str(len(environ[_LOCAL_DEVICE_IDS].split(","))))


def find_device_ids(environ: Mapping[str, str]) -> tuple[int, ...]:
    """Return the indices of the task's visible GPUs that its process uses, or () without GPUs;
    raise MisfitError.
    """
    local_id = parse_number(environ.get("SLURM_LOCALID", "0"), "SLURM_LOCALID")
    seen = Seen(contract.tasks_on_node(environ), len(find_gpus(environ)), has_private_gpus(environ))
    planned = Expectation.parse(environ.get(contract.LAYOUT) or _NO_PLAN)
    check(seen, planned, *planned.find_shape(contract.node_number(environ)))
    if not seen.gpus or seen.private:
        return tuple(range(seen.gpus))
    return contract.share(local_id, seen.tasks, seen.gpus, planned.each, planned.uneven)


def find_gpus(environ: Mapping[str, str]) -> list[str]:
    """Return the GPUs that this task sees."""
    return contract.visible_gpus(environ.get("CUDA_VISIBLE_DEVICES", ""))


def has_private_gpus(environ: Mapping[str, str]) -> bool:
    """Return whether all visible GPUs belong to this task only: Slurm bound them (--gpus-per-task,
    --gpu-bind), or a script did.

    SLURM_GPUS_ON_NODE counts the GPUs of the step. SLURM_STEP_GPUS has the task's own GPUs if Slurm
    bound them (24.11), otherwise all GPUs of the step, and does not change if a script sets
    CUDA_VISIBLE_DEVICES.
    """
    of_step = len(contract.visible_gpus(environ.get("SLURM_STEP_GPUS", "")))
    text = environ.get("SLURM_GPUS_ON_NODE", "")
    on_node = parse_number(text, "SLURM_GPUS_ON_NODE") if text.isascii() and text.isdecimal() else 0
    return 0 < len(find_gpus(environ)) < max(of_step, on_node)


def check(seen: Seen, planned: Expectation, tasks: int | None, gpus: int | None) -> None:
    """Raise MisfitError if a task does not see the planned numbers of tasks and GPUs."""
    if tasks not in (None, seen.tasks):
        raise MisfitError(
            f"this node has {seen.tasks} of {tasks} planned tasks",
            "leave --distribution and other placement options out of --srun-args",
        )
    if seen.private:
        _check_private(seen, planned, gpus)
        return
    if planned.bound and gpus and not seen.gpus:
        raise MisfitError(
            "Slurm bound no GPU to this task",
            "--gpu-bind=none, so that each task takes its own share",
        )
    if not planned.bound and gpus not in (None, seen.gpus):
        raise MisfitError(
            f"this task sees {seen.gpus} of {gpus} planned GPUs",
            f"{_SOME_GPUS if seen.gpus else _NO_GPUS} see the node's gres.conf",
        )
    if seen.tasks > seen.gpus > 0 and not planned.share:
        raise MisfitError(
            f"{seen.tasks} tasks share {seen.gpus} of this node's GPUs: JAX needs at least one GPU"
            " for each process",
            f"--ntasks-per-node={seen.gpus}, or --share-gpus",
        )


def _check_private(seen: Seen, planned: Expectation, gpus: int | None) -> None:
    may_overlap = planned.share or planned.uneven or not gpus
    if not may_overlap and seen.gpus * seen.tasks > (gpus or 0):
        raise MisfitError(
            f"each of {seen.tasks} tasks on this node is bound to {seen.gpus} of its {gpus}"
            " GPUs, so some tasks share GPUs",
            "--gpu-bind=none, so that each task takes its own share, or --share-gpus",
        )


def check_shm(
    environ: MutableMapping[str, str], emit: Callable[[Mapping[str, object]], None]
) -> None:
    """Make the first of several tasks on a node warn, once, if there is too little space in
    /dev/shm.
    """
    if environ.get("SLURM_LOCALID") != "0" or contract.NODE_CHECKED in environ:
        return
    environ[contract.NODE_CHECKED] = "1"  # inherited: its parent may fill a child's /dev/shm
    without_nccl = environ.get(contract.FLAVOUR) == "cpu" or environ.get("NCCL_SHM_DISABLE") == "1"
    tasks = contract.tasks_on_node(environ)
    if without_nccl or not find_gpus(environ) or tasks == 1:
        return
    try:
        status = os.statvfs(_SHM)
        free = status.f_bavail * status.f_frsize
    except OSError:
        free = 0  # it does not exist
    problem = describe_shm(free, tasks)
    if problem:
        emit({"event": "warning", "text": problem})


def describe_shm(free: int, tasks: int) -> str:
    """Describe the problem with this many free bytes in /dev/shm, or return '' if there is none."""
    needed = min(_SHM_PER_TASK * tasks, _SHM_ENOUGH)
    if free >= needed:
        return ""
    return f"{_SHM} has {free >> 20} MiB free, and NCCL may need {needed >> 20} for {tasks} tasks"
