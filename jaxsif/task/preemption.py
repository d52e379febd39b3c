"""Announcements that the job is about to end.

JAX's service for them, which Orbax's save on preemption needs, takes SIGTERM as an announcement,
and SIGTERM would never end the process. So `jaxsif run` and its job scripts turn the service off,
and this module warns if a program asks for it.

With --max-requeues or --max-restarts, the service is on, and SIGURG is the announcement. SIGTERM
may be one, too: Slurm sends it where a grace period begins. So the process reports the first
SIGTERM, and `jaxsif run` asks Slurm. If Slurm confirms it, the answer is SIGURG, and the process
goes on. Otherwise the process ends at the next SIGTERM, or after three seconds without an answer.
"""

from __future__ import annotations

import _thread
import faulthandler
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from functools import wraps
from types import FrameType
from typing import Any

from . import importing
from .contract import NOTICES, OWN_THREADS, TWICE
from .failure import Emit

_SERVICE = "JAX_ENABLE_PREEMPTION_SERVICE"
_SIGNALS = (signal.SIGTERM, signal.SIGURG, signal.SIGUSR1, signal.SIGUSR2)
_WARNING = (
    f"the program asks JAX for preemption notices but gets none: {_SERVICE} is 0."
    f" Orbax saves no checkpoint on preemption; --max-requeues=N turns the notices on"
)
# Seconds from SIGTERM to the end without an answer: a busy controller takes a while.
_PATIENCE = 3.0
_STATUS = 128 + signal.SIGTERM


def install(environ: MutableMapping[str, str], emit: Emit, pipe: int) -> None:
    """Take announcements if the launcher asks for it, in the task's first Python, unless SIGTERM is
    ignored. Otherwise watch, in the first task, for the program's request: any value of JAX's
    variable other than 0 is the user's own choice.
    """
    takes_notices = environ.pop(NOTICES, "")
    if takes_notices and signal.getsignal(signal.SIGTERM) != signal.SIG_IGN:
        notices = Notices(emit, pipe)
        importing.after("jax._src.distributed", notices.join_service)
    elif environ.get(_SERVICE) == "0" and environ["SLURM_PROCID"] == "0":
        importing.after("jax.experimental.multihost_utils", _watch)


class Notices:
    """The announcements to this process."""

    def __init__(self, emit: Emit, pipe: int) -> None:
        """Handle SIGTERM and SIGURG; `pipe` is that for stacks, or -1."""
        self._emit = emit
        self._pipe = pipe
        self._tell_jax: Callable[[int], object] = bool  # the handler of JAX's service
        self._is_waiting = self._is_told = False
        self._taken = math.inf  # when the first SIGTERM came, by the monotonic clock
        has_stacks = _stop_stacks()
        for number in (signal.SIGTERM, signal.SIGURG):
            signal.signal(number, self._handle)
        if has_stacks:
            faulthandler.register(signal.SIGTERM, pipe, chain=True)
        # A thread takes them: the main thread may be in a collective for ever.
        read, self._wakes = os.pipe()
        os.set_blocking(self._wakes, False)
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        name = f"{OWN_THREADS}notices"
        threading.Thread(target=self._run, args=(read,), name=name, daemon=True).start()
        os.register_at_fork(after_in_child=self._leave)

    def _run(self, read: int) -> None:
        while True:
            for number in os.read(read, 64):
                self.take(number)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        """Do in the main thread what may be done twice: the program may have replaced the
        descriptor that wakes the other thread.
        """
        if number == signal.SIGURG:
            self._tell()
        else:
            self._wait_for_notice()

    def _leave(self) -> None:
        """Let SIGTERM end a fork: that is how programs end their workers."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGURG):
            if signal.getsignal(number) == self._handle:
                signal.signal(number, signal.SIG_DFL)

    def take(self, number: int) -> None:
        """Take a signal, once; SIGTERM only if the program has no handler of its own for it."""
        if number == signal.SIGURG:
            self._tell()
        elif number == signal.SIGTERM and signal.getsignal(number) == self._handle:
            now = time.monotonic()
            if self._is_told or now > self._taken + TWICE:
                os._exit(_STATUS)
            self._taken = min(self._taken, now)
            self._wait_for_notice()

    def _tell(self) -> None:
        """Tell JAX that the job is about to end."""
        if not self._is_told:
            self._is_told = True
            self._emit({"event": "noticed"})
        self._tell_jax(signal.SIGTERM)

    def _wait_for_notice(self) -> None:
        """Ask the launcher what SIGTERM means, and end this process later unless that comes."""
        if self._is_waiting:
            return
        self._is_waiting = True
        self._emit({"event": "terminated"})
        # Not by threading, which forgets a thread that starts while a fork begins.
        _thread.start_new_thread(self._end_later, ())

    def _end_later(self) -> None:
        time.sleep(_PATIENCE)
        if not self._is_told:
            os._exit(_STATUS)

    def join_service(self, module: Any) -> None:
        """Take SIGTERM back from JAX's service, and keep its handler; `module` is
        jax._src.distributed.
        """
        original = importing.find(module, "State.initialize_preemption_sync_manager")

        @wraps(original)
        def initialize_preemption_sync_manager(state: Any) -> None:
            original(state)
            if state.preemption_sync_manager is not None:
                self._take_back()

        module.State.initialize_preemption_sync_manager = initialize_preemption_sync_manager

    def _take_back(self) -> None:
        import ctypes

        function = ctypes.CDLL(None).signal
        function.restype, function.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p)
        handler = function(signal.SIGTERM, None)
        if _stop_stacks():
            faulthandler.register(signal.SIGTERM, self._pipe, chain=True)
        else:
            with suppress(ValueError):  # not the main thread
                signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        self._tell_jax = ctypes.CFUNCTYPE(None, ctypes.c_int)(handler)
        if self._is_told:
            self._tell_jax(signal.SIGTERM)


def _stop_stacks() -> bool:
    """Let SIGTERM write no stacks any more, which brings the handler before that back; return
    whether it did.
    """
    return bool(faulthandler.unregister(signal.SIGTERM))  # type: ignore[func-returns-value]


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
    return any(callable(signal.getsignal(number)) for number in _SIGNALS)
