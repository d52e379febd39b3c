"""Warn if a program asks JAX for preemption notices while JAX's service for them is off: Orbax then
saves nothing.

`jaxsif run` and its job scripts set JAX_ENABLE_PREEMPTION_SERVICE=0. Orbax takes JAX's error to
mean "no preemption", so a user would not notice that it does not save at the end of a job.
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
    f"the program asks JAX for preemption notices but gets none: {_SERVICE} is 0."
    f" Orbax saves no checkpoint on preemption; --env {_SERVICE}=1 turns the notices on"
)


def install(environ: Mapping[str, str]) -> None:
    """Watch, in the first task, for the program's request.

    Any value other than 0, such as false, is the user's own choice.
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
    """Return whether the program handles a signal that may announce its end."""
    return any(callable(signal.getsignal(number)) for number in _NOTICES)
