"""Room in /dev/shm, which NCCL needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, MutableMapping

from .contract import FLAVOUR, NODE_CHECKED, tasks_on_node
from .devices import find_gpus

# NCCL passes data between processes of a node through files there: about 10 MB for each pair of
# neighbours, and up to some 100 MB for each process where GPUs do not reach each other. Without
# room it ends with an error or by SIGBUS.
_SHM = "/dev/shm"
_SHM_PER_TASK = 128 << 20  # bytes
_SHM_ENOUGH = 1 << 30


def check(environ: MutableMapping[str, str], emit: Callable[[Mapping[str, object]], None]) -> None:
    """Have the first of several tasks on a node warn, once, of too little room."""
    if environ.get("SLURM_LOCALID") != "0" or NODE_CHECKED in environ:
        return
    environ[NODE_CHECKED] = "1"  # inherited: what a child sees, its parent may have filled
    without_nccl = environ.get(FLAVOUR) == "cpu" or environ.get("NCCL_SHM_DISABLE") == "1"
    tasks = tasks_on_node(environ)
    if without_nccl or not find_gpus(environ) or tasks == 1:
        return
    problem = describe_shm(_free_bytes(_SHM), tasks)
    if problem:
        emit({"event": "warning", "text": problem})


def describe_shm(free: int, tasks: int) -> str:
    """Return what is wrong with so many free bytes in /dev/shm; '' if nothing is."""
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
