"""The memory file that a task has from its start: its box, and behind it where its threads are.

jaxsif/task/box.py writes it. It is found by its name among the descriptors of a process, and opened
through /proc, so nothing of it is on a disk and it is gone with its last process.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from itertools import starmap
from typing import NamedTuple

from jaxsif.watch.sight import NO_BOX, BoxState, parse_box

NAME = "jaxsif-box"
_HEAD = 4096  # bytes of the box; behind them, what faulthandler appends
_LARGEST = 2 << 20  # bytes of what all threads are at, to read
_TRIES = 3  # to read a box while it is being written

# What faulthandler writes: a block for each thread, and the frames in it, innermost first.
_BLOCK = re.compile(rb"(?m)^(?=(?:Current thread|Thread) 0x|Stack \(most )")
_FRAME = re.compile(rb'(?m)^  File "(.*)", line (\d{1,9}|\?\?\?) in (.*)$')
_CURRENT = (b"Current thread", b"Stack (most ")  # the thread that has handled the signal
_CUT = b"\n...\n"  # at the end: there are more than 100 threads

Frames = list[list[object]]  # [file, line, function]


class BoxFile(NamedTuple):
    """A box of a process."""

    path: str  # of its descriptor
    size: int  # bytes, when it was looked at


def find_box(pid: int, descriptors: Mapping[int, str]) -> BoxFile | None:
    """Return the box of a process; None where it has none."""
    paths = (f"/proc/{pid}/fd/{number}" for number, link in descriptors.items() if NAME in link)
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
    tries = map(_try_box, [box] * _TRIES if box else [])
    return next(filter(None, tries), NO_BOX)


def _try_box(box: BoxFile) -> BoxState | None:
    try:
        return parse_box(json.loads(_read_part(box.path, 0, _HEAD).rstrip(b" \0")))
    except (ValueError, RecursionError):  # half written; a thousand brackets
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
    begin = max(box.size if size >= box.size else 0, _HEAD)
    return _read_part(box.path, begin, _LARGEST) if size > begin else b""


def is_whole(dump: bytes) -> bool:
    """Return whether a dump has its last block, that of the main thread, in which the signal was
    handled; or the mark that it has no more.
    """
    last = _BLOCK.split(dump)[-1]
    return dump.endswith(_CUT) or (last.startswith(_CURRENT) and last.endswith(b"\n"))


def parse_dump(dump: bytes) -> Frames:
    """Return the frames of the main thread in what faulthandler wrote; [] where it has none.

    The main thread is the last one. Where not all fit, it is there only if it is another one and
    has handled the signal.
    """
    blocks = _BLOCK.split(dump)
    if dump.endswith(_CUT):
        blocks = [b"", *filter(_is_current, blocks)]
    return list(starmap(_parse_frame, _FRAME.findall(blocks[-1])))


def _is_current(block: bytes) -> bool:
    return block.startswith(_CURRENT)


def _parse_frame(file: bytes, line: bytes, function: bytes) -> list[object]:
    return [_text(file), int(line) if line.isdigit() else 0, _text(function)]


def _text(name: bytes) -> str:
    return name.decode(errors="backslashreplace")
