"""What the inspector (jaxsif/node/inspect_step.py) has seen of one task, read from its line.

A line comes through srun from a process of the same user, and half of it is what a program wrote:
each field has a type and a range, and a line with anything else is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxsif.errors import printable
from jaxsif.foreign import (
    Check,
    check_list,
    check_number,
    check_object,
    check_text,
    is_flag,
    is_node,
    or_none,
    parse_json,
)
from jaxsif.limits import MOST_COUNT, MOST_TASKS_OF_A_STEP

LONGEST_LINE = 8192  # bytes
MOST_FRAMES = 40
MOST_LOOPS = 4  # around a main thread, in a box
LONGEST_FILE, LONGEST_NAME = 240, 120  # letters
STALE = 3.0  # seconds since an observer, which writes each second, has written
_LINE = re.compile(r"[0-9]{1,9}")  # of a place
NO_TRACER = "--no-tracer"  # as an argument of the inspector: have no tracer stop the tasks


class BoxState(NamedTuple):
    """What an observer in the task wrote last, see jaxsif/task/box.py."""

    pid: int  # as the task knows itself
    time: float  # when it was written, in seconds since 1970
    quiet: float  # seconds since the main thread last computed
    loop: str  # FILE:LINE of the program's own loop; '' without one
    turns: int  # its iterations
    compiling: str  # the program that JAX compiles; '' while it compiles none
    since: float  # seconds that it has compiled
    aside: bool  # another thread than the main one compiles it
    call: str  # what the innermost frame of the user executes: "lock.acquire()"; "" where unknown
    deadlock: bool  # it waits for a lock that no other thread of its Python can release
    inside: bool  # the main thread is inside of that loop, and not after it
    around: tuple[tuple[str, int], ...]  # loops and iterations (-1: not counted), outermost first
    thread: int  # the kernel's number of what is meant by the main thread; 0 of that itself
    others: int  # how often the kernel has let the other threads of Python run
    programs: int  # that this Python has reported


# Of a task that has none.
NO_BOX = BoxState(
    pid=0,
    time=0.0,
    quiet=float("inf"),
    loop="",
    turns=0,
    compiling="",
    since=0.0,
    aside=False,
    call="",
    deadlock=False,
    inside=False,
    around=(),
    thread=0,
    others=0,
    programs=0,
)


class Frame(NamedTuple):
    """A function that has not returned yet."""

    file: str
    line: int  # 0 where it is not known
    function: str

    @property
    def place(self) -> str:
        """Return 'train.py:41 step', or 'train.py:41' where the function is not known."""
        file = self.file.rpartition("/")[2]
        return f"{file}:{self.line} {self.function}".rstrip()


class Sight(NamedTuple):
    """What one task does; its texts are printable."""

    task: int  # SLURM_PROCID
    node: str  # SLURMD_NODENAME, or the host's name
    pid: int  # on the node
    command: str  # the short name of the process
    state: str  # of the main thread: R runs, S sleeps, D waits for a device, T is stopped, ...
    call: str  # the system call in which it is, or the kernel's function; '' outside of any
    descriptor: int  # what the call is about; -1 where it is about none
    file: str  # what the descriptor is: pipe, socket, terminal, or a path
    frames: tuple[Frame, ...]  # of the main thread, innermost first; () where nobody knows them
    threads: int  # beside the main one, not only Python's
    main_cpu: float  # of the main thread, in CPU seconds a second
    cpu: float  # of the process
    spent: float  # CPU seconds of all processes of the task since they started
    runs: int  # how often the kernel has let the main thread run; -1 where it does not tell
    read: int  # bytes of all processes of the task since they started; -1 where they are not known
    written: int
    gpu: bool  # it has a GPU open
    native: str  # a function of compiled code that names a collective; '' where none is known
    answered: bool | None  # to the question for its frames; None where it could not be asked
    age: float  # seconds since the box was written; 0 without one
    box: BoxState  # NO_BOX without one


def make_sight(task: int, node: str, place: str) -> Sight:
    """Return what is known of a task that nobody has seen: it waits at FILE:LINE, or ''."""
    file, _, line = place.rpartition(":")
    frames = (Frame(file, int(line), ""),) if _LINE.fullmatch(line) else ()
    return Sight(
        task=task,
        node=node,
        pid=0,
        command="",
        state="S",
        call="",
        descriptor=-1,
        file="",
        frames=frames,
        threads=0,
        main_cpu=0.0,
        cpu=0.0,
        spent=0.0,
        runs=-1,
        read=-1,
        written=-1,
        gpu=False,
        native="",
        answered=None,
        age=0.0,
        box=NO_BOX,
    )


def _check_row(*checks: Check) -> Check:
    """Return a check of a list with one value for each of these checks."""

    def is_row(value: object) -> bool:
        if type(value) is not list or len(value) != len(checks):
            return False
        return all(check(part) for check, part in zip(checks, value))

    return is_row


_is_frame = _check_row(
    check_text(LONGEST_FILE), check_number(MOST_COUNT, int), check_text(LONGEST_NAME)
)
# Of a main thread, innermost first.
are_frames = check_list(MOST_FRAMES, _is_frame)
_are_loops = check_list(
    MOST_LOOPS, _check_row(check_text(LONGEST_FILE), check_number(1 << 63, int, least=-1))
)
_SECONDS = check_number(1e10, int, float)
_BYTES = check_number(1 << 63, int, least=-1)
_CORES = check_number(1e6, int, float)
_OF_A_BOX: Mapping[str, Check] = {
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
    "around": _are_loops,
    "thread": check_number(MOST_COUNT, int),
    "others": check_number(1 << 63, int),
    "programs": check_number(1 << 63, int),
}
_is_box = check_object(_OF_A_BOX)
_OF_A_SIGHT: Mapping[str, Check] = {
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
    "native": check_text(LONGEST_NAME),
    "answered": or_none(is_flag),
    "age": _SECONDS,
    "frames": are_frames,
    "box": or_none(check_object({})),
}
_is_sight = check_object(_OF_A_SIGHT)
_is_answer = check_object({"node": is_node, "tasks": _OF_A_SIGHT["task"]})


class Answer(NamedTuple):
    """The last line of a node: it has looked at all its processes."""

    node: str
    tasks: int  # of the step on this node


def parse_box(found: object) -> BoxState | None:
    """Return what a box says; None where a field is missing, strange or of no use.

    Fields that are not known here come from a later version, and are left out.
    """
    if type(found) is not dict:
        return None
    # What is not printable gets longer, and must still fit into a line.
    known = {name: _clean(value) for name, value in found.items() if name in _OF_A_BOX}
    if not _is_box(known):
        return None
    around = tuple((_clean(place), turns) for place, turns in known["around"])
    return BoxState(**{**known, "around": around})


def parse_line(line: bytes) -> Sight | Answer | None:
    """Return what a line of the inspector says; None where it is none of the inspector's."""
    if len(line) > LONGEST_LINE:
        return None
    try:
        found = parse_json(line.decode())
    except ValueError:  # no text, or no JSON
        return None
    if _is_answer(found) and len(found) == len(Answer._fields):
        return Answer(**found)
    return _parse_sight(found) if _is_sight(found) and len(found) == len(_OF_A_SIGHT) else None


def _parse_sight(found: dict[str, Any]) -> Sight | None:
    frames = tuple(map(_parse_frame, found["frames"]))
    box = NO_BOX if found["box"] is None else parse_box(found["box"])
    if box is None:
        return None
    texts = dict(zip(found, map(_clean, found.values())))
    return Sight(**{**texts, "frames": frames, "box": box})


def _parse_frame(found: Any) -> Frame:
    """Return the frame of [file, line, function]."""
    file, line, function = found
    return Frame(_clean(file), line, _clean(function))


def _clean(value: Any) -> Any:
    """Return a text that is printable; a number as it is."""
    return printable(value) if type(value) is str else value
