"""What a watcher shows and decides, by reports and snapshots in the test's hands; nothing is started."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kit.samples import MAIN, sample

from jaxsif.diagnose.facts import Hang
from jaxsif.diagnose.reports import MOST_ALIKE, Report
from jaxsif.errors import Cause, Fault, HostError
from jaxsif.watch import watcher as module
from jaxsif.watch.inspector import Target
from jaxsif.watch.programs import ProgramCensus
from jaxsif.watch.rule import Level, Verdict
from jaxsif.watch.sample import Sample
from jaxsif.watch.snapshot import Snapshot
from jaxsif.watch.watcher import EndWatcher, UnwatchedWatcher, WaitWatcher

SLEEPS = {"call": "clock_nanosleep", "frames": [["/home/ada/odd.py", 9, "go"], MAIN]}
SAMPLES = [*(sample(task=task) for task in range(3)), sample(task=3, **SLEEPS)]
PATIENCE = 5


class Look:
    """An inspection that has this to say, at once."""

    def __init__(self, samples: Sequence[Sample], silent: Sequence[str] = (), complaint: str = "") -> None:
        self.samples, self.silent, self.complaint = samples, silent, complaint
        self.lost, self.unseen = silent, 0
        self.has_answer = bool(samples)
        self.stopped = False

    def poll(self) -> bool:
        return True

    def stop(self) -> None:
        self.stopped = True


class Watched:
    """A watcher of a run of 4 tasks, its looks, and what it shows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, on_hang: str = "report", step: str = "12.0") -> None:
        self.now, self.shown = 1000.0, list[str]()
        self.kept: list[Level] = []
        self.looks: list[Look | HostError] = []
        self.targets: list[Target] = []
        start = Report(0, "n0", "started", step=step)
        plan: Any = SimpleNamespace(
            options=SimpleNamespace(hang_seconds=PATIENCE, on_hang=on_hang, busy_seconds=math.inf),
            launcher=SimpleNamespace(nodes=lambda _plan, _started: (("12", ("n0",)),)),
            coordinator=SimpleNamespace(step="random"),
            layout=SimpleNamespace(ntasks=4),
            host=SimpleNamespace(environ={}),
        )
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(module, "Inspection", SimpleNamespace(start=self._start))
        seen: Any = SimpleNamespace(reports=[start], tasks=4)
        self.seen = seen
        self.census = ProgramCensus()
        self.watcher = WaitWatcher(plan, seen, self.shown.append, self._keep, self.census)
        self.ends = EndWatcher(plan, seen, self.shown.append)
        self.unwatched = UnwatchedWatcher(plan, seen, self.shown.append)

    def _keep(self, verdict: Verdict, _snapshot: Snapshot) -> None:
        self.kept.append(verdict.level)

    def _start(self, target: Target, _environ: object) -> Look:
        self.targets.append(target)
        look = self.looks.pop(0)
        if isinstance(look, HostError):
            raise look
        return look

    def pass_time(self, seconds: float) -> None:
        """The launcher goes on meanwhile, and there is nothing to do for it."""
        self.now += seconds
        self.watcher._turn = self.now

    def wait(self, seconds: float, *others: int) -> None:
        """Task 0 stands still for so long, and so do these."""
        self.pass_time(seconds)
        for task in (0, *others):
            self.watcher.hear(Report(task, "n0", "wait", seconds=seconds, where="/home/ada/train.py:41"))

    def look(self, *looks: Look | HostError) -> bool:
        """Whether the run must end, after these looks with 6 s between them."""
        for one in looks:
            self.looks.append(one)
            self.watcher.poll()
            self.watcher.poll()
            self.pass_time(6)
        return self.watcher.failure is not None


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """One with --on-hang=stop."""
    return Watched(monkeypatch, "stop")


def look_for_unwatched(watched: Watched, look: Look | HostError, *told: int) -> None:
    """Let a run of 4 tasks go on for long, in which these tell that they are watched."""
    watched.looks.append(look)
    watched.unwatched.hear(Report(0, "n0", "started"))
    for task in told:
        watched.unwatched.hear(Report(task, "n0", "watched"))
    for _ in range(9):
        watched.unwatched.poll()
        watched.now += PATIENCE


BARE: dict[str, Any] = {"status": None, "answered": None, "frames": []}


@pytest.mark.parametrize(
    ("commands", "text"),
    [
        ({1: "a.out", 3: "a.out"}, "cannot watch tasks 1,3 for hangs: a.out is not Python"),
        ({1: "a.out", 2: "b.out"}, "cannot watch tasks 1-2 for hangs: a.out, b.out are not Python"),
        ({2: "python3"}, "cannot watch task 2 for hangs: python3 is without jaxsif's hook"),
    ],
)
def test_tasks_that_cannot_be_watched_are_named_once(watched: Watched, commands: dict[int, str], text: str) -> None:
    samples = [
        sample(task=task, **({"command": commands[task], **BARE} if task in commands else {})) for task in range(4)
    ]
    look_for_unwatched(watched, Look(samples), 0)
    assert watched.shown == [text]
    assert len(watched.targets) == 1


def test_tasks_that_may_use_jax_later_are_no_others(watched: Watched) -> None:
    """They have a file in memory, and nothing in it; or have told while somebody looked."""
    late = sample(task=1, status=None, answered=True)
    look_for_unwatched(watched, Look([late, sample(task=2, **BARE)]), 0, 2)
    assert watched.shown == []
    assert len(watched.targets) == 1


def test_where_all_tasks_are_watched_nobody_looks(watched: Watched) -> None:
    look_for_unwatched(watched, Look([]), 0, 1, 2, 3)
    assert watched.targets == []


def test_where_nobody_can_look_nothing_is_said_of_unwatched_tasks(watched: Watched) -> None:
    look_for_unwatched(watched, HostError("no srun", "", ""), 0)
    assert watched.shown == []


def test_a_wait_is_shown_and_so_is_its_end(watched: Watched) -> None:
    watched.wait(PATIENCE)
    assert not watched.look(Look(SAMPLES))
    assert watched.shown[0] == "tasks have been waiting for 5 s: 4 tasks on 1 node"
    assert watched.shown[-1] == "  likely: task 3 is keeping the others waiting"
    assert watched.kept == [Level.WAIT]
    told = "task 3 on node1 kept the others waiting for 11 s: it is sleeping (odd.py:9 go)"
    assert watched.watcher.hang == Hang(frozenset([3]), told, "see what it is doing there", is_certain=False)
    watched.watcher.hear(Report(0, "n0", "moved", seconds=11))
    assert watched.watcher.hang is None
    watched.watcher.poll()
    assert "is over" not in watched.shown[-1]  # the task may abort
    watched.now += 1
    watched.watcher.poll()
    assert watched.shown[-1] == "the wait is over after 11 s: the tasks are running again"


def test_a_wait_that_ends_just_before_the_run(watched: Watched) -> None:
    watched.wait(PATIENCE)
    watched.look(Look(SAMPLES))
    watched.watcher.hear(Report(0, "n0", "moved", seconds=11))
    for task in range(4):
        watched.watcher.hear(Report(task, "n0", "exit"))
    watched.watcher.close()
    assert watched.shown[-1] == "the wait is over after 11 s: the tasks are running again"


@pytest.mark.parametrize(("must_end", "ended"), [(True, 4), (False, 3)], ids=["by us", "one without a report"])
def test_a_wait_that_ends_with_the_run(watched: Watched, must_end: bool, ended: int) -> None:
    """A program's own handler of SIGTERM may end it with status 0."""
    watched.wait(PATIENCE)
    watched.look(Look(SAMPLES))
    watched.watcher.must_end = must_end
    watched.watcher.hear(Report(0, "n0", "moved", seconds=11))
    for task in range(ended):
        watched.watcher.hear(Report(task, "n0", "exit"))
    watched.watcher.close()
    assert "is over" not in watched.shown[-1]


@pytest.mark.parametrize("event", ["exit", "exception"])
def test_a_wait_that_ends_because_the_task_fails(watched: Watched, event: str) -> None:
    watched.wait(PATIENCE)
    watched.look(Look(SAMPLES))
    watched.watcher.hear(Report(0, "n0", "moved", seconds=11))
    watched.watcher.hear(Report(3, "n0", "exit"))
    watched.watcher.hear(Report(0, "n0", event, status=134 if event == "exit" else 0))
    watched.now += 2
    watched.watcher.poll()
    assert "is over" not in watched.shown[-1]


def test_a_task_that_goes_on_no_longer_keeps_the_others_waiting(watched: Watched) -> None:
    watched.wait(PATIENCE)
    watched.look(Look(SAMPLES))
    watched.watcher.hear(Report(1, "n0", "moved", seconds=6))
    assert watched.watcher.hang
    assert watched.watcher.hang.tasks == {3}
    watched.watcher.hear(Report(3, "n0", "moved", seconds=6))
    assert watched.watcher.hang is None


def test_a_handler_that_runs_at_the_end_ends_no_wait(watched: Watched) -> None:
    """As of SIGTERM, when the run is cancelled."""
    watched.wait(PATIENCE)
    watched.look(Look(SAMPLES))
    shown = [*watched.shown]
    watched.seen.reports.append(Report(-1, "", "cancelled"))
    for task in (0, 3):
        watched.watcher.hear(Report(task, "n0", "moved", seconds=11))
    assert watched.watcher.hang
    assert watched.watcher.hang.tasks == {3}
    assert watched.shown == shown


def test_a_wait_for_a_task_at_work_is_not_its_fault(watched: Watched) -> None:
    watched.wait(PATIENCE)
    compiling = {"frames": [["/x/site-packages/jax/_src/compiler.py", 9, "backend_compile_and_load"], MAIN]}
    watched.look(Look([*SAMPLES[:3], sample(task=3, **compiling)]))
    assert watched.kept == [Level.BUSY]
    assert watched.watcher.hang
    assert (watched.watcher.hang.tasks, watched.watcher.hang.what) == ({3}, "")


def test_who_has_not_compiled_what_the_others_wait_in_is_told(ending: Watched) -> None:
    """In the report of the wait, and in the error."""
    told = Report(0, "n0", "program", where="train.py:41", order=1, group="a", processes=4, name="jit_f", digest="b")
    for task in range(4):
        ending.census.add(told._replace(task=task), ending.now)
    for task in range(3):
        ending.census.add(told._replace(task=task, order=2, name="jit_g"), ending.now)
    ending.wait(PATIENCE)
    ending.look(Look(SAMPLES))
    lacks = "task 3 has not compiled jit_g at train.py:41 in the main thread, 3 others have"
    assert ending.shown[-2:] == ["  likely: task 3 is keeping the others waiting", f"  {lacks}"]
    ending.pass_time(4 * PATIENCE)
    assert ending.look(Look(SAMPLES))
    assert ending.watcher.failure
    assert ending.watcher.failure.what.endswith(f"it is sleeping; {lacks}; the run was ended")


@pytest.mark.parametrize("has_ended", [True, False])
@pytest.mark.parametrize("is_over", ["over", "all have it", ""])
def test_a_task_at_fault_that_has_raised_an_exception(ending: Watched, has_ended: bool, is_over: str) -> None:
    """It waits for the others, as in jax.distributed.shutdown, before Python prints a traceback."""
    for task in (0, 3):
        ending.watcher._seen.reports.append(Report(task, "n1", "raised", text="ValueError: 7", where="odd.py:2"))
    if is_over == "all have it":
        for task in (1, 2):
            ending.watcher._seen.reports.append(Report(task, "n1", "raised", text="ValueError: 7", where="odd.py:2"))
    elif is_over:
        ending.watcher._seen.reports.append(Report(3, "n1", "raised"))
    shutdown = sample(task=3, node="n1", frames=[["/x/site-packages/jax/_src/distributed.py", 9, "shutdown"], MAIN])
    ending.wait(PATIENCE)
    ending.look(Look([*SAMPLES[:3], shutdown if has_ended else SAMPLES[3]]))
    assert (ending.shown[-1] == "  task 3 on n1 raised ValueError: 7 at odd.py:2") == (not is_over)


def test_a_task_apart_that_has_raised_an_exception(ending: Watched) -> None:
    """Neither is known to be at fault."""
    raised = Report(1, "n1", "raised", text="ValueError: 7", where="odd.py:2")
    ending.watcher._seen.reports.append(raised)
    apart = [sample(task=task, frames=[[f"/home/ada/{file}.py", 3, "go"], MAIN]) for task, file in enumerate("aabb")]
    ending.wait(PATIENCE)
    ending.look(Look(apart))
    ending.pass_time(4 * PATIENCE)
    ending.look(Look(apart))
    assert ending.shown[-1] == "  task 1 on n1 raised ValueError: 7 at odd.py:2"


def test_the_programs_that_differ_are_repeated_in_a_hang(ending: Watched) -> None:
    told = Report(0, "n0", "program", where="train.py:41", order=1, group="a", processes=4, name="jit_f", digest="b")
    for task in range(4):
        ending.census.add(told._replace(task=task, digest="c" if task == 3 else "b"), ending.now)
    ending.census.check(ending.now + 1)
    ending.wait(PATIENCE)
    ending.look(Look(SAMPLES))
    assert ending.shown[-1].startswith("  task 3 compiled jit_f for ()")


def test_stop_ends_the_run(ending: Watched) -> None:
    ending.wait(PATIENCE)
    assert not ending.look(Look(SAMPLES))
    ending.pass_time(4 * PATIENCE)
    assert ending.look(Look(SAMPLES))
    failure = ending.watcher.failure
    assert (failure.what, failure.where, failure.exit_code) == (
        "task 3 on node1 kept the others waiting for 31 s: it is sleeping; the run was ended",
        "odd.py:9 go",
        124,
    )
    assert failure.hint == "see what it is doing there; with --on-hang=report, the run continues"


INITIALIZES = {"frames": [["/x/site-packages/jax/_src/distributed.py", 9, "initialize"], MAIN]}
FAILED = Report(3, "n1", "exception", text="ValueError: 7", where="/home/ada/a.py:9", jax=True)
IS_HIDDEN = "task 3 on n1: python failed (ValueError: 7, a.py:9), but its command ended with status 0"


def end_task_3(ending: Watched, *reports: Report, **frames: Any) -> bool:
    """Whether the run must end: task 3 has ended after these reports, and the others stand still."""
    ending.seen.reports.extend([*reports, Report(3, "n1", "exit")])
    ending.watcher.hear(Report(3, "n1", "exit"))
    ending.wait(PATIENCE)
    return ending.look(Look([sample(task=task, **frames) for task in range(3)]))


def test_a_task_that_ends_before_it_connects_is_a_hang(ending: Watched) -> None:
    assert end_task_3(ending, **INITIALIZES)
    assert ending.watcher.failure
    what = "task 3 on n1 kept the others waiting for 5 s: it has ended; the run was ended"
    hint = "make every task call jax.distributed.initialize() before it can end; with --on-hang=report, the run "
    assert (ending.watcher.failure.what, ending.watcher.failure.hint) == (what, f"{hint}continues")
    assert "  likely: task 3 is keeping the others waiting" in ending.shown


def test_a_failure_before_the_task_connects_is_told(ending: Watched) -> None:
    assert end_task_3(ending, FAILED, **INITIALIZES)
    assert ending.watcher.failure
    what = f"task 3 on n1 kept the others waiting for 5 s: it has ended; {IS_HIDDEN}; the run was ended"
    assert (ending.watcher.failure.what, ending.watcher.failure.where) == (what, "a.py:9")
    assert ending.watcher.failure.hint.startswith("if that is not intended: set -o pipefail, set -e; ")


SUCCESS = Report(3, "n1", "success")
SHUTS_DOWN = {"frames": [["/x/site-packages/jax/_src/distributed.py", 9, "shutdown"]]}


@pytest.mark.parametrize(
    ("report", "note", "hint"),
    [
        (SUCCESS, "", "end all tasks alike: os._exit leaves out JAX's shutdown, where the others wait"),
        (FAILED, f"; {IS_HIDDEN}", "if that is not intended: set -o pipefail, set -e"),
    ],
    ids=["os._exit(0)", "os._exit(1)"],
)
def test_a_task_that_leaves_out_the_shutdown_is_a_hang(ending: Watched, report: Report, note: str, hint: str) -> None:
    assert end_task_3(ending, report, **SHUTS_DOWN)
    assert ending.watcher.failure
    what = f"task 3 on n1 kept the others waiting for 5 s: it has ended{note}; the run was ended"
    remedy = f"{hint}; with --on-hang=report, the run continues"
    assert (ending.watcher.failure.what, ending.watcher.failure.hint) == (what, remedy)


def test_the_line_where_a_task_left_is_known(ending: Watched) -> None:
    """Both as it waits in the shutdown, and as it has left that out."""
    call = "SystemExit: 0, at /home/ada/a.py:9"
    ending.seen.reports.append(Report(3, "n1", "end", text=call))
    ending.wait(PATIENCE)
    assert ending.look(Look([*(sample(task=task) for task in range(3)), sample(task=3, **SHUTS_DOWN)]))
    assert ending.watcher.failure
    assert ending.watcher.failure.where.startswith(f"{call}; ")


@pytest.mark.parametrize(
    "reports",
    [[Report(3, "n1", "end"), SUCCESS], [Report(3, "n1", "alone"), SUCCESS], []],
    ids=["it was there", "never connected", "no JAX"],
)
def test_a_task_that_the_shutdown_does_not_need(ending: Watched, reports: list[Report]) -> None:
    assert not end_task_3(ending, *reports, **SHUTS_DOWN)
    assert ending.kept == []


@pytest.mark.parametrize(
    "reports",
    [(Report(3, "n1", "end"), SUCCESS), [SUCCESS] * MOST_ALIKE],
    ids=["it was connected", "of so many no end is kept"],
)
def test_a_task_that_may_have_connected_keeps_nobody_waiting(ending: Watched, reports: Sequence[Report]) -> None:
    """Others may be another group of processes."""
    assert not end_task_3(ending, *reports, **INITIALIZES)
    assert ending.kept == []


def test_a_task_that_still_has_a_process_is_seen_there(ending: Watched) -> None:
    ending.watcher.hear(Report(3, "n1", "exit"))
    ending.wait(PATIENCE)
    assert not ending.look(Look([sample(task=task, **INITIALIZES) for task in range(4)]))


def test_a_failure_that_a_shell_hides_is_shown_beside_a_wait(ending: Watched) -> None:
    """Whether the others need that task is not known: they may go on."""
    assert not end_task_3(ending, FAILED)
    assert ending.kept == []
    ending.pass_time(2 * PATIENCE)
    assert not ending.look(Look([sample(task=task) for task in range(3)]))
    assert re.fullmatch("  1 task  has failed  +a.py:9  .* task 3 on n1", ending.shown[2])
    assert ending.shown[-1] == f"  {IS_HIDDEN}"
    ending.pass_time(10 * PATIENCE)
    assert ending.look(Look([sample(task=task) for task in range(3)]))
    assert ending.watcher.failure
    assert ending.watcher.failure.what.endswith(
        f"tasks 0-2 are waiting in a collective; {IS_HIDDEN}; the run was ended"
    )
    assert ending.watcher.failure.hint.startswith("if that is not intended: set -o pipefail, set -e; ")


@pytest.mark.parametrize("reports", [[], [FAILED._replace(jax=False)], [SUCCESS]], ids=["a tool", "a probe", "done"])
def test_a_task_that_is_done_is_not_shown(ending: Watched, reports: list[Report]) -> None:
    assert not end_task_3(ending, *reports)
    ending.pass_time(2 * PATIENCE)
    assert not ending.look(Look([sample(task=task) for task in range(3)]))
    assert ending.shown[0].endswith("3 tasks on 1 node")


def test_a_task_that_sleeps_although_others_have_ended(ending: Watched) -> None:
    """Whether it did as many collectives is not known."""
    look = Look([*(sample(task=task, **SHUTS_DOWN) for task in range(3)), sample(task=3, **SLEEPS)])
    ending.wait(PATIENCE)
    ending.look(look)
    ending.pass_time(4 * PATIENCE)
    assert ending.look(look)
    assert ending.watcher.failure
    assert ending.watcher.failure.hint.startswith("see what it is doing there, and why others have ended; ")


def test_a_task_whose_threads_go_on_at_its_end(ending: Watched) -> None:
    joins = {"frames": [["/usr/lib/python3.13/threading.py", 1542, "_shutdown"]]}
    ending.wait(PATIENCE)
    ending.look(Look([*SAMPLES[:3], sample(task=3, **joins)]))
    ending.pass_time(4 * PATIENCE)
    assert ending.look(Look([*SAMPLES[:3], sample(task=3, **joins)]))
    assert ending.watcher.failure
    assert ": it has reached its end, and is waiting for its threads; " in ending.watcher.failure.what
    assert ending.watcher.failure.hint.startswith("end its threads before the program ends, or start them with daemon=")


def test_a_thread_of_the_odd_task_that_has_ended_is_the_cause(ending: Watched) -> None:
    for task in (1, 3):
        text = f"an exception ended a thread: ValueError: shard {task}, at data.py:9"
        ending.watcher._seen.reports.append(Report(task, "n0", "warning", text=text))
    ending.wait(PATIENCE)
    ending.look(Look(SAMPLES))
    ending.pass_time(4 * PATIENCE)
    assert ending.look(Look(SAMPLES))
    cause = "an exception ended a thread: ValueError: shard 3, at data.py:9; the task may be waiting for that thread; "
    assert ending.watcher.failure
    assert ending.watcher.failure.hint.startswith(cause)


@pytest.mark.parametrize("locked", [(0, 1, 2, 3), (1, 2, 3)])
@pytest.mark.parametrize("failed", [(0, 1, 2, 3), (1, 2)])
def test_threads_for_which_tasks_may_wait_at_a_lock(
    ending: Watched, locked: tuple[int, ...], failed: tuple[int, ...]
) -> None:
    """Also where another thread, such as one that writes, might release that."""
    for task in failed:
        text = f"an exception ended a thread: ValueError: shard {task}, at data.py:9"
        ending.watcher._seen.reports.append(Report(task, "n0", "warning", text=text))
    waits = {"call": "futex", "frames": [["/usr/lib/python3.13/queue.py", 9, "get"], MAIN]}
    samples = [sample(task=task, **(waits if task in locked else {})) for task in range(4)]
    ending.wait(PATIENCE)
    ending.look(Look(samples))
    ending.pass_time(9 * PATIENCE)
    ending.look(Look(samples))
    hint = ending.watcher.failure.hint if ending.watcher.failure else ""
    # All may wait for requests, and their threads may have failed long ago: no hang.
    assert bool(hint) == (locked == (1, 2, 3))
    assert bool(ending.shown) == (bool(hint) or len(failed) == 4)
    is_named = "ValueError: shard 3, at data.py:9; the task may be waiting for that thread; " in hint
    assert is_named == (bool(hint) and len(failed) == 4)


def test_a_thread_that_has_ended_in_all_tasks_is_the_cause(ending: Watched) -> None:
    """No task waits for others."""
    for task in range(4):
        text = f"an exception ended a thread: ValueError: shard {task}, at data.py:9"
        ending.watcher._seen.reports.append(Report(task, "n0", "warning", text=text))
    locked = [sample(task=task, call="futex", frames=[["/home/ada/data.py", 9, "next"], MAIN]) for task in range(4)]
    locked = [one._replace(status=one.status._replace(deadlock=True)) for one in locked]
    ending.wait(PATIENCE)
    ending.look(Look(locked))
    ending.pass_time(4 * PATIENCE)
    assert ending.look(Look(locked))
    assert ending.watcher.failure
    cause = "an exception ended a thread: ValueError: shard 3, at data.py:9; the task may be waiting for that thread; "
    assert ending.watcher.failure.hint.startswith(cause)


def test_a_task_that_has_ended_waits_for_no_thread(ending: Watched) -> None:
    text = "an exception ended a thread: ValueError: shard 3, at data.py:9"
    warning = Report(3, "n1", "warning", text=text)
    assert end_task_3(ending, warning, **INITIALIZES)
    assert ending.watcher.failure
    assert ending.watcher.failure.hint.startswith(f"{text}; the task ended without that thread; ")


@pytest.mark.parametrize(("status", "is_over"), [(0, True), (1, False)])
def test_a_wait_that_ends_with_its_tasks(watched: Watched, status: int, is_over: bool) -> None:
    """The program came to its end within a second."""
    watched.wait(PATIENCE)
    watched.look(Look(SAMPLES))
    for task in range(4):
        watched.watcher.hear(Report(task, "n0", "exit", status=status))
    assert (watched.shown[-1] == "the wait is over after 11 s: the tasks have ended") == is_over
    assert len([line for line in watched.shown if "is over" in line]) == is_over


@pytest.mark.parametrize(("events", "is_over"), [([], True), (["interrupted"], False)])
def test_a_wait_that_ends_with_those_that_waited(watched: Watched, events: list[str], is_over: bool) -> None:
    """The task that kept them waiting works on. A handler of SIGTERM may also end them, with status 0."""
    watched.wait(PATIENCE)
    watched.look(Look(SAMPLES))
    assert watched.watcher.hang
    watched.watcher._seen.reports.extend(Report(-1, "", event) for event in events)
    for task in range(3):
        watched.watcher.hear(Report(task, "n0", "exit"))
    assert (watched.watcher.hang is None) == is_over
    assert (watched.shown[-1] == "the wait is over after 11 s: the tasks have ended") == is_over


@pytest.mark.parametrize("silent", [[], ["n1"]], ids=["all answer", "a daemon is away"])
def test_who_works_alone_does_not_end_the_run(ending: Watched, silent: list[str]) -> None:
    ending.wait(PATIENCE)
    compiles = sample(task=3, main_cpu=1.0, cpu=1.0, status={"compiling": "f"})
    assert not ending.look(Look([*SAMPLES[:3], compiles], silent))
    ending.pass_time(10 * PATIENCE)
    assert not ending.look(Look([*SAMPLES[:3], compiles], silent))
    assert ending.kept == [Level.BUSY]
    assert ending.shown[0].startswith("tasks have been waiting 5 s for others to compile, load or save: ")


def test_it_is_looked_soon_again_whether_input_comes(ending: Watched) -> None:
    ending.wait(PATIENCE)
    reads = sample(task=3, call="read", descriptor=0, file="pipe", frames=SLEEPS["frames"])
    for _ in range(2):
        ending.looks.append(Look([*SAMPLES[:3], reads]))
        ending.watcher.poll()
        ending.watcher.poll()
        ending.pass_time(0.41 * PATIENCE)
    assert (ending.looks, ending.kept) == ([], [Level.WAIT])
    assert ending.watcher.failure is None


def test_that_nobody_can_look_is_said_once_and_tried_again(watched: Watched) -> None:
    watched.wait(PATIENCE)
    blind = Look([], ["n0"], "srun: error: Unable to contact slurm controller")
    assert not watched.look(blind, blind, HostError("cannot start srun"))
    assert watched.shown == [
        "cannot inspect the waiting tasks: srun: error: Unable to contact slurm controller; trying again"
    ]
    watched.look(Look(SAMPLES))
    assert watched.shown[1].startswith("tasks have been waiting for 23 s: ")


def test_slurm_is_asked_soon_after_it_has_come_back(watched: Watched) -> None:
    """However long it was away."""
    watched.wait(PATIENCE)
    times = []
    for _ in range(1000):
        watched.looks.append(Look([], ["n0"]))
        watched.watcher.poll()
        watched.watcher.poll()
        times += [watched.now] if not watched.looks else []
        watched.looks.clear()
        watched.pass_time(1)
    assert max(later - one for one, later in zip(times, times[1:])) < 15


def test_what_nobody_has_seen_may_be_what_others_wait_for(ending: Watched) -> None:
    """As on other hosts of mpirun, where nobody can look: no task is blamed, and none called a hang."""
    ending.wait(PATIENCE)
    assert not ending.look(Look(SAMPLES[2:]))
    assert ending.shown == []
    ending.pass_time(20 * PATIENCE)
    assert not ending.look(Look(SAMPLES[2:]))
    assert ending.kept == [Level.WAIT]
    assert ending.shown[0].endswith(": 3 tasks on 2 nodes")
    assert any(re.fullmatch(r"  1 task is waiting  +train.py:41  .+ task 0 on n0", row) for row in ending.shown)
    assert ending.shown[-1] == "  nothing is known about 1 other task"


def test_what_tasks_say_themselves_is_shown(watched: Watched) -> None:
    """Where all have said that they wait, that is a hang, in its time."""
    watched.wait(PATIENCE, 1, 2)
    watched.watcher.hear(Report(3, "n0", "exit"))
    watched.pass_time(2 * PATIENCE)
    watched.look(Look([]), Look([]))
    assert watched.shown[1:] == ["  3 tasks are waiting  train.py:41    tasks 0-2 on n0"]
    watched.watcher.hear(Report(0, "n0", "moved", seconds=20))
    assert watched.shown[2:] == []


def test_a_silent_node_does_not_end_the_run(ending: Watched) -> None:
    """Its daemon may be away, and its tasks at work. If it is lost, JAX ends the run."""
    ending.wait(PATIENCE)
    assert not ending.look(Look(SAMPLES, ["n1"]))
    assert ending.shown[-1] == "  no answer from n1"  # and nobody is blamed, who may wait for that node
    ending.pass_time(20 * PATIENCE)
    assert not ending.look(Look(SAMPLES, ["n1"]))
    assert ending.kept == [Level.WAIT]


@pytest.mark.parametrize(("reachable", "ends"), [(False, True), (True, False)])
def test_a_node_without_any_answer_ends_a_run_that_may_start_again(
    monkeypatch: pytest.MonkeyPatch, reachable: bool, ends: bool
) -> None:
    """Not one on which only slurmd is away."""
    watched = Watched(monkeypatch, "restart")
    monkeypatch.setattr(module, "is_reachable", lambda _node: reachable)
    watched.wait(PATIENCE)
    assert not watched.look(Look(SAMPLES, ["n1"]))
    assert watched.look(Look(SAMPLES, ["n1"])) is ends
    failure = watched.watcher.failure
    if failure:
        assert failure.what == "no answer from n1 while tasks were waiting; the run was ended"
        assert failure.cause == Cause(Fault.NODE, ("n1",), "lost")


def test_a_node_that_answers_again_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, "restart")
    monkeypatch.setattr(module, "is_reachable", lambda _node: False)
    watched.wait(PATIENCE)
    assert not watched.look(Look(SAMPLES, ["n1"]))
    watched.pass_time(PATIENCE)
    assert not watched.look(Look(SAMPLES))
    watched.pass_time(10 * PATIENCE)
    watched.looks.append(Look(SAMPLES, ["n1"]))
    watched.watcher.poll()
    assert watched.watcher.failure is None or watched.watcher.failure.cause.fault == Fault.HANG


def test_the_facts_of_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """By them, two hangs at one line are the same, but not tasks that somebody has stopped."""
    sleeps = Watched(monkeypatch, "restart")
    sleeps.wait(PATIENCE)
    sleeps.look(Look(SAMPLES))
    sleeps.pass_time(4 * PATIENCE)
    assert sleeps.look(Look(SAMPLES))
    assert sleeps.watcher.failure
    mark = ("hang", "odd.py:9 go")
    assert sleeps.watcher.failure.cause == Cause(Fault.HANG, ("node1",), "stopped or hung", mark)
    stopped = Watched(monkeypatch, "restart")
    stopped.wait(PATIENCE)
    assert stopped.look(Look([*SAMPLES[:3], sample(task=3, node="n7", state="T", frames=[])]))
    assert stopped.watcher.failure
    assert stopped.watcher.failure.cause == Cause(Fault.HANG, ("n7",), "stopped or hung")


def test_reports_that_come_late_are_of_waits_that_may_be_over(ending: Watched) -> None:
    """A reader of standard error has paused: the launcher could neither read nor write."""
    ending.wait(PATIENCE)
    ending.now += 6 * PATIENCE
    ending.watcher.hear(Report(1, "n0", "wait", seconds=5.0, where="/home/ada/train.py:41"))
    ending.watcher.poll()
    assert ending.targets == []
    ending.watcher.hear(Report(0, "n0", "moved", seconds=9.0))
    ending.pass_time(1.1 * PATIENCE)
    ending.look(Look(SAMPLES))
    assert ending.shown[0] == "tasks have been waiting for 6 s: 4 tasks on 1 node"


def test_a_lock_that_nobody_releases_is_a_hang_of_one_task(ending: Watched) -> None:
    ending.watcher._plan.layout.ntasks = 1  # type: ignore[misc]
    ending.wait(PATIENCE)
    locked = Look([sample(status={"deadlock": True, "call": "lock.acquire()"})])
    assert not ending.look(locked)
    ending.pass_time(5 * PATIENCE)
    assert ending.look(locked)
    assert ending.kept == [Level.WAIT, Level.HANG]


def test_a_lock_that_nobody_waits_for_is_no_hang(ending: Watched) -> None:
    """Threads of C may do all the work, as those of a server."""
    ending.wait(PATIENCE)
    computes = [sample(task=task, main_cpu=1.0, cpu=1.0) for task in range(3)]
    locked = sample(task=3, status={"deadlock": True, "call": "lock.acquire()"})
    ending.look(Look([*computes, locked]))
    ending.pass_time(20 * PATIENCE)
    ending.look(Look([*computes, locked]))
    assert ending.kept == []


LOCKED = {"status": {"deadlock": True, "call": "lock.acquire()"}}
COMPILES = {"main_cpu": 1.0, "cpu": 1.0, "status": {"compiling": "f"}}


@pytest.mark.parametrize(
    ("tasks", "silent", "said"),
    [
        ([LOCKED, LOCKED, LOCKED, {"status": {"call": "queue.get()"}}], [], [Level.WAIT, Level.HANG]),
        ([LOCKED, LOCKED, LOCKED, {}], [], [Level.WAIT, Level.HANG]),
        ([COMPILES, COMPILES, COMPILES, {}], [], [Level.BUSY]),
        ([COMPILES] * 4, ["n9"], []),  # a task there may have told that it waits
    ],
    ids=["a lock of its own in most", "and one waits", "most compile", "all that were seen compile"],
)
def test_where_nobody_is_odd(
    watched: Watched, tasks: list[dict[str, Any]], silent: list[str], said: list[Level]
) -> None:
    watched.wait(PATIENCE)
    seen = Look([sample(task=task, **fields) for task, fields in enumerate(tasks)], silent)
    watched.look(seen)
    watched.pass_time(5 * PATIENCE)
    watched.look(seen)
    assert watched.kept == said


def test_the_error_names_the_task_that_was_stopped(ending: Watched) -> None:
    """Also where the others do not wait in collectives."""
    ending.wait(PATIENCE)
    locks = [sample(task=task, status={"call": "queue.get()"}) for task in range(3)]
    assert ending.look(Look([*locks, sample(task=3, node="n7", state="T", frames=[])]))
    failure = ending.watcher.failure
    stopped = "task 3 on n7 is stopped (SIGSTOP); tasks 0-2 are at train.py:41 step"
    assert failure.what == f"tasks have been waiting for 5 s: {stopped}; the run was ended"
    assert failure.hint.startswith("find the sender of SIGSTOP")


def test_a_look_under_way_ends_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    watched, look = Watched(monkeypatch), Look(SAMPLES)
    watched.wait(PATIENCE)
    watched.looks.append(look)
    watched.watcher.poll()
    watched.watcher.close()
    assert look.stopped


def test_without_slurm_the_run_is_known_by_its_random_name(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, step="1.")
    watched.wait(PATIENCE)
    watched.look(Look(SAMPLES))
    assert watched.targets[0].words == ("random",)
    assert watched.shown[0] == "tasks have been waiting for 5 s: 4 tasks on 1 node"


@pytest.mark.parametrize("place", [["/home/ada/train.py", 41, "step"], ["/home/ada/train.py", 44, "log"]])
def test_tasks_that_wait_at_one_line_or_two_are_ended_only_when_they_hang(ending: Watched, place: list[object]) -> None:
    """All may wait for a long step of their devices, whose result the first process reads before it logs it."""
    ending.wait(PATIENCE)
    waiting = Look([*SAMPLES[:3], sample(task=3, frames=[place, MAIN])])
    assert not ending.look(waiting, waiting)
    assert ending.kept[:1] in ([], [Level.WAIT])
    ending.pass_time(10 * PATIENCE)
    assert ending.look(waiting, waiting)


def test_a_task_that_has_ended_waits_no_more(watched: Watched) -> None:
    watched.wait(PATIENCE)
    watched.watcher.hear(Report(0, "n0", "exit", 1))
    watched.watcher.poll()
    assert (watched.targets, watched.shown) == ([], [])


def hear(watched: Watched, *reports: Report) -> None:
    for report in reports:
        watched.ends.hear(report)


def end_after(watched: Watched, *seconds: float) -> None:
    """Look so many seconds after a task has ended."""
    begin = watched.now
    for second in seconds:
        watched.now = begin + second
        watched.ends.poll()


def test_a_run_that_has_failed_and_waits_for_a_lost_node_is_ended(watched: Watched) -> None:
    hear(watched, Report(2, "n0", "exit", 0), Report(1, "n0", "exit", 1, where="a.py:7"))
    watched.looks = [Look(SAMPLES, ["n1"])]
    end_after(watched, 0, 4, 6, 7)
    assert watched.shown == ["no answer from n1: ending the run"]
    failure = watched.ends.failure
    assert failure.what == "no answer from n1, after task 1 on n0 failed; the run was ended"
    assert failure.cause == Cause(Fault.NODE, ("n1",), "lost")
    assert (failure.where, failure.exit_code) == ("a.py:7", 1)
    assert "--exclude=n1" in failure.hint


def test_the_programs_own_failure_is_told(watched: Watched) -> None:
    watched.seen.reports.append(Report(1, "n0", "exception", text="ValueError: boom"))
    hear(watched, Report(1, "n0", "exit", 1))
    watched.looks = [Look(SAMPLES, ["n1"])]
    end_after(watched, 0, 6, 7)
    assert (watched.ends.must_end, watched.ends.failure) == (True, None)


@pytest.mark.parametrize("event", ["cancelled", "interrupted"])
def test_a_job_that_is_ending_is_left_alone(watched: Watched, event: str) -> None:
    watched.seen.reports.append(Report(-1, "", event))
    hear(watched, Report(1, "n0", "exit", 143))
    end_after(watched, 0, 6, 60)
    assert (watched.targets, watched.ends.must_end) == ([], False)


def test_where_no_node_answers_nobody_is_lost(watched: Watched) -> None:
    """Slurm refuses steps in a job that is ending."""
    hear(watched, Report(1, "n0", "exit", 143))
    watched.looks = [Look([], ["n0", "n1"])]
    end_after(watched, 0, 6, 60)
    assert (watched.shown, watched.ends.must_end) == ([], False)


def test_where_nobody_can_look_the_programs_own_failure_stands(watched: Watched) -> None:
    hear(watched, Report(1, "n0", "exit", 1))
    watched.looks = [HostError("cannot start srun")]
    end_after(watched, 0, 6, 60)
    assert len(watched.targets) == 1
    assert (watched.shown, watched.ends.must_end, watched.ends.failure) == ([], False, None)


def test_a_run_whose_nodes_answer_ends_in_its_time(watched: Watched) -> None:
    """Once it is looked at, however many tasks fail."""
    watched.seen.reports += [Report(task, "n0", "exit", 1) for task in range(3)]
    hear(watched, *watched.seen.reports)
    watched.looks = [Look(SAMPLES)]
    end_after(watched, 0, 6, 7)
    hear(watched, Report(3, "n0", "exit", 1))
    end_after(watched, 0, 6, 60)
    left = ["task 0 on n0 has failed; task 3 has not ended after 5 s"]
    assert (len(watched.targets), watched.shown, watched.ends.failure) == (1, left, None)


def test_nobody_looks_while_no_task_has_failed(watched: Watched) -> None:
    hear(watched, Report(0, "n0", "exit", 0))
    end_after(watched, 0, 6, 600)
    assert watched.targets == []
