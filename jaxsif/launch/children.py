"""Processes side by side: pass their output on, pass signals to them; when one fails, end all."""

from __future__ import annotations

import os
import select
import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import IO, NamedTuple

from jaxsif.errors import HostError
from jaxsif.process import Running, start_process, start_silent

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_FORWARDED = (*_ENDING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGURG)
_POLL = 0.1  # seconds between looks at processes whose output is silent
_KILL_AFTER = 1.0  # seconds from SIGTERM to SIGKILL for the neighbours of a failed process
# Seconds for srun to end its step after SIGTERM; SIGKILL would leave the step alone.
_SRUN_PATIENCE = 10.0
_CLEAR_PATIENCE = 10.0  # seconds for the command that ends what a killed srun has left

# What follows the signal that ends us, while processes live: seconds after it, and the next signal.
# A second signal brings the last one at once. SIGTERM has a process that hangs say where it is
# (jaxsif/task/failure.py).
INSIST = ((1.0, signal.SIGTERM), (5.0, signal.SIGKILL))
INSIST_ONCE = ((5.0, signal.SIGKILL),)

Pass = Callable[[bytes], bytes]  # what to show of a chunk of output; b'' is the end
Reader = Callable[[], Pass]  # makes, for each child, what is shown of its output


class Remote(NamedTuple):
    """The tasks that a child has started elsewhere, as srun does: commands, which are empty while
    there are none.
    """

    end: Callable[[], tuple[str, ...]]  # sends them SIGTERM, and lets them say where they are
    clear: Callable[[], tuple[str, ...]]  # ends them when the child itself was killed


class Child(NamedTuple):
    """A process to start."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    stderr: Pass  # filter of its standard error
    stdout: Pass | None = None  # of its standard output; None lets it inherit ours
    own_group: bool = False  # a session of its own, so that a signal reaches all its descendants
    stdin: bool = True  # whether it inherits our standard input
    insist: tuple[tuple[float, int], ...] = INSIST
    remote: Remote | None = None


class Ended(NamedTuple):
    """How a run ended."""

    status: int  # of the first process that failed, 128 + N for signal N; 0 when all succeeded
    interrupted: int | None  # the number of the signal that ended us, if one did
    killed: bool = False  # the first process that failed was itself ended by a signal


def _nothing() -> None:
    """For who need not be told."""


def run(
    children: Sequence[Child],
    begun: Callable[[], None] = _nothing,
    interrupted: Callable[[], None] = _nothing,
) -> Ended:
    """Run all `children` to their ends; when one fails, end the others. Raises HostError if one
    cannot start.

    `begun` is called when all have been started, and `interrupted`, in a signal handler, when a
    signal ends us.
    """
    running = _Run(interrupted)
    # nohup has SIGHUP ignored, for us and for what we start.
    heard = [
        number
        for number in _FORWARDED
        if (number, signal.getsignal(number)) != (signal.SIGHUP, signal.SIG_IGN)
    ]
    previous = {number: signal.signal(number, running.forward) for number in heard}
    try:
        for child in children:
            running.start(child)
        begun()
        running.wait()
    finally:
        running.end()
        for number, handler in previous.items():
            signal.signal(number, handler)
    return Ended(
        running.status, running.signalled if running.signalled in _ENDING else None, running.killed
    )


class _Run:
    """The state of one `run`."""

    def __init__(self, interrupted: Callable[[], None]) -> None:
        self._interrupted = interrupted
        self.status = 0
        self.killed = False
        self.signalled: int | None = None
        self._processes: list[tuple[Running, Child]] = []
        self._selector = selectors.DefaultSelector()
        self._ended: set[int] = set()
        self._due: list[tuple[float, int]] = []  # when to send which signal
        self._must_ask = False
        self._asking: list[Running] = []  # commands of Remote.end
        self._clearing: list[Running] = []  # and of Remote.clear

    def start(self, child: Child) -> None:
        has_stdout = child.stdout is not None
        started = start_process(child.argv, child.environ, child.stdin, has_stdout, child.own_group)
        self._processes.append((started, child))
        if self.signalled:  # while it was being started
            self._pass_on(self.signalled, started, child)
        self._watch(started.stderr, 2, child.stderr)
        if child.stdout:
            self._watch(started.stdout, 1, child.stdout)

    def _watch(self, stream: IO[bytes] | None, to: int, show: Pass) -> None:
        assert stream is not None
        self._selector.register(stream, selectors.EVENT_READ, (to, show))

    def forward(self, number: int, _frame: FrameType | None) -> None:
        """Signal handler: what we are told, all processes are told."""
        again = self.signalled in _ENDING and number in _ENDING
        self.signalled = number
        if again:
            self._due = [(0, child.insist[-1][1]) for _, child in self._processes[:1]]
            return
        if number in _ENDING:
            self._interrupted()
        if number in _ENDING and self._processes:
            now = time.monotonic()
            self._due = [
                (now + after, following) for after, following in self._processes[0][1].insist
            ]
        for process, child in self._processes:
            self._pass_on(number, process, child)

    def _pass_on(self, number: int, process: Running, child: Child) -> None:
        if child.remote and number in _ENDING:
            self._must_ask = True  # by a command, which a signal handler must not start
        else:
            _send(number, process, child)

    def _signal(self, number: int) -> None:
        for process, child in self._processes:
            _send(number, process, child)

    def wait(self) -> None:
        """Pass output on until all processes have ended and nothing is left to read."""
        while len(self._ended) < len(self._processes):
            self._relay(_POLL)
            self._reap()
            self._insist()
        while self._relay(0):
            pass

    def _insist(self) -> None:
        """Send the signals that are due to processes that were told to end."""
        if self._must_ask:
            self._must_ask = False
            self._ask()
        while self._due and time.monotonic() >= self._due[0][0]:
            self._signal(self._due.pop(0)[1])

    def _ask(self) -> None:
        """Have remote tasks end; where none has started yet, or they cannot be asked, end their
        child at once.
        """
        for process, child in self._processes:
            command = child.remote.end() if child.remote else ()
            try:
                if command:
                    self._asking.append(start_silent(command, child.environ))
                    continue
            except HostError:  # it is not on the PATH: the child ends them, in its own way
                pass
            _send(signal.SIGTERM, process, child)

    def _relay(self, timeout: float) -> bool:
        """Pass on what is there to read; False when nothing was."""
        ready = self._selector.select(timeout) if self._selector.get_map() else []
        if not ready and timeout and not self._selector.get_map():
            time.sleep(0.01)  # all output is closed, some process is not over
        for key, _ in ready:
            to, show = key.data
            data = os.read(key.fd, 65536)
            _write(to, show(data))
            if not data:
                self._selector.unregister(key.fileobj)
        return bool(ready)

    def _reap(self) -> None:
        for index, (process, child) in enumerate(self._processes):
            if index in self._ended or process.poll() is None:
                continue
            self._ended.add(index)
            status = process.returncode if process.returncode >= 0 else 128 - process.returncode
            if process.returncode < 0:
                self._clear(child)
            if status and not self.status:
                self.status, self.killed = status, process.returncode < 0
                self._due = [(time.monotonic() + _KILL_AFTER, signal.SIGKILL)]
                self._signal(signal.SIGTERM)

    def _clear(self, child: Child) -> None:
        """End what a child has left that could not end it any more."""
        command = child.remote.clear() if child.remote else ()
        if command:
            # It is not on the PATH, and whoever reads the error has to do it.
            with suppress(HostError):
                self._clearing.append(start_silent(command, child.environ))

    def end(self) -> None:
        """Leave nothing behind, however we got here: after all has ended, or by an exception such
        as a closed pipe.
        """
        if len(self._ended) < len(self._processes):
            self._signal(signal.SIGTERM)
            patience = max(
                _KILL_AFTER if child.own_group else _SRUN_PATIENCE for _, child in self._processes
            )
            self._await([process for process, _ in self._processes], patience)
        self._signal(signal.SIGKILL)  # descendants that outlived their leaders, too
        for index, (process, child) in enumerate(self._processes):
            if process.wait() < 0 and index not in self._ended:
                self._clear(child)
        self._await(self._clearing, _CLEAR_PATIENCE)
        for command in (*self._asking, *self._clearing):
            command.kill()
            command.wait()
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
        self._selector.close()

    def _await(self, processes: Sequence[Running], patience: float) -> None:
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and any(process.poll() is None for process in processes):
            time.sleep(0.05)


def _send(number: int, process: Running, child: Child) -> None:
    try:
        if child.own_group and number == signal.SIGKILL:
            _kill_session(process.pid)
        elif child.own_group:  # also after its leader's end: there may be descendants
            os.killpg(process.pid, number)
        elif process.returncode is None:
            process.send_signal(number)
    except ProcessLookupError:
        pass  # it ended meanwhile, which is what a signal is for


def _kill_session(leader: int) -> None:
    """SIGKILL for every process of a session, see proc_pid_stat(5).

    The runtime puts what serves the image's files into a group of its own, and cannot end it when
    it is killed itself.
    """
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended while we looked
            with open(f"/proc/{name}/stat") as file:
                session = int(file.read().rpartition(")")[2].split()[3])
            if session == leader:
                os.kill(int(name), signal.SIGKILL)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # a program that shares our terminal has made it so
            select.select([], [descriptor], [])
