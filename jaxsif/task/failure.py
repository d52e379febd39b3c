"""A failed process ends immediately and reports its exception.

JAX ends a process through a barrier that waits for all others; a failed process would wait there
for 300 s while the others wait for it in a collective. So when Python is about to end with an
uncaught exception or a non-zero SystemExit, and JAX is connected to other processes, this module
gives the other exit handlers a moment and ends the process. A clean end is left unchanged.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import faulthandler
import json  # noqa: F401  # for render_report: a process without free descriptors cannot import
import operator
import os
import re
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import cache, wraps
from types import CodeType, FrameType, TracebackType
from typing import Any, NoReturn

from .contract import (
    ABSENT_GPU,
    ABSENT_GPU_HINT,
    CONSEQUENCES,
    CRASH,
    FULL_GPU,
    FULL_GPU_HINT,
    FULL_NODE,
    FULL_NODE_HINT,
    INSTALLED,
    LONGEST_TEXT,
    OWN_THREADS,
    REPORT,
    SPAWNED,
    STARTER,
    THREAD_ENDED,
    MisfitError,
    ellipsize,
    render_report,
)
from .watch.monitoring import TOOL, claim
from .watch.outlet import Outlet

# Called with the exception that ends this process, before it is reported.
at_failure: list[Callable[[BaseException], None]] = []
# The texts of the first exceptions that have ended threads.
lost_threads: list[str] = []
# Reports an event with its fields.
Emit = Callable[[Mapping[str, Any]], None]

_LONGEST_LINE = 1000  # bytes; srun --label makes several lines of one with more than 1024
_GRACE = 1.0  # seconds for the program's own exit handlers
# Seconds for which a dead process's neighbours wait, so that the culprit is heard first.
_CONSEQUENCE_DELAY = 0.5
# JAX puts this before its message once more for each computation that depends on the failed one.
_DISPATCHING = "Error dispatching computation: "
_LONGEST_HIDDEN = 120  # characters
_MOST_HIDDEN = 10  # exceptions, each hidden by the one before
# The first line of a message whose second line belongs to it, but for a traceback.
_CONTINUED = re.compile(rf"{SPAWNED[0]}|.*(?<!last\)):$")
_CUDA_VERSIONS = range(12, 20)
_NO_CUDA = "JAX_PLATFORMS=(cuda|gpu)|Unable to initialize backend '(cuda|gpu|rocm)'"
_NO_CUDA_HINT = (
    "the JAX here has no CUDA: use an image with CUDA, or run on the CPU: --env JAX_PLATFORMS=cpu"
)
SPAWNED_HINT = (
    'put the program under `if __name__ == "__main__":`, because workers import the script'
)
_MOST_THREADS = 3  # whose exceptions are reported
_CALLBACK = "CpuCallback error calling callback: Traceback (most recent call last):\n"
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_VARARGS = 4  # inspect.CO_VARARGS: importing that module takes milliseconds in each task
OWN = "/opt/jaxsif/own"
_TRACED = "JaxStackTraceBeforeTransformation"
_OF_JAX = (_TRACED, "UnfilteredStackTrace")  # causes that hold only a traceback
_REMOTE = ("RemoteTraceback", "_RemoteTraceback")  # causes with the traceback of a pool's worker
_FRAME = re.compile(r'^  File "(.+)", line (\d+)', re.MULTILINE)  # in a traceback
_RUNTIME_ERRORS = ("JaxRuntimeError", "XlaRuntimeError")
_IMPORTS = "_fixup_main_from_path"  # in multiprocessing: a worker imports the script
HERE = os.path.dirname(__file__) + os.sep  # begins the paths of jaxsif's own code in a task
_PACKAGE = re.compile(INSTALLED)
# The outermost frame of a program, and its module: a script or -c, and -m. Exceptions in other
# frames without a caller (for example, in the interpreter's own search for an importer) end
# nothing.
_OUTERMOST = {"<module>": "__main__", "_run_module_as_main": "runpy"}


def install(environ: MutableMapping[str, str], emit: Emit) -> int:
    """Watch for the end of this process, with or without JAX. Return the descriptor of start.sh's
    pipe, or -1 if there is none.
    """
    pipe = _find_pipe(environ.pop(CRASH, ""))
    if pipe >= 0 and not faulthandler.is_enabled():  # otherwise the user's own, on standard error
        _watch_crashes(pipe)
    _watch_threads(emit)
    unwound = _watch_unwinding()
    _watch_exit(unwound, emit)
    pid = os.getpid()
    original = threading._shutdown  # type: ignore[attr-defined]

    def shutdown() -> None:
        # The interpreter calls this first when it ends, before threads are joined and exit handlers
        # run.
        if os.getpid() == pid:  # a fork is not the task
            known = (*unwound, getattr(sys, "last_value", None), SystemExit())
            _on_shutdown(next(filter(None, known)), emit)
        original()

    threading._shutdown = shutdown  # type: ignore[attr-defined]
    return pipe


def _find_pipe(descriptor: str) -> int:
    """Find the pipe that start.sh has opened, make it non-blocking, and keep it from child
    processes; return -1 if there is none.
    """
    pipe = int(descriptor or -1)
    try:
        state = os.fstat(pipe)
    # A program between start.sh and this one may have closed it, or reused its number.
    except OSError:
        return -1
    # An old bash uses an unnamed file instead of a pipe.
    if not stat.S_ISFIFO(state.st_mode) and state.st_nlink:
        return -1
    os.set_blocking(pipe, False)  # output that does not fit into the pipe is lost
    os.set_inheritable(pipe, False)
    return pipe


def _watch_crashes(pipe: int) -> None:
    """Make Python write the stacks of its threads to start.sh when a signal ends this process, such
    as JAX's SIGABRT.
    """
    c_stack = {"c_stack": False} if sys.version_info >= (3, 14) else {}
    faulthandler.enable(pipe, **c_stack)
    for number in _ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP: keep that
            faulthandler.register(number, pipe, chain=True)

    def forget() -> None:
        for number in _ENDING:
            faulthandler.unregister(number)
        faulthandler.disable()
        os.close(pipe)

    os.register_at_fork(after_in_child=forget)  # a fork is not the task


def refuse(environ: MutableMapping[str, str], misfit: MisfitError) -> NoReturn:
    """End this task before its program starts."""
    reporter(environ)({"event": misfit.event, "text": str(misfit), "hint": misfit.hint})
    if not environ.get(REPORT):
        hint = f"\n  try:  {misfit.hint}" if misfit.hint else ""
        print(f"jaxsif: error: {misfit}{hint}", file=sys.stderr, flush=True)
    os._exit(125)


def _watch_threads(emit: Emit) -> None:
    """Report the first uncaught exceptions of threads, as of a data loader, after Python's own
    message: nothing ends, and the main thread may wait for such a thread forever.
    """
    show, left = threading.excepthook, [None] * _MOST_THREADS

    def report(ended: threading.ExceptHookArgs) -> None:
        show(ended)
        exception = ended.exc_value
        if left and exception is not None and not isinstance(exception, SystemExit):
            left.pop()
            text = _describe_with_place(exception)
            emit({"event": "warning", "text": f"{THREAD_ENDED}{text}"})
            lost_threads.append(text)

    threading.excepthook = report


def _watch_unwinding() -> Sequence[BaseException]:
    """Collect the exceptions that leave the main thread's outermost frame, including SystemExit.

    Before Python 3.12, only sys.last_value is known, so a plain sys.exit(3) still waits for JAX's
    barrier.
    """
    unwound: list[BaseException] = []
    monitoring = claim()
    if monitoring is None:
        return unwound
    main_thread = threading.get_ident()

    def unwind(code: CodeType, _offset: int, exception: BaseException) -> None:
        if code.co_name in _OUTERMOST and threading.get_ident() == main_thread:
            frame = sys._getframe(1)
            if frame.f_back is None and frame.f_globals.get("__name__") == _OUTERMOST[code.co_name]:
                unwound[:] = [exception]

    monitoring.register_callback(TOOL, monitoring.events.PY_UNWIND, unwind)
    monitoring.set_events(TOOL, monitoring.events.PY_UNWIND)
    return unwound


def _watch_exit(unwound: Sequence[BaseException], emit: Emit) -> None:
    """Report os._exit, which is no end that Python itself notices."""
    original, pid = os._exit, os.getpid()

    @wraps(original)
    def leave_at_once(status: int) -> NoReturn:
        try:
            caller = sys._getframe().f_back  # None if C calls this
            is_ours = caller and caller.f_code.co_filename.startswith(HERE)
            if os.getpid() == pid and not is_ours and not is_worker():  # a fork is not the task
                raised = next(filter(None, (sys.exc_info()[1], *unwound)), None)
                _report_stop([(one, one.f_lineno) for one in walk_stack(caller)][::-1], emit)
                _on_exit(operator.index(status) & 0xFF, raised, find_user(caller), emit)
        finally:  # whatever goes wrong
            original(status)

    leave_at_once.__module__ = "os"  # where pickle looks for it
    os._exit = leave_at_once


def _on_exit(status: int, exception: BaseException | None, where: str, emit: Emit) -> None:
    """Report os._exit at `where`, with the exception that the program was handling, if any."""
    if exception and status:
        _report(exception, emit)
    elif status:
        text = f"os._exit({status})"
        fields = {"text": text, "where": where, "consequence": False, "hint": ""}
        emit({"event": "exception", **fields, "jax": has_jax()})
    elif has_jax():
        emit({"event": "success", "text": f"os._exit(0), at {where}" if where else ""})


def _on_shutdown(exception: BaseException, emit: Emit) -> None:
    status = exit_status(exception)
    for one in filter(None, (exception.__context__, exception)):
        _report_stop([(place.tb_frame, place.tb_lineno) for place in walk_traceback(one)], emit)
    if not status:
        _report_success(exception, emit)
    elif _connected() or not _is_helper(exception):
        if _connected() and callable(signal.getsignal(signal.SIGTERM)):
            # A handler might raise here, and leave this process to JAX's barrier.
            signal.signal(signal.SIGTERM, lambda *_: None)
        raised = _find_handled(exception)
        if _is_consequence(raised):
            time.sleep(_CONSEQUENCE_DELAY)
        is_special = raised is not exception and status != 1
        _report(raised, emit, f" (then sys.exit({status}))" if is_special else "")
        if _connected():
            leave(status)
        _warn_of_threads(raised, emit)


def _warn_of_threads(exception: BaseException, emit: Emit) -> None:
    """Report that Python waits for the other threads of a program that has failed, if it does for
    longer than `_GRACE`, as not for an idle pool.
    """

    def list_names() -> list[str]:
        known = list(threading._active.values())  # type: ignore[attr-defined]  # takes no lock
        return [one.name for one in known if not (one.daemon or one is threading.main_thread())]

    def warn() -> None:
        time.sleep(_GRACE)
        for name in list_names()[:1]:
            text = f"{_describe_with_place(exception)}: Python waits for its thread {name}"
            emit({"event": "warning", "text": text})

    if list_names() and not is_worker():
        with contextlib.suppress(RuntimeError):  # process limit reached
            threading.Thread(target=warn, daemon=True, name=f"{OWN_THREADS}threads").start()


def _report_success(exception: BaseException, emit: Emit) -> None:
    """Report the end of a program without an error."""
    place = location(exception)
    text = f"{describe(exception)}, at {place}" if place else ""
    if _connected():
        emit({"event": "end", "text": text})  # from here on, JAX waits for the other processes
    if has_jax():
        emit({"event": "success", "text": text})  # of this Python: an earlier one may have failed


def _report_stop(frames: Sequence[tuple[FrameType, int]], emit: Emit) -> None:
    """Report where the program was when its own handler of SIGTERM was called, if that is in the
    stack of its end: `frames`, with their lines, the outermost first.
    """
    if not has_jax():
        return
    for number, (frame, _) in enumerate(frames[1:], 1):
        if _handles_sigterm(frame, frames[number - 1][0]):
            places = [(one.f_code.co_filename, line) for one, line in frames[:number]]
            emit({"event": "stopped", "where": find_place(places)})
            return


def _handles_sigterm(frame: FrameType, interrupted: FrameType) -> bool:
    """Whether a frame is that of a handler: Python passes the signal, and the frame that it has
    interrupted.
    """
    code, variables = frame.f_code, frame.f_locals
    arguments = code.co_varnames[: code.co_argcount]
    if code.co_flags & _VARARGS:  # whose name follows those of keyword-only arguments
        arguments += (code.co_varnames[code.co_argcount + code.co_kwonlyargcount],)
    values = [variables[name] for name in arguments if name in variables]
    values += [one for value in values if type(value) is tuple for one in value]
    return any(one is interrupted for one in values) and signal.SIGTERM in [
        one for one in values if isinstance(one, int)
    ]


def _report(exception: BaseException, emit: Emit, more: str = "") -> None:
    """Report the exception that ends this process; `more` is added to its text."""
    for note in at_failure:
        with contextlib.suppress(Exception):  # the report is more important
            note(exception)
    text = describe(exception)
    hint = SPAWNED_HINT if _sets_again(exception) else _suggest(text)
    emit(
        {
            "event": "exception",
            "text": _describe_fully(exception) + more,
            "where": location(exception),
            "consequence": _is_consequence(exception),
            "hint": hint,
            "hides": _describe_hidden(exception, text),
            "jax": has_jax(),
        }
    )
    if hint == SPAWNED_HINT:  # a pool would keep starting these workers for ever
        emit({"event": "warning", "text": f"{text}: {SPAWNED_HINT}"})


def _describe_fully(exception: BaseException) -> str:
    """Render the exception with what Python's traceback adds to the message of an unknown name, as
    '. Did you mean: 'sqrt'?'.
    """
    text, named = describe(exception), _find_inner(exception)
    if not isinstance(named, (AttributeError, ImportError, NameError)):
        return text
    from traceback import TracebackException

    message = _message(named)
    # It calls the user's own __dir__, which may raise anything: the report is more important.
    with contextlib.suppress(BaseException):
        whole = str(TracebackException(type(named), named, named.__traceback__, limit=0))
        text += whole[len(message) :] if whole.startswith(message) else ""
    return ellipsize(text, LONGEST_TEXT)


def _describe_with_place(exception: BaseException) -> str:
    place = location(exception)
    return f"{_describe_fully(exception)}{f', at {place}' if place else ''}"


def _describe_hidden(exception: BaseException, text: str) -> str:
    """Render the exception of the user's code that this one was raised from, or that it hides, such
    as in a `finally`; '' if there is none, or if it has the same text.
    """
    hidden = _find_hidden(exception)
    if hidden is None or isinstance(exception, SystemExit) or type(hidden).__name__ in _OF_JAX:
        return ""
    if isinstance(hidden, StopIteration) or describe(hidden) == text:
        return ""
    is_own = find_own([place.tb_frame for place in walk_traceback(hidden)]) is not None
    shown = ellipsize(describe(hidden), _LONGEST_HIDDEN)
    return f"{shown}, at {location(hidden)[-_LONGEST_HIDDEN:]}" if is_own else ""


def _find_hidden(exception: BaseException) -> BaseException | None:
    """Return the exception that this one was raised from, or that it hides, as Python shows it."""
    return exception.__cause__ if exception.__suppress_context__ else exception.__context__


def _is_consequence(exception: BaseException) -> bool:
    """Whether an exception says that a neighbour is gone, or hides one of JAX's that does: whatever
    the program then did, the neighbour ended first.
    """
    if is_consequence(describe(exception)):
        return True
    hidden = _find_hidden(exception)
    for _ in range(_MOST_HIDDEN):
        if hidden is None:
            return False
        inner = _find_inner(hidden)
        if type(inner).__name__ in _RUNTIME_ERRORS and is_consequence(_message(inner)):
            return True
        hidden = _find_hidden(hidden)
    return False


def _sets_again(exception: BaseException) -> bool:
    """Whether a worker that imports the script cannot set multiprocessing's start method again."""
    is_said = _message(exception) == "context has already been set"
    return is_said and any(code.co_name == _IMPORTS for code, _ in _frames(exception))


def _find_handled(exception: BaseException) -> BaseException:
    """Return the exception that a function was handling when it called sys.exit with a number,
    which says less; else the exception.
    """
    handled = exception.__context__
    if not isinstance(exception, SystemExit) or isinstance(exception.code, str):
        return exception
    if handled is None or isinstance(handled, SystemExit) or handled.__traceback__ is None:
        return exception
    exits = find_own([place.tb_frame for place in walk_traceback(exception)][::-1])
    return handled if handled.__traceback__.tb_frame is exits else exception


def find_own(frames: Iterable[FrameType]) -> FrameType | None:
    """Return the first frame that is the user's own code."""
    return next((one for one in frames if not is_installed(one.f_code.co_filename)), None)


def is_consequence(text: str) -> bool:
    """Whether an exception says that a neighbour is gone."""
    return any(phrase in text for phrase in CONSEQUENCES)


def _is_helper(exception: BaseException) -> bool:
    """Whether multiprocessing itself ends this process: a worker, whose failure is for its parent
    to handle, or the resource tracker, which fails where a process that crashed has left anything.
    """
    own = os.path.join(os.path.dirname(os.__file__), "multiprocessing", "")
    files = [code.co_filename for code, _ in _frames(exception)]
    return isinstance(exception, SystemExit) and bool(files) and files[-1].startswith(own)


def exit_status(exception: BaseException) -> int:
    """Convert an uncaught exception to Python's exit status as a shell sees it."""
    if isinstance(exception, KeyboardInterrupt):
        return 130
    code = exception.code if isinstance(exception, SystemExit) else 1
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1


def describe(exception: BaseException) -> str:
    """Render the exception's type and the first line of its message, cut to LONGEST_TEXT."""
    inner = _find_inner(exception)
    if inner is not exception:
        return ellipsize(f"{describe(inner)} (in {type(exception).__qualname__})", LONGEST_TEXT)
    if isinstance(exception, SystemExit) and isinstance(exception.code, (int, type(None))):
        return ellipsize(_describe_exit(exception), LONGEST_TEXT)
    if isinstance(exception, AssertionError) and _is_without_platform(exception):
        # JAX's own message is 'AssertionError'.
        return f"JAX cannot use any platform in JAX_PLATFORMS={_wanted_platforms()}"
    message = _message(exception)
    in_callback, _ = _read_callback(message)
    if in_callback:
        return ellipsize(f"{in_callback} (in a JAX callback)", LONGEST_TEXT)
    lines = [line.strip() for line in message.splitlines() if line.strip()] or [""]
    first = " ".join(lines[:2]) if _CONTINUED.match(lines[0]) else lines[0]
    first = re.sub(f"(?:{_DISPATCHING})+", _DISPATCHING, first)
    name = type(exception).__qualname__
    return ellipsize(f"{name}: {first}" if first else name, LONGEST_TEXT)


def _describe_exit(exception: SystemExit) -> str:
    """Render a sys.exit with a status, and the first line of argparse's message if it called it."""
    text = f"sys.exit({'' if exception.code is None else exception.code})"
    for place in walk_traceback(exception):
        code = place.tb_frame.f_code
        if code.co_name == "error" and os.path.basename(code.co_filename) == "argparse.py":
            message = str(place.tb_frame.f_locals.get("message", ""))
            return f"{text}: {message.partition(chr(10))[0]}"
    return text


def location(exception: BaseException) -> str:
    """Find 'FILE:LINE' of the innermost frame in the user's own code, or else of the outermost
    frame; '' for an exception that was not raised.
    """
    inner = _find_inner(exception)
    _, where = _read_callback(_message(inner))
    raised = exception if inner.__traceback__ is None else inner  # a group may raise it alone
    where = where or _find_remote(inner)
    if where:
        return where
    raised = _find_traced(raised) or raised
    if isinstance(raised, SyntaxError) and raised.lineno and _is_own_file(raised.filename):
        return f"{raised.filename}:{raised.lineno}"
    return find_place([(code.co_filename, line) for code, line in _frames(raised)])


def _is_own_file(name: object) -> bool:
    return isinstance(name, str) and os.path.isfile(name) and not is_installed(name)


def _find_remote(exception: BaseException) -> str:
    """Find 'FILE:LINE' of the user's own code in the worker of a pool that raised the exception;
    '' if there is none.
    """
    cause = exception.__cause__
    if cause is None or type(cause).__name__ not in _REMOTE:
        return ""
    frames = _FRAME.findall(_message(cause))
    return find_place(frames) if any(not is_installed(file) for file, _ in frames) else ""


def _find_traced(exception: BaseException) -> BaseException | None:
    """Return the exception with which JAX records the line that it was tracing, if JAX itself
    failed later; None if the user's function failed while JAX called it, as for a gradient.
    """
    cause = exception.__cause__
    if cause is None or type(cause).__name__ != _TRACED or cause.__traceback__ is None:
        return None
    frames = [place.tb_frame for place in walk_traceback(exception)]
    own = [frame for frame in frames if not is_installed(frame.f_code.co_filename)]
    caller = own[-1].f_back if own else None
    return None if caller and "/jax/_src/" in caller.f_code.co_filename else cause


def _find_inner(exception: BaseException) -> BaseException:
    """Return the first exception in a group, as asyncio's TaskGroup raises, or else the exception
    itself.
    """
    kind: Any = getattr(builtins, "BaseExceptionGroup", ())  # since Python 3.11
    while isinstance(exception, kind):
        exception = exception.exceptions[0]
    return exception


def _frames(exception: BaseException) -> Iterator[tuple[CodeType, int]]:
    """Yield the code and the line of each frame, from the outermost one."""
    for place in walk_traceback(exception):
        yield place.tb_frame.f_code, place.tb_lineno


def walk_traceback(exception: BaseException) -> Iterator[TracebackType]:
    """Yield the places that an exception has passed through, from the outermost one."""
    place = exception.__traceback__
    while place is not None:
        yield place
        place = place.tb_next


def _is_without_platform(exception: BaseException) -> bool:
    """Whether JAX raised an exception while looking for a platform, perhaps without the frames that
    it removes from tracebacks.
    """
    places = [(code.co_filename, code.co_name) for code, _ in _frames(exception)]
    file, function = (places or [("", "")])[-1]
    backends = getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None)
    is_early = backends == {} and bool(_wanted_platforms())
    is_removed = is_early and "/jax/_src/" in file and not _message(exception)
    return is_removed or (os.path.basename(file), function) == ("xla_bridge.py", "backends")


def _wanted_platforms() -> str:
    """Return JAX's setting, which a program may change, or else the variable."""
    config = getattr(sys.modules.get("jax"), "config", None)
    return getattr(config, "jax_platforms", None) or os.environ.get("JAX_PLATFORMS", "")


def find_place(frames: Sequence[tuple[str, object]]) -> str:
    """Find 'FILE:LINE' of the last frame in the user's own code, or else of the first frame; ''
    if that is in a module of the interpreter's own, such as runpy.

    Generated code, such as a dataclass's '<string>', counts where no file is the user's own.
    """
    own = [frame for frame in frames if not is_installed(frame[0])]
    files = [frame for frame in own if not frame[0].startswith("<")]
    first = [frame for frame in frames[:1] if not frame[0].startswith("<frozen ")]
    places = [f"{file}:{line}" for file, line in (*first, *own, *files)]
    return places[-1] if places else ""


def walk_stack(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and its callers."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def find_user(frame: FrameType | None) -> str:
    """Find 'FILE:LINE' of the innermost frame that is the user's own code."""
    places = [(outer.f_code.co_filename, outer.f_lineno) for outer in walk_stack(frame)]
    return find_place(places[::-1])


def _message(exception: BaseException) -> str:
    try:
        return str(exception)
    # As in tracebacks: an exception that cannot be rendered must not hide its location.
    except Exception:
        return "<exception str() failed>"


def _read_callback(message: str) -> tuple[str, str]:
    """Parse the exception and the location from a callback that XLA called, such as one of
    io_callback.

    For example, 'ValueError: boom' and 'train.py:7': XLA raises its own exception with the
    callback's traceback as the message. For any other message, return '' twice.
    """
    _, begin, traceback = message.partition(_CALLBACK)
    if not begin:
        return "", ""
    texts = re.findall(r"^[^\W\d][\w.]*(?:: .*|$)", traceback, re.MULTILINE)
    return ["an exception", *texts][-1], find_place(_FRAME.findall(traceback))


def _suggest(text: str) -> str:
    """Suggest a remedy for a missing module or import, a failed worker or a full device; return ''
    for other exceptions.
    """
    if any(phrase in text for phrase in SPAWNED):
        return SPAWNED_HINT
    if re.search(FULL_NODE, text):
        return FULL_NODE_HINT
    if re.search(FULL_GPU, text):
        return FULL_GPU_HINT
    if re.search(ABSENT_GPU, text):
        return ABSENT_GPU_HINT
    if re.search(_NO_CUDA, text) and "rocm" not in _wanted_platforms() and not _has_cuda():
        return _NO_CUDA_HINT
    if not re.search("No module named|cannot import name|AttributeError: module ", text):
        return ""
    from . import missing

    folders = [os.path.dirname(os.path.abspath(sys.argv[0]))]
    with contextlib.suppress(OSError):  # the current folder has been removed
        folders.append(os.getcwd())
    return missing.suggest(text, folders)


def _has_cuda() -> bool:
    """Whether this Python has JAX's plugin for CUDA."""
    from importlib.util import find_spec

    return any(find_spec(f"jax_cuda{version}_plugin") for version in _CUDA_VERSIONS)


def is_installed(name: str) -> bool:
    """Whether a frame's file is not the user's own code."""
    package = _PACKAGE.search(name)
    if package:
        return package[1] not in list_own()
    library = os.path.dirname(os.__file__) + os.sep  # /usr/lib64/python3.9 on some systems
    not_theirs = (sys.base_prefix + "/lib/", library, "<frozen", HERE)
    if name.endswith((".pyx", ".pxd", ".pxi")):  # of Cython, compiled: the caller's line says more
        return True
    return name.startswith(not_theirs) or "/jax/_src/" in name  # JAX may be a checkout, too


@cache
def list_own() -> frozenset[str]:
    """List the modules of the user's own projects in layers: jaxsif/layers/inside.py marks them."""
    with contextlib.suppress(OSError):  # no layer has any
        return frozenset(os.listdir(OWN))
    return frozenset()


def reporter(environ: MutableMapping[str, str]) -> Emit:
    """Make the function that reports events of this task to `jaxsif run`, if a launcher reads them;
    name the destination for the Pythons that the program starts.

    The function keeps its values from `environ`: programs remove Slurm's variables to start srun or
    mpirun.
    """
    origin = {"task": int(environ["SLURM_PROCID"]), "node": environ.get("SLURMD_NODENAME", "")}
    nonce = environ.get(REPORT, "")
    outlet = Outlet(environ.get(STARTER, ""), nonce)
    if nonce:
        environ[STARTER] = outlet.name
    pid = os.getpid()

    def emit(record: Mapping[str, Any]) -> None:
        if nonce and os.getpid() == pid:  # a fork is not the task
            outlet.write(_render(nonce, {**origin, **record}))

    return emit


def _render(nonce: str, record: dict[str, Any]) -> bytes:
    """Render the line of a report, cutting its texts to fit srun's line length."""
    while True:
        line = render_report(nonce, record)
        longest = max(
            ("text", "where", "hint", "hides"), key=lambda name: len(record.get(name, ""))
        )
        if len(line) <= _LONGEST_LINE or not record.get(longest):
            return line
        record[longest] = record[longest][5:] if longest == "where" else record[longest][:-5]


def has_jax() -> bool:
    """Whether this Python has imported JAX and is not a worker of another Python: failures of
    helpers and workers are the program's own concern.
    """
    return "jax" in sys.modules and not is_worker()


def is_worker() -> bool:
    """Whether multiprocessing of another Python has started this one."""
    parent: Any = getattr(sys.modules.get("multiprocessing.process"), "parent_process", bool)
    return bool(parent())


def _connected() -> bool:
    """Whether JAX in this process is connected to other processes."""
    module = sys.modules.get("jax._src.distributed")
    return getattr(getattr(module, "global_state", None), "client", None) is not None


def leave(status: int) -> NoReturn:
    """End without JAX's barrier; other exit handlers get `_GRACE` seconds, or none if the thread
    that would end them cannot be started.
    """

    def end() -> None:
        time.sleep(_GRACE)
        os._exit(status)

    try:
        threading.Thread(target=end, daemon=True).start()
    except RuntimeError:  # process limit reached: a handler might wait for ever
        _flush()
        os._exit(status)
    clean_up: Any = getattr(sys.modules.get("jax._src.api"), "clean_up", None)
    atexit.unregister(clean_up)  # None is not a handler
    atexit._run_exitfuncs()
    _flush()
    os._exit(status)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # It may be closed or gone: ending comes first.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
