"""What the observer tells, look by look, with the clocks in the test's hands."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from jaxsif.task.watch import observer
from jaxsif.task.watch.observer import Observer, list_frames
from jaxsif.task.watch.status_file import StatusFile


class Told(list[Mapping[str, Any]]):
    """What an observer with a hang timeout of 5 s has told."""

    def __init__(self) -> None:
        super().__init__()
        self.observer = Observer(StatusFile(), 5.0, self.append)
        self._begin = self.observer._moved

    def look(self, *looks: tuple[float, float]) -> list[Any]:
        """Return all events after these looks: seconds of processor time used, seconds of the clock."""
        for used, seconds in looks:
            self.observer.observe(used, self._begin + seconds, self.observer._file.size())
        return [one["event"] for one in self]


@pytest.fixture
def told() -> Told:
    return Told()


def test_a_program_that_computes_says_nothing(told: Told) -> None:
    assert told.look(*((0.01 * second, float(second)) for second in range(1, 60))) == []


def test_one_that_stands_still_says_so_once(told: Told) -> None:
    assert told.look((1, 1), *((1, float(second)) for second in range(2, 60))) == ["wait"]
    assert told[0]["seconds"] == 5.0
    assert told[0]["where"].endswith(tuple("0123456789"))


def test_it_says_when_it_goes_on_and_waits_again(told: Told) -> None:
    looks = [(1, 1), (1, 7), (1.001, 8), (1.5, 9), (1.5, 12), (1.5, 14)]
    assert told.look(*looks) == ["wait", "moved", "wait"]
    assert told[1]["seconds"] == 8.0


def test_stacks_that_are_written_are_no_work(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 threads take the main thread longer than what it may compute while it stands still."""
    told.look((1, 1), (1, 7))
    monkeypatch.setattr(told.observer._file, "size", lambda: 9000)
    assert told.look((1.01, 8)) == ["wait"]
    assert told.look((1.02, 9)) == ["wait", "moved"]


def test_a_stack_that_is_being_written_is_no_work(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy node, a part of it may take its time after the observation."""
    told.look((1, 1), (1, 7))
    sizes = iter([5000, 9000, 9000, 9000])
    monkeypatch.setattr(told.observer._file, "size", lambda: next(sizes))
    assert told.look((1.01, 8), (1.02, 9)) == ["wait"]


def test_a_short_stop_is_nothing(told: Told) -> None:
    assert told.look((1, 1), (1, 4), (2, 5), (2, 9)) == []


def test_what_is_compiled_is_known(told: Told) -> None:
    observer = told.observer
    observer._on_begin("/jax/core/compile/backend_compile_duration", 0, fun_name="step")
    assert observer._describe(9, 9)["compiling"] == "step"
    assert observer._describe(0, 0)["compiling"] == "step"  # the main thread computes meanwhile
    observer._on_end("/jax/core/compile/backend_compile_duration", 3.0, fun_name="step")
    assert observer._describe(9, 9)["compiling"] == ""


def test_other_events_of_jax_mean_nothing(told: Told) -> None:
    observer = told.observer
    observer._on_end("/jax/core/compile/jaxpr_trace_duration", 1.0)
    observer._on_begin("/jax/checkpoint/write", 0)
    assert observer._describe(9, 9)["compiling"] == ""


COMPILE = "/jax/core/compile/backend_compile_duration"


def test_what_another_thread_compiles_is_not_what_the_main_thread_does(told: Told) -> None:
    observer = told.observer
    begin = partial(observer._on_begin, COMPILE, 0)
    worker = ThreadPoolExecutor(1)
    worker.submit(begin, fun_name="next_step").result()
    assert compiled(observer) == ("next_step", True)
    begin(fun_name="step")
    assert compiled(observer) == ("step", False)
    worker.submit(observer._on_end, COMPILE, 1.0, fun_name="next_step").result()
    assert compiled(observer) == ("step", False)
    observer._on_end(COMPILE, 1.0, fun_name="step")
    assert compiled(observer) == ("", False)


def compiled(observer: Observer) -> tuple[object, object]:
    """What the status file has of compiling, and whether another thread than the main one does it."""
    state = observer._describe(9, 9)
    return state["compiling"], state["aside"]


class Listeners:
    """Those that jax._src.monitoring calls."""

    def __init__(self, observer: Observer) -> None:
        self._begins: list[Callable[..., None]] = []
        self._ends: list[Callable[..., None]] = []
        observer.follow_compiles(
            SimpleNamespace(
                __name__="jax._src.monitoring",
                register_scalar_listener=self._begins.append,
                register_event_duration_secs_listener=self._ends.append,
            )
        )

    def begin(self, event: Any) -> None:
        self._begins[0](event, 0, fun_name="step")

    def end(self, event: Any) -> None:
        self._ends[0](event, 1.0, fun_name="step")


@pytest.mark.parametrize("fails", [Listeners.begin, Listeners.end], ids=["begin", "end"])
def test_an_event_that_is_not_understood_is_no_error_of_jax(told: Told, fails: Callable[..., None]) -> None:
    """Nothing is said of compiles any more: what has begun would never end."""
    listeners = Listeners(told.observer)
    listeners.begin(COMPILE)
    fails(listeners, None)  # another JAX
    listeners.begin(COMPILE)
    fails(listeners, None)
    assert told.observer._describe(9, 9)["compiling"] == ""
    text = "compile tracking stopped: AttributeError: 'NoneType' object has no attribute 'startswith'"
    assert told == [{"event": "warning", "text": text}]


def test_an_error_while_loops_are_counted_is_told(
    told: Told, shape: Any, monitoring: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The count that this task had is forgotten: those of the others go on."""
    observer, code = told.observer, sys._getframe().f_code
    monkeypatch.setattr(threading.Thread, "start", lambda _thread: None)
    observer.begin()
    monitoring.jump(code, 20, 2)
    monitoring.jump(code, None, 0)
    assert observer._loops.describe_last() == {}
    assert [one["event"] for one in told] == ["watched", "warning"]
    assert told[1]["text"].startswith("iteration counting stopped: ")


def test_a_loop_that_turns_goes_on(told: Told, shape: Any, monitoring: Any) -> None:
    """Though the main thread has nearly nothing to compute in a turn."""
    code = sys._getframe().f_code
    told.observer._loops.count_in(iter([code]))
    for second in range(1, 60):
        if second % 4 == 0:
            monitoring.jump(code, 20, 2)
        assert told.look((1, float(second))) == []


def test_an_exception_leaves_the_exact_iteration(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that of the last look; by it, a run that starts again sees progress."""
    left: list[Mapping[str, Any]] = []
    seen: list[str] = []

    def list_around(frames: list[FrameType]) -> list[tuple[str, int]]:
        seen.extend(frame.f_code.co_name for frame in frames)
        return [("a.py:2", 3)]

    def fail() -> None:
        raise ValueError

    loops = SimpleNamespace(list_around=list_around, describe=lambda _frames: {"loop": "a.py:2", "turns": 3})
    monkeypatch.setattr(told.observer._file, "leave", left.append)
    monkeypatch.setattr(told.observer, "_loops", loops)
    try:
        fail()
    except ValueError as error:
        told.observer.note_failure(error)
    assert seen == ["fail", "test_an_exception_leaves_the_exact_iteration"]  # the innermost first
    assert left == [{"around": [("a.py:2", 3)], "loop": "a.py:2", "turns": 3}]


def test_what_a_loop_calls_is_known_while_it_turns(told: Told) -> None:
    """One that asks for a lock again and again waits for it; one that moves says only where it was."""
    assert told.observer._describe(0.0, 9.0)["where"]
    moves = told.observer._describe(0.0, 0.0)
    assert moves["frames"]
    assert not moves["where"]


def test_the_programs_own_line_is_known_below_a_deep_library(told: Told) -> None:
    library: dict[str, Any] = {}
    source = "def deep(left, call):\n    return deep(left - 1, call) if left else call(9.0, 9.0)\n"
    exec(compile(source, "/x/site-packages/deep.py", "exec"), library)
    frames = library["deep"](30, told.observer._describe)["frames"]
    assert len(frames) == 20
    assert __file__.endswith(frames[-1][0])


def test_the_time_in_which_the_process_was_stopped_is_no_wait(told: Told) -> None:
    told.look((1, 1), (1, 3))
    told.observer.skip(600.0)
    assert told.look((1, 603), (1, 605)) == []
    assert told.look((1, 607)) == ["wait"]


def test_frames_of_the_main_thread_from_another_one() -> None:
    found: list[FrameType] = []
    thread = threading.Thread(target=lambda: found.extend(list_frames(threading.main_thread().ident)))
    thread.start()
    thread.join()
    assert "test_frames_of_the_main_thread_from_another_one" in [frame.f_code.co_name for frame in found]


def test_a_wait_is_told_whatever_is_not_known_of_it(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """As without a free descriptor; that is said once."""

    def fail(_frame: object) -> str:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(observer, "find_call", fail)
    assert told.look((1, 1), *((1, float(second)) for second in range(2, 60))) == ["warning", "wait"]
    assert told[0]["text"] == "the lines where tasks wait are no longer known: OSError: [Errno 24] Too many open files"
    assert told[1] == {"event": "wait", "seconds": 5.0, "where": ""}


def test_nothing_is_imported_while_it_looks(told: Told) -> None:
    """A process without free descriptors imports nothing."""
    import tokenize  # noqa: F401  # JAX has imported it

    before = set(sys.modules)
    told.observer._describe(9.0, 9.0)
    told.observer._file.write({})
    assert set(sys.modules) == before


def test_where_the_main_thread_waits_for_threads_the_one_that_used_jax_is_observed() -> None:
    """It is joined here; the program's own file is that of a thread's target."""
    observer, ready, done = Observer(StatusFile(), 60, list[object]().append), threading.Event(), threading.Event()
    numbers = []

    def train() -> None:
        numbers.append(threading.get_native_id())
        observer._on_begin("/jax/core/compile/backend_compile_duration", 0, fun_name="step")
        ready.set()
        done.wait()

    chosen = []

    def look() -> None:
        ready.wait()
        time.sleep(0.1)
        observer._choose_thread()
        chosen.append(observer._describe(9.0, 9.0))
        done.set()

    threads = [threading.Thread(target=one) for one in (train, look)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    [state] = chosen
    assert state["thread"] == numbers[0]
    assert str(state["where"]).startswith(f"{__file__}:")
    assert "done.wait()" in str(state["call"])
    observer._choose_thread()  # the main thread runs, and the other one has ended
    assert observer._describe(9.0, 9.0)["thread"] == 0


def test_another_thread_of_the_pool_runs_the_same_code() -> None:
    """The one that compiled it waits for work."""
    observer, done = Observer(StatusFile(), 60, list[object]().append), threading.Event()
    chosen, numbers = [], {}

    def step(compiles: bool, barrier: threading.Barrier) -> None:
        numbers[compiles] = threading.get_ident()
        if compiles:
            observer.locate()
        barrier.wait()
        if not compiles:
            done.wait()

    def look() -> None:
        time.sleep(0.1)
        observer._choose_thread()
        chosen.append(observer._thread)
        done.set()

    observer._on_begin("/jax/core/compile/backend_compile_duration", 0, fun_name="add")  # the main thread, too
    with ThreadPoolExecutor(2) as pool:
        both = threading.Barrier(2)
        first, second = pool.submit(step, True, both), pool.submit(step, False, both)
        first.result()
        threading.Thread(target=look).start()
        second.result()
    assert chosen == [numbers[False]]


def test_a_thread_that_waits_for_work_is_not_observed() -> None:
    observer, done = Observer(StatusFile(), 60, list[object]().append), threading.Event()
    chosen = []

    def look() -> None:
        time.sleep(0.1)
        observer._choose_thread()
        chosen.append(observer._thread)
        done.set()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(observer._on_begin, "/jax/core/compile/backend_compile_duration", 0, fun_name="step").result()
        threading.Thread(target=look).start()
        done.wait()
    assert chosen == [threading.main_thread().ident]
