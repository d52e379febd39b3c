"""The only module that starts processes: run them, pass their output on, pass signals to them."""

from __future__ import annotations

import os
import select
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO, Any, NamedTuple, NoReturn

from jaxsif.errors import HostError

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_POLL = 0.1  # seconds between looks at processes whose output is silent
_KILL_AFTER = 1.0  # seconds from SIGTERM to SIGKILL for the neighbours of a failed process
_STUCK_AFTER = 5.0  # seconds from Ctrl-C to SIGKILL for local processes; a second Ctrl-C does it at once
_SRUN_PATIENCE = 10.0  # seconds for srun to end its step after SIGTERM; SIGKILL would leave the step alone

Pass = Callable[[bytes], bytes]  # what to show of a chunk of output; b'' is the end


class Child(NamedTuple):
    """A process to start."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    stderr: Pass  # filter of its standard error
    stdout: Pass | None = None  # of its standard output; None lets it inherit ours
    own_group: bool = False  # a session of its own, so that a signal reaches all its descendants
    stdin: bool = True  # whether it inherits our standard input


class Ended(NamedTuple):
    """How a run ended."""

    status: int  # of the first process that failed, 128 + N for signal N; 0 when all succeeded
    interrupted: int | None  # the number of the signal that ended us, if one did


def output(*argv: str) -> str:
    """Standard output of a command; raises OSError and subprocess.CalledProcessError."""
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout


def captured(argv: Sequence[str], environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """A command that is over, whatever its exit status, and all it said; raises OSError."""
    nothing = subprocess.DEVNULL
    return subprocess.run(argv, env=environ, stdin=nothing, capture_output=True, text=True, errors="replace")


def become(argv: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Be replaced by a command, which has our terminal to itself; raises HostError."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and what it executes would inherit that
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(argv[0], list(argv), environ)
    except OSError as error:
        raise HostError(f"cannot start {argv[0]}: {error.strerror}", "PATH") from error


@contextmanager
def _signals_held() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait for the end of the body: Popen, interrupted, would forget what it has just started."""
    held: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    raising = {number: handler for number, handler in handlers.items() if callable(handler)}
    for ours in raising:
        signal.signal(ours, lambda number, _frame: held.append(number))
    try:
        yield
    finally:
        for number, handler in raising.items():
            signal.signal(number, handler)
        for came in held:
            signal.raise_signal(came)


@contextmanager
def _started(argv: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A command, leader of a session; when we are interrupted, end it with all its descendants, and wait for it."""
    process = None
    try:
        with _signals_held():
            process = subprocess.Popen(argv, start_new_session=True, **options)
        yield process
    except BaseException:
        if process:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()
        raise


def run_plain(
    argv: Sequence[str],
    stdin: IO[bytes] | None = None,
    stdout: IO[bytes] | None = None,
    stderr: IO[bytes] | None = None,
    environ: Mapping[str, str] | None = None,
) -> int:
    """The exit status of a command between files; None is our own stream, our own environment."""
    with _started(argv, stdin=stdin, stdout=stdout, stderr=stderr, env=environ) as process:
        return process.wait()


@contextmanager
def stream(argv: Sequence[str], messages: IO[bytes]) -> Iterator[tuple[IO[bytes], Callable[[], int]]]:
    """Run a command whose output the body of the `with` reads to its end; yields it, and what waits for the status."""
    with _started(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=messages) as process:
        assert process.stdout is not None
        with process.stdout:
            yield process.stdout, process.wait
        process.wait()


@contextmanager
def beside(argv: Sequence[str], environ: Mapping[str, str], log: str) -> Iterator[Callable[[], int]]:
    """Run a command while the body of the `with` runs; what it yields waits for the command's exit status."""
    with (
        open(log, "wb") as messages,
        _started(argv, env=environ, stdin=subprocess.DEVNULL, stdout=messages, stderr=messages) as process,
    ):
        yield process.wait
        process.wait()


def run_logged(
    argv: Sequence[str],
    environ: Mapping[str, str],
    log: str,
    folder: str,
    on_line: Callable[[str], None],
    mode: str = "w",
) -> int:
    """Run a command in `folder` with all it says in `log`, and line by line in `on_line`; return its exit status."""
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with (
        open(log, mode) as log_file,
        _started(argv, env=environ, cwd=folder, text=True, errors="replace", **options) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            log_file.write(line)
            on_line(line.rstrip())
        return process.wait()


def run(children: Sequence[Child]) -> Ended:
    """Run all `children` to their ends; when one fails, end the others. Raises HostError if one cannot start."""
    running = _Run()
    # nohup has SIGHUP ignored, for us and for what we start.
    heard = [number for number in _FORWARDED if (number, signal.getsignal(number)) != (signal.SIGHUP, signal.SIG_IGN)]
    previous = {number: signal.signal(number, running.forward) for number in heard}
    try:
        for child in children:
            running.start(child)
        running.wait()
    finally:
        running.end()
        for number, handler in previous.items():
            signal.signal(number, handler)
    return Ended(running.status, running.signalled if running.signalled in _ENDING else None)


class _Run:
    """The state of one `run`."""

    def __init__(self) -> None:
        self.status = 0
        self.signalled: int | None = None
        self._processes: list[tuple[subprocess.Popen[bytes], bool]] = []
        self._selector = selectors.DefaultSelector()
        self._ended: set[int] = set()
        self._kill_at: float | None = None

    def start(self, child: Child) -> None:
        try:
            process = subprocess.Popen(
                child.argv,
                env=child.environ,
                stdin=None if child.stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE if child.stdout else None,
                stderr=subprocess.PIPE,
                start_new_session=child.own_group,
            )
        except OSError as error:
            raise HostError(f"cannot start {child.argv[0]}: {error.strerror}", "PATH") from error
        self._processes.append((process, child.own_group))
        if self.signalled:  # while it was being started
            self._signal(self.signalled)
        self._watch(process.stderr, 2, child.stderr)
        if child.stdout:
            self._watch(process.stdout, 1, child.stdout)

    def _watch(self, stream: IO[bytes] | None, to: int, show: Pass) -> None:
        assert stream is not None
        self._selector.register(stream, selectors.EVENT_READ, (to, show))

    def forward(self, number: int, _frame: FrameType | None) -> None:
        """Signal handler: what we are told, all processes are told."""
        again = self.signalled in _ENDING and number in _ENDING
        self.signalled = number
        self._signal(number)
        if number in _ENDING and all(own_group for _, own_group in self._processes):
            # Processes of ours that are stuck, in a collective say, hear nothing; srun sees to its own.
            self._kill_at = time.monotonic() + (0 if again else _STUCK_AFTER)

    def _signal(self, number: int) -> None:
        for process, own_group in self._processes:
            try:
                if own_group and number == signal.SIGKILL:
                    _kill_session(process.pid)
                elif own_group:  # also after its leader's end: there may be descendants
                    os.killpg(process.pid, number)
                elif process.returncode is None:
                    process.send_signal(number)
            except ProcessLookupError:
                pass  # it ended meanwhile, which is what a signal is for

    def wait(self) -> None:
        """Pass output on until all processes have ended and nothing is left to read."""
        while len(self._ended) < len(self._processes):
            self._relay(_POLL)
            self._reap()
            if self._kill_at and time.monotonic() > self._kill_at:
                self._signal(signal.SIGKILL)
                self._kill_at = None
        while self._relay(0):
            pass

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
        for index, (process, _) in enumerate(self._processes):
            if index in self._ended or process.poll() is None:
                continue
            self._ended.add(index)
            status = process.returncode if process.returncode >= 0 else 128 - process.returncode
            if status and not self.status:
                self.status = status
                self._kill_at = time.monotonic() + _KILL_AFTER
                self._signal(signal.SIGTERM)

    def end(self) -> None:
        """Leave nothing behind, however we got here: after all has ended, or by an exception such as a closed pipe."""
        if len(self._ended) < len(self._processes):
            self._signal(signal.SIGTERM)
            deadline = time.monotonic() + max(_KILL_AFTER if own else _SRUN_PATIENCE for _, own in self._processes)
            while time.monotonic() < deadline and any(process.poll() is None for process, _ in self._processes):
                time.sleep(0.05)
        self._signal(signal.SIGKILL)  # descendants that outlived their leaders, too
        for process, _ in self._processes:
            process.wait()
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
        self._selector.close()


def _kill_session(leader: int) -> None:
    """SIGKILL for every process of a session, see proc_pid_stat(5).

    The runtime puts what serves the image's files into a group of its own, and cannot end it when it is killed itself.
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
