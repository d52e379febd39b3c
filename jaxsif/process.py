"""The only module that starts processes."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, NoReturn

from jaxsif.errors import HostError
from jaxsif.lines import LONGEST_LINE


def output(*argv: str) -> str:
    """Standard output of a command; raises OSError and subprocess.CalledProcessError."""
    return subprocess.run(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True
    ).stdout


Running = subprocess.Popen[bytes]


def start_process(
    argv: Sequence[str], environ: Mapping[str, str], stdin: bool, stdout: bool, alone: bool
) -> Running:
    """A command whose standard error is a pipe; it gets SIGTERM when we are killed. Raises
    HostError.

    With `stdin` it inherits ours; with `stdout`, that is a pipe too; `alone`, it is the leader of a
    session, and the signal is for all its group.
    """
    read, write = None if stdin else subprocess.DEVNULL, subprocess.PIPE if stdout else None
    with _lifeline() as line:
        streams: dict[str, Any] = {"stdin": read, "stdout": write, "stderr": subprocess.PIPE}
        try:
            started = subprocess.Popen(
                argv, env=environ, pass_fds=(line,), start_new_session=alone, **streams
            )
        except OSError as error:
            raise HostError(f"cannot start {argv[0]}: {error.strerror}", "PATH") from error
        fcntl.fcntl(line, fcntl.F_SETOWN, -started.pid if alone else started.pid)
    return started


@contextmanager
def _lifeline() -> Iterator[int]:
    """The read end of a pipe whose write end we keep: at our end, however it comes, the kernel
    signals its owner.

    As prctl(PR_SET_PDEATHSIG) would in the child; Python has no prctl, and to import ctypes takes
    longer than to start srun. See fcntl(2), F_SETSIG. The number is above those that scripts use.
    """
    read, _write = os.pipe()  # nobody else inherits the write end, and nothing closes it
    high = fcntl.fcntl(read, fcntl.F_DUPFD_CLOEXEC, 100)
    os.close(read)
    fcntl.fcntl(high, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(high, fcntl.F_SETFL, fcntl.fcntl(high, fcntl.F_GETFL) | os.O_ASYNC)
    try:
        yield high
    finally:
        os.close(high)


def start_silent(argv: Sequence[str], environ: Mapping[str, str]) -> Running:
    """A command in a session of its own that reads nothing and says nothing; raises HostError if it
    cannot start.
    """
    void = subprocess.DEVNULL
    try:
        return subprocess.Popen(
            argv, env=environ, stdin=void, stdout=void, stderr=void, start_new_session=True
        )
    except OSError as error:
        raise HostError(f"cannot start {argv[0]}: {error.strerror}", "PATH") from error


def become(argv: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Be replaced by a command, which has our terminal to itself; raises HostError."""
    # Which Python ignores, and what it executes would inherit that.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(argv[0], list(argv), environ)
    except OSError as error:
        raise HostError(f"cannot start {argv[0]}: {error.strerror}", "PATH") from error


@contextmanager
def _signals_held() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait for the end of the body: Popen, interrupted, would forget what it has
    just started.
    """
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
    """A command, leader of a session; when we are interrupted, end it with all its descendants, and
    wait for it.
    """
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


def captured(argv: Sequence[str], environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """A command that is over, whatever its exit status, and all it said; raises OSError."""
    pipe = subprocess.PIPE
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": pipe, "stderr": pipe}
    with _started(argv, env=environ, text=True, errors="replace", **streams) as process:
        said, messages = process.communicate()
    return subprocess.CompletedProcess(argv, process.returncode, said, messages)


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
def stream(
    argv: Sequence[str], messages: IO[bytes]
) -> Iterator[tuple[IO[bytes], Callable[[], int]]]:
    """Run a command whose output the body of the `with` reads to its end; yields it, and what waits
    for the status.
    """
    with _started(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=messages
    ) as process:
        assert process.stdout is not None
        with process.stdout:
            yield process.stdout, process.wait
        process.wait()


@contextmanager
def beside(
    argv: Sequence[str], environ: Mapping[str, str], log: str
) -> Iterator[Callable[[], int]]:
    """Run a command while the body of the `with` runs; what it yields waits for the command's exit
    status.
    """
    with (
        open(log, "wb") as messages,
        _started(
            argv, env=environ, stdin=subprocess.DEVNULL, stdout=messages, stderr=messages
        ) as process,
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
    """Run a command in `folder` with all it says in `log`, and line by line in `on_line`; return
    its exit status.
    """
    options: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
    }
    with (
        open(log, mode) as log_file,
        _started(argv, env=environ, cwd=folder, text=True, errors="replace", **options) as process,
    ):
        said = process.stdout
        assert said is not None
        for line in iter(lambda: said.readline(LONGEST_LINE), ""):  # a longer one comes in pieces
            log_file.write(line)
            on_line(line.rstrip())
        return process.wait()


def find_executable(name: str, environ: Mapping[str, str]) -> str | None:
    """The path of a program as a shell finds it; shutil.which would do, but takes 3 ms to import."""
    folders = [""] if "/" in name else environ.get("PATH", os.defpath).split(os.pathsep)
    paths = (os.path.join(folder, name) for folder in folders)
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)
