"""A sys.monitoring for Pythons that have none, in which a test calls what is registered."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, SimpleNamespace
from typing import Any

import pytest

from jaxsif.task.watch import loops
from jaxsif.task.watch.bytecode import CodeLoop


class Monitoring:
    """What jaxsif uses of sys.monitoring."""

    DISABLE = "no more"
    events = SimpleNamespace(JUMP=1, PY_START=2)

    def __init__(self) -> None:
        self.callbacks: dict[int, Callable[..., Any]] = {}
        self.codes: dict[CodeType, int] = {}

    def get_tool(self, _tool: int) -> None:
        return None

    def use_tool_id(self, _tool: int, _name: str) -> None:
        pass

    def register_callback(self, _tool: int, event: int, callback: Callable[..., Any]) -> None:
        self.callbacks[event] = callback

    def set_local_events(self, _tool: int, code: CodeType, events: int) -> None:
        self.codes[code] = events

    def jump(self, code: CodeType, offset: int, destination: int) -> Any:
        """Jump as the program would; return what Python is told of this place."""
        return self.callbacks[self.events.JUMP](code, offset, destination)

    def start(self, code: CodeType) -> Any:
        """Begin to run a code, if its start is an event."""
        return self.callbacks[self.events.PY_START](code, 0) if code in self.codes else None


@pytest.fixture
def monitoring(monkeypatch: pytest.MonkeyPatch) -> Monitoring:
    made = Monitoring()
    monkeypatch.setattr(sys, "monitoring", made, raising=False)
    return made


class Shape:
    """Two loops, one inside of the other, that any code has."""

    offset = -1  # of the instruction that runs

    def __init__(self) -> None:
        none: frozenset[int] = frozenset()
        kind = {"is_counted": True, "is_statement": True, "is_for": True}
        outer = CodeLoop(2, 2, frozenset({6, 20}), none, none, **kind)
        inner = CodeLoop(10, 10, frozenset({12}), none, none, **kind)
        self.loops = (inner, outer)

    def around(self, _offset: int) -> list[CodeLoop]:
        return [one for one in self.loops if one.begin <= self.offset <= max(one.jumps)]

    def inside(self, outer: CodeLoop) -> list[CodeLoop]:
        return [one for one in self.loops if one.begin > outer.begin]

    def asks_again(self, _loop: CodeLoop, _offset: int) -> bool:
        return False


@pytest.fixture
def shape(monkeypatch: pytest.MonkeyPatch) -> Shape:
    """What all codes have, for Pythons whose bytecode nobody can read here."""
    made = Shape()
    monkeypatch.setattr(loops, "CodeLoops", lambda _code: made)
    monkeypatch.setattr(loops, "has_loops", lambda _code: True)
    return made
