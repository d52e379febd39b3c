"""What runs inside the container beside the user's program; standard library only, any Python from
3.9.

`start.sh` is the parent of the program and reports how it ended. This package is imported by every
Python of a task before the user's first line, through a .pth file in jaxsif's images and through
`site/sitecustomize.py` in all others. The folder is in the image as /opt/jaxsif/task; `jaxsif run`
binds its own copy over it.

It must never break the program: outside a Slurm task it does nothing at all.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import MutableMapping


def install(environ: MutableMapping[str, str]) -> None:
    """Prepare this process if it belongs to a task of a Slurm step: devices, coordinator, fast
    failure.
    """
    if "SLURM_PROCID" not in environ or "SLURM_STEP_NODELIST" not in environ:
        return
    from . import (
        alone,
        arguments,
        coordinator,
        devices,
        environment,
        failure,
        preemption,
        setup,
        startup,
    )

    try:
        setup.prepare(environ)
    except devices.MisfitError as misfit:
        failure.refuse(environ, "refused", str(misfit), misfit.hint)
    inherited = coordinator.PORT_HELD in environ
    event, text = coordinator.prepare(environ)
    if event:
        failure.refuse(environ, event, text)
    if coordinator.PORT_HELD in environ and not inherited:
        # Nothing that the program says of the port counts now.
        failure.reporter(environ)({"event": "port-held"})
    startup.install(environ)
    arguments.install(environ)
    preemption.install(environ)
    failure.install(environ)
    alone.install(environ, failure.reporter(environ))
    warning = environment.check(environ)
    if warning:
        failure.reporter(environ)({"event": "warning", "text": warning})
    if environ.get("JAX_COMPILATION_CACHE_DIR"):
        from . import compilecache

        compilecache.install(failure.reporter(environ))
    if environ.get("JAXSIF_REPORT") and isinstance(sys.stdout, io.TextIOWrapper):
        # As on a terminal: a line is seen when it is printed, not when 8 KiB are full.
        sys.stdout.reconfigure(line_buffering=True)


install(os.environ)
