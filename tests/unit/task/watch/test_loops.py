"""Which code is the user's own, and in which loop of it a program is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import pytest
from kit import loop_shapes

from jaxsif.task.watch import loops
from jaxsif.task.watch.bytecode import CodeLoops
from jaxsif.task.watch.loops import HookGuard, Loop, Loops, own_codes

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
    assert here.f_code in list(own_codes(lambda file: file == __file__, [here]))
    assert not list(own_codes(lambda _file: False, [here]))  # as of installed modules


# Where the outer loop of the fixture `shape` jumps back from, and the inner one; and where to.
CONTINUE, END, HEAD = 6, 20, 2
INNER_END, INNER_HEAD = 12, 10


@pytest.fixture
def counted(shape: Any, monitoring: Any, monkeypatch: pytest.MonkeyPatch) -> Loops:
    """Loops that are told of jumps by the test itself, in its own frame."""
    monkeypatch.setattr(loops, "_DEPTH", 1)
    return Loops()


def watch(counted: Loops) -> FrameType:
    """Begin to count in the caller's frame; return that."""
    frame = sys._getframe(1)
    counted.count_in(iter([frame.f_code]))
    return frame


def test_the_innermost_loop_counts(counted: Loops, shape: Any) -> None:
    frame = watch(counted)
    shape.offset = INNER_HEAD
    assert counted.describe([frame]) == {}  # it began before it could be seen
    counted._start(frame.f_code, 0)
    counted._jump(frame.f_code, END, HEAD)
    counted._jump(frame.f_code, INNER_END, INNER_HEAD)
    wanted = {"loop": f"{__file__}:10", "turns": 1, "inside": True}
    assert counted.describe([frame]) == wanted


def test_the_count_of_a_loop_begins_again_when_it_is_entered_again(counted: Loops, shape: Any) -> None:
    frame = watch(counted)
    shape.offset = INNER_HEAD
    for _ in range(2):
        counted._jump(frame.f_code, END, HEAD)
        assert counted.describe([frame])["turns"] == 0
        for _ in range(3):
            counted._jump(frame.f_code, INNER_END, INNER_HEAD)
        assert counted.describe([frame])["turns"] == 3
    counted._start(frame.f_code, 0)
    assert counted.describe([frame])["turns"] == 0


def test_a_loop_that_was_left_is_the_last_one(counted: Loops) -> None:
    frame = watch(counted)
    assert counted.describe([frame]) == {}
    counted._start(frame.f_code, 0)
    counted._jump(frame.f_code, END, HEAD)
    assert counted.describe([frame]) == {"loop": f"{__file__}:2", "turns": 1, "may_be_over": True}


def test_a_comprehension_is_no_statement() -> None:
    """A loop that calls a function with `*y, x`, a list to which Python appends, is one."""
    code = compile("for x in y:\n    f(x, *y, x)\n[x for x in y]\n{x: 1 for x in y}\n", "a.py", "exec")
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]  # before Python 3.12
    found = {loop.line: loop.is_statement for one in (code, *inner) for loop in CodeLoops(one).loops}
    assert found == {1: True, 3: False, 4: False}


def test_a_loop_whose_begin_was_not_seen_has_no_count(counted: Loops, shape: Any) -> None:
    frame, shape.offset = sys._getframe(), HEAD
    counted.count_in(iter([frame.f_code]), frames=[frame])
    counted._jump(frame.f_code, END, HEAD)
    assert counted.describe([frame]) == {}
    shape.offset = INNER_HEAD
    assert counted.describe([frame])["turns"] == 0


def test_loops_of_other_threads_are_none_of_the_main_one(counted: Loops, monitoring: Any) -> None:
    code = watch(counted).f_code
    counted._jump(code, INNER_END, INNER_HEAD)
    before = counted.turns
    told: list[object] = []
    thread = threading.Thread(target=lambda: told.extend(counted._jump(code, END, HEAD) for _ in range(1024)))
    thread.start()
    thread.join()
    assert told[-1] == monitoring.DISABLE  # it turns too often to be counted
    assert set(told[:-1]) == {None}
    assert counted.turns == before
    assert counted._jump(code, END, HEAD) == monitoring.DISABLE
    counted._jump(code, INNER_END, INNER_HEAD)
    assert counted.turns != before


def test_a_loop_that_is_left_alone_is_not_the_last_one(counted: Loops, shape: Any) -> None:
    """Its count stands still: the one around it says more, from inside of both, too."""
    frame = watch(counted)
    counted._start(frame.f_code, 0)
    counted._jump(frame.f_code, END, HEAD)
    for _ in range(1024):
        counted._jump(frame.f_code, INNER_END, INNER_HEAD)
    wanted = {"loop": f"{__file__}:2", "turns": 1}
    assert counted.describe([frame]) == {**wanted, "may_be_over": True}
    shape.offset = INNER_HEAD
    assert counted.describe([frame]) == {**wanted, "inside": True}


def test_all_jumps_back_to_one_place_are_one_loop(counted: Loops, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Loop, "is_hot", lambda _loop: False)  # its disk is slow
    frame = watch(counted)
    counted._start(frame.f_code, 0)
    for offset in [CONTINUE] * 1500 + [END] * 60:
        assert counted._jump(frame.f_code, offset, HEAD) is None
    assert counted.describe_last()["turns"] == 1560


def test_a_loop_that_was_too_fast_is_counted_from_none_of_its_jumps(counted: Loops, monitoring: Any) -> None:
    """A count that began anew would differ between tasks, by the time that each takes to skip."""
    frame = watch(counted)
    told = [counted._jump(frame.f_code, CONTINUE, HEAD) for _ in range(1024)]
    assert told == [*[None] * 1023, monitoring.DISABLE]
    assert {counted._jump(frame.f_code, END, HEAD) for _ in range(60)} == {monitoring.DISABLE}
    assert counted.describe([frame]) == {}
    assert counted.describe_last() == {}


def test_a_function_that_is_called_too_often_has_no_loops(counted: Loops, monitoring: Any) -> None:
    code = watch(counted).f_code
    told = [counted._start(code, 0) for _ in range(1024)]
    assert told == [*[None] * 1023, monitoring.DISABLE]
    assert counted._jump(code, END, HEAD) == monitoring.DISABLE


def test_a_jump_back_that_is_no_loop_is_not_counted(counted: Loops, monitoring: Any) -> None:
    """As that of a handler of exceptions to what follows it."""
    code = watch(counted).f_code
    assert counted._jump(code, 18, 8) == monitoring.DISABLE


def test_an_error_while_a_loop_is_counted_ends_the_count(counted: Loops, monitoring: Any) -> None:
    """The program goes on, and this is told once."""
    code = sys._getframe().f_code
    errors: list[Exception] = []
    counted.count_in(iter([code]), errors.append)
    assert monitoring.codes == {code: monitoring.events.JUMP | monitoring.events.PY_START}
    assert monitoring.jump(code, END, HEAD) is None
    counted._entries = counted._last = None  # type: ignore[assignment]
    assert [monitoring.jump(code, END, HEAD) for _ in range(3)] == [monitoring.DISABLE] * 3
    assert [type(error) for error in errors] == [AttributeError]


def list_pythons() -> list[str]:
    """All Pythons of this machine that tell of jumps: this one, those on the PATH, and those of pyenv."""
    names = [f"python3.{minor}" for minor in range(12, 20)]
    found = [sys.executable, *filter(None, map(shutil.which, names))]
    found += [str(path) for name in names for path in Path.home().glob(f".pyenv/versions/*/bin/{name}")]
    ask = "import sys; sys.exit(sys.version_info < (3, 12))"
    works = (one for one in found if not subprocess.run([one, "-c", ask], capture_output=True, check=False).returncode)
    return list({os.path.realpath(one): one for one in works})


@pytest.mark.starts_processes
def test_the_loop_that_a_program_is_in() -> None:
    """Of programs of 270 shapes, by all Pythons that are there; tests/cluster/test_hangs.py runs that of the image."""
    pythons = list_pythons()
    if not pythons:
        pytest.skip("no Python 3.12 or later")
    for python in pythons:
        done = subprocess.run([python, loop_shapes.__file__], capture_output=True, text=True, check=True)
        loop_shapes.judge(json.loads(done.stdout))


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
