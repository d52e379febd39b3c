"""Detect a main thread waiting for a lock that no other thread can release."""

from __future__ import annotations

import _thread
import linecache
import re
import signal
import sys
import threading
from itertools import islice
from types import FrameType, FunctionType, MethodType

from ..contract import OWN_THREADS
from ..failure import HERE, lost_threads

_LONGEST_CALL = 60  # characters
_LOCKS = (_thread.LockType, _thread.RLock)
# A call that takes a lock and waits for ever: no arguments, so no timeout.
_TAKES = re.compile(r"(?:with )?([A-Za-z_][\w.]*?)(?:\.(?:acquire|__enter__)\(\))?")


def find_call(frame: FrameType) -> str:
    """Return the source text that the frame is executing, such as 'lock.acquire()', or 'with lock'
    if it is entering a context. Return '' before Python 3.11, or if there is no source.
    """
    positions = getattr(frame.f_code, "co_positions", None)
    if positions is None:
        return ""
    first, last, begin, end = next(islice(positions(), frame.f_lasti // 2, None), (None,) * 4)
    if first is None:
        return ""
    line = linecache.getline(frame.f_code.co_filename, first).encode()
    # The first line of an expression on several lines.
    text = line[begin : end if first == last else None].decode(errors="replace").strip(": \n")
    enters = line[:begin].rstrip().endswith(b"with")
    return f"with {text}"[:_LONGEST_CALL] if enters else text[:_LONGEST_CALL]


def is_deadlock(frame: FrameType) -> bool:
    """Return whether the main thread, whose innermost frame is `frame`, is waiting without a
    timeout for a Python lock, or for a queue after an exception has ended another thread, and all
    other threads that are running Python, but for the caller's, wait so, too, or are idle.

    Before Python 3.11, only waits for a queue are detected. A C thread may still call Python and
    release the lock: code that uses this result must also check that the process is otherwise idle.
    """
    awaited = _find_awaited(frame)
    return (awaited == "lock" or (awaited == "get" and bool(lost_threads))) and _is_alone()


def _find_awaited(frame: FrameType) -> str:
    """Return what a frame waits for without a timeout: a 'lock', or the end of a queue's 'get' or
    'put'; '' for anything else. Of other conditions, such as events, it is not known who meets
    them: JAX callbacks may.
    """
    if frame.f_code is not threading.Condition.wait.__code__:
        taken = _TAKES.fullmatch(find_call(frame))
        return "lock" if taken and isinstance(_find(taken[1], frame), _LOCKS) else ""
    waiter = frame.f_locals.get("waiter")  # free as soon as another thread has notified this one
    is_endless = frame.f_locals.get("timeout") is None and waiter and waiter.locked()
    queue = sys.modules.get("queue")
    if not (is_endless and queue and frame.f_back):
        return ""
    calls = {queue.Queue.get.__code__: "get", queue.Queue.put.__code__: "put"}
    return calls.get(frame.f_back.f_code, "")


def _may_run(frame: FrameType) -> bool:
    """Return whether a thread may go on without another one, unlike an idle worker of a pool."""
    code, module = frame.f_code.co_name, frame.f_globals.get("__name__")
    is_idle = (code, module) == ("_worker", "concurrent.futures.thread")
    return not (is_idle or _find_awaited(frame))


def _find(name: str, frame: FrameType) -> object:
    """Return the object that a name such as 'self._lock' refers to in a frame, or None if it is not
    known; this runs no code.
    """
    first, *others = name.split(".")
    found = frame.f_locals.get(first, frame.f_globals.get(first))
    for attribute in others:
        try:
            found = object.__getattribute__(found, "__dict__").get(attribute)
        except AttributeError:  # an object without its own attributes
            return None
    return found


def _is_alone() -> bool:
    """Return whether no other thread of the program may go on, and no signal will call a handler of
    its own.
    """
    ours = {threading.main_thread().ident, threading.get_ident()}
    # threading.enumerate() takes a lock, for which the main thread may be waiting.
    known = list(threading._active.items())  # type: ignore[attr-defined]
    ours.update(ident for ident, thread in known if thread.name.startswith(OWN_THREADS))
    has_handler = any(map(_may_release, map(signal.getsignal, signal.valid_signals())))
    has_timer = signal.getitimer(signal.ITIMER_REAL)[0] > 0  # a timer ends the process
    if has_handler or has_timer:
        return False
    others = (frame for ident, frame in sys._current_frames().items() if ident not in ours)
    return not any(map(_may_run, others))


def _may_release(handler: object) -> bool:
    """Return whether a signal's handler, which may be any object, is the program's; those of jaxsif
    are methods.
    """
    if isinstance(handler, MethodType) and isinstance(handler.__func__, FunctionType):
        return not handler.__func__.__code__.co_filename.startswith(HERE)
    return callable(handler) and handler is not signal.default_int_handler
