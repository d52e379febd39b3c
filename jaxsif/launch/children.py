"""Processes side by side: pass their output on, pass signals to them; when one fails, end all."""

from __future__ import annotations

import os
import select
import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from subprocess import TimeoutExpired
from types import FrameType
from typing import IO, NamedTuple, Optional

from jaxsif.errors import HostError
from jaxsif.process import Running, read_stat, start_process, start_silent

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_FORWARDED = (*_ENDING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGURG)
_HEARD_UNDER_NOHUP = tuple(number for number in _FORWARDED if number != signal.SIGHUP)
# Of much output, srun brings small pieces: to wait for more of them takes half the work.
_MUCH, _GATHER = 1024, 0.001  # bytes; seconds
_POLL = 0.1  # seconds between looks at processes whose output is silent
_POLL_CLOSED = 0.01  # and whose output is closed
_KILL_AFTER = 1.0  # seconds from SIGTERM to SIGKILL for the neighbours of a failed process
# Seconds for srun to end its step after SIGTERM; SIGKILL would leave the step alone.
_SRUN_TIMEOUT = 10.0
_CLEAR_TIMEOUT = 10.0  # seconds for the command that ends what a killed srun has left

# What follows the signal that ends us, while processes live: seconds after it, and the next signal.
# A second signal brings the last one at once. SIGTERM has a process that hangs say where it is
# (jaxsif/task/failure.py).
INSIST = ((1.0, signal.SIGTERM), (5.0, signal.SIGKILL))
INSIST_ONCE = ((5.0, signal.SIGKILL),)

Pass = Callable[[bytes], bytes]  # what to show of a chunk of output; b'' is the end
# Makes, for each child, what is shown of its standard output; None lets the child inherit ours.
Reader = Callable[[], Optional[Pass]]


def inherit() -> None:
    """As a Reader: every child writes to our own standard output."""


class Remote(NamedTuple):
    """The tasks that a child has started elsewhere, as srun does: commands, which are empty while
    there are none.
    """

    end: Callable[[], tuple[str, ...]]  # sends them SIGTERM, and lets them say where they are
    clear: Callable[[], tuple[str, ...]]  # ends them when the child itself was killed


NOT_REMOTE = Remote(tuple, tuple)  # all tasks of the child get its signals


class Child(NamedTuple):
    """A process to start."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    stderr: Pass  # filter of its standard error
    stdout: Pass | None = None  # of its standard output; None lets it inherit ours
    own_group: bool = False  # a session of its own, so that a signal reaches all its descendants
    stdin: bool = True  # whether it inherits our standard input
    insist: tuple[tuple[float, int], ...] = INSIST
    remote: Remote = NOT_REMOTE
    name: str = ""  # that it finds in the place of its own, argv[0]


class Ended(NamedTuple):
    """How a run ended."""

    status: int  # of the first process that failed, 128 + N for signal N; 0 when all succeeded
    interrupted: int | None  # the number of the signal that ended us, if one did
    killed: bool = False  # the first process that failed was itself ended by a signal


class Hooks(NamedTuple):
    """Functions to call while children run."""

    begun: Callable[[], object] = bool  # when all have been started
    interrupted: Callable[[], object] = bool  # in a signal handler, when a signal ends us
    poll: Callable[[], bool] = bool  # ten times a second; True ends the children


NO_HOOKS = Hooks()


def run(children: Sequence[Child], hooks: Hooks = NO_HOOKS) -> Ended:
    """Run all `children` to their ends; when one fails, end the others. Raises HostError if one
    cannot start.
    """
    running = _Run(hooks)
    # nohup has SIGHUP ignored, for us and for what we start.
    under_nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    heard = _HEARD_UNDER_NOHUP if under_nohup else _FORWARDED
    previous = {number: signal.signal(number, running.forward) for number in heard}
    try:
        for child in children:
            running.start(child)
        hooks.begun()
        running.wait()
    finally:
        running.end()
        for number, handler in previous.items():
            signal.signal(number, handler)
    interruption = running.signalled if running.signalled in _ENDING else None
    return Ended(running.status, interruption, running.killed)


class _Started(NamedTuple):
    """A child, and its process."""

    process: Running
    child: Child

    def send(self, number: int) -> None:
        """Signal the process; where it has a session of its own, all its descendants."""
        with suppress(ProcessLookupError):  # it ended meanwhile, which is what a signal is for
            if not self.child.own_group:
                self.process.send_signal(number)
            elif number == signal.SIGKILL:
                _kill_session(self.process.pid)
            else:  # also after its leader's end: there may be descendants
                os.killpg(self.process.pid, number)


class _Run:
    """The state of a `run`."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._poll = hooks.poll
        self._next_poll = 0.0  # when to call the hook next, by the monotonic clock
        self.status = 0
        self.killed = False
        self.signalled: int | None = None
        self._started: list[_Started] = []
        self._living: list[_Started] = []
        self._selector = selectors.DefaultSelector()
        self._due: list[tuple[float, int]] = []  # when to send which signal
        self._must_end_remote = False
        self._ending: list[Running] = []  # commands of Remote.end
        self._clearing: list[Running] = []  # and of Remote.clear

    def start(self, child: Child) -> None:
        has_stdout = child.stdout is not None
        process = start_process(
            child.argv, child.environ, child.stdin, has_stdout, child.own_group, child.name
        )
        started = _Started(process, child)
        self._started.append(started)
        self._living.append(started)
        if self.signalled:  # while it was being started
            self._pass_on(self.signalled, started)
        self._watch(process.stderr, 2, child.stderr)
        if child.stdout:
            self._watch(process.stdout, 1, child.stdout)

    def _watch(self, stream: IO[bytes] | None, to: int, show: Pass) -> None:
        assert stream is not None
        self._selector.register(stream, selectors.EVENT_READ, (to, show))

    def forward(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal: pass it on to all processes."""
        again = self.signalled in _ENDING
        self.signalled = number
        if number in _ENDING:
            if again:
                # Nothing is due while the first process is not there.
                self._due = [(0, started.child.insist[-1][1]) for started in self._started[:1]]
                return
            self._hooks.interrupted()
            self._insist_from_now()
        for started in self._started:
            self._pass_on(number, started)

    def _insist_from_now(self) -> None:
        """Plan the signals that follow the one that the first process gets now."""
        now, steps = time.monotonic(), [started.child.insist for started in self._started[:1]]
        self._due = [(now + after, then) for step in steps for after, then in step]

    def _pass_on(self, number: int, started: _Started) -> None:
        if number in _ENDING and started.child.remote is not NOT_REMOTE:
            self._must_end_remote = True  # by a command, which a signal handler must not start
        else:
            started.send(number)

    def _signal(self, number: int) -> None:
        for started in self._started:
            started.send(number)

    def wait(self) -> None:
        """Pass output on until all processes have ended and nothing is left to read."""
        while self._living:
            # When all output is closed, nothing else tells that a process is over.
            self._relay(_POLL if self._selector.get_map() else _POLL_CLOSED)
            self._reap()
            self._insist()
            self._poll_hooks()
        while self._relay(0):
            pass

    def _poll_hooks(self) -> None:
        """Call the hook, ten times a second at most; end all if it returns true."""
        now = time.monotonic()
        if now < self._next_poll:
            return
        self._next_poll = now + _POLL
        if self._poll():
            self._stop()

    def _stop(self) -> None:
        """End all processes, as SIGTERM to us would."""
        self._poll = bool  # once
        self._insist_from_now()
        for started in self._started:
            self._pass_on(signal.SIGTERM, started)

    def _insist(self) -> None:
        """Send the signals that are due to processes that should have ended."""
        if self._must_end_remote:
            self._must_end_remote = False
            self._end_remote()
        while self._due and time.monotonic() >= self._due[0][0]:
            self._signal(self._due.pop(0)[1])

    def _end_remote(self) -> None:
        """Have remote tasks end; where none has started yet, or none can be reached, end their
        child at once, which ends them in its own way.
        """
        for started in self._started:
            commands = _start_command(started.child.remote.end(), started.child.environ)
            self._ending += commands
            if not commands:
                started.send(signal.SIGTERM)

    def _relay(self, timeout: float) -> bool:
        """Pass on the output that is there; return whether there was any."""
        ready = self._selector.select(timeout)
        most = 0
        for key, _ in ready:
            to, show = key.data
            data = os.read(key.fd, 65536)
            _write(to, show(data))
            most = max(most, len(data))
            if not data:
                self._selector.unregister(key.fileobj)
        if most > _MUCH:
            time.sleep(_GATHER)
        return bool(ready)

    def _reap(self) -> None:
        """Take the processes that are over from the living."""
        over = [started for started in self._living if started.process.poll() is not None]
        for started in over:
            self._living.remove(started)
            self._clear(started)
            code = started.process.returncode
            if code and not self.status:
                self.status, self.killed = code if code > 0 else 128 - code, code < 0
                self._due = [(time.monotonic() + _KILL_AFTER, signal.SIGKILL)]
                self._signal(signal.SIGTERM)

    def _clear(self, started: _Started) -> None:
        """End the tasks of a child that a signal has ended; leave that to the user where the
        command is not on the PATH.
        """
        if started.process.wait() < 0:
            self._clearing += _start_command(started.child.remote.clear(), started.child.environ)

    def end(self) -> None:
        """Leave nothing running, however we got here: after all has ended, or by an exception such
        as a closed pipe.
        """
        if self._living:
            self._signal(signal.SIGTERM)
            alone = all(started.child.own_group for started in self._started)
            timeout = _KILL_AFTER if alone else _SRUN_TIMEOUT
            _await([started.process for started in self._living], timeout)
        self._signal(signal.SIGKILL)  # descendants that outlived their leaders, too
        for started in self._living:
            self._clear(started)
        _await(self._clearing, _CLEAR_TIMEOUT)
        for command in (*self._ending, *self._clearing):
            command.kill()
            command.wait()
        self._selector.close()


def _start_command(argv: tuple[str, ...], environ: Mapping[str, str]) -> list[Running]:
    """Start a command of Remote, unless it is empty, or not on the PATH."""
    if argv:
        with suppress(HostError):
            return [start_silent(argv, environ)]
    return []


def _await(processes: Sequence[Running], timeout: float) -> None:
    """Wait until all have ended, `timeout` seconds at most."""
    deadline = time.monotonic() + timeout
    for process in processes:
        with suppress(TimeoutExpired):
            process.wait(max(deadline - time.monotonic(), 0))


def _kill_session(leader: int) -> None:
    """Send SIGKILL to every process of a session, see proc_pid_stat(5).

    The runtime puts the server of the image's files into a group of its own, and cannot end it when
    it is killed itself.
    """
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            if int(read_stat(name)[3]) == leader:
                os.kill(int(name), signal.SIGKILL)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # a program that shares our terminal has made it so
            select.select([], [descriptor], [])
