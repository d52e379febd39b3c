"""The memory file that a task has from its start: its box, then the stacks of its main thread.

jaxsif/task/box.py writes it. It is found by its name among the descriptors of a process, and opened
through /proc, so nothing of it is on a disk and it is gone with its last process.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Mapping
from typing import NamedTuple

from jaxsif.foreign import find, parse_json
from jaxsif.task.contract import BOX_BYTES, BOX_NAME
from jaxsif.watch.sight import NO_BOX, STALE, BoxState, are_frames, parse_box

_LARGEST = 1 << 20  # bytes of stacks that a task keeps, see jaxsif/task/box.py
_TRIES = 3  # to read a box while it is being written

# What faulthandler writes: a line, and the frames of the main thread, innermost first.
_BEGIN = b"Stack (most recent call first):\n"
_LAST = re.compile(rb", line [\d?]+ in (<module>|_run_module_as_main)\n\Z|\n  \.\.\.\n\Z")
_FRAME = re.compile(rb'(?m)^  File "(.*)", line (\d{1,9}|\?\?\?) in (.*)$')

Frames = list[list[object]]  # [file, line, function]


class BoxFile(NamedTuple):
    """A box of a process."""

    path: str  # of its descriptor
    size: int  # bytes, when it was looked at


def find_box(pid: int, descriptors: Mapping[int, str]) -> BoxFile | None:
    """Return the box of a process; None where it has none."""
    paths = (f"/proc/{pid}/fd/{number}" for number, link in descriptors.items() if BOX_NAME in link)
    return next(filter(None, map(_open, paths)), None)


def _open(path: str) -> BoxFile | None:
    size = measure(path)
    return None if size is None else BoxFile(path, size)


def measure(path: str) -> int | None:
    """Return the bytes of a box; None where it is no regular file, or its process has ended."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def read_box(box: BoxFile | None) -> BoxState:
    """Return what a box says; NO_BOX where it says nothing that can be understood."""
    return parse_box(_read_state(box)) or NO_BOX


def read_frames(box: BoxFile | None) -> Frames:
    """Return the frames that the observer has written; [] where it has written none lately, as
    while the main thread computes.
    """
    state = _read_state(box)
    frames, written = find(state, "frames"), find(state, "time")
    is_fresh = isinstance(written, (int, float)) and abs(time.time() - written) <= STALE
    return frames if is_fresh and are_frames(frames) else []


def _read_state(box: BoxFile | None) -> object:
    """Return what a box has, parsed; None without one, or where it is none."""
    tries = (_try_state(box.path) for _ in range(_TRIES) if box)
    return next(filter(None, tries), None)


def _try_state(path: str) -> object:
    try:
        return parse_json(_read_part(path, 0, BOX_BYTES).rstrip(b" \0").decode())
    except ValueError:  # half written
        return None


def _read_part(path: str, begin: int, most: int) -> bytes:
    """Return a part of a file; b'' where its process has ended."""
    try:
        with open(path, "rb", buffering=0) as file:
            return os.pread(file.fileno(), most, begin)
    except OSError:
        return b""


def read_dump(box: BoxFile | None) -> bytes:
    """Return what was appended to a box since it was looked at; b'' without a box.

    A task that restarts its file makes it shorter.
    """
    if box is None:
        return b""
    size = measure(box.path) or 0
    begin = max(box.size if size >= box.size else 0, BOX_BYTES)
    return _read_part(box.path, begin, _LARGEST) if size > begin else b""


def is_whole(dump: bytes) -> bool:
    """Return whether a dump ends as the stack of a main thread does, as far as that can be seen."""
    return _BEGIN in dump and bool(_LAST.search(dump))


def parse_dump(dump: bytes) -> Frames:
    """Return the frames of the main thread, as faulthandler has written them last."""
    return [
        [_text(file), int(line) if line.isdigit() else 0, _text(function)]
        for file, line, function in _FRAME.findall(dump.rpartition(_BEGIN)[2])
    ]


def _text(name: bytes) -> str:
    return name.decode(errors="backslashreplace")
