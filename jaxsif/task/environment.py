"""What a node must have for JAX's libraries, beside GPUs."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

from .devices import tasks_on_node, visible_gpus

# NCCL passes data between processes of a node through files there: about 10 MB for each pair of
# neighbours, and up to some 100 MB for each process where GPUs do not reach each other. Without
# room it ends with an error or by SIGBUS.
_SHM = "/dev/shm"
_SHM_PER_TASK = 128 << 20  # bytes
_SHM_ENOUGH = 1 << 30


_CHECKED = "JAXSIF_NODE_CHECKED"


def check(environ: MutableMapping[str, str]) -> str:
    """What may break a program with several processes on this node, or ''; looked at once, by the
    first of them.
    """
    if environ.get("SLURM_LOCALID") != "0" or _CHECKED in environ:
        return ""
    environ[_CHECKED] = "1"  # inherited: what a child sees, its parent may have filled
    if (
        environ.get("JAXSIF_FLAVOUR") == "cpu"
        or environ.get("NCCL_SHM_DISABLE") == "1"
        or not visible_gpus(environ)
    ):
        return ""
    tasks = tasks_on_node(environ)
    return describe_shm(_free_bytes(_SHM), tasks) if tasks > 1 else ""


def describe_shm(free: int, tasks: int) -> str:
    """What is wrong with so many free bytes in /dev/shm; '' if nothing is."""
    needed = min(_SHM_PER_TASK * tasks, _SHM_ENOUGH)
    if free >= needed:
        return ""
    return f"{_SHM} has {free >> 20} MiB free, and NCCL may need {needed >> 20} for {tasks} tasks"


def _free_bytes(folder: str) -> int:
    try:
        status = os.statvfs(folder)
    except OSError:
        return 0  # there is none
    return status.f_bavail * status.f_frsize
