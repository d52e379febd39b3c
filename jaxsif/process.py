"""The only module that starts processes."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, NoReturn

from jaxsif.errors import HostError, raise_as
from jaxsif.limits import LONGEST_LINE


def output(*argv: str) -> str:
    """Return the output of a command; raise OSError if it cannot start, and
    subprocess.CalledProcessError if it fails.
    """
    return subprocess.run(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True
    ).stdout


Running = subprocess.Popen[bytes]
Done = subprocess.CompletedProcess[str]


def start_process(
    argv: Sequence[str],
    environ: Mapping[str, str],
    stdin: bool,
    stdout: bool,
    alone: bool,
    name: str = "",
) -> Running:
    """Start a command whose standard error is a pipe; the command gets SIGTERM when we are killed.
    Raise HostError if it cannot start.

    With `stdin`, the command inherits our standard input; with `stdout`, its standard output is a
    pipe, too; with `alone`, it leads a session, and the signal goes to its whole group. It sees
    `name`, if given, as its own name.
    """
    with _lifeline() as line:
        started = _popen(
            (name or argv[0], *argv[1:]),
            environ,
            executable=argv[0],
            pass_fds=(line,),
            start_new_session=alone,
            stdin=None if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE if stdout else None,
            stderr=subprocess.PIPE,
        )
        fcntl.fcntl(line, fcntl.F_SETOWN, -started.pid if alone else started.pid)
    return started


@contextmanager
def _lifeline() -> Iterator[int]:
    """Yield the read end of a pipe whose write end we keep: when we end, for whatever reason, the
    kernel signals the owner of the read end.

    In the child, prctl(PR_SET_PDEATHSIG) would do the same, but Python has no prctl, and importing
    ctypes takes longer than starting srun. See fcntl(2), F_SETSIG. The descriptor's number is above
    those that scripts use.
    """
    read, _write = os.pipe()  # nobody else inherits the write end, and nothing closes it
    try:
        high = fcntl.fcntl(read, fcntl.F_DUPFD_CLOEXEC, 100)
    except OSError as error:  # EINVAL if the limit is below that
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE)) from error
    os.close(read)
    fcntl.fcntl(high, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(high, fcntl.F_SETFL, fcntl.fcntl(high, fcntl.F_GETFL) | os.O_ASYNC)
    try:
        yield high
    finally:
        os.close(high)


def start_silent(argv: Sequence[str], environ: Mapping[str, str]) -> Running:
    """Start a command in a session of its own, without input or output; raise HostError if it
    cannot start.
    """
    void = subprocess.DEVNULL
    return _popen(argv, environ, stdin=void, stdout=void, stderr=void, start_new_session=True)


def start_fed(argv: Sequence[str], environ: Mapping[str, str]) -> Running:
    """Start a command in a session of its own, without output, whose input and errors are pipes; a
    full input never blocks us. Raise HostError if it cannot start.
    """
    void, pipe = subprocess.DEVNULL, subprocess.PIPE
    started = _popen(argv, environ, stdin=pipe, stdout=void, stderr=pipe, start_new_session=True)
    assert started.stdin
    os.set_blocking(started.stdin.fileno(), False)
    return started


def end_fed(process: Running, timeout: float) -> None:
    """Close the input of a command, and wait for its end; kill it after `timeout` seconds, as srun
    waits much longer for a lost node.
    """
    try:
        process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def start_heard(argv: Sequence[str], environ: Mapping[str, str], *texts: bytes) -> Running:
    """Start a command in a session of its own, without input, whose output and errors are pipes;
    raise HostError if it cannot start. The command must end soon: nothing ends it if jaxsif is
    killed.

    Each of `texts`, short enough for a pipe, becomes one more argument: the path of a file with
    that text.
    """
    pipe = subprocess.PIPE
    ends = tuple(map(_fill_pipe, texts))
    try:
        return _popen(
            (*argv, *(f"/dev/fd/{end}" for end in ends)),
            environ,
            pass_fds=ends,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
        )
    finally:
        for end in ends:
            os.close(end)


def _fill_pipe(text: bytes) -> int:
    read, write = os.pipe()
    os.write(write, text)
    os.close(write)
    return read


def _popen(argv: Sequence[str], environ: Mapping[str, str], **options: Any) -> Running:
    program = options.get("executable", argv[0])
    with raise_as(HostError(f"cannot start {program}", "PATH")):
        return subprocess.Popen(argv, env=environ, **options)


def become(argv: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Replace this process with a command, which has our terminal to itself; raise HostError if it
    cannot start.
    """
    # Python ignores these, and the command would inherit that.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    with raise_as(HostError(f"cannot start {argv[0]}", "PATH")):
        os.execvpe(argv[0], list(argv), environ)


@contextmanager
def _signals_held() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM until the end of the body of the `with`: an interrupted Popen would
    forget its new process.
    """
    held: list[int] = []
    signals = (signal.SIGINT, signal.SIGTERM)
    raising = {ours: handler for ours in signals if callable(handler := signal.getsignal(ours))}
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
    """Run a command as the leader of a session during the body of the `with`, and then wait for it;
    if we are interrupted, end the command with all its descendants.
    """
    process = None
    try:
        with _signals_held():
            process = subprocess.Popen(argv, start_new_session=True, **options)
        yield process
        process.wait()
    except BaseException:
        if process:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()
        raise


def captured(argv: Sequence[str], environ: Mapping[str, str]) -> Done:
    """Run a command; return its output and its exit status, even if not 0; raise OSError if it
    cannot start.
    """
    pipe = subprocess.PIPE
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": pipe, "stderr": pipe}
    with _started(argv, env=environ, text=True, errors="replace", **streams) as process:
        output, messages = process.communicate()
    return subprocess.CompletedProcess(argv, process.returncode, output, messages)


def run_plain(
    argv: Sequence[str],
    stdin: IO[bytes] | None = None,
    stdout: IO[bytes] | None = None,
    stderr: IO[bytes] | None = None,
    environ: Mapping[str, str] | None = None,
) -> int:
    """Run a command with files as its streams, and return its exit status; None stands for our own
    stream or environment.
    """
    with _started(argv, stdin=stdin, stdout=stdout, stderr=stderr, env=environ) as process:
        return process.wait()


@contextmanager
def beside(
    argv: Sequence[str], environ: Mapping[str, str], log: str
) -> Iterator[Callable[[], int]]:
    """Run a command during the body of the `with`; the yielded function waits for the command, and
    returns its exit status.
    """
    with (
        open(log, "wb") as messages,
        _started(
            argv, env=environ, stdin=subprocess.DEVNULL, stdout=messages, stderr=messages
        ) as process,
    ):
        yield process.wait


def run_logged(
    argv: Sequence[str],
    environ: Mapping[str, str],
    log: str,
    folder: str,
    on_line: Callable[[str], None],
    mode: str = "w",
) -> int:
    """Run a command in `folder`, write its output to `log` and pass each line to `on_line`; return
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
        output = process.stdout
        assert output is not None
        for line in iter(lambda: output.readline(LONGEST_LINE), ""):  # a longer one comes in pieces
            log_file.write(line)
            on_line(line.rstrip())
        return process.wait()


def read_stat(pid: int | str) -> list[str]:
    """Return the fields of /proc/PID/stat that follow the process's name (see proc_pid_stat(5));
    raise OSError if there is no such process.
    """
    with open(f"/proc/{pid}/stat", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def is_of_user(pid: str) -> bool:
    """Return whether this is the process id of one of the user's processes."""
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except OSError:
        return False


def is_child(pid: str) -> bool:
    """Return whether this is the process id of a child of this process."""
    try:
        return int(read_stat(pid)[1]) == os.getpid()
    except OSError:
        return False


def find_executable(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the path of a program as a shell finds it, or None.

    shutil.which would do, but takes 3 ms to import.
    """
    folders = [""] if "/" in name else environ.get("PATH", os.defpath).split(os.pathsep)
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None
