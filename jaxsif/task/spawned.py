"""End a task whose worker runs the program again. Workers that multiprocessing spawns import the
script, and so run everything in it that is not under `if __name__ == "__main__"`.

Such a worker would call jax.distributed.initialize under its parent's process number. JAX then
aborts all processes, after 2 to 60 seconds and hundreds of lines that do not give the reason.

Workers may also be the JAX processes themselves, with a parent that never connects. So a worker
ends the task only if its parent is connected, and under the very process number that the worker
would use.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, MutableMapping
from functools import wraps
from typing import Any

from . import importing
from .contract import CONNECTED, SPAWNED
from .failure import SPAWNED_HINT, Emit, find_user

_TEXT = f"RuntimeError: {SPAWNED[1]}, up to jax.distributed.initialize"
_ADDRESS, _PROCESS = "JAX_COORDINATOR_ADDRESS", "JAX_PROCESS_ID"
# JAX's initialize() reads its process number and the other processes from these variables.
_VARIABLES = (_ADDRESS, _PROCESS, "JAX_NUM_PROCESSES", "SLURM_PROCID", "SLURM_NTASKS")
_ARGUMENTS = {"coordinator_address", "num_processes", "process_id", "cluster_detection_method"}


def install(environ: MutableMapping[str, str], emit: Emit) -> None:
    """Keep this process from connecting under its parent's process number; other processes are
    unaffected.
    """
    mark, pid = environ.pop(CONNECTED, ""), os.getpid()  # the parent set the mark
    if mark:
        importing.after("jax._src.distributed", lambda module: _guard(module, mark, environ, emit))
    spawning = "multiprocessing.popen_spawn_posix"
    importing.after(spawning, lambda module: _watch(module, environ, pid))


def _watch(module: Any, environ: MutableMapping[str, str], pid: int) -> None:
    """Mark the connection of process `pid` in the environment of workers that it spawns. Workers of
    a fork server are left to JAX.
    """
    launch = importing.find(module, "Popen._launch")

    @wraps(launch)
    def _launch(*arguments: Any) -> Any:
        # A fork has a copy of the connection, but is not the task.
        if os.getpid() != pid or not _is_connected(environ):
            return launch(*arguments)
        environ[CONNECTED] = _render_mark(pid, environ)
        try:
            return launch(*arguments)
        finally:
            environ.pop(CONNECTED, None)

    module.Popen._launch = _launch


def _is_connected(environ: Mapping[str, str]) -> bool:
    """Whether JAX here is connected to other processes, under the process number in these
    variables.

    If this is JAX's only process, a worker may legitimately connect itself.
    """
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if getattr(state, "client", None) is None or getattr(state, "num_processes", 1) < 2:
        return False
    known = (getattr(state, "coordinator_address", None), str(getattr(state, "process_id", None)))
    return known == (environ.get(_ADDRESS), environ.get(_PROCESS, environ.get("SLURM_PROCID")))


def _render_mark(pid: int, environ: Mapping[str, str]) -> str:
    return " ".join((str(pid), *(environ.get(name, "-") for name in _VARIABLES)))


def _guard(module: Any, mark: str, environ: Mapping[str, str], emit: Emit) -> None:
    connect = importing.find(module, "initialize")

    @wraps(connect)
    def initialize(*arguments: Any, **keywords: Any) -> Any:
        is_own = bool(arguments or keywords.keys() & _ARGUMENTS)
        parent = os.getppid()
        if not is_own and _imports_script() and mark == _render_mark(parent, environ):
            _end_task(emit, parent)
        return connect(*arguments, **keywords)

    module.initialize = initialize


def _imports_script() -> bool:
    process: Any = sys.modules.get("multiprocessing.process")
    return bool(process and getattr(process.current_process(), "_inheriting", False))


def _end_task(emit: Emit, parent: int) -> None:
    where = find_user(sys._getframe(1))
    emit({"event": "exception", "text": _TEXT, "where": where, "hint": SPAWNED_HINT})
    if os.getppid() == parent:  # another worker may have ended it
        os.kill(parent, signal.SIGABRT)  # as JAX does
    os._exit(1)
