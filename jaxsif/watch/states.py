"""Describe the state of a task in words, by the most telling of the inspector's findings."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, Optional

from jaxsif.task.contract import INSTALLED
from jaxsif.watch.sample import HIDDEN_FAILURE, STALE, UNMET, Frame, Sample

# The kinds of states.
COMPUTING = "computing"
COLLECTIVE = "collective"  # waits for the other tasks
INITIALIZE = "initialize"  # in jax.distributed.initialize
SHUTDOWN = "shutdown"  # has ended, and waits in JAX for the others
PROGRAMS = "programs"  # waits for another task to compile its program (--check-programs=stop)
COMPILING = "compiling"
CHECKPOINT = "checkpoint"
INPUT = "input"
THREADS = "threads"  # has ended, but for threads that are no daemons
LOCK = "lock"
DEADLOCK = "deadlock"  # waits for a lock that no other thread of its Python can release
PIPE = "pipe"
SOCKET = "socket"
TERMINAL = "terminal"
FILE = "file"
SLEEP = "sleep"
CHILD = "child"
STOPPED = "stopped"
HELD = "held"  # computes in C, and lets no other Python thread run
DEBUGGER = "debugger"
ENDED = "ended"
LEFT = "left"  # has ended without meeting those that wait for it in JAX
FAILED = "failed"  # has ended with a failure that a shell has hidden
UNKNOWN = "unknown"
# The states of tasks that wait for other tasks, which keep them waiting.
WAITING = frozenset((COLLECTIVE, INITIALIZE, PROGRAMS, SHUTDOWN))

_BUSY = 0.5  # of a CPU: less is what an idle runtime needs
IDLE = 0.05  # of a CPU: a process that uses less is not computing anything worth waiting for
_MOST_STACKS = 1000  # to remember: most tasks have the same stack
# Files that do not belong to the user.
_LIBRARIES = re.compile(
    r"/(site|dist)-packages/|/lib(64)?/python3|/lib/pypy3|^<(frozen|__array_function__)"
    r"|/jaxsif_task/|/jaxsif/task/"
)
_MODULE = re.compile(INSTALLED)


class State(NamedTuple):
    """The state of a task."""

    kind: str
    words: str  # of one task, such as 'waits in a collective'


_Describe = Callable[[Sample], Optional[State]]  # None if the task is in another state


class _Place(NamedTuple):
    """A part of a library, recognized by frames of the main thread."""

    state: State
    file: str  # a pattern, like the next field
    function: str = ""

    def holds(self, frame: Frame) -> bool:
        return bool(re.search(self.file, frame.file) and re.match(self.function, frame.function))


class _Wait(NamedTuple):
    """The state of a task in a system call, or in a function of the kernel."""

    call: str  # a pattern, like the next field
    file: str  # the kind of the call's descriptor
    kind: str
    words: str  # {file} is the descriptor's

    def holds(self, sample: Sample) -> bool:
        return bool(re.search(self.call, sample.call) and re.search(self.file, sample.file))

    def describe(self, sample: Sample) -> State:
        return State(self.kind, self.words.format(file=sample.file))


# Matched by the folders of packages, since the user may have a folder with the name of a package.
# The order matters: a checkpoint can wait for the others, compile or read, but not vice versa.
_PLACES = (
    _Place(
        State(DEBUGGER, "is in a debugger"),
        r"/lib(64)?/python3[^/]*/(pdb|bdb)\.py$|/debugpy/|/pydevd|/jax/_src/debugger/",
    ),
    _Place(
        State(INITIALIZE, "is waiting in jax.distributed.initialize"),
        r"/jax/_src/distributed\.py$",
        "initialize$",
    ),
    _Place(
        State(SHUTDOWN, "has ended, and is waiting for the others"),
        r"/jax/_src/(distributed|api|xla_bridge)\.py$",
        "(shutdown|clean_up)$",
    ),
    _Place(
        State(COLLECTIVE, "is waiting in a collective"),
        r"/jax/experimental/multihost_utils\.py$|/jax/_src/multihost",
    ),
    _Place(
        State(CHECKPOINT, "is in a checkpoint"),
        r"/orbax/(checkpoint|export|experimental)/|/tensorstore/__init__"
        "|/flax/training/checkpoints",
    ),
    _Place(
        State(COMPILING, "is compiling"),
        r"/jax/_src/compiler\.py$",
        "(backend_compile|compile_or_get)",
    ),
    _Place(
        State(INPUT, "is waiting for input"),
        r"/grain/(_src|python|experimental)/|/tensorflow/python/data/|/torch/utils/data/"
        "|/(site|dist)-packages/(tensorflow_datasets/|datasets/iter)",
    ),
    _Place(
        State(THREADS, "has reached its end, and is waiting for its threads"),
        r"/lib(64)?/python3[^/]*/threading\.py$",
        "_shutdown$",
    ),
)
# In jaxsif, within a compile of JAX.
_PROGRAMS = _Place(
    State(PROGRAMS, "is waiting for another task to compile its program"),
    r"/(jaxsif_)?task/watch/census\.py$",
    "compare$",
)
# In Python's own library, called by the user's line.
_LOCKS = _Place(
    State(LOCK, "is waiting for a lock"),
    r"/lib(64)?/python3[^/]*/((.*/)?(threading|queue|_base|futures)\.py$|multiprocessing/)",
)
# The calls of an innermost line of the user that waits for a lock.
_CALLS_OF_LOCKS = re.compile(
    r"^with |\.(acquire|wait|wait_for|join|get|put|result|map|shutdown)\([^()]*\)?$"
)
_READ = "^(p?readv?(64)?|pipe_read|anon_pipe_read|n_tty_read|wait_woken)"
_WRITE = "^(p?writev?(64)?|pipe_write|anon_pipe_write|sendfile|splice|copy_file_range)"
_NETWORK = "^(recv|send|accept|connect|sk_wait|unix_stream|inet_|tcp_)"
_POLL = "^(e?poll|ppoll|p?select|ep_poll|do_e?poll|do_sys_poll|do_select|poll_schedule)"
_DISK = (
    "^(f(data)?sync|sync|msync|openat?$|close|(new)?[fl]?stat|getdents|flock|fcntl|rename|unlink"
    "|mkdir|ftruncate|fallocate|io_|ioctl|folio_wait|nfs|fuse|ll_|cl_|wait_on_)"
)
_WAITS = (
    _Wait(_READ, "^pipe", PIPE, "is reading from a pipe"),
    _Wait("pipe_read", "", PIPE, "is reading from a pipe"),
    _Wait("pipe_write", "", PIPE, "is writing to a pipe"),
    _Wait(_READ, "^socket", SOCKET, "is reading from a socket"),
    _Wait(_READ, "^terminal", TERMINAL, "is reading from a terminal"),
    _Wait("n_tty_read|wait_woken", "", TERMINAL, "is reading from a terminal"),
    _Wait(_READ, "^/", FILE, "is reading {file}"),
    _Wait(_WRITE, "^pipe", PIPE, "is writing to a pipe"),
    _Wait(_WRITE, "^socket", SOCKET, "is writing to a socket"),
    _Wait(_WRITE, "^terminal", TERMINAL, "is writing to a terminal"),
    _Wait(_WRITE, "^/", FILE, "is writing {file}"),
    _Wait(_NETWORK, "", SOCKET, "is waiting for a socket"),
    _Wait(_POLL, "^pipe", PIPE, "is waiting for a pipe"),
    _Wait(_POLL, "^terminal", TERMINAL, "is waiting for a terminal"),
    _Wait(_POLL, "", SOCKET, "is waiting for a socket or a pipe"),
    _Wait("nanosleep", "", SLEEP, "is sleeping"),
    _Wait("^(wait4|waitid|do_wait|kernel_wait)", "", CHILD, "is waiting for a child process"),
    _Wait(_DISK, "^/", FILE, "is waiting for {file}"),
    _Wait(_DISK, "", FILE, "is waiting for a file"),
    _Wait("futex|^sem|^msg|^mq_", "", LOCK, "is waiting for a lock"),
    _Wait("pause|sigsuspend|sigtimedwait", "", SLEEP, "is waiting for a signal"),
)
# Indexed by whether they compute.
DEVICES = (
    State(COLLECTIVE, "is waiting in a collective"),
    State(COMPUTING, "is waiting for local devices, which are computing"),
)
_OF_A_PROCESS = {
    "T": State(STOPPED, "is stopped (SIGSTOP)"),
    "t": State(DEBUGGER, "is stopped by a debugger"),
    "Z": State(ENDED, "has ended"),
    "X": State(ENDED, "has ended"),
    UNMET: State(LEFT, "has ended"),
    HIDDEN_FAILURE: State(FAILED, "has failed"),
}


def describe_state(sample: Sample) -> State:
    """Return the state of a task."""
    found = (describe(sample) for describe in _DESCRIPTIONS)
    return next(filter(None, found), State(UNKNOWN, "is waiting"))


def _when(applies: Callable[[Sample], object], kind: str, words: str) -> _Describe:
    """Return a function that describes each task that passes the test `applies` by one fixed
    state.
    """
    state = State(kind, words)
    return lambda sample: state if applies(sample) else None


@lru_cache(_MOST_STACKS)
def own_frames(frames: tuple[Frame, ...], own: tuple[str, ...] = ()) -> tuple[Frame, ...]:
    """Return the user's own frames, without those of libraries; `own` are the user's modules among
    the libraries.
    """
    return tuple(frame for frame in frames if _is_own(frame.file, own))


def _is_own(file: str, own: tuple[str, ...]) -> bool:
    module = own and _MODULE.search(file)
    return bool(module and module[1] in own) or not _LIBRARIES.search(file)


def _compiling(sample: Sample) -> State | None:
    """Return the state of compiling, by the main thread or by a thread it waits for."""
    status = sample.status
    words = f"has been compiling {status.compiling} for {status.since + sample.age:.0f} s"
    is_its = not status.aside or _needs_lock(sample)
    return State(COMPILING, words) if status.compiling and is_its else None


@lru_cache(_MOST_STACKS)
def _find_place(frames: tuple[Frame, ...]) -> State | None:
    return next((place.state for place in _PLACES if any(map(place.holds, frames))), None)


def _runs(sample: Sample) -> bool:
    """Return whether the main thread computes, or would if it had a CPU."""
    return sample.main_cpu > _BUSY or (sample.state == "R" and not sample.call)


def _waits_for_a_thread(sample: Sample) -> bool:
    return "futex" in sample.call


def _is_deadlocked(sample: Sample) -> bool:
    """Return whether no thread can release the lock, not even one that is computing in C."""
    return sample.status.deadlock and sample.cpu < IDLE and _waits_for_a_thread(sample)


def _needs_lock(sample: Sample) -> bool:
    """Return whether the main thread is waiting for one of Python's locks."""
    if not _blocks(sample):
        return False
    # A function of C has no frame.
    if own_frames(sample.frames[:1], sample.status.own):
        return bool(_CALLS_OF_LOCKS.search(sample.status.call))
    return _LOCKS.holds(sample.frames[0])


def _blocks(sample: Sample) -> bool:
    """Return whether the main thread of a Python process waits for another thread."""
    return bool(sample.frames) and _waits_for_a_thread(sample)


def _devices(sample: Sample) -> State | None:
    """Return a state if the main thread waits for work that it has started on its devices.

    A wait for a result shows as the user's line that needs it, without a frame of JAX. If the
    devices are CPUs, the process computes as long as they do; a GPU driver may compute while it
    waits.
    """
    computes = sample.cpu > _BUSY and not sample.gpu
    return DEVICES[computes] if _blocks(sample) else None


def _is_silent(sample: Sample) -> bool:
    """Return whether the task has not reported where it is, because its node is busy or its program
    has replaced the signal handler: it may wait for other tasks, or for a lock.
    """
    return not sample.frames and _waits_for_a_thread(sample)


# The first one that finds a state decides.
_DESCRIPTIONS: Sequence[_Describe] = (
    lambda sample: _OF_A_PROCESS.get(sample.state),
    _when(lambda sample: any(map(_PROGRAMS.holds, sample.frames)), *_PROGRAMS.state),
    _compiling,
    lambda sample: _find_place(sample.frames),
    # It keeps the observer, which is a Python thread, from writing.
    _when(
        lambda sample: sample.age > STALE and _runs(sample),
        *(HELD, "is computing in C, and holds the interpreter lock"),
    ),
    _when(_runs, COMPUTING, "is computing"),
    _when(_is_deadlocked, DEADLOCK, "is waiting for a lock that no other thread can release"),
    _when(_needs_lock, *_LOCKS.state),
    _devices,
    _when(_is_silent, UNKNOWN, "is waiting, but has not reported where"),
    _when(
        lambda sample: sample.descriptor == 0 and re.match(_READ, sample.call),
        *(INPUT, "is reading standard input"),
    ),
    lambda sample: next((wait.describe(sample) for wait in _WAITS if wait.holds(sample)), None),
    _when(lambda sample: sample.state == "D", FILE, "is waiting for a disk or a file system"),
)
