"""Read a task's status file: a file in memory with the task's status, then its main thread's
stacks.

jaxsif/task/watch/status_file.py writes it. It is found by its name among the descriptors of a
process, and opened through /proc: it never touches a disk, and vanishes with its last process.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from jaxsif.foreign import find, parse_json
from jaxsif.task.contract import BOX_BYTES, BOX_NAME
from jaxsif.watch.sample import NO_STATUS, STALE, Status, are_frames, parse_status

_LARGEST = 1 << 20  # bytes of stacks that a task keeps, see jaxsif/task/watch/status_file.py
_TRIES = 3  # to read a status file while it is being written

# The output of faulthandler: a line, and the frames of the main thread, innermost first.
_BEGIN = b"Stack (most recent call first):\n"
_LAST = re.compile(rb", line [\d?]+ in (<module>|_run_module_as_main)\n\Z|\n  \.\.\.\n\Z")
_FRAME = re.compile(rb'(?m)^  File "(.*)", line (\d{1,9}|\?\?\?) in (.*)$')

Frames = list[list[object]]  # [file, line, function]


class TaskStatusFile(NamedTuple):
    """A status file of a process."""

    path: str  # of its descriptor
    size: int  # bytes, when it was found


def find_status_file(pid: int, descriptors: Mapping[int, str]) -> TaskStatusFile | None:
    """Return the status file of a process, or None if the process has none."""
    paths = (f"/proc/{pid}/fd/{number}" for number, link in descriptors.items() if BOX_NAME in link)
    files = ((path, measure(path)) for path in paths)
    return next((TaskStatusFile(path, size) for path, size in files if size is not None), None)


def measure(path: str) -> int | None:
    """Return a status file's size, or None if the file is not regular or its process has ended."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def read_status(file: TaskStatusFile | None) -> Status:
    """Parse the status in a status file; return NO_STATUS if there is no valid one."""
    return parse_status(_read_state(file)) or NO_STATUS


def read_frames(file: TaskStatusFile | None) -> Frames:
    """Return the frames that the observer has written, or [] if it has written none recently, as
    while the main thread computes.
    """
    state = _read_state(file)
    frames, written = find(state, "frames"), find(state, "time")
    is_fresh = isinstance(written, (int, float)) and abs(time.time() - written) <= STALE
    return frames if is_fresh and are_frames(frames) else []


def _read_state(file: TaskStatusFile | None) -> object:
    """Parse the JSON in a status file; return None if there is none."""
    for _ in range(_TRIES):
        with suppress(ValueError):  # half written
            return file and parse_json(_read_part(file.path, 0, BOX_BYTES).rstrip(b" \0").decode())
    return None


def _read_part(path: str, begin: int, most: int) -> bytes:
    """Return a part of a file, or b'' if its process has ended."""
    try:
        with open(path, "rb", buffering=0) as file:
            return os.pread(file.fileno(), most, begin)
    except OSError:
        return b""


def read_dump(file: TaskStatusFile | None) -> bytes:
    """Return the bytes appended to a status file since it was found, or b'' without a file.

    The file gets shorter when its task restarts it.
    """
    if file is None:
        return b""
    size = measure(file.path) or 0
    begin = max(file.size if size >= file.size else 0, BOX_BYTES)
    return _read_part(file.path, begin, _LARGEST) if size > begin else b""


def is_whole(dump: bytes) -> bool:
    """Return whether a dump appears to end like the stack of a main thread."""
    return _BEGIN in dump and bool(_LAST.search(dump))


def parse_dump(dump: bytes) -> Frames:
    """Return the frames of the main thread that faulthandler wrote last."""
    return [
        [_text(file), int(line) if line.isdigit() else 0, _text(function)]
        for file, line, function in _FRAME.findall(dump.rpartition(_BEGIN)[2])
    ]


def _text(name: bytes) -> str:
    return name.decode(errors="backslashreplace")
