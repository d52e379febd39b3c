"""The status file of this task, in memory: where the program is, for the inspector outside.

`jaxsif/node/` has the script that looks, by /proc/PID/fd. The first 4096 bytes are one JSON
object, which the observer writes; faulthandler appends the stack of the main thread when somebody
sends SIGWINCH. It needs no interpreter for that, so a program that holds it in C answers, too.
SIGWINCH does nothing in a program that has no handler for it, and such a handler of the program's
own takes this one's place: then the frames count that the observer has written.
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

from ..contract import BOX_BYTES, BOX_NAME
from .outlet import identify

_LARGEST = 1 << 20  # bytes; then the stacks begin again after the JSON object
# A program that closes what it does not know gets the lowest free number for its next file.
_LOWEST = 200
_LONGEST_PLACE = 100  # letters of a place in the pipe; start.sh reports 240 of both


class StatusPipe:
    """The pipe of start.sh, in which this process leaves one line: start.sh outlives SIGKILL."""

    def __init__(self, pipe: int = -1) -> None:
        """Without a pipe, nothing is left."""
        self._pipe = pipe
        self._identity = identify(pipe) if is_fifo(pipe) else None
        self._length = 0  # bytes of the line
        self._waiting = count_waiting(pipe) if self._identity else 0  # bytes in the pipe

    def write(self, state: Mapping[str, object]) -> None:
        """Write what the task is doing after what it did, and take that out."""
        if not self._identity or identify(self._pipe) != self._identity:
            return
        line = render_line(state)
        if count_waiting(self._pipe) != self._waiting:
            self._identity = None  # a signal's stacks are in it, too: what is there, must stay
            return
        # It is full of what faulthandler has written, or no descriptor is free, or there is no
        # /proc.
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
    """Return the bytes in a pipe; -1 where that cannot be told."""
    number = array("i", [-1])
    with suppress(OSError):
        fcntl.ioctl(pipe, termios.FIONREAD, number)
    return number[0]


def render_line(state: Mapping[str, object]) -> bytes:
    """Return the line 'Box TURNS QUIET LOOP|WHERE' of a state: iterations, seconds, places."""
    places = "|".join(_shorten(str(state.get(name, ""))) for name in ("loop", "where"))
    return f"Box {state.get('turns', 0)} {state.get('quiet', 0.0):.1f} {places}\n".encode()


def _shorten(place: str) -> str:
    """Return the end of FILE:LINE, with '?' for what start.sh does not take."""
    known = (letter if " " <= letter <= "~" and letter not in '|"\\' else "?" for letter in place)
    return "".join(known)[-_LONGEST_PLACE:]


def is_fifo(descriptor: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except OSError:
        return False


class StatusFile:
    """The file; until it is opened, it keeps nothing."""

    def __init__(self, pipe: StatusPipe | None = None) -> None:
        self._pipe = pipe or StatusPipe()
        self._descriptor = -1
        self._identity: tuple[int, int] | None = None
        self._is_wanted = False

    def open(self) -> None:
        """Make the file, and have SIGWINCH fill it; where that cannot be, try again later."""
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
        if self.is_there():  # the program may have closed it, and have used its number
            faulthandler.unregister(signal.SIGWINCH)
            os.close(self._descriptor)
        self._is_wanted, self._identity = False, None

    def is_there(self) -> bool:
        """Return whether the descriptor is still that of the file."""
        return self._identity is not None and identify(self._descriptor) == self._identity

    def size(self) -> int:
        """Return the bytes of the file, which grows when stacks are asked for; 0 without a file."""
        return os.fstat(self._descriptor).st_size if self.is_there() else 0

    def answer_again(self) -> None:
        """Answer SIGWINCH again where the program has ended that without knowing: Python cannot see
        faulthandler's handler, so code that saves and restores handlers, as progress bars do,
        removes it.
        """
        if _is_free() and self.is_there() and not _is_caught(signal.SIGWINCH):
            faulthandler.unregister(signal.SIGWINCH)
            _answer(self._descriptor)

    def write(self, state: Mapping[str, object]) -> None:
        """Write what the task is doing in place of what it did."""
        self._pipe.write(state)
        if self._is_wanted and not self.is_there():  # the program has closed it, as daemons do
            if self._identity and _is_free():
                faulthandler.unregister(signal.SIGWINCH)
            self._identity = None
            self.open()
        if not self._identity:
            return
        import json  # here: a program that never uses JAX has no use for it

        # All of it, or without frames, which can be too long.
        for given in (state, {**state, "frames": []}):
            text = json.dumps(given).encode(errors="backslashreplace")
            if len(text) < BOX_BYTES:
                os.pwrite(self._descriptor, text.ljust(BOX_BYTES - 1) + b"\n", 0)
                break
        if os.lseek(self._descriptor, 0, os.SEEK_CUR) > _LARGEST:
            os.lseek(self._descriptor, BOX_BYTES, os.SEEK_SET)
            os.ftruncate(self._descriptor, BOX_BYTES)


def _is_free() -> bool:
    """Return whether the program has no handler of its own for SIGWINCH."""
    return signal.getsignal(signal.SIGWINCH) in (signal.SIG_DFL, None)


def _is_caught(number: int) -> bool:
    """Return whether this process has a handler of a signal; True where nobody tells."""
    with suppress(OSError), open("/proc/self/status", "rb") as file:
        caught = next((line for line in file if line.startswith(b"SigCgt:")), b": -1")
        return bool(int(caught.split()[1], 16) & 1 << number - 1)
    return True


def _answer(descriptor: int) -> None:
    """Have SIGWINCH write the stack of the main thread.

    Not with chain: without it, a system call that the signal interrupts goes on. Not of all
    threads: others may run while theirs is walked, and end the process by SIGSEGV.
    """
    faulthandler.register(signal.SIGWINCH, descriptor, all_threads=False, chain=False)


def _make_file(name: str) -> int:
    """As os.memfd_create, of a Python that was built without it."""
    path = f"/dev/shm/{name}.{os.getpid()}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(path)
    return descriptor


def make_file(name: str, duplicate: int, lowest: int) -> int:
    """Return a file in memory without a name in any folder, with the descriptor `lowest` or above;
    `duplicate` is F_DUPFD, or F_DUPFD_CLOEXEC. Raise OSError.
    """
    low = getattr(os, "memfd_create", _make_file)(name)
    try:
        return fcntl.fcntl(low, duplicate, lowest)
    finally:
        os.close(low)


def open_status_file(pipe: int = -1) -> StatusFile:
    """Make the status file of this process; `pipe` is that of start.sh."""
    file = StatusFile(StatusPipe(pipe))
    file.open()
    os.register_at_fork(after_in_child=file.forget)
    return file
