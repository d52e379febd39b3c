"""What py-spy tells of processes, where it is installed: frames of Python without the task's help,
and the compiled function that names a collective.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from operator import itemgetter
from typing import IO, Any, NamedTuple

_LIMIT = 5.0  # seconds for all processes of a node
_LARGEST = 8 << 20  # bytes that it says of one
_COLLECTIVE = re.compile(
    r"(?i)(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|collective_?permute|ragged_?all"
    r"|ncclGroupEnd|ncclSend|ncclRecv|ncclBroadcast|gloo::(barrier|broadcast|reduce|allgather))"
)
_SOURCE = (".py", ">")  # what the file of a frame of Python ends with: '<string>', too


class Native(NamedTuple):
    """What py-spy said of a process."""

    frames: list[list[object]]  # of Python in the main thread: [file, line, function]
    name: str  # of a compiled function; '' where none is of a collective


def trace(pids: Sequence[int]) -> dict[int, Native]:
    """Return what py-spy tells of these processes, in at most five seconds; of none, where it is
    not installed or may not look.
    """
    path = shutil.which("py-spy")
    if path is None or not pids:
        return {}
    with ExitStack() as open_files:
        program = os.open(path, os.O_PATH)
        open_files.callback(os.close, program)
        started: dict[int, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}
        for pid in pids:
            said = open_files.enter_context(tempfile.TemporaryFile())
            process = subprocess.Popen(
                make_command(program, pid),
                pass_fds=[program],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.DEVNULL,
            )
            started[pid] = (process, said)
        _await([process for process, _ in started.values()])
        found = {pid: _parse(pid, _read(said)) for pid, (_, said) in started.items()}
    return {pid: told for pid, told in found.items() if told}


def make_command(program: int, pid: int) -> tuple[str, ...]:
    """Return the command that has py-spy, which is open as `program`, look at a process.

    Names of compiled functions stand in files, which py-spy opens by the paths that the process
    sees. So it enters the mounts of a container whose user namespace is this user's own, unless
    the process has another number there.
    """
    dump = (f"/proc/self/fd/{program}", "dump", "--json", "--native", "--pid", str(pid))
    may_enter = not _shares(pid, "user") and _shares(pid, "pid") and shutil.which("nsenter")
    enter = ("nsenter", "--user", "--mount", "--preserve-credentials", f"--target={pid}", "--")
    return (*enter, *dump) if may_enter else dump


def _shares(pid: int, namespace: str) -> bool:
    """Return whether a process is in the namespace of this one; one that has ended is."""
    try:
        here, there = (os.readlink(f"/proc/{of}/ns/{namespace}") for of in ("self", pid))
    except OSError:
        return True
    return here == there


def _await(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait for the ends of processes; end those that take too long."""
    deadline = time.monotonic() + _LIMIT
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read(_LARGEST)


def _parse(pid: int, said: bytes) -> Native | None:
    """Return what is of use; None where py-spy could not tell."""
    try:
        threads = json.loads(said)
        main = next((thread for thread in threads if thread["os_thread_id"] == pid), threads[-1])
        frames = chain(main["frames"], *map(itemgetter("frames"), threads))
        names = map(itemgetter("name"), filter(_names_collective, frames))
        own = map(_pick, filter(_is_python, main["frames"]))
        return Native(list(own), next(names, ""))
    # Not JSON; no threads; another form than that of the version known here.
    except (ValueError, RecursionError, LookupError, TypeError):
        return None


def _names_collective(frame: Mapping[str, Any]) -> bool:
    return not _is_python(frame) and bool(_COLLECTIVE.search(frame["name"]))


def _is_python(frame: Mapping[str, Any]) -> bool:
    return str(frame["filename"]).endswith(_SOURCE)


def _pick(frame: Mapping[str, Any]) -> list[object]:
    return [str(frame["filename"]), int(frame["line"]), str(frame["name"])]
