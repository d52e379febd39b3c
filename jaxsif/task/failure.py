"""A process that fails ends at once, and says why.

JAX ends a process through a barrier that waits for all others; a failed process would wait 300 s
there while they wait for it in a collective. So when Python is about to end with an uncaught
exception or a non-zero SystemExit, and JAX is connected to other processes, this module lets the
other exit handlers run for a moment and ends the process. A clean end is left alone.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import json
import os
import re
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping
from types import CodeType
from typing import Any, NamedTuple, NoReturn

_LONGEST_TEXT = 300  # characters of an exception
_LONGEST_LINE = 1000  # bytes; srun --label makes several lines of one with more than 1024
_GRACE = 1.0  # seconds for the program's own exit handlers
# What the neighbours of a dead process raise. They wait a little, so that the first to be heard is
# the culprit.
_CONSEQUENCES = (
    "closed by peer",
    "reset by peer",
    "Socket closed",
    "Broken pipe",
    "heartbeat",
    "tasks are unhealthy",
    "distributed service detected fatal errors",
    "remote process exited",
)
_CONSEQUENCE_DELAY = 0.5  # seconds
# Of sys.monitoring's six ids, one that no debugger, profiler or coverage tool claims.
_MONITORING_TOOL = 3
# The outermost frame of a program, and its module: a script or -c, and -m. Other frames without a
# caller (in the interpreter's own search for an importer, say) raise exceptions that end nothing.
_OUTERMOST = {"<module>": "__main__", "_run_module_as_main": "runpy"}


class _Watch:
    """How this process is about to end, as far as is known; filled in by the interpreter's
    unwinding.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.emit = reporter(environ)
        self.pid = os.getpid()  # a fork is not the task
        self.main_thread = threading.get_ident()
        self.exception: BaseException | None = None


def install(environ: MutableMapping[str, str]) -> None:
    """Watch how this process ends. Harmless in programs that do not use JAX."""
    _watch_crashes(environ.pop("JAXSIF_CRASH", ""))
    watch = _Watch(environ)
    _watch_unwinding(watch)
    original = threading._shutdown  # type: ignore[attr-defined]

    def shutdown() -> None:
        # The interpreter calls this first when it ends, before threads are joined and exit handlers
        # run.
        if os.getpid() == watch.pid:
            _on_shutdown(watch)
        original()

    threading._shutdown = shutdown  # type: ignore[attr-defined]


def _watch_crashes(descriptor: str) -> None:
    """Let Python tell start.sh what its threads are at when a signal ends this process, such as
    JAX's SIGABRT.
    """
    if not descriptor or faulthandler.is_enabled():  # the user's own, on standard error
        return
    pipe = int(descriptor)
    try:
        found = os.fstat(pipe)
    except OSError:
        return  # a program between start.sh and us has closed it
    if not stat.S_ISFIFO(found.st_mode) and found.st_nlink:
        # Or uses the number for a file of its own; an old bash has a nameless file in the pipe's
        # place.
        return
    os.set_blocking(pipe, False)  # what is too long for the pipe is lost
    os.set_inheritable(pipe, False)
    c_stack = {"c_stack": False} if sys.version_info >= (3, 14) else {}
    faulthandler.enable(pipe, **c_stack)
    # nohup has SIGHUP ignored, and so it stays.
    told = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) != signal.SIG_IGN
    ]
    for number in told:
        faulthandler.register(number, pipe, chain=True)

    def forget() -> None:
        for number in told:
            faulthandler.unregister(number)
        faulthandler.disable()
        os.close(pipe)

    os.register_at_fork(after_in_child=forget)  # a fork is not the task


def refuse(environ: Mapping[str, str], event: str, text: str, hint: str = "") -> NoReturn:
    """End this task before its program starts."""
    reporter(environ)({"event": event, "text": text, "hint": hint})
    if not environ.get("JAXSIF_REPORT"):
        print(
            f"jaxsif: error: {text}" + (f"\n  try:  {hint}" if hint else ""),
            file=sys.stderr,
            flush=True,
        )
    os._exit(125)


def _watch_unwinding(watch: _Watch) -> None:
    """See the exception that leaves the main thread's outermost frame, SystemExit included.

    Before Python 3.12 only sys.last_value is known, so a plain sys.exit(3) still waits for JAX's
    barrier there.
    """
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None or monitoring.get_tool(_MONITORING_TOOL) is not None:
        return

    def unwind(code: CodeType, _offset: int, exception: BaseException) -> None:
        if code.co_name in _OUTERMOST and threading.get_ident() == watch.main_thread:
            frame = sys._getframe(1)
            if frame.f_back is None and frame.f_globals.get("__name__") == _OUTERMOST[code.co_name]:
                watch.exception = exception

    monitoring.use_tool_id(_MONITORING_TOOL, "jaxsif")
    monitoring.register_callback(_MONITORING_TOOL, monitoring.events.PY_UNWIND, unwind)
    monitoring.set_events(_MONITORING_TOOL, monitoring.events.PY_UNWIND)


def _on_shutdown(watch: _Watch) -> None:
    exception = watch.exception or getattr(sys, "last_value", None)
    status = exit_status(exception)
    if exception is None or status == 0:
        if _connected():
            watch.emit({"event": "end"})  # from here on, JAX waits for the other processes
        return
    text = describe(exception)
    consequence = any(phrase in text for phrase in _CONSEQUENCES)
    if consequence:
        time.sleep(_CONSEQUENCE_DELAY)
    found = {
        "text": text,
        "where": location(exception),
        "consequence": consequence,
        "hint": _suggest(text),
    }
    watch.emit({"event": "exception", **found})
    if _connected():
        _leave(status)


def exit_status(exception: BaseException | None) -> int:
    """The status that Python ends with for an exception that nobody catches, as a shell sees it."""
    if exception is None:
        return 0
    if isinstance(exception, KeyboardInterrupt):
        return 130
    if not isinstance(exception, SystemExit):
        return 1
    if exception.code is None:
        return 0
    return exception.code & 0xFF if isinstance(exception.code, int) else 1


def describe(exception: BaseException) -> str:
    """The exception's kind and the first line of its message, cut to 300 characters."""
    if isinstance(exception, SystemExit) and isinstance(exception.code, int):
        return f"sys.exit({exception.code})"
    if isinstance(exception, AssertionError) and _innermost(exception) == (
        "xla_bridge.py",
        "backends",
    ):
        # All that JAX says is 'AssertionError'.
        return f"JAX cannot use any platform of JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')}"
    message = _message(exception)
    inner = _find_callback(message)
    if inner:
        return f"{inner.text} (in a callback of JAX)"[:_LONGEST_TEXT]
    lines = message.strip().splitlines() or [""]
    name = type(exception).__qualname__
    return (f"{name}: {lines[0]}" if lines[0] else name)[:_LONGEST_TEXT]


def _message(exception: BaseException) -> str:
    try:
        return str(exception)
    # As in tracebacks: an exception that cannot be shown must not hide where it came from.
    except Exception:
        return "<exception str() failed>"


class _Callback(NamedTuple):
    """What has failed in a callback that XLA called, such as that of io_callback."""

    text: str  # 'ValueError: boom'
    where: str  # FILE:LINE, as of `location`


def _find_callback(message: str) -> _Callback | None:
    """The exception in a callback, of whose traceback XLA makes the text of its own; None where
    there is none.
    """
    _, found, traceback = message.partition(
        "CpuCallback error calling callback: Traceback (most recent call last):\n"
    )
    if not found:
        return None
    where, text = "", ""
    for line in traceback.splitlines():
        frame = re.match(r'  File "(.+)", line (\d+)', line)
        if frame and (not where or not _is_installed(frame[1])):
            where = f"{frame[1]}:{frame[2]}"
        elif re.match(r"[^\W\d][\w.]*(: |$)", line):
            text = line
    return _Callback(text or "an exception", where)


def _suggest(text: str) -> str:
    """What to try where a module was not found; '' otherwise."""
    if "No module named" not in text:
        return ""
    from . import missing

    folders = [os.path.dirname(os.path.abspath(sys.argv[0]))]
    with contextlib.suppress(OSError):  # the current folder is gone
        folders.append(os.getcwd())
    return missing.suggest(text, folders)


def _innermost(exception: BaseException) -> tuple[str, str]:
    """The file and the function in which the exception was raised, without folders."""
    traceback = exception.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    code = traceback.tb_frame.f_code if traceback else None
    return (os.path.basename(code.co_filename), code.co_name) if code else ("", "")


def location(exception: BaseException) -> str:
    """'FILE:LINE' of the innermost frame in the user's own code, or of the innermost one at all."""
    callback = _find_callback(_message(exception))
    if callback and callback.where:
        return callback.where
    found = ""
    traceback = exception.__traceback__
    while traceback is not None:
        name = traceback.tb_frame.f_code.co_filename
        if not found or not _is_installed(name):
            found = f"{name}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return found


def _is_installed(name: str) -> bool:
    """Whether a frame's file is not the user's own code."""
    not_theirs = (sys.base_prefix + "/lib/", "<frozen", os.path.dirname(__file__) + os.sep)
    return "/site-packages/" in name or "/dist-packages/" in name or name.startswith(not_theirs)


def reporter(environ: Mapping[str, str]) -> Callable[[Mapping[str, Any]], None]:
    """What tells `jaxsif run`, if it listens, of this task, in lines as jaxsif/diagnose/reports.py describes
    them.

    It keeps what it needs of `environ`: programs remove Slurm's variables to start srun or mpirun.
    """
    origin = {"task": int(environ["SLURM_PROCID"]), "node": environ.get("SLURMD_NODENAME", "")}
    nonce = environ.get("JAXSIF_REPORT")

    def emit(record: Mapping[str, Any]) -> None:
        if nonce:
            with contextlib.suppress(OSError):  # nobody can be told that standard error is closed
                os.write(2, _render(nonce, {**origin, **record}))

    return emit


def _render(nonce: str, record: dict[str, Any]) -> bytes:
    """The line of a report, with as much of its texts as srun leaves in one line."""
    while True:
        # What is no text, in a file's name say, becomes an escape of JSON.
        fields = json.dumps(record, ensure_ascii=False).encode(errors="backslashreplace")
        line = b"\x1ejaxsif %s %s\n" % (nonce.encode(), fields)
        longest = max(("text", "where", "hint"), key=lambda name: len(record.get(name, "")))
        if len(line) <= _LONGEST_LINE or not record.get(longest):
            return line
        record[longest] = record[longest][5:] if longest == "where" else record[longest][:-5]


def _connected() -> bool:
    """True when JAX in this process is connected to others."""
    module = sys.modules.get("jax._src.distributed")
    return getattr(getattr(module, "global_state", None), "client", None) is not None


def _leave(status: int) -> NoReturn:
    """End without JAX's barrier; other exit handlers get `_GRACE` seconds."""

    def end() -> None:
        time.sleep(_GRACE)
        os._exit(status)

    threading.Thread(target=end, daemon=True).start()
    clean_up = getattr(sys.modules.get("jax._src.api"), "clean_up", None)
    if clean_up is not None:
        atexit.unregister(clean_up)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        # Closed or gone: what matters now is to end.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(status)
