"""Report that this task computed with JAX and was connected to no other: jax.distributed.initialize
was forgotten.

`jaxsif run` warns when several tasks report it. Independent copies are legal: JAXSIF_INDEPENDENT=1
says that.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from .contract import INDEPENDENT


def install(environ: Mapping[str, str], emit: Callable[[Mapping[str, Any]], None]) -> None:
    """Have `emit` told at the end of this process, where the step has several tasks."""
    tasks = environ.get("SLURM_STEP_NUM_TASKS") or environ.get("SLURM_NTASKS", "1")
    if tasks == "1" or environ.get(INDEPENDENT):
        return

    def report() -> None:
        if _computed_alone():
            emit({"event": "alone"})

    # Before JAX's own exit handler, after which nothing is left to see.
    threading._register_atexit(report)  # type: ignore[attr-defined]


def _computed_alone() -> bool:
    backends = getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None)
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    # The address stays when the program has ended the connection itself.
    return bool(backends) and getattr(state, "coordinator_address", "unknown") is None
