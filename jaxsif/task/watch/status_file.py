"""The status file of this task, in memory: it shows the inspector outside where the program is.

The script in `jaxsif/node/` reads it through /proc/PID/fd. The first 4096 bytes are one JSON
object, which the observer writes; on SIGWINCH, faulthandler appends the stack of the main thread.
faulthandler does not need the interpreter, so a program that holds the interpreter in C answers,
too. SIGWINCH does nothing in a program without a handler for it, and a program's own handler
replaces this one: then the frames from the observer are used.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
import signal
import stat
import termios
from array import array
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..contract import BOX_BYTES, BOX_NAME
from .outlet import identify

_LARGEST = 1 << 20  # bytes; then the stacks start again after the JSON object
# A program that closes unknown descriptors gets the lowest free number for its next file.
_LOWEST = 200
# Characters of a place in the pipe, and loops: start.sh reports 240 characters in all.
_LONGEST_PLACE, _MOST_LOOPS = 90, 3


class StatusPipe:
    """A pipe to start.sh, which outlives this process, for one line."""

    def __init__(self, pipe: int = -1) -> None:
        """Use this pipe; if there is none, leave nothing."""
        self._pipe = pipe
        self._identity = identify(pipe) if is_fifo(pipe) else None
        self._length = 0  # bytes of the line
        self._waiting = count_waiting(pipe) if self._identity else 0  # bytes in the pipe

    def write(self, state: Mapping[str, object]) -> None:
        """Add a line with the task's present state, and remove the previous line."""
        if not self._identity or identify(self._pipe) != self._identity:
            return
        line = render_line(state)
        if count_waiting(self._pipe) != self._waiting:
            self._identity = None  # a signal's stacks are in it, too, and must stay
            return
        # faulthandler's output has filled it, or no descriptor is free, or there is no /proc.
        with suppress(OSError):
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
            reader = os.open(f"/proc/self/fd/{self._pipe}", flags)
            try:
                os.write(self._pipe, line)
                os.read(reader, self._length)
            finally:
                os.close(reader)
            self._length = len(line)
            self._waiting = count_waiting(self._pipe)


def count_waiting(pipe: int) -> int:
    """Return the number of unread bytes in a pipe, or -1 if it is not known."""
    number = array("i", [-1])
    with suppress(OSError):
        fcntl.ioctl(pipe, termios.FIONREAD, number)
    return number[0]


def render_line(state: Mapping[str, object]) -> bytes:
    """Render the line 'Box TURNS QUIET LOOP|WHERE|TURNS.TURNS' for a state: iterations, seconds,
    places, and the iterations of all enclosing loops, the outermost first.
    """
    places = "|".join(_shorten(str(state.get(name, ""))) for name in ("loop", "where"))
    around: Any = state.get("around", ())
    turns = ".".join(str(count) for _, count in around[:_MOST_LOOPS] if count >= 0)
    line = f"Box {state.get('turns', 0)} {state.get('quiet', 0.0):.1f} {places}"
    return f"{line}|{turns}\n".encode() if turns else f"{line}\n".encode()


def _shorten(place: str) -> str:
    """Return the end of FILE:LINE, with '?' for characters that start.sh does not accept."""
    known = (letter if " " <= letter <= "~" and letter not in '|"\\' else "?" for letter in place)
    return "".join(known)[-_LONGEST_PLACE:]


def is_fifo(descriptor: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except OSError:
        return False


class StatusFile:
    """The status file; it stores nothing until it is opened."""

    def __init__(self, pipe: StatusPipe | None = None) -> None:
        self._pipe = pipe or StatusPipe()
        self._descriptor = -1
        self._identity: tuple[int, int] | None = None
        self._is_wanted = False

    def open(self) -> None:
        """Create the file, and let SIGWINCH write to it; if that is impossible, try again later."""
        self._is_wanted = True
        try:
            descriptor = make_file(BOX_NAME, fcntl.F_DUPFD_CLOEXEC, _LOWEST)
        except OSError:  # no descriptor is free, or the kernel has no such files
            return
        os.ftruncate(descriptor, BOX_BYTES)
        os.lseek(descriptor, BOX_BYTES, os.SEEK_SET)
        self._descriptor, self._identity = descriptor, identify(descriptor)
        if _is_free():
            _answer(descriptor)

    def forget(self) -> None:
        """Close the file in a fork, which is not the task."""
        if self.is_there():  # the program may have closed it and reused its number
            faulthandler.unregister(signal.SIGWINCH)
            os.close(self._descriptor)
        self._is_wanted, self._identity = False, None

    def is_there(self) -> bool:
        """Return whether the descriptor still belongs to the file."""
        return self._identity is not None and identify(self._descriptor) == self._identity

    def size(self) -> int:
        """Return the bytes of the file, which grows when stacks are requested; 0 without a file."""
        return os.fstat(self._descriptor).st_size if self.is_there() else 0

    def answer_again(self) -> None:
        """Restore the SIGWINCH handler if the program has unknowingly removed it: Python cannot see
        faulthandler's handler, so code that saves and restores handlers, such as progress bars,
        removes it.
        """
        if _is_free() and self.is_there() and not _is_caught(signal.SIGWINCH):
            faulthandler.unregister(signal.SIGWINCH)
            _answer(self._descriptor)

    def leave(self, state: Mapping[str, object]) -> None:
        """Write the last state, for start.sh only."""
        pipe, self._pipe = self._pipe, StatusPipe()
        pipe.write(state)

    def write(self, state: Mapping[str, object]) -> None:
        """Replace the task's previous state with the present one."""
        self._pipe.write(state)
        if self._is_wanted and not self.is_there():  # the program has closed it, like a daemon
            if self._identity and _is_free():
                faulthandler.unregister(signal.SIGWINCH)
            self._identity = None
            self.open()
        if not self._identity:
            return
        import json  # here: a program that never uses JAX does not need it

        # Everything, or all but the frames, which can be too long.
        for given in (state, {**state, "frames": []}):
            text = json.dumps(given).encode(errors="backslashreplace")
            if len(text) < BOX_BYTES:
                os.pwrite(self._descriptor, text.ljust(BOX_BYTES - 1) + b"\n", 0)
                break
        if os.lseek(self._descriptor, 0, os.SEEK_CUR) > _LARGEST:
            os.lseek(self._descriptor, BOX_BYTES, os.SEEK_SET)
            os.ftruncate(self._descriptor, BOX_BYTES)


def _is_free() -> bool:
    """Return whether the program has no SIGWINCH handler of its own."""
    return signal.getsignal(signal.SIGWINCH) in (signal.SIG_DFL, None)


def _is_caught(number: int) -> bool:
    """Return whether this process has a handler for a signal; True if it is not known."""
    with suppress(OSError), open("/proc/self/status", "rb") as file:
        caught = next((line for line in file if line.startswith(b"SigCgt:")), b": -1")
        return bool(int(caught.split()[1], 16) & 1 << number - 1)
    return True


def _answer(descriptor: int) -> None:
    """Let SIGWINCH write the stack of the main thread.

    Do not chain: without chaining, a system call that the signal interrupts is resumed. Do not dump
    all threads: others may run while their stacks are walked, which can crash the process with
    SIGSEGV.
    """
    faulthandler.register(signal.SIGWINCH, descriptor, all_threads=False, chain=False)


def _make_file(name: str) -> int:
    """Replace os.memfd_create in a Python that was built without it."""
    path = f"/dev/shm/{name}.{os.getpid()}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(path)
    return descriptor


def make_file(name: str, duplicate: int, lowest: int) -> int:
    """Return an unnamed file in memory, with a descriptor of at least `lowest`; `duplicate` is
    F_DUPFD or F_DUPFD_CLOEXEC. Raise OSError.
    """
    low = getattr(os, "memfd_create", _make_file)(name)
    try:
        return fcntl.fcntl(low, duplicate, lowest)
    finally:
        os.close(low)


def open_status_file(pipe: int = -1) -> StatusFile:
    """Create the status file of this process; `pipe` is start.sh's."""
    file = StatusFile(StatusPipe(pipe))
    file.open()
    os.register_at_fork(after_in_child=file.forget)
    return file
