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
from contextlib import ExitStack, suppress
from itertools import chain
from operator import itemgetter
from typing import IO, Any, NamedTuple

_LIMIT = 5.0  # seconds for all processes of a node
_SOON = 2.0  # seconds; what is over then leaves time to look once more
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
    if path is None:
        return {}
    begin = time.monotonic()
    program = os.open(path, os.O_PATH)
    try:
        inside = {pid: _enter(pid, f"/proc/self/fd/{program}") for pid in pids if _may_enter(pid)}
        programs = {**dict.fromkeys(pids, (path,)), **inside}
        found = _dump(programs, begin + _LIMIT, program)
    finally:
        os.close(program)
    # A py-spy whose libraries are not there cannot look from the inside, and ends soon.
    again = {pid: (path,) for pid in inside if pid not in found}
    has_time = time.monotonic() < begin + _SOON
    return {**found, **(_dump(again, begin + _LIMIT) if has_time else {})}


def _may_enter(pid: int) -> bool:
    """Return whether a process sees other files, and whoever has made that may, too: it is in a
    user namespace of this user's own. It must have the same number there.
    """
    return not _shares(pid, "user") and _shares(pid, "pid") and bool(shutil.which("nsenter"))


def _enter(pid: int, program: str) -> tuple[str, ...]:
    """Return the command that executes a program among the files which a process sees: there are
    the names of compiled functions, which py-spy looks up.
    """
    words = ("nsenter", "--user", "--mount", "--preserve-credentials", f"--target={pid}", "--")
    return (*words, program)


def _dump(
    programs: Mapping[int, tuple[str, ...]], deadline: float, *descriptors: int
) -> dict[int, Native]:
    """Return what py-spy tells of processes, by the command that executes it for each of them."""
    with ExitStack() as open_files:
        started: dict[int, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}
        for pid, program in programs.items():
            said = open_files.enter_context(tempfile.TemporaryFile())
            with suppress(OSError):  # it is no program of this host
                process = subprocess.Popen(
                    (*program, "dump", "--json", "--native", "--pid", str(pid)),
                    pass_fds=descriptors,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=subprocess.DEVNULL,
                )
                started[pid] = (process, said)
        _await([process for process, _ in started.values()], deadline)
        found = {pid: _parse(pid, _read(said)) for pid, (_, said) in started.items()}
    return {pid: told for pid, told in found.items() if told}


def _shares(pid: int, namespace: str) -> bool:
    """Return whether a process is in the namespace of this one; one that has ended is."""
    try:
        here, there = (os.readlink(f"/proc/{of}/ns/{namespace}") for of in ("self", pid))
    except OSError:
        return True
    return here == there


def _await(processes: Sequence[subprocess.Popen[bytes]], deadline: float) -> None:
    """Wait for the ends of processes; end those that take too long."""
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
