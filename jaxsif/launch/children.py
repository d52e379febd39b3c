"""Run processes side by side: pass on output and signals, and end all of them if one fails."""

from __future__ import annotations

import os
import select
import selectors
import signal
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from subprocess import TimeoutExpired
from types import FrameType, MappingProxyType
from typing import IO, NamedTuple, Optional

from jaxsif.errors import UNWRITABLE, HostError
from jaxsif.process import Running, read_stat, start_process, start_silent

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_FORWARDED = (*ENDING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGURG)
# srun delivers much output in small pieces: waiting for more of them halves the work.
_MUCH, _GATHER = 1024, 0.001  # bytes; seconds
_POLL = 0.1  # seconds between looks at processes whose output is silent
_POLL_CLOSED = 0.01  # and at processes whose output is closed
_KILL_AFTER = 1.0  # seconds from SIGTERM to SIGKILL for the neighbours of a failed process
# Seconds for srun to end its step after SIGTERM; SIGKILL would leave the step running.
_SRUN_TIMEOUT = 10.0
_CLEAR_TIMEOUT = 10.0  # seconds for the command that ends the step of a killed srun

# The signals that follow the one that ends us, while processes are alive: seconds after it, and the
# next signal. A second signal to us triggers the last one immediately. SIGTERM makes a hanging
# process report where it is (jaxsif/task/failure.py).
INSIST = ((1.0, signal.SIGTERM), (5.0, signal.SIGKILL))
INSIST_ONCE = ((5.0, signal.SIGKILL),)

Pass = Callable[[bytes], bytes]  # chunk of output -> the part to show; b'' is the end
# Makes the filter of each child's standard output; None lets the child inherit ours.
Reader = Callable[[], Optional[Pass]]


def inherit() -> None:
    """Let every child write to our own standard output (as a Reader)."""


class Remote(NamedTuple):
    """The commands for the tasks that a child has started elsewhere, as srun does; empty while
    there are no such tasks.
    """

    end: Callable[[], tuple[str, ...]]  # sends them SIGTERM, and lets them report where they are
    clear: Callable[[], tuple[str, ...]]  # ends them after the child itself was killed


NOT_REMOTE = Remote(tuple, tuple)  # all tasks of the child receive its signals


class Child(NamedTuple):
    """A process to start."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    stderr: Pass  # filter of its standard error
    stdout: Pass | None = None  # of its standard output; None lets it inherit ours
    own_group: bool = False  # a session of its own, so that a signal reaches all its descendants
    stdin: bool = True  # inherit our standard input
    insist: tuple[tuple[float, int], ...] = INSIST
    remote: Remote = NOT_REMOTE
    interrupt: int = signal.SIGINT  # what Ctrl-C sends
    name: str = ""  # passed as argv[0] instead of its own


class Ended(NamedTuple):
    """How a run ended."""

    status: int  # of the first process that failed, 128 + N for signal N; 0 if all succeeded
    interrupted: int | None  # the number of the signal that ended us, if one did
    killed: bool = False  # the first process that failed was itself ended by a signal
    unwritten: Mapping[int, str] = MappingProxyType({})  # descriptor -> why its output was lost


class Hooks(NamedTuple):
    """Functions to call while children run."""

    begun: Callable[[], object] = bool  # once all have been started
    interrupted: Callable[[int], object] = bool  # in a signal handler, when that signal ends us
    announced: Callable[[], object] = bool  # likewise, at SIGURG
    poll: Callable[[], bool] = bool  # ten times per second; True ends the children


NO_HOOKS = Hooks()


def run(children: Sequence[Child], hooks: Hooks = NO_HOOKS) -> Ended:
    """Run all `children` to completion; if one fails, end the others. Raise HostError if one
    cannot start.
    """
    running = _Run(hooks)
    # nohup makes us and our children ignore SIGHUP.
    ignored = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else set()
    handled = [number for number in _FORWARDED if number not in ignored]
    previous = {number: signal.signal(number, running.forward) for number in handled}
    try:
        for child in children:
            running.start(child)
        hooks.begun()
        running.wait()
    finally:
        running.end()
        for number, handler in previous.items():
            signal.signal(number, handler)
    interruption = running.signalled if running.signalled in ENDING else None
    return Ended(running.status, interruption, running.killed, running.unwritten)


class _Started(NamedTuple):
    """A child, and its process."""

    process: Running
    child: Child

    def send(self, number: int) -> None:
        """Signal the process, or all its descendants if it has its own session."""
        with suppress(ProcessLookupError):  # it has ended, as the signal intends
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
        self.unwritten: dict[int, str] = {}
        self._started: list[_Started] = []
        self._living: list[_Started] = []
        self._selector = selectors.DefaultSelector()
        self._due: list[tuple[float, int]] = []  # when to send which signal
        self._must_end_remote = False
        self._ending: list[Running] = []  # commands of Remote.end
        self._clearing: list[Running] = []  # and of Remote.clear
        self._inherited = select.poll()  # our standard output, if children have it and it is a pipe

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
        elif stat.S_ISFIFO(os.fstat(1).st_mode):
            self._inherited.register(1, 0)  # for errors alone

    def _watch(self, stream: IO[bytes] | None, to: int, show: Pass) -> None:
        assert stream is not None
        self._selector.register(stream, selectors.EVENT_READ, (to, show))

    def forward(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal: pass it on to all processes."""
        again = self.signalled in ENDING
        self.signalled = number
        if number in ENDING:
            if again:
                # Nothing is due before the first process has started.
                self._due = [(0, started.child.insist[-1][1]) for started in self._started[:1]]
                return
            self._hooks.interrupted(number)
            self._insist_from_now()
        elif number == signal.SIGURG:
            self._hooks.announced()
        for started in self._started:
            self._pass_on(number, started)

    def _insist_from_now(self) -> None:
        """Schedule the first process's further signals: it receives one now."""
        now, steps = time.monotonic(), [started.child.insist for started in self._started[:1]]
        self._due = [(now + after, then) for step in steps for after, then in step]

    def _pass_on(self, number: int, started: _Started) -> None:
        if number in ENDING and started.child.remote is not NOT_REMOTE:
            self._must_end_remote = True  # by a command, which a signal handler must not start
        else:
            started.send(started.child.interrupt if number == signal.SIGINT else number)

    def _signal(self, number: int) -> None:
        for started in self._started:
            started.send(number)

    def wait(self) -> None:
        """Pass output on until all processes have ended and nothing is left to read."""
        while self._living:
            # Once all output is closed, nothing else shows that a process has ended.
            self._relay(_POLL if self._selector.get_map() else _POLL_CLOSED)
            self._reap()
            self._insist()
            self._poll_hooks()
        while self._relay(0):
            pass

    def _poll_hooks(self) -> None:
        """Call the hook, at most ten times per second; end all processes if it returns true."""
        now = time.monotonic()
        if now < self._next_poll:
            return
        self._next_poll = now + _POLL
        self._check_reader()
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
        """End each child's remote tasks. If none has started yet, or none can be reached, signal
        the child instead, which ends them in its own way.
        """
        for started in self._started:
            commands = _start_command(started.child.remote.end(), started.child.environ)
            self._ending += commands
            if not commands:
                started.send(signal.SIGTERM)

    def _relay(self, timeout: float) -> bool:
        """Pass on the available output; return whether there was any."""
        ready = self._selector.select(timeout)
        most = 0
        for key, _ in ready:
            to, show = key.data
            data = os.read(key.fd, 65536)
            try:
                _write(to, show(data))
            except OSError as error:
                if error.errno not in UNWRITABLE:
                    raise
                self.unwritten[to] = error.strerror or ""
            most = max(most, len(data))
            if not data:
                self._selector.unregister(key.fileobj)
        if most > _MUCH:
            time.sleep(_GATHER)
        return bool(ready)

    def _check_reader(self) -> None:
        """Raise BrokenPipeError if nobody reads our standard output any more: srun would go on, and
        lose what its tasks print.
        """
        if self._inherited.poll(0):
            raise BrokenPipeError

    def _reap(self) -> None:
        """Remove the processes that have ended from the list of the living."""
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
        """End the tasks of a child that a signal has ended; leave that to the user if the command
        for this is not on the PATH.
        """
        if started.process.wait() < 0:
            self._clearing += _start_command(started.child.remote.clear(), started.child.environ)

    def end(self) -> None:
        """Leave nothing running, whether all processes have ended, or we are here because of an
        exception, such as that of a closed pipe.
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
    """Wait until all have ended, for at most `timeout` seconds."""
    deadline = time.monotonic() + timeout
    for process in processes:
        with suppress(TimeoutExpired):
            process.wait(max(deadline - time.monotonic(), 0))


def _kill_session(leader: int) -> None:
    """Send SIGKILL to every process of a session; see proc_pid_stat(5).

    The runtime puts the server of the image's files into a group of its own, and cannot end that
    server when the runtime itself is killed.
    """
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            if int(read_stat(name)[3]) == leader:
                os.kill(int(name), signal.SIGKILL)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # a program that shares our terminal has made it non-blocking
            select.select([], [descriptor], [])
