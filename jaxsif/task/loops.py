"""How often the main thread's own loops have turned, counted from outside: the program changes
nothing.

A loop is a jump backwards in the code of the user's own files. sys.monitoring (Python 3.12 and
later) tells of each; before, no loop is known.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from .monitoring import TOOL, claim

# A loop that turns more often is left alone: at 0.6 us a turn, counting it would be felt.
_MOST_TURNS = 2048  # a second
_LOOK = 1024  # turns between looks at the clock
_MOST_CODES = 10_000  # of the user's own functions
_MOST_WRAPPERS = 16  # of decorators around a function, each in the next one
_OWN = os.path.dirname(__file__) + os.sep  # what the files of this package begin with

# What is told of the error that ends a guard's hooks.
Close = Callable[[Exception], object]


class HookGuard:
    """Keeps errors of hooks out of the program that calls them: of hooks that call jaxsif's own
    code alone. Other code in the middle of one is the program's, such as its handler of a signal.

    After the first error, `close` is told of it, and the hooks do nothing any more.
    """

    def __init__(self, close: Close) -> None:
        self._close = close
        self._open = True

    def around(self, hook: Callable[..., Any], then: object = None) -> Callable[..., Any]:
        """Return a hook that raises nothing itself; it returns `then` once a hook has failed."""

        def guarded(*arguments: Any, **more: Any) -> Any:
            if not self._open:
                return then
            try:
                return hook(*arguments, **more)
            # Without a call: the program may have reached the limit of recursion.
            except Exception as error:
                place = error.__traceback__
                while place:
                    if not place.tb_frame.f_code.co_filename.startswith(_OWN):
                        raise
                    place = place.tb_next
                self._open = False
                with suppress(Exception):
                    self._close(error)
                return then

        return guarded


class Loop:
    """One loop: where it is, and how often it has turned."""

    __slots__ = ("before", "begin", "code", "end", "looked", "turns")

    def __init__(self, code: CodeType, begin: int) -> None:
        self.code = code
        self.begin = begin  # offset of its first instruction
        self.end = begin  # of its last one
        self.turns = 0
        self.before: Loop | None = None  # the other loop that turned before this one
        self.looked = time.monotonic()

    def is_hot(self) -> bool:
        """Return whether the last _LOOK turns took less time than they should."""
        before, self.looked = self.looked, time.monotonic()
        return self.looked - before < _LOOK / _MOST_TURNS

    def contains(self, frame: FrameType) -> bool:
        """Return whether the frame is in a turn of the loop."""
        return frame.f_code is self.code and self.begin <= frame.f_lasti <= self.end

    def describe(self) -> dict[str, object]:
        """Return what the box has of it."""
        return {"loop": self._place(), "turns": self.turns}

    def _place(self) -> str:
        """FILE:LINE of its first line."""
        lines = self.code.co_lines()
        line = next((line for begin, end, line in lines if begin <= self.begin < end), None)
        return f"{self.code.co_filename}:{line or self.code.co_firstlineno}"


class Loops:
    """The loops that have turned."""

    def __init__(self) -> None:
        self._main = threading.main_thread().ident
        self._loops: dict[tuple[int, int], Loop] = {}
        self._elsewhere: dict[tuple[int, int], Loop] = {}  # those of other threads
        # Those that are left alone. A loop may jump back from several places, as with `continue`,
        # and Python disables only one place. From the others, each task would count again from 0,
        # beginning at another iteration.
        self._fast: set[tuple[int, int]] = set()
        self._last: Loop | None = None

    def count_in(self, codes: Iterator[CodeType], close: Close = lambda _error: None) -> None:
        """Count the loops in these codes, and in the functions that are made in them; `close` is
        told of an error, after which nothing is counted.
        """
        monitoring = claim()
        if monitoring is None:
            return
        jump = HookGuard(close).around(self._jump, monitoring.DISABLE)
        monitoring.register_callback(TOOL, monitoring.events.JUMP, jump)
        for code, _ in zip(codes, range(_MOST_CODES)):
            monitoring.set_local_events(TOOL, code, monitoring.events.JUMP)

    def _jump(self, code: CodeType, offset: int, destination: int) -> Any:
        if destination > offset:
            return sys.monitoring.DISABLE  # type: ignore[attr-defined]
        if threading.get_ident() != self._main:
            return self._count_elsewhere(code, destination)
        loop = self._last
        # Most often it is the same as before: 1,000 times a second, the way through a dict is felt.
        if loop is None or loop.begin != destination or loop.code is not code:
            loop = self._enter(code, destination)
            if loop is None:
                return sys.monitoring.DISABLE  # type: ignore[attr-defined]
        loop.turns += 1
        if offset > loop.end:
            loop.end = offset
        if loop.turns % _LOOK == 0 and loop.is_hot():
            return self._leave_alone(code, destination)
        return None

    def _count_elsewhere(self, code: CodeType, begin: int) -> Any:
        """See how often a loop turns in another thread: no more is to be known of that."""
        loop = self._find(self._elsewhere, code, begin)
        if loop is None:
            return sys.monitoring.DISABLE  # type: ignore[attr-defined]
        loop.turns += 1
        is_hot = loop.turns % _LOOK == 0 and loop.is_hot()
        return self._leave_alone(code, begin) if is_hot else None

    def _leave_alone(self, code: CodeType, begin: int) -> Any:
        """Count a loop no longer, in no thread, wherever it jumps back from."""
        key = (id(code), begin)
        self._fast.add(key)
        self._elsewhere.pop(key, None)
        loop = self._loops.pop(key, None)
        if loop and loop is self._last:
            # Its own count stands still from now on, and that of one left alone earlier does, too.
            self._last = loop.before if loop.before in self._loops.values() else None
        return sys.monitoring.DISABLE  # type: ignore[attr-defined]

    def _enter(self, code: CodeType, begin: int) -> Loop | None:
        """Return the loop that begins there, which turns now and did not turn last; None if it is
        left alone.
        """
        loop = self._find(self._loops, code, begin)
        if loop:
            loop.before, self._last = self._last, loop
        return loop

    def _find(self, loops: dict[tuple[int, int], Loop], code: CodeType, begin: int) -> Loop | None:
        """Return the one of these loops that begins there; None if it is left alone."""
        key = (id(code), begin)
        loop = loops.get(key)
        # Not by setdefault, which would make a Loop at each turn.
        if loop is None and key not in self._fast:
            loop = loops[key] = Loop(code, begin)
        return loop

    def mark(self) -> object:
        """Return what equals an earlier mark as long as no loop has turned since."""
        last = self._last
        return last and (last, last.turns)

    def describe(self, frames: list[FrameType]) -> dict[str, object]:
        """Return the place and the turns of the innermost loop that these frames are inside of; of
        the loop that has turned last where there is none. `frames` has the innermost first.
        """
        loops = list(self._loops.values())
        for frame in frames:
            around = [loop for loop in loops if loop.contains(frame)]
            if around:
                innermost = max(around, key=lambda loop: loop.begin)
                return {**innermost.describe(), "inside": True}
        return self.describe_last()

    def list_around(self, frames: list[FrameType]) -> list[tuple[str, int]]:
        """Return the place and the turns of the loops that these frames are inside of, the
        outermost first; `frames` has the innermost first.
        """
        loops = list(self._loops.values())
        found = [
            loop
            for frame in frames
            for loop in sorted(loops, key=lambda loop: -loop.begin)
            if loop.contains(frame)
        ]
        return [(loop._place(), loop.turns) for loop in reversed(found)]

    def describe_last(self) -> dict[str, object]:
        """Return the place and the turns of the loop that has turned last; nothing without one."""
        return self._last.describe() if self._last else {}


def own_codes(is_own: Callable[[str], bool], frames: list[FrameType]) -> Iterator[CodeType]:
    """Yield the codes of the user's own files: of what is running, and of all modules that are
    imported. `is_own` tells whether a file is the user's.
    """
    running = (frame.f_code for frame in frames if is_own(frame.f_code.co_filename))
    modules = [module for module in list(sys.modules.values()) if _is_module_of(module, is_own)]
    for code in (*running, *(code for module in modules for code in _codes_of(vars(module)))):
        if is_own(code.co_filename):
            yield from _nested(code)


def _is_module_of(module: object, is_own: Callable[[str], bool]) -> bool:
    """Return whether a module is the user's; one that is loaded when it is first used is not."""
    file = vars(module).get("__file__") if type(module) is ModuleType else None
    return isinstance(file, str) and is_own(file)


def _codes_of(names: Any) -> Iterator[CodeType]:
    """Yield the codes of functions, also of methods and of what decorators wrap, in the names of a
    module.

    By their types: any other object may do something when it is asked for an attribute.
    """
    for value in list(names.values()):
        found = [value, *vars(value).values()] if issubclass(type(value), type) else [value]
        inner = (wrapped for one in found for wrapped in _unwrap(one))
        yield from (one.__code__ for one in inner if type(one) is FunctionType)


def _unwrap(value: Any) -> Iterator[Any]:
    """Yield a value, and the functions that its decorators wrap, the outermost first.

    Only so many: what functools.wraps leaves in __wrapped__ may lead back to the value.
    """
    for _ in range(_MOST_WRAPPERS):
        value = value.__func__ if type(value) in _METHODS else value
        yield value
        if type(value) not in _WRAPPERS:
            return
        value = vars(value).get("__wrapped__")


_METHODS = (staticmethod, classmethod)
_WRAPPERS = (FunctionType, type(lru_cache(len)))  # they have no attributes but those set on them


def _nested(code: CodeType) -> Iterator[CodeType]:
    """Yield the code and those of the functions that are made in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
