"""Code that runs inside the container beside the user's program; standard library only, any Python
from 3.9.

`start.sh` is the parent of the program and reports how it ended. Every Python of a task imports
this package before the user's first line, through a .pth file in jaxsif's images and through
`site/sitecustomize.py` in all others. The folder is in the image as /opt/jaxsif/task; `jaxsif run`
binds its own copy over it. The launcher imports only `contract` from it.

This package must never break the program: outside a Slurm task it does nothing at all.
"""

from __future__ import annotations

import io
import os
import sys

# Type checkers take it for true.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping


def install(environ: MutableMapping[str, str]) -> None:
    """Prepare this process if it belongs to a task of a Slurm step: devices, coordinator, and fast
    failure.
    """
    if "SLURM_PROCID" not in environ or "SLURM_STEP_NODELIST" not in environ:
        return
    from . import (
        contract,
        coordinator,
        credentials,
        defaults,
        devices,
        failure,
        importing,
        pipes,
        preemption,
        spawned,
        workers,
    )
    from .watch import install as watch

    pipes.install(environ)
    emit = failure.reporter(environ)
    try:
        devices.prepare(environ)
        coordinator.prepare(environ, emit)
        wishes = watch.read_wishes(environ)
        defaults.install(environ)
    except contract.MisfitError as misfit:
        failure.refuse(environ, misfit)
    importing.speed_up(environ)
    credentials.install(environ)
    pipe = failure.install(environ, emit)
    preemption.install(environ, emit, pipe)
    coordinator.report_unconnected(environ, emit)
    coordinator.report_arguments(environ, emit)
    coordinator.report_raised(emit)
    spawned.install(environ, emit)
    workers.install(emit)
    watch.install(environ, emit, pipe, *wishes)
    importing.report_missing(environ, emit)
    devices.check_shm(environ, emit)
    if environ.get("JAX_COMPILATION_CACHE_DIR"):
        from . import compilecache

        compilecache.install(emit)
    if environ.get(contract.REPORT) and isinstance(sys.stdout, io.TextIOWrapper):
        # As on a terminal: each line appears when it is printed, not when 8 KiB are full.
        sys.stdout.reconfigure(line_buffering=True)


# A task imports this package by that name; the launcher, which is not a task, imports jaxsif.task.
if __name__ == "jaxsif_task":
    install(os.environ)
