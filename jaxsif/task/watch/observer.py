"""A thread that notices when the program hangs, and reports it to `jaxsif run`, once.

It observes the program's main thread or, while that waits for other threads, the thread that last
ran a program of several processes, another one that runs the same code, as in a pool, or else the
thread that last compiled for JAX.

The observer starts when the program first uses JAX's devices or jax.distributed. Once a second it
compares that thread's processor time and the count of its loops with the previous values. While one
of them advances, nothing is sent or written to a disk.
"""

from __future__ import annotations

# Also for status_file.py: a process without free descriptors cannot import.
import json  # noqa: F401
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain
from operator import itemgetter
from types import CodeType, FrameType
from typing import Any

from .. import importing
from ..contract import MOST_OWN, OWN_THREADS, render_position
from ..failure import (
    Emit,
    at_failure,
    describe,
    find_own,
    has_jax,
    is_installed,
    list_own,
    walk_stack,
    walk_traceback,
)
from ..workers import report_killed
from .locks import find_call, is_deadlock
from .loops import HookGuard, Loops, own_codes
from .status_file import StatusFile

_PERIOD = 1.0  # seconds between two observations
_MOVES = 0.002  # of a processor; a main thread that uses less is idle
_QUIET = 1.5  # idle seconds after which the status file also has the call in the program's line
_MOST_FRAMES, _LONGEST_FILE, _LONGEST_NAME = 20, 100, 40  # in the status file; characters
_MOST_LOOPS = 4  # around the main thread, in the status file
_STOPPED = 3.0  # a longer time between observations means that the whole process was stopped
# Files in which a main thread waits after leaving the work to other threads.
_WAITS = re.compile(
    r"/lib(64)?/python3[^/]*/"
    r"((threading|queue|selectors)\.py$|(asyncio|concurrent|multiprocessing)/)"
)
_COMPILES = "/jax/core/compile/"  # prefix of JAX's event names
# The fields of the status file for a program in an unknown state.
_UNKNOWN: Mapping[str, object] = {
    **dict.fromkeys(("loop", "where", "compiling", "call"), ""),
    "turns": 0,
    "since": 0,
    "aside": False,
    "deadlock": False,
    "inside": False,
    "may_be_over": False,
    "around": (),
    "thread": 0,
    "others": 0,
    "programs": 0,
    "own": (),
}


class Observer:
    """The state of this process's main thread, as far as it is known."""

    def __init__(self, file: StatusFile, hang_timeout: float, emit: Emit) -> None:
        """Observe a program that may hang for `hang_timeout` seconds without a report."""
        self._file = file
        self._hang_timeout = hang_timeout
        self._emit = emit
        self._loops = Loops()
        self._main = self._thread = threading.main_thread().ident  # and the observed thread
        self._programs = 0  # number of reported programs
        self._runs_jax: int | None = None  # the thread that last ran a program of several processes
        self._code: CodeType | None = None  # the user's function that ran it
        self._compiles: int | None = None  # the thread that last compiled
        # Names, and when each began, by thread.
        self._compiling: dict[int | None, list[tuple[str, float]]] = {}
        self._begun = False
        self._used = 0.0  # seconds of processor time of the observed thread
        self._computed = self._moved = time.monotonic()  # time of last use; of last progress
        self._turns = 0  # the loops' count at the last observation
        self._size = file.size()  # of the file, at the last observation
        self._is_reported = self._failed = False

    def follow_compiles(self, module: Any) -> None:
        """Subscribe to JAX's compile events; `module` is jax._src.monitoring."""
        begin = importing.find(module, "register_scalar_listener")
        end = importing.find(module, "register_event_duration_secs_listener")
        guard = HookGuard(self._forget_compiles)
        begin(guard.around(self._on_begin))
        end(guard.around(self._on_end))

    def _on_begin(self, event: str, _value: object, **more: object) -> None:
        if event.startswith(_COMPILES):
            self._compiles = threading.get_ident()
            begun = self._compiling.setdefault(self._compiles, [])
            begun.append((str(more.get("fun_name")), time.monotonic()))

    def _on_end(self, event: str, _seconds: float, **_more: object) -> None:
        begun = self._compiling.get(threading.get_ident())
        if event.startswith(_COMPILES) and begun:
            begun.pop()

    def _forget_compiles(self, error: Exception) -> None:
        self._compiling = {}  # no later event would remove it
        self._warn("compile tracking stopped", error)

    def _forget_loops(self, error: Exception) -> None:
        self._loops = Loops()  # other tasks keep counting
        self._warn("iteration counting stopped", error)

    def _warn(self, what: str, error: Exception) -> None:
        self._emit({"event": "warning", "text": f"{what}: {describe(error)}"})

    def locate(self) -> str:
        """Return the loops that the caller's thread is in, as in `program` reports, and count the
        report that the caller is about to write.
        """
        self._programs += 1
        self._runs_jax = threading.get_ident()
        frames = list_frames(self._runs_jax)
        own = find_own(frames)
        self._code = own.f_code if own else None
        return render_position(self._list_around(frames))

    def _list_around(self, frames: list[FrameType]) -> list[tuple[str, int]]:
        around = self._loops.list_around(frames)[:_MOST_LOOPS]
        return [(place[-_LONGEST_FILE:], turns) for place, turns in around]

    def begin(self) -> None:
        """Start the thread, once; count the loops of all code imported so far, at the same point of
        the program in each task.

        This runs within the program's own call: the caller keeps errors away from the program.
        """
        if self._begun:
            return
        self._begun = True
        frames = list_frames(self._main)
        codes = own_codes(lambda file: not is_installed(file), frames)
        self._loops.count_in(codes, self._forget_loops, frames)
        name = f"{OWN_THREADS}observer"
        threading.Thread(target=self._run, name=name, daemon=True).start()
        at_failure.append(self.note_failure)
        self._emit({"event": "watched", "jax": has_jax()})

    def note_failure(self, exception: BaseException) -> None:
        """Record the exact iteration in which an exception ended the program: that of the last
        observation may be a second old.
        """
        frames = [place.tb_frame for place in walk_traceback(exception)][::-1]
        state = {"around": self._list_around(frames), **self._loops.describe(frames)}
        self._file.leave(state)

    def _run(self) -> None:
        now = time.monotonic()
        while True:
            before, now = now, time.monotonic()
            if now - before > _STOPPED:  # for example, Slurm suspended the job
                self.skip(now - before)
            with suppress(Exception):  # errors do not belong in the program's output
                self._choose_thread()
                size = self._file.size()
                self.observe(self._measure_thread(), now, size)
            time.sleep(_PERIOD)

    def _choose_thread(self) -> None:
        """Choose the thread to observe."""
        frames = sys._current_frames()
        main = frames.get(self._main or 0)
        waits = main and _WAITS.search(main.f_code.co_filename)
        chosen = next(self._list_workers(frames), self._main) if waits else self._main
        if chosen != self._thread:
            self._thread = chosen
            self._loops.threads = {self._main, chosen}  # main's loop may drive the other
            self._used = -1.0  # it has another clock

    def _list_workers(self, frames: Mapping[int, FrameType]) -> Iterator[int]:
        """Yield the threads, by their frames, that may do the program's work while the main thread
        waits: that which last ran a program of several processes, others of its pool, which run
        the same code, and that which last compiled.
        """
        pool = (
            one
            for one, frame in frames.items()
            if one != self._main and self._code in [place.f_code for place in walk_stack(frame)]
        )
        for one in chain([self._runs_jax], pool, [self._compiles]):
            if one is not None and one in frames and not _has_no_work(frames[one]):
                yield one

    def _measure_thread(self) -> float:
        """Return the seconds of processor time of the observed thread."""
        if self._thread == self._main:
            return time.clock_gettime(time.pthread_getcpuclockid(self._main or 0))
        # Do not read the clock of a thread that has just ended.
        spent, _ = _read_schedule(_find_number(self._thread))
        return spent

    def skip(self, seconds: float) -> None:
        """Exclude this time from the waits."""
        self._computed += seconds
        self._moved += seconds

    def observe(self, used: float, now: float, size: int) -> None:
        """Observe the main thread, which has used `used` seconds of processor time in total; `size`
        is that of the status file before `used` was measured.

        If the thread wrote its stack on request in the meantime, that is not the program's own
        work. A stack that was being written at the last observation has grown since.
        """
        stack_written, self._size = self._file.size() != self._size, size
        before_turns, self._turns = self._turns, self._loops.turns
        is_new = self._used < 0
        has_computed = is_new or (used - self._used > _MOVES * _PERIOD and not stack_written)
        self._used = used
        if has_computed:
            self._computed = now
        if has_computed or self._turns != before_turns:
            if self._is_reported:
                self._emit({"event": "moved", "seconds": round(now - self._moved, 1)})
            self._moved, self._is_reported = now, False
        quiet = now - self._moved
        state = self._describe(quiet, now - self._computed)
        self._file.write(state)
        if quiet >= self._hang_timeout and not self._is_reported:
            self._is_reported = True
            self._emit({"event": "wait", "seconds": round(quiet, 1), "where": state["where"]})
            report_killed(self._emit)

    def _describe(self, quiet: float, idle: float) -> dict[str, object]:
        """Describe the program for the status file. `idle` is the time since it last computed, and
        `quiet` the time since it last computed or a loop last advanced; both are in seconds.
        """
        now = {"pid": os.getpid(), "time": time.time(), "quiet": round(quiet, 1)}
        state: dict[str, object] = {**_UNKNOWN, **now}
        try:
            self._fill(state, idle)
        except Exception as error:  # the wait must be reported, even if nothing else is known
            if not self._failed:
                self._failed = True
                self._warn("the lines where tasks wait are no longer known", error)
        return state

    def _fill(self, state: dict[str, object], idle: float) -> None:
        """Add everything that is known; less about a program that is computing."""
        frames = list_frames(self._thread)
        state.update(self._describe_compile())
        state["thread"] = 0 if self._thread == self._main else _find_number(self._thread)
        state["around"] = self._list_around(frames)
        state["programs"] = self._programs
        own_modules = sorted(name for name in list_own() if len(name) <= _LONGEST_FILE)
        state["own"] = own_modules[:MOST_OWN]
        state.update(self._loops.describe(frames))
        own = find_own(frames)
        shown = frames[:_MOST_FRAMES]
        if own and own not in shown:  # it called a library's deep functions
            shown[-1] = own
        state["frames"] = [
            (code.co_filename[-_LONGEST_FILE:], frame.f_lineno or 0, code.co_name[:_LONGEST_NAME])
            for frame in shown
            for code in (frame.f_code,)
        ]
        if idle < _QUIET:
            return
        self._file.answer_again()
        state["others"] = self._count_runs()
        state["deadlock"] = any(map(is_deadlock, frames[:1]))
        if own:
            place = f"{own.f_code.co_filename}:{own.f_lineno}"
            state.update(where=place, call=find_call(own))

    def _count_runs(self) -> int:
        """Return how often the kernel has scheduled the program's other Python threads."""
        ours = (self._thread, threading.get_ident())
        active = list(threading._active)  # type: ignore[attr-defined]
        others = [number for number in active if number not in ours]
        return sum(runs for _, runs in map(_read_schedule, map(_find_number, others)))

    def _describe_compile(self) -> dict[str, object]:
        """Return the observed thread's compilation or, if it has none, the longest-running
        compilation of another thread, which the main thread may be waiting for.
        """
        main = self._compiling.get(self._thread)
        stacks = [main] if main else list(self._compiling.values())
        begun = [stack[-1:] for stack in stacks]  # another thread's may end in between
        name, since = min(chain.from_iterable(begun), key=itemgetter(1), default=("", 0.0))
        if not name:
            return {}
        return {"compiling": name, "since": round(time.monotonic() - since, 1), "aside": not main}


def _has_no_work(frame: FrameType) -> bool:
    """Return whether a thread waits for work, as in a pool, by its frames; in `run`, a thread may
    have called a function of C, which has no frame.
    """
    waits = _WAITS.search(frame.f_code.co_filename) and frame.f_code.co_name != "run"
    return bool(waits) and all(is_installed(one.f_code.co_filename) for one in walk_stack(frame))


def list_frames(thread: int | None) -> list[FrameType]:
    """Return the frames of a thread, the innermost first."""
    return list(walk_stack(sys._current_frames().get(thread or 0)))


def _find_number(thread: int | None) -> int:
    """Return the kernel's number for a thread, or 0 if the thread has ended or Python did not start
    it.
    """
    return getattr(threading._active.get(thread), "native_id", 0) or 0  # type: ignore[attr-defined]


def _read_schedule(number: int) -> tuple[float, int]:
    """Return the seconds that a thread of this process has computed, and how often it has been
    scheduled.
    """
    try:
        with open(f"/proc/self/task/{number}/schedstat", "rb") as file:
            spent, _, runs = file.read(100).split()
    except (OSError, ValueError):  # it has ended, or the kernel has no such file
        return 0.0, 0
    return int(spent) / 1e9, int(runs)
