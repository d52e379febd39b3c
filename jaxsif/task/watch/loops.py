"""How often the program's own loops have iterated, counted from outside: the program need not
change.

A loop is a backward jump in the code of the user's own files. sys.monitoring (Python 3.12 and
later) reports each such jump; with earlier versions, no loops are known. The count starts at 0 when
a loop is entered.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from .. import importing
from ..failure import HERE
from .bytecode import CodeLoop, CodeLoops, has_loops
from .monitoring import TOOL, claim

# A loop that iterates more often is not counted: at 0.6 us an iteration, counting would be
# noticeable.
_MOST_TURNS = 2048  # a second
_LOOK = 1024  # iterations between readings of the clock
_MOST_CODES = 10_000  # of the user's own functions
_MOST_FRAMES = 10_000  # whose start was seen
_DEPTH = 2  # of the program's frame, seen from a hook that HookGuard.around calls

# Called with the error that stops a guard's hooks.
Close = Callable[[Exception], object]


class HookGuard:
    """Keeps the errors of hooks out of the program that calls them. This is only for hooks that
    call nothing but jaxsif's own code: any other code that runs during a hook, such as a signal
    handler, is the program's.

    After the first error, `close` is called with it, and the hooks no longer do anything.
    """

    def __init__(self, close: Close) -> None:
        self._close = close
        self._open = True

    def around(self, hook: Callable[..., Any], then: object = None) -> Callable[..., Any]:
        """Return a hook that raises no errors of its own; it returns `then` once a hook has
        failed.
        """

        def guarded(*arguments: Any, **more: Any) -> Any:
            if not self._open:
                return then
            try:
                return hook(*arguments, **more)
            # Make no call here: the program may have reached the recursion limit.
            except Exception as error:
                place = error.__traceback__
                while place:
                    if not place.tb_frame.f_code.co_filename.startswith(HERE):
                        raise
                    place = place.tb_next
                self._open = False
                with suppress(Exception):
                    self._close(error)
                return then

        return guarded


class _RateLimit:
    """A count of events, and whether they are too frequent to be counted."""

    __slots__ = ("looked", "total")

    def __init__(self) -> None:
        self.total = 0
        self.looked = time.monotonic()

    def is_hot(self) -> bool:
        """Return whether the last _LOOK events came too fast."""
        before, self.looked = self.looked, time.monotonic()
        return self.looked - before < _LOOK / _MOST_TURNS


class Loop(_RateLimit):
    """One loop: its place, and its total number of iterations over all entries."""

    __slots__ = ("at", "code", "inner", "is_left_alone")

    def __init__(self, code: CodeType, at: CodeLoop) -> None:
        super().__init__()
        self.code = code
        self.at = at
        self.inner: list[Loop] = []
        # For all of its backward jumps: Python disables only one. At the others, each task would
        # count again from 0, starting at a different iteration.
        self.is_left_alone = not at.is_counted

    def describe(self, turns: int) -> dict[str, object]:
        """Return the loop's fields for the status file; `turns` is the number of iterations since
        the loop was entered.
        """
        return {"loop": self.place, "turns": turns}

    @property
    def place(self) -> str:
        """FILE:LINE of the loop's first line."""
        return f"{self.code.co_filename}:{self.at.line}"


class Entry:
    """A frame's progress in a loop, since the frame entered it."""

    __slots__ = ("frame", "is_known", "loop", "offset", "turns")

    def __init__(self, loop: Loop, frame: int, is_known: bool) -> None:
        self.loop = loop
        self.frame = frame  # its id(); 0 once another frame has that id
        self.is_known = is_known  # whether all iterations since then were counted
        self.offset = -1  # of the last jump
        self.turns = 0


class _Code(_RateLimit):
    """The loops of one code object, and the count of its calls."""

    __slots__ = ("code", "found", "loops")

    def __init__(self, code: CodeType) -> None:
        super().__init__()
        self.code = code
        self.found = CodeLoops(code)
        made = {at.begin: Loop(code, at) for at in self.found.loops}
        for loop in made.values():
            loop.inner = [made[at.begin] for at in self.found.inside(loop.at)]
        self.loops = {offset: loop for loop in made.values() for offset in loop.at.jumps}

    def around(self, offset: int) -> list[Loop]:
        """Return the loops around an instruction, the innermost first."""
        return [self.loops[min(at.jumps)] for at in self.found.around(offset)]


class Loops:
    """The loops that have iterated, and how often since they were entered.

    Within one iteration of the loop around it, or one call of its function, a loop is entered once.
    So its count restarts when the loop around it iterates, or its function is called.
    """

    def __init__(self) -> None:
        self.threads = {threading.main_thread().ident}  # threads whose iterations count as progress
        self.turns = 0  # iterations of their loops
        self._watched: dict[int, CodeType] = {}  # by id()
        self._codes: dict[int, _Code] = {}  # those that were needed
        # Entries of frames, by id(): a later frame may have the same id, and starts with no
        # entries.
        self._entries: dict[int, dict[Loop, Entry]] = {}
        self._unseen: set[int] = set()  # frames whose start was not seen
        self._last: Entry | None = None
        self._recent: dict[Loop, Entry] = {}  # loops that are statements, the latest one last

    def count_in(
        self,
        codes: Iterator[CodeType],
        close: Close = lambda _error: None,
        frames: Sequence[FrameType] = (),
    ) -> None:
        """Count the loops in these code objects, and in the functions created in them; `close` is
        called with an error, after which nothing is counted. `frames` are those already running.
        """
        monitoring = claim()
        if monitoring is None:
            return
        guard, events = HookGuard(close), monitoring.events
        hooks: Sequence[tuple[int, Callable[..., Any]]] = (
            (events.JUMP, self._jump),
            (events.PY_START, self._start),
        )
        for event, hook in hooks:
            monitoring.register_callback(TOOL, event, guard.around(hook, monitoring.DISABLE))
        for code, _ in zip(filter(has_loops, codes), range(_MOST_CODES)):
            self._watched[id(code)] = code
            monitoring.set_local_events(TOOL, code, events.JUMP | events.PY_START)
        for frame in frames:
            self._note_running(frame)

    def _note_running(self, frame: FrameType) -> None:
        """Record the loops that a frame is already in: how often they have iterated is unknown."""
        code = self._find_code(frame.f_code)
        loops = code.around(frame.f_lasti) if code else []
        self._entries[id(frame)] = {loop: Entry(loop, id(frame), False) for loop in loops}

    def _find_code(self, code: CodeType) -> _Code | None:
        """Return the record of a code object, or None if it is not watched."""
        found = self._codes.get(id(code))
        if found is None and self._watched.get(id(code)) is code:
            found = self._codes.setdefault(id(code), _Code(code))
        return found

    def _start(self, code: CodeType, _offset: int) -> Any:
        """Record that a frame has started."""
        found = self._find_code(code)
        if found is None:  # a function that only _before() in install.py waited for
            return sys.monitoring.DISABLE  # type: ignore[attr-defined]
        found.total += 1
        if found.total % _LOOK == 0 and found.is_hot():
            for loop in found.loops.values():
                self._leave_alone(loop)
            return sys.monitoring.DISABLE  # type: ignore[attr-defined]
        frame = id(sys._getframe(_DEPTH))
        if self._last and self._last.frame == frame:
            self._last.frame = 0
        if len(self._entries) >= _MOST_FRAMES:
            self._entries.clear()
        self._entries[frame] = {}
        self._unseen.discard(frame)
        return None

    def _jump(self, code: CodeType, offset: int, destination: int) -> Any:
        if destination > offset:
            return sys.monitoring.DISABLE  # type: ignore[attr-defined]
        frame = id(sys._getframe(_DEPTH))
        entry = self._last
        is_followed = threading.get_ident() in self.threads
        # Most often it is the same as before: at 1,000 times a second, a dict lookup is noticeable.
        if (
            entry is None
            or entry.offset != offset
            or entry.frame != frame
            or entry.loop.code is not code
        ):
            entry = self._enter(code, offset, frame, is_followed)
            if entry is None:
                return sys.monitoring.DISABLE  # type: ignore[attr-defined]
        entry.turns += 1
        self.turns += is_followed
        loop = entry.loop
        loop.total += 1
        if loop.total % _LOOK == 0 and loop.is_hot():
            return self._leave_alone(loop)
        return None

    def _leave_alone(self, loop: Loop) -> Any:
        """Stop counting a loop."""
        loop.is_left_alone = True
        self._recent.pop(loop, None)
        if self._last and self._last.loop is loop:
            self._last = None
        return sys.monitoring.DISABLE  # type: ignore[attr-defined]

    def _enter(self, code: CodeType, offset: int, frame: int, is_followed: bool) -> Entry | None:
        """Return the frame's entry for the loop that jumps back from `offset`, or None if the loop
        is not counted; called when another loop was the last to iterate. Restart the loops inside
        it.
        """
        found = self._find_code(code)
        loop = found.loops.get(offset) if found else None
        if loop is None or loop.is_left_alone:
            return None
        entries = self._entries.get(frame)
        if entries is None:
            entries = self._entries[frame] = {}
            self._unseen.add(frame)
        entry = entries.get(loop)
        if entry is None:
            entry = entries[loop] = Entry(loop, frame, frame not in self._unseen)
        for inner in loop.inner:
            entries[inner] = Entry(inner, frame, True)
        entry.offset = offset
        self._last = entry
        if loop.at.is_statement and is_followed:
            self._recent.pop(loop, None)
            self._recent[loop] = entry
        return entry

    def describe(self, frames: list[FrameType]) -> dict[str, object]:
        """Return the place and the iterations of the innermost loop around these frames, innermost
        frame first, among those whose iterations are known. Outside all loops, describe the loop
        that iterated last in the threads.
        """
        around = list(self._find_around(frames))
        known = ((loop, turns) for loop, turns in around if turns is not None)
        for loop, turns in known:
            return {**loop.describe(turns), "inside": True}
        return {} if around else self.describe_last()

    def list_around(self, frames: list[FrameType]) -> list[tuple[str, int]]:
        """Return the place and the iterations, -1 if unknown, of the loops around these frames, the
        outermost first; `frames` has the innermost first.
        """
        around = [*self._find_around(frames)][::-1]
        return [(loop.place, -1 if turns is None else turns) for loop, turns in around]

    def _find_around(self, frames: list[FrameType]) -> Iterator[tuple[Loop, int | None]]:
        """Yield the loops around these frames, the innermost first, and their iterations if
        known.
        """
        for frame in frames:
            code = self._find_code(frame.f_code)
            for loop in code.around(frame.f_lasti) if code else []:
                turns = None if loop.is_left_alone else self._count(loop, frame)
                if code and turns is not None:
                    turns += code.found.asks_again(loop.at, frame.f_lasti)
                yield loop, turns

    def _count(self, loop: Loop, frame: FrameType) -> int | None:
        """Return how often a frame has iterated a loop that it is in, or None if that is not
        known.
        """
        entries = self._entries.get(id(frame))
        if entries is None:
            return None
        entry = entries.get(loop)
        if entry is None:
            return None if id(frame) in self._unseen else 0
        return entry.turns if entry.is_known else None

    def describe_last(self) -> dict[str, object]:
        """Return the place and the iterations of the loop that iterated last; nothing if there is
        none.
        """
        last = next(reversed(list(self._recent.values())), None)
        if last is None or not last.is_known:
            return {}
        return {**last.loop.describe(last.turns), "may_be_over": last.loop.at.is_for}


def own_codes(is_own: Callable[[str], bool], frames: list[FrameType]) -> Iterator[CodeType]:
    """Yield the code objects of the user's own files: of running code, and of all imported modules.
    `is_own` returns whether a file is one of the user's.
    """
    running = (frame.f_code for frame in frames if is_own(frame.f_code.co_filename))
    modules = [module for module in list(sys.modules.values()) if _is_module_of(module, is_own)]
    for code in (*running, *(code for module in modules for code in _codes_of(vars(module)))):
        if is_own(code.co_filename):
            yield from _nested(code)


def _is_module_of(module: object, is_own: Callable[[str], bool]) -> bool:
    """Return whether a module is the user's; a lazily loaded module does not count."""
    file = vars(module).get("__file__") if type(module) is ModuleType else None
    return isinstance(file, str) and is_own(file)


def _codes_of(names: Any) -> Iterator[CodeType]:
    """Yield the code objects of functions, including methods and functions wrapped by decorators,
    among the names of a module.

    Check exact types: any other object may run code when an attribute is accessed.
    """
    for value in list(names.values()):
        found = [value, *vars(value).values()] if issubclass(type(value), type) else [value]
        inner = (wrapped for one in found for wrapped in importing.unwrap(one))
        yield from (one.__code__ for one in inner if type(one) is FunctionType)


def _nested(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and those of the functions created in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
