"""Which code is the user's own; tests/cluster/test_hangs.py counts real loops, with a Python that tells of them."""

from __future__ import annotations

import sys
import threading
from types import ModuleType, SimpleNamespace

import pytest

from jaxsif.task.loops import Loop, Loops, own_codes

SOURCE = """
def train():
    for step in range(3):
        def inner():
            return step
    return inner

class Model:
    def fit(self):
        return [x for x in range(2)]
"""


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("mine")
    made.__file__ = "/home/u/mine.py"
    exec(compile(SOURCE, made.__file__, "exec"), vars(made))
    monkeypatch.setitem(sys.modules, "mine", made)
    return made


def test_codes_of_functions_methods_and_what_they_make(module: ModuleType) -> None:
    names = {code.co_name for code in own_codes(lambda file: file == module.__file__, [])}
    assert {"train", "inner", "fit"} <= names


def test_codes_of_what_runs() -> None:
    here = sys._getframe()
    codes = list(own_codes(lambda file: file == __file__, [here]))
    assert here.f_code in codes


def test_installed_modules_have_none() -> None:
    assert not list(own_codes(lambda _file: False, [sys._getframe()]))


def test_a_loop_knows_its_line(module: ModuleType) -> None:
    code = module.train.__code__
    begin = next(begin for begin, _, line in code.co_lines() if line == 3)
    assert Loop(code, begin).describe() == {"loop": "/home/u/mine.py:3", "turns": 0}


def test_the_innermost_loop_counts() -> None:
    loops, frame = Loops(), sys._getframe()
    outer, inner = Loop(frame.f_code, 0), Loop(frame.f_code, 2)
    outer.end = inner.end = 1 << 20
    inner.turns = 7
    loops._loops = {(1, 0): outer, (1, 2): inner}
    found = loops.describe([frame])
    assert found["turns"] == 7


def test_a_loop_that_was_left_is_the_last_one() -> None:
    loops, frame = Loops(), sys._getframe()
    assert loops.describe([frame]) == {}
    loops._jump(frame.f_code, 0, 0)
    found = loops.describe([])
    assert found["turns"] == 1


def test_a_loop_around_the_frames_is_one_that_they_are_inside_of() -> None:
    loops, frame = Loops(), sys._getframe()
    loops._jump(frame.f_code, 0, 0)
    assert "inside" not in loops.describe([frame])
    loops._jump(frame.f_code, 1 << 20, 0)
    assert loops.describe([frame])["inside"]


def test_loops_of_other_threads_are_none_of_the_main_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "monitoring", SimpleNamespace(DISABLE="no more"), raising=False)
    loops, frame = Loops(), sys._getframe()
    loops._jump(frame.f_code, 2, 2)
    before = loops.mark()
    told: list[object] = []
    turns = range(1024)
    thread = threading.Thread(target=lambda: told.extend(loops._jump(frame.f_code, 0, 0) for _ in turns))
    thread.start()
    thread.join()
    assert told[-1] == "no more"  # it turns too often to be counted
    assert set(told[:-1]) == {None}
    assert loops.mark() == before
    loops._jump(frame.f_code, 2, 2)
    assert loops.mark() != before


def test_a_loop_that_is_left_alone_is_not_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its count stands still: the one around it says more."""
    monkeypatch.setattr(sys, "monitoring", SimpleNamespace(DISABLE=None), raising=False)
    loops, frame = Loops(), sys._getframe()
    loops._jump(frame.f_code, 0, 0)
    for _ in range(1024):
        loops._jump(frame.f_code, 2, 2)
    assert loops.describe([])["turns"] == 1
