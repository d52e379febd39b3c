"""Tell when a program asks JAX for a notice of preemption, and JAX's service for it is off: Orbax
saves nothing then.

`jaxsif run` and its job scripts set JAX_ENABLE_PREEMPTION_SERVICE=0. Orbax takes JAX's error for
"no preemption", so nobody would learn that it does not save at the end of a job.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from functools import wraps
from types import ModuleType
from typing import Any

from . import importing

_SERVICE = "JAX_ENABLE_PREEMPTION_SERVICE"
_NOTICES = (signal.SIGTERM, signal.SIGURG, signal.SIGUSR1, signal.SIGUSR2)
_WARNING = (
    f"the program asks JAX for a notice of preemption and gets none: {_SERVICE} is 0."
    f" Orbax saves no checkpoint at a preemption; --env {_SERVICE}=1 turns the notice on"
)


def install(environ: Mapping[str, str]) -> None:
    """Watch for the question, in the first task. Any other value than 0, such as false, is the
    user's own answer.
    """
    if environ.get(_SERVICE) == "0" and environ["SLURM_PROCID"] == "0":
        importing.after("jax.experimental.multihost_utils", _watch)


def _watch(module: ModuleType) -> None:
    original = getattr(module, "reached_preemption_sync_point", None)
    if original is None:
        return  # another JAX
    told: list[bool] = []

    @wraps(original)
    def reached_preemption_sync_point(*arguments: Any, **more: Any) -> Any:
        try:
            return original(*arguments, **more)
        except RuntimeError:
            if not told and not _listens():
                told.append(True)
                sys.stderr.write(f"jaxsif: warning: {_WARNING}\n")
            raise

    module.reached_preemption_sync_point = reached_preemption_sync_point  # type: ignore[attr-defined]


def _listens() -> bool:
    """Whether the program has another way to learn of its end: a handler of its own for a signal."""
    return any(callable(signal.getsignal(number)) for number in _NOTICES)
