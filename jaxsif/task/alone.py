"""Report that this task computed with JAX and was connected to no other: jax.distributed.initialize
was forgotten.

`jaxsif run` warns when several tasks report it. Independent copies are legal: JAXSIF_INDEPENDENT=1
says that.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any


def install(environ: Mapping[str, str], emit: Callable[[Mapping[str, Any]], None]) -> None:
    """Have `emit` told at the end of this process, where the step has several tasks."""
    tasks = environ.get("SLURM_STEP_NUM_TASKS") or environ.get("SLURM_NTASKS", "1")
    if tasks == "1" or environ.get("JAXSIF_INDEPENDENT"):
        return
    pid = os.getpid()  # a fork is not the task

    def report() -> None:
        if os.getpid() == pid and _computed_alone():
            emit({"event": "alone"})

    # Before JAX's own exit handler, behind which nothing is left to see.
    threading._register_atexit(report)  # type: ignore[attr-defined]


def _computed_alone() -> bool:
    bridge, distributed = (
        sys.modules.get(f"jax._src.{name}") for name in ("xla_bridge", "distributed")
    )
    state = getattr(distributed, "global_state", None)
    # The address stays when the program has ended the connection itself.
    return (
        bool(getattr(bridge, "_backends", None))
        and getattr(state, "coordinator_address", "unknown") is None
    )
