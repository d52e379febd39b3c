"""A site's own checks: executables that print findings as JSON, run on each node, within limits."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from glob import escape, glob
from typing import NamedTuple

from jaxsif.doctor.result import OK, STATES, UNKNOWN_STATE
from jaxsif.foreign import check_object, check_text, parse_json
from jaxsif.node import processes
from jaxsif.node.share import adopt_orphans
from jaxsif.task.contract import LONGEST_TEXT
from jaxsif.text import enclose, printable
from jaxsif.trust import find_replacers, find_writers

_SECONDS = 5  # for each check; all run at the same time
_REST = 0.3  # seconds for the end of processes, within those of all probes
_MOST = 32  # checks, and findings of each
_LONGEST = 1 << 16  # bytes of output
_is_finding = check_object({"state": STATES.__contains__, "evidence": check_text(LONGEST_TEXT)})
_NO_FINDING = (
    f"its output is not {{state, evidence, remedy}}: state is one of {', '.join(STATES)}, and"
    f" evidence has at most {LONGEST_TEXT} characters"
)
Row = tuple[str, str, str, str]  # name, state, evidence, remedy
_CORRECT = "correct the path; `jaxsif config doctor.checks` names the file that sets it"


def run_checks(folders: Iterable[str], environ: Mapping[str, str]) -> list[Row]:
    """Run all checks of these folders; return their findings, in the order of their names."""
    paths = sorted(path for folder in folders for path in glob(f"{escape(folder)}/*") or [folder])
    paths = [path for path in paths if not path.endswith("~")]  # an editor's copy
    if not paths:
        return []
    rows: list[Row] = []
    deadline = time.monotonic() + _SECONDS + 2 * _REST

    def run(path: str) -> None:
        try:
            rows.extend(run_check(path, environ))
        except OSError as error:
            rows.append(_row(path, _describe(path, error)))

    threads = [threading.Thread(target=run, args=(path,), daemon=True) for path in paths[:_MOST]]
    adopt_orphans()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    end_orphans(deadline)
    adopt_orphans(False)
    rows += [_row(path, f"not run: it is not one of the first {_MOST}") for path in paths[_MOST:]]
    return sorted(rows)[: 2 * _MOST]


def _describe(path: str, error: OSError) -> str:
    if os.path.isdir(path):
        return f"cannot read: {error.strerror}"
    reason = error.strerror
    if error.errno == errno.ENOEXEC:
        reason = "no #! in its first line"
    elif isinstance(error, FileNotFoundError) and os.path.isfile(path):
        reason = "the interpreter in its first line is missing"
        with open(path, "rb") as file:
            if file.readline(_LONGEST).endswith(b"\r\n"):
                reason = "its lines end in CR LF"
    return f"cannot run: {reason}"


def end_orphans(deadline: float) -> None:
    """End whatever the checks have left running, even outside their sessions. At the deadline, the
    container starts.
    """
    while time.monotonic() < deadline and (left := list(filter(_is_left, processes.list_own()))):
        for pid in left:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)


def _is_left(pid: int) -> bool:
    """Return whether a process is a child of this one, and not in its session, as checks are."""
    stat = processes.read_stat(pid)
    with suppress(ProcessLookupError):
        if stat and stat.parent == os.getpid():
            return os.getsid(pid) != os.getsid(0)
    return False


def run_check(path: str, environ: Mapping[str, str]) -> list[Row]:
    """Run a check, unless others may have written the file; return its findings; raise OSError."""
    if os.path.isdir(path):
        is_empty = all(name.startswith(".") for name in os.listdir(path))
        return [_row(path, f"{path} {'has no checks' if is_empty else 'is a subfolder: not run'}")]
    if not os.path.isfile(path):
        with suppress(FileNotFoundError):  # it may be below a folder that is closed
            os.stat(path)
        remedy = "" if os.path.lexists(path) else _CORRECT  # perhaps the user's own setting
        return [_row(path, f"{path} is neither a file nor a folder with checks", remedy=remedy)]
    if not os.access(path, os.X_OK):
        try:
            with open(path, "rb") as file:
                is_script = file.read(2) in (b"#!", b"")  # unlike a README
        except PermissionError:
            return [_row(path, "not readable", remedy=f"ask its owner for: chmod a+rx {path}")]
        return [_row(path, "not executable", remedy=f"chmod +x {path}")] if is_script else []
    real = os.path.realpath(path)  # no part of it can be replaced once it is judged
    writers = find_writers(path) or find_writers(real) or find_mover(real)
    if writers:
        return [_row(path, f"not run, because other users can write to it: {writers}")]
    ended = run_bounded(real, environ)
    if ended is None:
        return [_row(path, f"no answer within {_SECONDS} s")]
    return judge_end(path, ended)


def find_mover(path: str) -> str:
    """Return why others may put another file in this place, by renaming a folder above it; '' if
    only the user and root may.
    """
    folder = os.path.dirname(path)
    why = find_replacers(folder)
    if why:
        return f"folder {folder}: {why}"
    return "" if folder == os.path.dirname(folder) else find_mover(folder)


class CheckEnd(NamedTuple):
    """What a check has printed, and its exit status."""

    output: bytes  # or the first bytes of a long one
    error: bytes  # the last line of its standard error
    status: int | None  # None: it closed its output, and ran on


def run_bounded(path: str, environ: Mapping[str, str]) -> CheckEnd | None:
    """Run an executable; return None if it does not end in time. Its processes end with it; raise
    OSError if it cannot start.
    """
    process = subprocess.Popen(
        [path],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    output, error, deadline = b"", b"", time.monotonic() + _SECONDS
    ready = select.poll()
    ready.register(process.stdout, select.POLLIN)
    ready.register(process.stderr, select.POLLIN)
    is_open = True
    try:
        while is_open and len(output) <= _LONGEST:
            # A process in the background may keep the output open for longer than the check runs.
            found = ready.poll(max(0.0, deadline - time.monotonic()) * 1000)
            if not found or time.monotonic() > deadline:
                if process.poll() is None or not output:
                    return None
                break  # the check itself has ended
            for descriptor, _ in found:
                data = os.read(descriptor, _LONGEST)
                if descriptor == process.stdout.fileno():
                    output, is_open = output + data, bool(data)
                elif data:
                    error = (error + data)[-_LONGEST:]
                else:
                    ready.unregister(descriptor)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0 if is_open else _REST)
        return CheckEnd(output, error.strip().rpartition(b"\n")[2], process.returncode)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        process.stderr.close()
        with suppress(subprocess.TimeoutExpired):  # it may wait for a lost file server
            process.wait(_REST)


def judge_end(path: str, ended: CheckEnd) -> list[Row]:
    """Return a check's findings; of a check that fails without bad ones, how it ended."""
    rows = parse_output(path, ended.output)
    if ended.status and all(state in (OK, UNKNOWN_STATE) for _, state, _, _ in rows):
        return [
            _row(
                path,
                f"exit status {ended.status}{enclose(': ', ended.error.decode(errors='replace'))}",
            )
        ]
    return rows


def parse_output(path: str, output: bytes) -> list[Row]:
    """Return the findings in a check's output: an object, or a list of them."""
    if len(output) > _LONGEST:
        return [_row(path, f"more than {_LONGEST >> 10} KiB of output")]
    try:
        found = parse_json(output.decode())
    except ValueError:
        return [_row(path, "its output is not JSON" if output else "it prints nothing")]
    findings = found if type(found) is list else [found]
    good = list(filter(_is_finding, findings))
    rows = [
        _row(path, one["evidence"], one["state"], str(one.get("remedy", "")))
        for one in good[:_MOST]
    ]
    if len(good) < len(findings):
        rows.append(_row(path, _NO_FINDING))
    return rows


def _row(path: str, evidence: str, state: str = "unknown", remedy: str = "") -> Row:
    name, evidence, remedy = (
        printable(text)[:LONGEST_TEXT] for text in (os.path.basename(path), evidence, remedy)
    )
    return name, state, evidence, remedy
