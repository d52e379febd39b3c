"""What the inspector (jaxsif/node/inspect_step.py) has seen of one task, read from its line.

A line comes through srun from a process of the same user, and half of it was written by a program:
each field has a type and a range, and a line with anything else is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxsif.foreign import (
    Check,
    check_list,
    check_number,
    check_object,
    check_row,
    check_text,
    is_flag,
    is_node,
    or_none,
    parse_json,
)
from jaxsif.limits import MOST_COUNT, MOST_TASKS_OF_A_STEP
from jaxsif.task.contract import MOST_OWN
from jaxsif.text import printable, shorten_place

LONGEST_LINE = 8192  # bytes
MOST_FRAMES = 40
MOST_LOOPS = 4  # around a main thread, in a status file
LONGEST_FILE, LONGEST_NAME = 240, 120  # characters
# In place of the kernel's letters, for tasks that have ended, by their reports: without meeting the
# others, who wait in jax.distributed.initialize or JAX's shutdown; or with a failure that a shell
# has hidden.
UNMET, HIDDEN_FAILURE = "unmet", "hidden failure"
STALE = 3.0  # seconds since the last write of an observer, which writes every second
_LINE = re.compile(r"[0-9]{1,9}")  # in a place


class Status(NamedTuple):
    """The last status written by an observer in the task, see jaxsif/task/watch/status_file.py."""

    pid: int = 0  # as the task sees it
    time: float = 0.0  # when it was written, in seconds since 1970
    quiet: float = float("inf")  # seconds since the main thread last computed
    loop: str = ""  # FILE:LINE of the program's own loop, or '' if there is none
    turns: int = 0  # its iterations
    compiling: str = ""  # the program that JAX is compiling, or ''
    since: float = 0.0  # seconds that it has been compiling
    aside: bool = False  # a thread other than the main one is compiling it
    call: str = ""  # the call in the user's innermost frame: "lock.acquire()"; "" if unknown
    deadlock: bool = False  # it needs a lock that no other thread of its Python can release
    inside: bool = False  # the main thread is inside that loop, and not after it
    may_be_over: bool = False  # it is after a loop that may have run out before its last iteration
    # Loops and iterations (-1: not counted), the outermost first.
    around: tuple[tuple[str, int], ...] = ()
    thread: int = 0  # the kernel's number of the thread taken for the main one; 0 for the main one
    others: int = 0  # how often the kernel has let the other threads of Python run
    programs: int = 0  # that this Python process has reported
    own: tuple[str, ...] = ()  # modules in site-packages of the user's own projects, from layers


NO_STATUS = Status()  # for a task without a status file


class Frame(NamedTuple):
    """A function that has not returned yet."""

    file: str
    line: int  # 0 if unknown
    function: str

    @property
    def place(self) -> str:
        """Return 'train.py:41 step', or 'train.py:41' if the function is not known."""
        file = shorten_place(self.file)
        return f"{file}:{self.line} {self.function}".rstrip()


class Sample(NamedTuple):
    """The state of one task, as far as it is known; its texts are printable."""

    task: int  # SLURM_PROCID
    node: str  # SLURMD_NODENAME, or the host's name
    pid: int = 0  # on the node
    command: str = ""  # the short name of the process
    state: str = "S"  # of the main thread: R runs, S sleeps, D waits for a device, T stopped, ...
    call: str = ""  # the system call it is in, or the kernel's function, or ''
    descriptor: int = -1  # that the call is about, or -1
    file: str = ""  # the kind of the descriptor: pipe, socket, terminal, or a path
    frames: tuple[Frame, ...] = ()  # of the main thread, innermost first; () if unknown
    threads: int = 0  # besides the main one, not only Python's
    main_cpu: float = 0.0  # of the main thread, in CPU seconds per second
    cpu: float = 0.0  # of the process
    spent: float = 0.0  # CPU seconds of all processes of the task since they started
    runs: int = -1  # how often the kernel has let the main thread run; -1 if unknown
    read: int = -1  # bytes of all processes of the task since they started; -1 if unknown
    written: int = -1
    gpu: bool = False  # it has a GPU open
    answered: bool | None = None  # the request for its frames; None if it could not be asked
    age: float = 0.0  # seconds since the status file was written; 0 if there is none
    status: Status = NO_STATUS  # NO_STATUS if there is none

    @property
    def moved(self) -> int:
        """Return the bytes that all processes of the task have read and written."""
        return self.read + self.written


def make_sample(task: int, node: str, place: str) -> Sample:
    """Return the sample of a task that was not seen: it waits at `place`, FILE:LINE or ''."""
    file, _, line = place.rpartition(":")
    frames = (Frame(file, int(line), ""),) if _LINE.fullmatch(line) else ()
    return Sample(task, node, frames=frames)


_is_frame = check_row(
    check_text(LONGEST_FILE), check_number(MOST_COUNT, int), check_text(LONGEST_NAME)
)
# The frames of a main thread, innermost first.
are_frames = check_list(MOST_FRAMES, _is_frame)
_are_loops = check_list(
    MOST_LOOPS, check_row(check_text(LONGEST_FILE), check_number(1 << 63, int, least=-1))
)
_SECONDS = check_number(1e10, int, float)
_BYTES = check_number(1 << 63, int, least=-1)
_CORES = check_number(1e6, int, float)
_OF_A_STATUS: Mapping[str, Check] = {
    "pid": check_number(MOST_COUNT, int),
    "time": _SECONDS,
    "quiet": _SECONDS,
    "loop": check_text(LONGEST_FILE),
    "turns": check_number(1 << 63, int),
    "compiling": check_text(LONGEST_NAME),
    "since": _SECONDS,
    "aside": is_flag,
    "call": check_text(LONGEST_NAME),
    "deadlock": is_flag,
    "inside": is_flag,
    "may_be_over": is_flag,
    "around": _are_loops,
    "thread": check_number(MOST_COUNT, int),
    "others": check_number(1 << 63, int),
    "programs": check_number(1 << 63, int),
    "own": check_list(MOST_OWN, check_text(LONGEST_NAME)),
}
_is_status = check_object(_OF_A_STATUS)
_OF_A_SAMPLE: Mapping[str, Check] = {
    "task": check_number(MOST_TASKS_OF_A_STEP - 1, int),
    "node": is_node,
    "pid": check_number(MOST_COUNT, int),
    "command": check_text(64),
    "state": check_text(1),
    "call": check_text(LONGEST_NAME),
    "descriptor": check_number(MOST_COUNT, int, least=-1),
    "file": check_text(LONGEST_FILE),
    "threads": check_number(1 << 22, int),
    "main_cpu": _CORES,
    "cpu": _CORES,
    "spent": _SECONDS,
    "runs": _BYTES,
    "read": _BYTES,
    "written": _BYTES,
    "gpu": is_flag,
    "answered": or_none(is_flag),
    "age": _SECONDS,
    "frames": are_frames,
    "status": or_none(check_object({})),
}
_is_sample = check_object(_OF_A_SAMPLE)
_is_answer = check_object(
    {"node": is_node, "tasks": _OF_A_SAMPLE["task"], "memory": check_number(MOST_COUNT, int)}
)


class Answer(NamedTuple):
    """The last line from a node, sent once all its processes have been inspected."""

    node: str
    tasks: int  # of the step on this node
    memory: int = 0  # MiB in use on the GPU with the most; 0 if unknown, or not asked for


def parse_status(found: object) -> Status | None:
    """Return the status in a status file, or None if a field is missing or invalid.

    Unknown fields come from a later version, and are left out.
    """
    if type(found) is not dict:
        return None
    # Unprintable characters get longer, and must still fit into a line.
    known = {name: _clean(value) for name, value in found.items() if name in _OF_A_STATUS}
    if not _is_status(known):
        return None
    around = tuple((_clean(place), turns) for place, turns in known["around"])
    return Status(**{**known, "around": around, "own": tuple(map(_clean, known["own"]))})


def parse_line(line: bytes) -> Sample | Answer | None:
    """Parse a line of the inspector; return None for any other line."""
    if len(line) > LONGEST_LINE:
        return None
    try:
        found = parse_json(line.decode())
    except ValueError:  # not text, or not JSON
        return None
    if _is_answer(found) and len(found) == len(Answer._fields):
        return Answer(**found)
    return _parse_sample(found) if _is_sample(found) and len(found) == len(_OF_A_SAMPLE) else None


def _parse_sample(found: dict[str, Any]) -> Sample | None:
    frames = tuple(map(_parse_frame, found["frames"]))
    status = NO_STATUS if found["status"] is None else parse_status(found["status"])
    if status is None:
        return None
    texts = dict(zip(found, map(_clean, found.values())))
    return Sample(**{**texts, "frames": frames, "status": status})


def _parse_frame(found: Any) -> Frame:
    """Return the frame of [file, line, function]."""
    file, line, function = found
    return Frame(_clean(file), line, _clean(function))


def _clean(value: Any) -> Any:
    """Return a string made printable, or a number as it is."""
    return printable(value) if type(value) is str else value
