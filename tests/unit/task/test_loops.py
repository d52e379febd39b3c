"""Which code is the user's own; tests/cluster/test_hangs.py counts real loops, with a Python that tells of them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

import pytest

from jaxsif.task.loops import HookGuard, Loop, Loops, own_codes

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


DECORATED = """
import functools
from theirs import logged

@logged
@logged
def train():
    for step in range(3):
        pass

@functools.lru_cache
@logged
def read():
    for line in range(3):
        pass

class Model:
    @staticmethod
    @logged
    def fit():
        for step in range(3):
            pass
"""
LIBRARY = """
import functools

def logged(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)
    return wrapper
"""


def test_codes_behind_decorators_of_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, source in (("theirs", LIBRARY), ("decorated", DECORATED)):
        made = ModuleType(name)
        made.__file__ = f"/home/u/{name}.py"
        monkeypatch.setitem(sys.modules, name, made)
        exec(compile(source, made.__file__, "exec"), vars(made))
    codes = own_codes(lambda file: file == "/home/u/decorated.py", [])
    assert sorted(code.co_name for code in codes) == ["fit", "read", "train"]


def test_decorators_that_wrap_one_another_have_an_end(module: ModuleType) -> None:
    def other() -> None: ...

    module.train.__wrapped__, other.__wrapped__ = other, module.train  # type: ignore[attr-defined]
    assert module.train.__code__ in own_codes(lambda file: file == module.__file__, [])


class Silent:
    """An object that nobody may ask for an attribute."""

    def __getattribute__(self, name: str) -> object:
        pytest.fail(f"asked for {name}")


@pytest.mark.parametrize("make", [Silent, dict, lambda: None, lambda: len], ids=["silent", "dict", "None", "builtin"])
def test_what_is_no_function_wraps_none(module: ModuleType, make: Callable[[], object]) -> None:
    module.value = make()  # type: ignore[attr-defined]
    module.train.__wrapped__ = module.value
    assert module.train.__code__ in own_codes(lambda file: file == module.__file__, [])


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


# Where a loop such as `for step in steps: if step < start: continue` jumps back from, and where to.
CONTINUE, END, HEAD = 6, 20, 2


def skip(loops: Loops, code: CodeType, iterations: int) -> list[Any]:
    """Turn the loop by its `continue`; return what Python is told."""
    return [loops._jump(code, CONTINUE, HEAD) for _ in range(iterations)]


def test_all_jumps_back_to_one_place_are_one_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Loop, "is_hot", lambda _loop: False)  # its disk is slow
    loops, code = Loops(), sys._getframe().f_code
    skip(loops, code, 1500)
    assert [loops._jump(code, END, HEAD) for _ in range(60)] == [None] * 60
    assert loops.describe([])["turns"] == 1560


def test_a_loop_that_was_too_fast_is_counted_from_none_of_its_jumps(monitoring: Any) -> None:
    """A count that began anew would differ between tasks, by the time that each takes to skip."""
    loops, code = Loops(), sys._getframe().f_code
    told = skip(loops, code, 1024)
    assert told == [*[None] * 1023, monitoring.DISABLE]
    assert {loops._jump(code, END, HEAD) for _ in range(60)} == {monitoring.DISABLE}
    assert loops.describe([sys._getframe()]) == {}
    assert loops.mark() is None


def test_nor_if_it_was_too_fast_in_another_thread(monitoring: Any) -> None:
    loops, code = Loops(), sys._getframe().f_code
    loops._jump(code, END, HEAD)
    again: list[Any] = []

    def turn() -> None:
        skip(loops, code, 1024)
        again.append(loops._jump(code, END, HEAD))

    thread = threading.Thread(target=turn)
    thread.start()
    thread.join()
    assert again == [monitoring.DISABLE]
    assert loops._jump(code, END, HEAD) == monitoring.DISABLE
    assert loops.describe([]) == {}


def test_a_loop_that_was_too_fast_is_never_the_last_one_again(monitoring: Any) -> None:
    """The loop around it turned before it and after it, and is too fast, too."""
    loops, code = Loops(), sys._getframe().f_code
    for offset, destination in ((END, HEAD), (12, 10), (END, HEAD)):
        loops._jump(code, offset, destination)
    for _ in range(1023):
        loops._jump(code, 12, 10)
    assert loops.describe([])["turns"] == 2
    for _ in range(1022):
        loops._jump(code, END, HEAD)
    assert loops.describe([]) == {}


def test_an_error_while_a_loop_is_counted_ends_the_count(monitoring: Any) -> None:
    """The program goes on, and this is told once."""
    loops, code = Loops(), sys._getframe().f_code
    errors: list[Exception] = []
    loops.count_in(iter([code]), errors.append)
    assert monitoring.codes == {code: monitoring.events.JUMP}
    assert monitoring.jump(code, END, HEAD) is None
    loops._loops = loops._last = None  # type: ignore[assignment]
    assert [monitoring.jump(code, END, HEAD) for _ in range(3)] == [monitoring.DISABLE] * 3
    assert [type(error) for error in errors] == [AttributeError]


def fail(*_arguments: object, **_more: object) -> None:
    raise ValueError("boom")


def test_a_guard_ends_all_its_hooks_with_the_first_error() -> None:
    errors: list[Exception] = []
    guard = HookGuard(errors.append)
    works, fails = guard.around(dict, "closed"), guard.around(int, "closed")
    assert works(a=1) == {"a": 1}
    assert fails("boom") == "closed"
    assert works(a=1) == fails("boom") == "closed"
    assert [type(error) for error in errors] == [ValueError]


def test_a_guard_outlives_who_is_told() -> None:
    assert HookGuard(fail).around(int)("boom") is None


def test_a_guard_lets_errors_of_the_program_pass() -> None:
    """Its handler of a signal may raise one in the middle of a hook."""
    errors: list[Exception] = []
    guarded = HookGuard(errors.append).around(fail)
    for _ in range(2):
        with pytest.raises(ValueError, match="boom"):
            guarded()
    assert errors == []


def test_a_guard_lets_the_user_interrupt_the_program() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        HookGuard(fail).around(interrupt)()
