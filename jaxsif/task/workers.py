"""Report multiprocessing workers that ended unexpectedly: the program may wait for their results
forever, and Python reports only exceptions.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from functools import wraps
from typing import Any

from . import importing
from .contract import WORKER_ENDED, signal_name
from .failure import Emit

_MOST_WORKERS = 3  # that are reported
# Of a program that ends its own workers, and of Slurm that ends all.
_ORDINARY = (signal.SIGTERM, signal.SIGINT)
_reported: set[int] = set()  # process ids


def install(emit: Emit) -> None:
    """Report the workers that a pool replaces because they have failed; the pool loses their
    work.
    """
    pid = os.getpid()
    importing.after("multiprocessing.pool", lambda module: _watch_pools(module, emit, pid))


def _watch_pools(module: Any, emit: Emit, pid: int) -> None:
    replace = importing.find(module, "Pool._join_exited_workers", "pool")

    @wraps(replace)
    def join_exited(pool: list[Any]) -> Any:
        workers = list(pool) if os.getpid() == pid else ()  # a fork is not the task
        replaced = replace(pool)
        for worker in workers:  # afterwards: one may end between two looks
            if worker.exitcode:
                _report(worker.pid, worker.exitcode, emit)
        return replaced

    module.Pool._join_exited_workers = staticmethod(join_exited)


def report_killed(emit: Emit) -> None:
    """Report the child processes that a signal has killed, and for which nobody has waited yet.
    Those of a fork server are not children of this process.
    """
    for pid, number in _find_killed():
        _report(pid, -number, emit)


def _find_killed() -> Iterator[tuple[int, int]]:
    """Yield the process id and the signal of the killed children, which remain unreaped."""
    process = sys.modules.get("multiprocessing.process")
    for child in list(getattr(process, "_children", ())):
        try:
            found = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # somebody has waited for it
            continue
        if found and found.si_code in (os.CLD_KILLED, os.CLD_DUMPED):
            yield child.pid, found.si_status


def _report(pid: int, exitcode: int, emit: Emit) -> None:
    if -exitcode in _ORDINARY or pid in _reported or len(_reported) == _MOST_WORKERS:
        return
    _reported.add(pid)
    how = signal_name(-exitcode) if exitcode < 0 else f"exit status {exitcode}"
    emit({"event": "warning", "text": f"{WORKER_ENDED}{how}"})
