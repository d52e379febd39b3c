"""Warn when a program asks JAX for a notice of preemption, and JAX's service for it is off: Orbax
saves nothing then.

`jaxsif run` and its job scripts set JAX_ENABLE_PREEMPTION_SERVICE=0. Orbax takes JAX's error for
"no preemption", so a user would not learn that it does not save at the end of a job.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from functools import wraps
from typing import Any

from . import importing

_SERVICE = "JAX_ENABLE_PREEMPTION_SERVICE"
_NOTICES = (signal.SIGTERM, signal.SIGURG, signal.SIGUSR1, signal.SIGUSR2)
_WARNING = (
    f"the program asks JAX for a notice of preemption and gets none: {_SERVICE} is 0."
    f" Orbax saves no checkpoint at a preemption; --env {_SERVICE}=1 turns the notice on"
)


def install(environ: Mapping[str, str]) -> None:
    """Watch, in the first task, for the program's question.

    Any other value than 0, such as false, is the user's own answer.
    """
    if environ.get(_SERVICE) == "0" and environ["SLURM_PROCID"] == "0":
        importing.after("jax.experimental.multihost_utils", _watch)


def _watch(module: Any) -> None:
    original = importing.find(module, "reached_preemption_sync_point")
    warnings = [f"jaxsif: warning: {_WARNING}\n"]  # to write, once

    @wraps(original)
    def reached_preemption_sync_point(*arguments: Any, **more: Any) -> Any:
        try:
            return original(*arguments, **more)
        except RuntimeError:
            if warnings and not _listens():
                sys.stderr.write(warnings.pop())
            raise

    module.reached_preemption_sync_point = reached_preemption_sync_point


def _listens() -> bool:
    """Return whether the program has a handler for a signal, by which it may learn of its end."""
    return any(callable(signal.getsignal(number)) for number in _NOTICES)
