"""What a task does, in words: of all that the inspector has seen of it, what says most."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, Optional

from jaxsif.watch.sight import STALE, Frame, Sight

# Kinds of states.
COMPUTING = "computing"
COLLECTIVE = "collective"  # waits for the other tasks
INITIALIZE = "initialize"  # in jax.distributed.initialize
SHUTDOWN = "shutdown"  # has ended, and waits in JAX for the others
PROGRAMS = "programs"  # waits for another task to compile its program (--check-programs=stop)
COMPILING = "compiling"
CHECKPOINT = "checkpoint"
INPUT = "input"
LOCK = "lock"
DEADLOCK = "deadlock"  # waits for a lock that no other thread of its Python can release
PIPE = "pipe"
SOCKET = "socket"
TERMINAL = "terminal"
FILE = "file"
SLEEP = "sleep"
CHILD = "child"
STOPPED = "stopped"
HELD = "held"  # computes in C, and lets no other thread of Python run
DEBUGGER = "debugger"
ENDED = "ended"
UNKNOWN = "unknown"
# What tasks do that wait for others: those keep them waiting.
WAITING = frozenset((COLLECTIVE, INITIALIZE, PROGRAMS, SHUTDOWN))

_BUSY = 0.5  # of a CPU: less is what an idle runtime needs
IDLE = 0.05  # of a CPU: a process that uses less computes nothing that it could wait for
_MOST_STACKS = 1000  # to remember: most tasks have the same
# Files that are not the user's.
_LIBRARIES = re.compile(
    r"/(site|dist)-packages/|/lib(64)?/python3|/lib/pypy3|^<(frozen|__array_function__)"
    r"|/jaxsif_task/|/jaxsif/task/"
)


class State(NamedTuple):
    """What a task does."""

    kind: str
    words: str  # of one task, such as 'waits in a collective'


_Describe = Callable[[Sight], Optional[State]]  # None where the task is in another state


class _Place(NamedTuple):
    """A part of a library, which frames of the main thread tell."""

    state: State
    file: re.Pattern[str]
    function: re.Pattern[str] = re.compile("")

    def holds(self, frame: Frame) -> bool:
        return bool(self.file.search(frame.file) and self.function.match(frame.function))


class _Wait(NamedTuple):
    """What a task does in a system call, or in a function of the kernel."""

    call: re.Pattern[str]
    file: re.Pattern[str]  # what the call's descriptor is
    kind: str
    words: str  # {file} is the descriptor's

    def holds(self, sight: Sight) -> bool:
        return bool(self.call.search(sight.call) and self.file.search(sight.file))

    def describe(self, sight: Sight) -> State:
        return State(self.kind, self.words.format(file=sight.file))


def _place(kind: str, words: str, file: str, function: str = "") -> _Place:
    return _Place(State(kind, words), re.compile(file), re.compile(function))


def _wait(call: str, file: str, kind: str, words: str) -> _Wait:
    return _Wait(re.compile(call), re.compile(file), kind, words)


# By folders of packages, since the user may have a folder of the same name as a package. In this
# order: a checkpoint can wait for the others, compile or read, and not the other way round.
_PLACES = (
    _place(
        DEBUGGER,
        "is in a debugger",
        r"/lib(64)?/python3[^/]*/(pdb|bdb)\.py$|/debugpy/|/pydevd|/jax/_src/debugger/",
    ),
    _place(
        INITIALIZE,
        "waits in jax.distributed.initialize",
        r"/jax/_src/distributed\.py$",
        "initialize$",
    ),
    _place(
        SHUTDOWN,
        "has ended, and waits for the others",
        r"/jax/_src/(distributed|api|xla_bridge)\.py$",
        "(shutdown|clean_up)$",
    ),
    _place(
        COLLECTIVE,
        "waits in a collective",
        r"/jax/experimental/multihost_utils\.py$|/jax/_src/multihost",
    ),
    _place(
        CHECKPOINT,
        "is in a checkpoint",
        r"/orbax/(checkpoint|export|experimental)/|/tensorstore/__init__"
        "|/flax/training/checkpoints",
    ),
    _place(COMPILING, "compiles", r"/jax/_src/compiler\.py$", "(backend_compile|compile_or_get)"),
    _place(
        INPUT,
        "waits for input",
        r"/grain/(_src|python|experimental)/|/tensorflow/python/data/|/torch/utils/data/"
        "|/(site|dist)-packages/(tensorflow_datasets/|datasets/iter)",
    ),
)
# Of jaxsif, within a compile of JAX.
_PROGRAMS = _place(
    PROGRAMS,
    "waits for another task to compile its program",
    r"/(jaxsif_)?task/census\.py$",
    "_compare$",
)
# Of Python's own library, which the user's line has called.
_LOCKS = _place(
    LOCK,
    "waits for a lock",
    r"/lib(64)?/python3[^/]*/((.*/)?(threading|queue|_base|futures)\.py$|multiprocessing/)",
)
# What an innermost line of the user calls, when it waits for a lock.
_CALLS_OF_LOCKS = re.compile(
    r"^with |\.(acquire|wait|wait_for|join|get|put|result|map|shutdown)\([^()]*\)?$"
)
_FUTEX = re.compile("futex")
_READ = "^(p?readv?(64)?|pipe_read|anon_pipe_read|n_tty_read|wait_woken)"
_WRITE = "^(p?writev?(64)?|pipe_write|anon_pipe_write|sendfile|splice|copy_file_range)"
_NETWORK = "^(recv|send|accept|connect|sk_wait|unix_stream|inet_|tcp_)"
_POLL = "^(e?poll|ppoll|p?select|ep_poll|do_e?poll|do_sys_poll|do_select|poll_schedule)"
_DISK = (
    "^(f(data)?sync|sync|msync|openat?$|close|(new)?[fl]?stat|getdents|flock|fcntl|rename|unlink"
    "|mkdir|ftruncate|fallocate|io_|ioctl|folio_wait|nfs|fuse|ll_|cl_|wait_on_)"
)
_WAITS = (
    _wait(_READ, "^pipe", PIPE, "reads from a pipe"),
    _wait("pipe_read", "", PIPE, "reads from a pipe"),
    _wait("pipe_write", "", PIPE, "writes to a pipe"),
    _wait(_READ, "^socket", SOCKET, "reads from a socket"),
    _wait(_READ, "^terminal", TERMINAL, "reads from a terminal"),
    _wait("n_tty_read|wait_woken", "", TERMINAL, "reads from a terminal"),
    _wait(_READ, "^/", FILE, "reads {file}"),
    _wait(_WRITE, "^pipe", PIPE, "writes to a pipe"),
    _wait(_WRITE, "^socket", SOCKET, "writes to a socket"),
    _wait(_WRITE, "^terminal", TERMINAL, "writes to a terminal"),
    _wait(_WRITE, "^/", FILE, "writes {file}"),
    _wait(_NETWORK, "", SOCKET, "waits for a socket"),
    _wait(_POLL, "^pipe", PIPE, "waits for a pipe"),
    _wait(_POLL, "^terminal", TERMINAL, "waits for a terminal"),
    _wait(_POLL, "", SOCKET, "waits for a socket or a pipe"),
    _wait("nanosleep", "", SLEEP, "sleeps"),
    _wait("^(wait4|waitid|do_wait|kernel_wait)", "", CHILD, "waits for a child process"),
    _wait(_DISK, "^/", FILE, "waits for {file}"),
    _wait(_DISK, "", FILE, "waits for a file"),
    _wait("futex|^sem|^msg|^mq_", "", LOCK, "waits for a lock"),
    _wait("pause|sigsuspend|sigtimedwait", "", SLEEP, "waits for a signal"),
)
_NAMES = (  # of collectives, in the names of compiled functions
    (re.compile("(?i)all_?reduce"), "an all-reduce"),
    (re.compile("(?i)all_?gather"), "an all-gather"),
    (re.compile("(?i)reduce_?scatter"), "a reduce-scatter"),
    (re.compile("(?i)all_?to_?all"), "an all-to-all"),
    (re.compile("(?i)permute|ncclSend|ncclRecv"), "a permutation"),
    (re.compile("(?i)broadcast"), "a broadcast"),
    (re.compile("(?i)barrier"), "a barrier"),
)
# By whether they compute.
_DEVICES = (
    State(COLLECTIVE, "waits in a collective"),
    State(COMPUTING, "waits for its own devices, which compute"),
)
_OF_A_PROCESS = {
    "T": State(STOPPED, "is stopped (SIGSTOP)"),
    "t": State(DEBUGGER, "is stopped by a debugger"),
    "Z": State(ENDED, "has ended"),
    "X": State(ENDED, "has ended"),
}


def describe_state(sight: Sight) -> State:
    """Return what a task does."""
    return next(filter(None, _describe_all(sight)), State(UNKNOWN, "waits"))


def _describe_all(sight: Sight) -> Iterator[State | None]:
    for describe in _DESCRIPTIONS:
        yield describe(sight)


def _when(applies: Callable[[Sight], object], kind: str, words: str) -> _Describe:
    """Return the description of a state that is the same for all tasks that are in it."""
    state = State(kind, words)
    return lambda sight: state if applies(sight) else None


@lru_cache(_MOST_STACKS)
def own_frames(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Return the frames that are the user's own, not a library's."""
    return tuple(frame for frame in frames if not _LIBRARIES.search(frame.file))


def _process(sight: Sight) -> State | None:
    return _OF_A_PROCESS.get(sight.state)


def _compares_programs(sight: Sight) -> bool:
    """Return whether the task waits for the program of another one."""
    return any(map(_PROGRAMS.holds, sight.frames))


def _compiling(sight: Sight) -> State | None:
    """Return what is compiled, by the main thread or while it waits for another one."""
    box = sight.box
    words = f"compiles {box.compiling} since {box.since + sight.age:.0f} s"
    is_its = not box.aside or _needs_lock(sight)
    return State(COMPILING, words) if box.compiling and is_its else None


def _in_a_library(sight: Sight) -> State | None:
    """Return what the library does that the main thread is in."""
    return _find_place(sight.frames)


@lru_cache(_MOST_STACKS)
def _find_place(frames: tuple[Frame, ...]) -> State | None:
    return next((place.state for place in _PLACES if any(map(place.holds, frames))), None)


def _holds_python(sight: Sight) -> bool:
    """Return whether the main thread computes and lets the observer, a thread, not write."""
    return sight.age > STALE and _runs(sight)


def _runs(sight: Sight) -> bool:
    """Return whether the main thread computes, or would if there were a CPU for it."""
    return sight.main_cpu > _BUSY or (sight.state == "R" and not sight.call)


def _native(sight: Sight) -> State | None:
    """Return the collective that a compiled function names."""
    names = (words for pattern, words in _NAMES if pattern.search(sight.native))
    words = next(names, "a collective")
    return State(COLLECTIVE, f"waits in {words}") if sight.native else None


def _waits_for_a_thread(sight: Sight) -> bool:
    return bool(_FUTEX.search(sight.call))


def _is_deadlocked(sight: Sight) -> bool:
    """Return whether no thread can release the lock, nor one of C that computes meanwhile."""
    return sight.box.deadlock and sight.cpu < IDLE and _waits_for_a_thread(sight)


def _needs_lock(sight: Sight) -> bool:
    """Return whether the main thread waits for a lock of Python's."""
    if not _blocks(sight):
        return False
    if own_frames(sight.frames[:1]):  # it waits in a function of C, which has no frame
        return bool(_CALLS_OF_LOCKS.search(sight.box.call))
    return _LOCKS.holds(sight.frames[0])


def _blocks(sight: Sight) -> bool:
    """Return whether the main thread of a Python waits for another thread."""
    return bool(sight.frames) and _waits_for_a_thread(sight)


def _devices(sight: Sight) -> State | None:
    """Return a state where the main thread waits for what it has started on its devices.

    A wait for a result shows as the line of the user that needs it, without a frame of JAX. Where
    the devices are CPUs, the process computes as long as they do; a driver of GPUs may compute
    while it waits.
    """
    computes = sight.cpu > _BUSY and not sight.gpu
    return _DEVICES[computes] if _blocks(sight) else None


def _is_silent(sight: Sight) -> bool:
    """Return whether the task has not said where it is, as on a busy node, or where its program has
    taken the signal away: it may wait for other tasks, or for a lock.
    """
    return not sight.frames and _waits_for_a_thread(sight)


def _reads_input(sight: Sight) -> bool:
    return sight.descriptor == 0 and bool(re.match(_READ, sight.call))


def _call(sight: Sight) -> State | None:
    """Return what a system call does."""
    return next((wait.describe(sight) for wait in _WAITS if wait.holds(sight)), None)


def _waits_for_disk(sight: Sight) -> bool:
    return sight.state == "D"


# Of what they find, the first counts.
_DESCRIPTIONS: Sequence[_Describe] = (
    _process,
    _when(_compares_programs, *_PROGRAMS.state),
    _compiling,
    _in_a_library,
    _when(_holds_python, HELD, "computes in C, and holds the interpreter"),
    _native,
    _when(_runs, COMPUTING, "computes"),
    _when(_is_deadlocked, DEADLOCK, "waits for a lock that no other thread can release"),
    _when(_needs_lock, *_LOCKS.state),
    _devices,
    _when(_is_silent, UNKNOWN, "waits, and has not told where"),
    _when(_reads_input, INPUT, "reads standard input"),
    _call,
    _when(_waits_for_disk, FILE, "waits for a disk or a file system"),
)
