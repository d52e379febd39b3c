"""Runs that end otherwise than by a crash: who is named, and who is not blamed."""

from __future__ import annotations

import pytest
from kit.hosts import SRUN

from jaxsif.diagnose.culprit import find_failure
from jaxsif.diagnose.facts import End, Hang, render_places, render_remarks
from jaxsif.diagnose.reports import ALIKE, HAS_ENDED, MAY_COMPILE, Barrier, ProgramDifference, Report
from jaxsif.errors import Fault, JaxsifError
from jaxsif.launch.probe import choose_launcher
from jaxsif.settings.config import staff_files
from jaxsif.settings.options import Rank, RunOptions, Setting
from jaxsif.task import contract
from jaxsif.task.contract import WORKER_ENDED

STARTED = Report(0, "node1", "started", step="7.0")
CANCELLED = "slurmstepd-node1: error: *** STEP 7.0 ON node1 CANCELLED AT 2026-11-22T10:39:36 ***"
GAVE_UP = "F client.h:80] Terminating process because the JAX distributed service detected fatal errors."
GAVE_UP += " DEADLINE_EXCEEDED"
EXITED = "srun: error: node1: task 0: Exited with exit code 143"
ABORTED = Report(-1, "", "cancelled")  # srun: Job step aborted


def place(task: int) -> str:
    return f"node{1 + task // 2}"


def exit_of(task: int, status: int, where: str = "train.py:9") -> Report:
    return Report(task, place(task), "exit", status, where=where)


def gone(task: int) -> Report:
    return Report(
        task, place(task), "exception", text="ValueError: reset by peer", where="train.py:9", consequence=True
    )


def end_of(task: int) -> Report:
    return Report(task, place(task), "end")


def find(end: End, *reports: Report, errors: tuple[str, ...] = (), barriers: tuple[Barrier, ...] = ()) -> str:
    error = find_failure(end, [STARTED, *reports], errors, barriers)
    assert isinstance(error, JaxsifError)
    return error.render()


NEIGHBOURS = (gone(1), exit_of(1, 1), gone(3), exit_of(3, 1), exit_of(0, 143))
OTHERS = "the others were at train.py:9 (tasks 0-1,3)"


def test_a_task_that_left_with_status_0_is_the_cause() -> None:
    said = find(End(1, SRUN, tasks=4), exit_of(2, 0, ""), *NEIGHBOURS, errors=(CANCELLED,))
    assert said.startswith("jaxsif: error: task 2 on node2 ended with exit status 0, and 3 of 4 tasks did not\n")
    assert OTHERS in said


def test_process_0_of_a_group_that_left_with_status_0_is_the_cause() -> None:
    """JAX ends its partner; the other group has come to its end."""
    lost = GAVE_UP.replace(
        "DEADLINE_EXCEEDED", "absl::Status: UNAVAILABLE: Failed to send RPC to coordination service."
    )
    connected = [Report(task, place(task), "watched", jax=True) for task in range(4)]
    ended = (
        exit_of(0, 0, ""),
        exit_of(1, 134),
        *(one for task in (2, 3) for one in (end_of(task), exit_of(task, 0, ""))),
    )
    said = find(End(134, SRUN, tasks=4), *connected, *ended, errors=(lost,))
    assert said.startswith("jaxsif: error: task 0 on node1 ended with exit status 0, and 1 of 4 tasks did not\n")
    assert "task 1 on node1 was killed by SIGABRT" in find(End(134, SRUN, tasks=4), *connected, *ended)


def test_a_process_of_a_group_that_left_with_status_0_is_the_cause() -> None:
    connected = [Report(task, place(task), "watched", jax=True) for task in range(4)]
    ended = (
        exit_of(1, 0, ""),
        gone(0)._replace(text="ValueError: UNKNOWN: Gloo AllGather failed: Connection reset by peer"),
        exit_of(0, 1),
        *(o for task in (2, 3) for o in (end_of(task), exit_of(task, 0, ""))),
    )
    said = find(End(1, SRUN, tasks=4), *connected, *ended)
    assert said.startswith("jaxsif: error: task 1 on node1 ended with exit status 0, and 1 of 4 tasks did not\n")
    own = gone(0)._replace(text="BrokenPipeError: Broken pipe")  # the program's own
    said = find(End(1, SRUN, tasks=4), *connected, exit_of(1, 0, ""), own, *ended[2:])
    assert said.startswith("jaxsif: error: task 0 on node1 failed: BrokenPipeError: Broken pipe\n")


def test_arrays_of_different_sizes_are_not_the_fault_of_a_task_that_came_to_its_end() -> None:
    gloo = "  what():  [enforce fail at gloo/transport/tcp/pair.cc:459] op.preamble.length <= op.nbytes. 16 vs 12."
    errors = (f"{gloo} Received data size doesn't match expected size. Is there a mismatch in your code?",)
    said = find(End(134, SRUN, tasks=2), end_of(1), exit_of(0, 134, "shape.py:5"), exit_of(1, 143), errors=errors)
    assert said == (
        "jaxsif: error: the processes took part in a collective with arrays of different sizes\n"
        "  from: shape.py:5, where task 0 on node1 was; the others were at the end of the program (task 1)\n"
        "  try:  let all processes run the same collectives, none under `if jax.process_index() == 0`, with the same"
        " shapes, from one thread, and pad the last batch; --check-programs=stop names a task whose programs differ"
    )
    options = RunOptions(("true",), check_programs="stop")
    end = End(134, SRUN, tasks=2, options=options)
    said = find(end, end_of(1), exit_of(0, 134, "shape.py:5"), exit_of(1, 143), errors=errors)
    assert said.endswith(
        "pad the last batch; no difference between programs was found: look for a call that some tasks skip or make"
        " with other shapes"
    )
    difference = "task 0 has not compiled jit__psum again for (tensor<4xf32>) at bc.py:12, unlike 3 others"
    end = End(134, SRUN, tasks=2, options=options, difference=ProgramDifference(difference, how=MAY_COMPILE))
    error, *_, remedy = find(end, exit_of(0, 134, "bc.py:12"), exit_of(1, 143), errors=errors).splitlines()
    assert error.endswith(f"a collective with arrays of different sizes: {difference}")
    assert remedy.endswith("with the same shapes, from one thread, and pad the last batch")
    said = find(end, exit_of(1, 0, ""), exit_of(0, 134, "bc.py:12"), errors=errors)
    assert "arrays of different sizes" not in said


def test_arrays_of_different_sizes_name_the_task_whose_program_differs() -> None:
    """Gloo may end a task that is like the others."""
    difference = "task 1 compiled jit_f for (tensor<5xf32>) at a.py:3, 3 others for (tensor<4xf32>) at a.py:3"
    errors = ("  what():  Received data size doesn't match expected size. Is there a mismatch in your code?",)
    end = End(134, SRUN, tasks=4, difference=ProgramDifference(difference))
    first, *_ = find(end, exit_of(2, 134, "a.py:4"), exit_of(1, 143), errors=errors).splitlines()
    assert first == (
        f"jaxsif: error: the processes took part in a collective with arrays of different sizes: {difference}"
    )


@pytest.mark.parametrize("difference", ["", "task 1 compiled jit_f for (i32) at a.py:3, 3 others another"])
def test_a_task_that_is_compared_with_the_one_that_differs(difference: str) -> None:
    """It may be the first to end."""
    text = "jit_f for (i32) is not what task 1 compiled: another jit_f for (i32) at a.py:3; the results may be wrong"
    ended = [Report(2, "node2", "exception", text=text, where="a.py:3"), exit_of(2, 1), exit_of(1, 1)]
    first, *_ = find(End(1, SRUN, tasks=4, difference=ProgramDifference(difference)), *ended).splitlines()
    named = f"{difference}; the run was ended" if difference else f"task 2 on node2 failed: {text}"
    assert first == f"jaxsif: error: {named}"


@pytest.mark.parametrize("difference", ["", "task 1 compiled jit_f for (i32) at a.py:3, 3 others another"])
def test_a_task_that_waits_for_one_with_another_order_of_devices(difference: str) -> None:
    text = "JaxRuntimeError: UNKNOWN: Gloo context initialization failed: DEADLINE_EXCEEDED: GetKeyValue() timed out"
    ended = [Report(2, "node2", "exception", text=text, where="a.py:3"), exit_of(2, 1), exit_of(1, 1)]
    first, where, *remedy = find(End(1, SRUN, tasks=4, difference=ProgramDifference(difference)), *ended).splitlines()
    said = f"{text}; {difference}" if difference else text
    assert (first, where) == (f"jaxsif: error: task 2 on node2 failed: {said}", "  from: a.py:3")
    assert len(remedy) == bool(difference)
    # Of two tasks, the other one seems to have stayed away.
    two = [Report(1, "node1", "exception", text=text, where="a.py:3"), exit_of(1, 1), exit_of(0, 143)]
    first, *_ = find(End(1, SRUN, tasks=2, difference=ProgramDifference(difference)), *two).splitlines()
    never = "task 0 on node1 never arrived, and task 1 on node1 timed out waiting at a.py:3"
    assert first == f"jaxsif: error: {f'task 1 on node1 failed: {said}' if difference else never}"


def test_arrays_of_different_sizes_where_a_neighbour_fails_first() -> None:
    errors = ("  what():  Received data size doesn't match expected size. Is there a mismatch in your code?",)
    end = End(1, SRUN, tasks=4, difference=ProgramDifference("task 1 compiled jit_f"))
    first, where, *_ = find(end, gone(1), exit_of(1, 1), exit_of(2, 134, "a.py:4"), errors=errors).splitlines()
    assert first.endswith("a collective with arrays of different sizes: task 1 compiled jit_f")
    assert where.startswith("  from: a.py:4, where task 2 on node2 was; the others were at ")
    lost = Report(1, "node1", "warning", text=f"{WORKER_ENDED}SIGKILL")
    text = "JaxRuntimeError: DEADLINE_EXCEEDED: GetKeyValue() timed out"
    raised = Report(0, "node1", "exception", text=text, where="a.py:3")
    said = find(End(1, SRUN, tasks=2), lost, raised, exit_of(0, 1), exit_of(1, 143, "b.py:2"))
    assert f"try:  {WORKER_ENDED}SIGKILL; the task may be waiting for that worker; the other one raised {text}" in said


def test_arrays_of_different_sizes_at_the_end_of_the_program() -> None:
    errors = ("  what():  Received data size doesn't match expected size. Is there a mismatch in your code?",)
    said = find(End(134, SRUN, tasks=4), end_of(1), exit_of(1, 134, ""), errors=errors)
    assert said.splitlines()[1] == "  from: task 1 on node1"


WITHOUT = ProgramDifference("task 2 has ended without jit_f at a.py:3, which 3 others compiled", how=HAS_ENDED)


@pytest.mark.parametrize(
    ("difference", "exits", "is_cause"),
    [
        (ALIKE, [exit_of(1, 134, "a.py:9")], True),
        (ALIKE, [gone(1), exit_of(1, 1)], True),
        (ALIKE, [exit_of(1, 134, "a.py:9")._replace(crashed=True)], False),
        (ALIKE, [end_of(3), exit_of(3, 0, ""), exit_of(1, 134, "a.py:9")], False),
        (ALIKE, [end_of(1), exit_of(1, 134, "")], True),
        (WITHOUT, [exit_of(1, 134, "a.py:9")], False),
    ],
    ids=[
        "none has ended",
        "one follows",
        "one aborts",
        "one has ended",
        "one waits at its end",
        "one ends without a program",
    ],
)
def test_gloo_also_tells_of_sizes_where_a_neighbour_has_ended(
    difference: ProgramDifference, exits: list[Report], is_cause: bool
) -> None:
    """The programs are compared, and none differs."""
    errors = ("  what():  Received data size doesn't match expected size. Is there a mismatch in your code?",)
    end = End(134, SRUN, tasks=4, options=RunOptions(("python", "a.py")), difference=difference)
    said = find(end, exit_of(2, 134, "a.py:7"), *exits, errors=errors)
    assert ("took part in a collective with arrays of different sizes" in said) == is_cause, said
    killed = "srun: error: node1: task 0: Killed"  # and so was the shim that would have reported it
    said = find(end, exit_of(2, 134, "a.py:7"), *exits, errors=(*errors, killed))
    assert "task 0 on node1 was killed by SIGKILL" in said, said


def test_a_task_that_left_out_the_shutdown_is_the_cause() -> None:
    """With task 0, JAX's service has gone, and the others abort."""
    used = [Report(n, place(n), "watched", jax=True) for n in range(4)]
    ends = [end_of(1), end_of(2), end_of(3)]
    aborted = [exit_of(2, 134, ""), exit_of(1, 134, ""), exit_of(3, 143, "")]
    said = find(End(134, SRUN, tasks=4), *used, *ends, exit_of(0, 0, ""), *aborted)
    assert said.startswith("jaxsif: error: task 0 on node1 ended with exit status 0, and 3 of 4 tasks did not\n")
    # A task that has not come to its end may have aborted by itself.
    reports = [*used, end_of(1), end_of(3), *(exit_of(n, 0, "") for n in (0, 1, 3)), exit_of(2, 134, "a.py:9")]
    said = find(End(134, SRUN, tasks=4), *reports)
    assert said.startswith("jaxsif: error: task 2 on node2 was killed by SIGABRT\n")


def test_the_line_of_an_early_exit_is_that_of_the_last_python() -> None:
    """Of several tasks, only a line that they share."""

    def left(task: int, text: str) -> Report:
        return Report(task, place(task), "success", text=text)

    helper, ended = left(2, "sys.exit(0), at check.py:7"), [exit_of(2, 0, ""), exit_of(0, 1)]
    for last, where in (("os._exit(0), at a.py:9", "os._exit(0), at a.py:9; the others"), ("", "the others")):
        said = find(End(1, SRUN, tasks=4), gone(0), helper, left(2, last), *ended)
        assert f"\n  from: {where} were at " in said, said
    both = [left(1, "sys.exit(0), at a.py:1"), left(2, "sys.exit(0), at a.py:2"), exit_of(1, 0, ""), *ended]
    assert "a.py:1" not in find(End(1, SRUN, tasks=4), gone(0), *both)


@pytest.mark.parametrize("mute", [(1,), (1, 2)], ids=["one", "two"])
def test_a_task_whose_shell_came_to_no_python_never_arrived(mute: tuple[int, ...]) -> None:
    """Of two, nobody knows which one the others needed."""
    watched = [Report(task, place(task), "watched") for task in range(4) if task not in mute]
    ended = [exit_of(task, 143, "" if task in mute else "a.py:5") for task in (0, 1, 2)]
    said = find(
        End(134, SRUN, tasks=4), *watched, exit_of(3, 134, "a.py:5"), *ended, errors=(f"{FATAL}DEADLINE_EXCEEDED: x",)
    )
    never = "jaxsif: error: task 1 on node1 never arrived, and task 3 on node2 timed out waiting at a.py:5\n"
    assert said.startswith(never) == (mute == (1,)), said


@pytest.mark.parametrize("status", [134, 143])
def test_a_task_that_never_arrived_may_be_ended_by_jax_or_srun(status: int) -> None:
    """JAX aborts it once the first task, which has the coordinator, has ended."""
    text = "JaxRuntimeError: UNKNOWN: Gloo context initialization failed: DEADLINE_EXCEEDED: GetKeyValue() timed out"
    raised = Report(0, "node1", "exception", text=text, where="ckpt.py:26")
    said = find(End(1, SRUN, tasks=2), raised, exit_of(0, 1, ""), exit_of(1, status, "data.py:28"))
    never = "jaxsif: error: task 1 on node1 never arrived, and task 0 on node1 timed out waiting at ckpt.py:26\n"
    assert said.startswith(f"{never}  from: data.py:28, where task 1 on node1 was\n"), said
    # Two others that wait at the first task's line, however they end.
    others = [exit_of(2, 143, "ckpt.py:26"), exit_of(3, 134, "ckpt.py:26")]
    first = exit_of(0, 1, "ckpt.py:26")
    said = find(End(1, SRUN, tasks=4), raised, first, exit_of(1, status, "data.py:28"), *others)
    assert said.startswith(never), said
    # Of two lines, each is rare in one way.
    others = [exit_of(2, 143, "eval.py:40"), exit_of(3, 134, "eval.py:40")]
    said = find(End(1, SRUN, tasks=4), raised, first, exit_of(1, 134, "data.py:28"), *others)
    assert "never arrived" not in said, said
    others = [exit_of(2, 143, "data.py:28"), exit_of(3, 277 - status, "eval.py:40")]
    said = find(End(1, SRUN, tasks=4), raised, first, exit_of(1, status, "data.py:28"), *others)
    assert "never arrived" not in said, said
    # Of two that stand elsewhere, nobody knows which one the first task needed.
    bystander = exit_of(2, 277 - status, "eval.py:40")
    said = find(End(1, SRUN, tasks=3), raised, first, exit_of(1, status, "data.py:28"), bystander)
    assert "never arrived" not in said, said


def test_tasks_that_were_connected_to_each_other_did_not_leave_out_the_call() -> None:
    """Another group of processes, with a coordinator of its own, waited for task 1."""
    ended = [end_of(2), exit_of(2, 0, ""), end_of(3), exit_of(3, 0, "")]
    reports = [*ended, exit_of(0, 134, "a.py:5"), exit_of(1, 143, "a.py:3")]
    said = find(End(134, SRUN, tasks=4), *reports, errors=(f"{FATAL}DEADLINE_EXCEEDED: x",))
    never = "jaxsif: error: task 1 on node1 never arrived, and task 0 on node1 timed out waiting at a.py:5\n"
    assert said.startswith(never)
    # Or they need not connect at all: the report of the wait has named task 1.
    hang = Hang(frozenset([1]), "task 1 kept the others waiting", "", is_certain=False)
    samplers = [exit_of(2, 0, ""), exit_of(3, 0, ""), *reports[4:]]
    said = find(End(134, SRUN, tasks=4, hang=hang), *samplers, errors=(f"{FATAL}DEADLINE_EXCEEDED: x",))
    assert said.startswith(never)


STOPPED = Report(1, "node1", "stopped", where="a.py:3")
TIMEOUT = "JaxRuntimeError: UNKNOWN: Gloo context initialization failed: DEADLINE_EXCEEDED: GetKeyValue() timed out"


@pytest.mark.parametrize(
    ("ended", "where"),
    [
        ([STOPPED, end_of(1), exit_of(1, 0, "")], "a.py:3"),
        ([STOPPED, Report(1, "node1", "exception", text="sys.exit(1)", where="a.py:1"), exit_of(1, 1, "")], "a.py:3"),
        ([STOPPED, end_of(1)], "a.py:3"),
        ([end_of(1), exit_of(1, 0, "")], ""),
        ([end_of(1)], ""),
    ],
    ids=["exit status 0", "exit status 1", "killed", "a flag", "a flag, and killed"],
)
def test_a_task_that_comes_to_its_end_when_srun_ends_it_is_not_early(ended: list[Report], where: str) -> None:
    """As by its own handler of SIGTERM, after the others had timed out."""
    timed_out = [Report(task, place(task), "exception", text=TIMEOUT, where="a.py:5") for task in (0, 2, 3)]
    said = find(End(1, SRUN, tasks=4), *timed_out, *(exit_of(task, 1, "") for task in (0, 2, 3)), *ended)
    first, origin = said.splitlines()[:2]
    assert first == "jaxsif: error: task 1 on node1 never arrived, and task 0 on node1 timed out waiting at a.py:5"
    assert origin.startswith(f"  from: {where}, where task 1 on node1 was" if where else "  from: task 1 on node1"), (
        said
    )


def test_a_task_without_a_report_is_not_taken_for_another() -> None:
    """It hangs and is killed; one of those that timed out is, too."""
    timed_out = [Report(task, place(task), "exception", text=TIMEOUT, where="a.py:5") for task in (0, 2, 3)]
    said = find(End(1, SRUN, tasks=4), *timed_out, exit_of(0, 1, ""), exit_of(2, 1, ""), exit_of(3, 143, ""))
    assert said.startswith("jaxsif: error: task 0 on node1 failed: JaxRuntimeError: UNKNOWN: Gloo context")


def test_a_handler_of_sigterm_before_any_failure_changes_nothing() -> None:
    reports = [STOPPED, end_of(1), exit_of(1, 0, "")]
    said = find(End(1, SRUN, tasks=4), *reports, *(one for one in NEIGHBOURS if one.task != 1))
    assert "task 1 on node1 ended with exit status 0, and 3 of 4 tasks did not" in said


def test_handlers_of_sigterm_are_no_failure_of_a_step_that_slurm_ends() -> None:
    limit = CANCELLED.replace("CANCELLED AT 2026-11-22T10:39:36", "CANCELLED AT 2026-11-22T10:39:36 DUE TO TIME LIMIT")
    exits = [STOPPED, Report(1, "node1", "exception", text="sys.exit(1)", where="a.py:1"), exit_of(1, 1, "")]
    said = find(End(1, SRUN, tasks=4), ABORTED, *exits, errors=(limit,))
    assert "reached its time limit" in said, said


def test_a_late_report_of_the_task_that_failed_first() -> None:
    """It raised before srun ended the other task."""
    boom = Report(0, "node1", "exception", text="ValueError: boom", where="a.py:7")
    own = Report(1, "node1", "exception", text="sys.exit(1)", where="a.py:1")
    said = find(End(1, SRUN, tasks=2), boom, STOPPED, own, exit_of(1, 1, ""), exit_of(0, 1, ""))
    assert said.startswith("jaxsif: error: task 0 on node1 failed: ValueError: boom\n")


def test_what_a_task_did_before_somebody_cancelled_the_run_stands() -> None:
    """Its handler had ended it before: by an error of its own, or by os._exit(0)."""
    boom = Report(1, "node1", "exception", text="ValueError: boom", where="a.py:20")
    said = find(End(1, SRUN, tasks=4), STOPPED, boom, exit_of(1, 1, ""), ABORTED, errors=(CANCELLED,))
    assert "task 1 on node1 failed: ValueError: boom" in said, said


FATAL = "F1121 client.h:86] Terminating process because the JAX distributed service detected fatal errors. "


@pytest.mark.parametrize(
    "status", ["DEADLINE_EXCEEDED: x", "ABORTED: 0 unexpectedly tried to connect", "ALREADY_EXISTS: x", ""]
)
def test_arguments_for_other_processes_are_the_cause_where_tasks_do_not_connect(status: str) -> None:
    misfits = [Report(n, "node1", "arguments", text="num_processes=8", where="a.py:3") for n in (0, 1, 1)]
    end = find(End(134, SRUN, tasks=4), *misfits, exit_of(1, 134), errors=(f"{FATAL}{status}",))
    what = "task 0 on node1 called jax.distributed.initialize(num_processes=8) in a run of 4 tasks; so did 1 other task"
    told = f"jaxsif: error: {what}\n  from: a.py:3\n  try:  leave these arguments out: JAX gets them from jaxsif"
    assert (end == told) == bool(status)


def test_an_address_where_process_0_is_not() -> None:
    given = Report(0, "node1", "arguments", text="coordinator_address='node9:7'", where="a.py:3")
    said = find(End(134, SRUN, tasks=4), given, exit_of(1, 134), errors=(f"{FATAL}DEADLINE_EXCEEDED: x",))
    call = "jax.distributed.initialize(coordinator_address='node9:7')"
    assert said.startswith(f"jaxsif: error: task 0 on node1 called {call}, where not all its processes can connect\n")


@pytest.mark.parametrize(("names", "task"), [("abbb", 0), ("bbab", 2), ("aabb", 1), ("bbbb", 1)])
def test_the_task_at_another_place_is_named_although_all_raise(names: str, task: int) -> None:
    text = "AssertionError: sync_global_devices name mismatch ('{}'). Expected: [1 2 2 2]; got: 2."
    raised = [
        Report(n, "node1", "exception", text=text.format(name), where=f"{name}.py:1") for n, name in enumerate(names)
    ]
    ends = [exit_of(n, 1) for n in (1, 0, 2, 3)]
    said = find(End(1, SRUN, tasks=4), *raised, *ends)
    assert said.startswith(f"jaxsif: error: task {task} on node"), said
    assert f"mismatch ('{names[task]}')" in said


def test_a_node_without_jaxsif_is_named() -> None:
    script = "/sw/jaxsif/0.1.0/lib/jaxsif/node/share.py"
    errors = (
        f"/usr/bin/python3: can't open file '{script}': [Errno 2] No such file or directory",
        "srun: error: node2: tasks 2-3: Exited with exit code 2",
    )
    said = find(End(2, SRUN, tasks=4), exit_of(0, 143), exit_of(1, 143), errors=errors)
    assert said == (
        f"jaxsif: error: {script}, which belongs to jaxsif, cannot be read on node2\n  from: srun\n"
        "  try:  if other nodes have it, leave this one out with --exclude, and report it to the site"
    )


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("slurmstepd-node2: error: execve(): /usr/bin/python3: No such file or directory", 2),
        ("FATAL: cannot execute /usr/bin/python3: No such file or directory", 1),
    ],
)
def test_a_node_without_a_program_is_named(line: str, status: int) -> None:
    errors = (line, f"srun: error: node2: task 1: Exited with exit code {status}")
    error = find_failure(End(status, SRUN, tasks=2), [STARTED, exit_of(0, 143)], errors, ())
    assert error is not None
    assert error.what == "node2 cannot execute /usr/bin/python3: No such file or directory"
    assert (error.exit_code, error.cause.fault, error.cause.nodes) == (125, Fault.NODE, ("node2",))
    # Of a step that the program itself has started.
    error = find_failure(End(status, SRUN, tasks=2), [STARTED, exit_of(0, 143), exit_of(1, status)], errors, ())
    assert error is not None
    assert error.what.startswith("task 1 on node1 ended with exit status ")


def test_a_task_prolog_that_fails() -> None:
    """srun takes its exit status for that of the program."""
    errors = (
        "slurmstepd-node2: error: --task-prolog failed status=127",
        "srun: error: node2: task 1: Exited with exit code 127",
    )
    said = find(End(127, SRUN, tasks=2), exit_of(0, 143), errors=errors)
    assert said == (
        "jaxsif: error: the task prolog failed on node2 (exit status 127)\n  from: srun\n"
        "  try:  run the script of --task-prolog there by hand; Slurm starts no program after it has failed"
    )


def test_nodes_that_all_lack_jaxsif_are_not_at_fault() -> None:
    """As where it is installed on a disk of the login node."""
    script = "/tmp/jaxsif/node/share.py"
    errors = tuple(
        line
        for node in (1, 2)
        for line in (
            f"/usr/bin/python3: can't open file '{script}': [Errno 2] No such file or directory",
            f"srun: error: node{node}: task {node}: Exited with exit code 2",
        )
    )
    error = find_failure(End(2, SRUN, tasks=2), [STARTED], errors, ())
    assert error is not None
    assert error.what == f"{script}, which belongs to jaxsif, cannot be read on node1, node2"
    assert error.hint == "install it where all nodes and users can read it"
    assert (error.cause.fault, error.cause.nodes) == (Fault.REQUEST, ())


def test_a_task_that_left_with_status_0_is_the_cause_of_a_timeout() -> None:
    timeout = Report(0, "node1", "exception", text="JaxRuntimeError: Gloo: Timed out waiting 30000ms")
    said = find(End(1, SRUN, tasks=4), exit_of(2, 0, ""), timeout, exit_of(0, 1), exit_of(1, 143))
    assert said.startswith("jaxsif: error: task 2 on node2 ended with exit status 0, and 3 of 4 tasks did not\n")


def test_a_task_that_was_killed_comes_before_one_that_left() -> None:
    errors = ("srun: error: node1: task 1: Killed", CANCELLED)
    said = find(End(137, SRUN, tasks=4), exit_of(2, 0, ""), gone(3), exit_of(3, 1), errors=errors)
    assert said.startswith("jaxsif: error: task 1 on node1 was killed by SIGKILL")


def test_tasks_that_ended_are_no_cause_of_an_error_of_another() -> None:
    failed = Report(3, "node2", "exception", text="ValueError: boom", where="train.py:4")
    for early in (exit_of(2, 0, ""), end_of(2)):
        said = find(End(1, SRUN, tasks=4), early, failed, exit_of(3, 1), exit_of(0, 143))
        assert said == "jaxsif: error: task 3 on node2 failed: ValueError: boom\n  from: train.py:4"


def test_many_tasks_that_ended_are_not_the_odd_ones() -> None:
    ended = [exit_of(task, 0, "") for task in range(3)]
    said = find(End(1, SRUN, tasks=4), *ended, gone(3), exit_of(3, 1))
    assert said.startswith("jaxsif: error: task 3 on node2 failed: ValueError: reset by peer")


@pytest.mark.parametrize("status", [134, 139])
def test_who_leaves_while_the_other_half_works_is_the_odd_one(status: int) -> None:
    """JAX gives up waiting, and a task that it aborts may crash instead."""
    left = Report(1, "node1", "end", text="sys.exit(0), at train.py:20")
    barriers = (Barrier("Shutdown", 1, 2, 1, (0,)),)
    ends = (exit_of(0, status), exit_of(1, 134))
    said = find(End(status, SRUN, tasks=2), left, *ends, errors=(GAVE_UP,), barriers=barriers)
    assert said.splitlines()[:2] == [
        "jaxsif: error: task 1 on node1 reached the end of the program, but 1 of 2 did not",
        "  from: sys.exit(0), at train.py:20; train.py:9, where task 0 on node1 was",
    ]
    for text in ("", "sys.exit(), at train.py:99"):  # its end
        ended = left._replace(text=text)
        said = find(End(status, SRUN, tasks=2), ended, *ends, errors=(GAVE_UP,), barriers=barriers)
        assert said.startswith("jaxsif: error: task 0 on node1 did not reach the end of the program, but 1 of 2 did\n")


def test_a_crash_after_an_attempt_that_gave_up() -> None:
    """Only what JAX aborts crashes instead."""
    crash = exit_of(3, 139)
    said = find(End(139, SRUN, tasks=4), crash, exit_of(0, 143), errors=(GAVE_UP,))
    assert said.startswith("jaxsif: error: task 3 on node2 was killed by SIGSEGV")


def test_a_task_whose_exception_a_shutdown_follows() -> None:
    """It is not at the end of the program, although it is the only one at the barrier there."""
    raised = Report(2, "node2", "raised", text="ValueError: 7", where="train.py:2")
    barriers = (Barrier("Shutdown", 1, 4, 2, (0, 1, 3)),)
    said = find(End(134, SRUN, tasks=4), raised, exit_of(1, 134), exit_of(2, 143), barriers=barriers)
    assert said.splitlines()[:2] == ["jaxsif: error: task 2 on node2 failed: ValueError: 7", "  from: train.py:2"]
    assert "call neither jax.distributed.shutdown() nor a barrier" in said
    withdrawn = Report(2, "node2", "raised")
    said = find(End(134, SRUN, tasks=4), raised, withdrawn, exit_of(1, 134), exit_of(2, 143), barriers=barriers)
    assert "ValueError" not in said


def test_a_task_whose_exception_a_barrier_follows() -> None:
    """The others take part in its barrier with arrays of other sizes, or in another barrier."""
    raised = Report(2, "node2", "raised", text="OSError: disk full", where="train.py:2")
    sizes = "enforce fail at pair.cc:489. 16 vs 12. Received data size doesn't match expected size."
    said = find(End(134, SRUN, tasks=4), raised, exit_of(2, 134), exit_of(1, 143), errors=(sizes,))
    assert said.startswith("jaxsif: error: task 2 on node2 failed: OSError: disk full\n  from: train.py:2\n")
    other = "AssertionError: sync_global_devices name mismatch ('cleanup'). Expected: [1 2]; got: 2."
    mismatch = Report(2, "node2", "exception", text=other, where="train.py:9")
    said = find(End(1, SRUN, tasks=4), raised, mismatch, exit_of(2, 1), exit_of(1, 143))
    assert said.startswith("jaxsif: error: task 2 on node2 failed: OSError: disk full\n  from: train.py:2\n")
    # Where most tasks have it, the program handles it, as in its first start without a checkpoint.
    usual = [raised._replace(task=task, node=f"node{task}") for task in (0, 1, 3)]
    said = find(End(134, SRUN, tasks=4), raised, *usual, exit_of(2, 134), exit_of(1, 143), errors=(sizes,))
    assert "disk full" not in said
    killed = "srun: error: node2: task 2: Killed"
    said = find(End(137, SRUN, tasks=4), raised, exit_of(1, 134), errors=(killed,))
    assert "disk full" not in said
    late = raised._replace(text="JaxRuntimeError: Gloo: Timed out waiting 30000ms")
    said = find(End(134, SRUN, tasks=4), late, exit_of(2, 134), exit_of(1, 143), errors=(sizes,))
    assert "Timed out" not in said


def test_an_exception_before_a_shutdown_is_not_the_cause_of_another_failure() -> None:
    handled = Report(1, "node1", "raised", text="ModuleNotFoundError: No module named 'grain'", where="train.py:2")
    said = find(End(139, SRUN, tasks=4), handled, end_of(0), exit_of(3, 139), exit_of(1, 143))
    assert said.startswith("jaxsif: error: task 3 on node2 was killed by SIGSEGV")
    nan = Report(3, "node2", "exception", text="ValueError: NaN loss", where="train.py:9")
    said = find(End(1, SRUN, tasks=4), handled, end_of(0), nan, exit_of(3, 1), exit_of(1, 143))
    assert said.startswith("jaxsif: error: task 3 on node2 failed: ValueError: NaN loss")


@pytest.mark.parametrize("barriers", [(), (Barrier("[Init]Wait_for_all_tasks_to_register", 3, 4, 0, (2,)),)])
def test_a_task_that_left_before_initialize(barriers: tuple[Barrier, ...]) -> None:
    aborted = [exit_of(3, 134), exit_of(0, 134), exit_of(1, 134)]
    errors = (GAVE_UP,)
    said = find(End(134, SRUN, tasks=4), exit_of(2, 0, ""), *aborted, errors=errors, barriers=barriers)
    assert "task 2 on node2 ended with exit status 0 and never reached jax.distributed.initialize" in said
    assert OTHERS in said


def test_an_exception_that_hides_another_one() -> None:
    hidden = "ValueError: negative, at train.py:4"
    raised = Report(2, "node2", "exception", text="OSError: quota", where="store.py:6", hides=hidden)
    said = find(End(1, SRUN, tasks=4), raised, exit_of(2, 1), exit_of(1, 143))
    assert "task 2 on node2 failed: OSError: quota\n  from: store.py:6, while handling ValueError: negative" in said


def test_most_tasks_that_left_before_initialize() -> None:
    left = [exit_of(task, 0, "") for task in (1, 2, 3)]
    said = find(End(134, SRUN, tasks=4), *left, exit_of(0, 134), errors=(GAVE_UP,))
    tasks = "task 1 on node1, task 2 on node2, task 3 on node2"
    assert f"error: {tasks} ended with exit status 0 and never reached jax.distributed.initialize" in said


INTRUDED = (
    f"{GAVE_UP[: -len('DEADLINE_EXCEEDED')]}absl::Status: ABORTED: {{}} unexpectedly tried to connect with a different"
)


@pytest.mark.parametrize("name", ["2", "/job:jax_worker/replica:0/task:2"], ids=["JAX 0.12", "JAX 0.4"])
def test_a_process_that_connected_as_another_one(name: str) -> None:
    aborted = [exit_of(task, 134) for task in (1, 0, 3, 2)]
    said = find(End(134, SRUN, tasks=4), *aborted, errors=(INTRUDED.format(name),))
    what = "a second process connected to JAX's coordinator as process 2, and JAX ended the run"
    assert said.startswith(f"jaxsif: error: {what}\n  from: train.py:9, where task 1 on node")
    assert "--coordinator-tls=on" in said


def test_such_a_process_is_no_cause_of_an_error_of_another_kind() -> None:
    said = find(End(1, SRUN, tasks=4), exit_of(3, 1), exit_of(0, 134), errors=(INTRUDED.format("2"),))
    assert said.startswith("jaxsif: error: task 3 on node2 ended with exit status 1")


TOLD = "srun: error: node2: task 2: Exited with exit code"
TERMINATED = tuple(exit_of(task, 143) for task in range(4))


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("", "the run was cancelled: step 7.0"),
        (" DUE to SIGNAL Terminated", "the run was cancelled: step 7.0"),
        (" DUE TO TIME LIMIT", "job 7 reached its time limit"),
        (" DUE TO PREEMPTION", "job 7 was preempted"),
        (" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", "job 7 lost a node"),
    ],
)
@pytest.mark.parametrize("early", [0, 2])
def test_what_ended_a_run_from_outside(reason: str, said: str, early: int) -> None:
    """A report of another node may come before what Slurm says."""
    errors = (f"{CANCELLED[:-4]}{reason} ***", EXITED)
    shown = find(End(143, SRUN, tasks=4), *TERMINATED[:early], ABORTED, *TERMINATED[early:], errors=errors)
    assert shown.startswith(f"jaxsif: error: {said}\n  from: tasks were at train.py:9 (tasks 0-3)\n  try:  ")


def test_what_a_cancelled_program_says_of_itself_is_no_cause() -> None:
    said = find(End(1, SRUN, tasks=4), ABORTED, exit_of(2, 1), *TERMINATED, errors=(CANCELLED,))
    assert said.startswith("jaxsif: error: the run was cancelled: step 7.0\n")


def test_slurm_says_cancelled_of_a_failed_step_too() -> None:
    said = find(End(143, SRUN, tasks=4), *TERMINATED, errors=(EXITED, CANCELLED))
    assert said.startswith("jaxsif: error: task 0 on node1 was killed by SIGTERM\n")


@pytest.mark.parametrize("reports", [TERMINATED, (*TERMINATED[:2], TERMINATED[3]), ()])
def test_a_task_that_slurm_ended_with_the_step_is_no_cause(reports: tuple[Report, ...]) -> None:
    """The report of the one that failed is late or lost behind its output; srun names it."""
    ended = [report for report in reports if report.task != 2]
    late = find(End(3, SRUN, tasks=4), *ended, exit_of(2, 3), errors=(f"{TOLD} 3", CANCELLED, EXITED))
    assert late.startswith("jaxsif: error: task 2 on node2 ended with exit status 3\n  from: train.py:9")
    errors = (f"{TOLD} 3", CANCELLED, EXITED)
    said = find(End(3, SRUN, tasks=4), *ended, errors=errors)
    assert said.startswith("jaxsif: error: task 2 on node2 ended with exit status 3")
    boom = Report(2, "node2", "exception", text="ValueError: boom")
    said = find(End(3, SRUN, tasks=4), boom, *ended, errors=errors)
    assert said == "jaxsif: error: task 2 on node2 failed: ValueError: boom"


def test_a_node_without_tasks_ends_the_others() -> None:
    launch = "srun: error: Task launch for StepId=7.0 failed on node node4: Communication connection failure"
    failed = "srun: error: Application launch failed: Communication connection failure"
    error = find_failure(End(233, SRUN, tasks=4), [STARTED, ABORTED, *TERMINATED[:2]], [launch, failed, CANCELLED])
    assert (error.what, error.where, error.exit_code) == ("node4 cannot be reached", "srun", 125)


def test_a_failure_before_the_cancellation_is_the_cause() -> None:
    said = find(End(3, SRUN, tasks=4), exit_of(2, 3, ""), ABORTED, *TERMINATED, errors=(CANCELLED,))
    assert said.startswith("jaxsif: error: task 2 on node2 ended with exit status 3")


@pytest.mark.parametrize("interrupted", [None, 2, 15])
def test_a_task_at_its_end_is_named_however_the_run_ends(interrupted: int | None) -> None:
    end = End(143, SRUN, tasks=4, interrupted=interrupted)
    error = find_failure(end, [STARTED, end_of(2), ABORTED, *TERMINATED], [CANCELLED])
    assert error.what == "task 2 on node2 reached the end of the program, and 3 of 4 tasks did not"
    assert error.where.endswith(OTHERS)
    names = {None: "the run was cancelled: step 7.0; ", 2: "SIGINT ended the run; ", 15: "SIGTERM ended the run; "}
    assert names[interrupted] in error.where
    assert error.exit_code == (128 + interrupted if interrupted else 143)


HANG = "task 2 on node2 kept the others waiting for 40 s: it is waiting for a lock"
THREAD = "an exception ended a thread: KeyError: 'no shard 25', at data.py:36"


@pytest.mark.parametrize(
    ("reason", "said"),
    [("", "the run was cancelled: step 7.0"), (" DUE TO TIME LIMIT", "job 7 reached its time limit")],
)
@pytest.mark.parametrize("ends", [(), (end_of(1), end_of(3))])
def test_a_hang_that_lasts_until_the_end_is_named(reason: str, said: str, ends: tuple[Report, ...]) -> None:
    """Those at the end of the program were waiting for it there."""
    end = End(143, SRUN, 4, hang=Hang(frozenset([2]), HANG, THREAD, is_certain=True))
    error = find_failure(end, [STARTED, *ends, ABORTED, *TERMINATED], [f"{CANCELLED[:-4]}{reason} ***"])
    assert (error.what, error.hint) == (f"{said}; {HANG}", THREAD)
    assert ("the end of the program (tasks 1,3)" in error.where) == bool(ends)


@pytest.mark.parametrize(("what", "said"), [(HANG, f"; {HANG}"), ("", "")], ids=["a wait", "a wait for work"])
def test_the_time_limit_may_be_too_short_for_a_long_wait(what: str, said: str) -> None:
    end = End(143, SRUN, 4, hang=Hang(frozenset([2]), what, THREAD, is_certain=False))
    error = find_failure(end, [STARTED, ABORTED, *TERMINATED], [f"{CANCELLED[:-4]} DUE TO TIME LIMIT ***"])
    longer = "pass a longer --time, or resume from a checkpoint: see slurm/checkpoint"
    assert error.what == f"job 7 reached its time limit{said}"
    assert error.hint == (f"{THREAD}, or {longer}" if what else longer)


@pytest.mark.parametrize("reason", [" DUE TO PREEMPTION", " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"])
def test_a_hang_is_not_what_took_the_nodes(reason: str) -> None:
    end = End(143, SRUN, 4, hang=Hang(frozenset([2]), HANG, THREAD, is_certain=True))
    assert HANG not in find(end, ABORTED, *TERMINATED, errors=(f"{CANCELLED[:-4]}{reason} ***",))


def test_a_task_at_its_end_that_hung_the_others_is_the_cause() -> None:
    end = End(143, SRUN, tasks=4, hang=Hang(frozenset([2]), HANG, "", is_certain=True))
    said = find(end, end_of(2), ABORTED, *TERMINATED, errors=(CANCELLED,))
    assert said.startswith("jaxsif: error: task 2 on node2 reached the end of the program, and 3 of 4 tasks did not\n")


@pytest.mark.parametrize(
    ("parent", "is_passed_on"),
    [
        ("CalledProcessError: Command '['python']' returned non-zero exit status 1.", True),
        ("CalledProcessError: Command '['git']' returned non-zero exit status 128.", False),
        ("sys.exit(1)", True),
        ("sys.exit(3)", False),
        ("os._exit(1)", True),
        ("sys.exit(x)", False),
        ("KeyError: 'x'", False),
    ],
)
def test_a_parent_that_passes_on_a_failure_has_not_failed_itself(parent: str, is_passed_on: bool) -> None:
    own, later = (Report(1, "node1", "exception", text=text) for text in ("ValueError: boom", parent))
    reports = [STARTED, own._replace(jax=True), later, exit_of(1, 1, "")]
    error = find_failure(End(1, SRUN, 2), reports, ())
    assert error is not None
    assert error.what == f"task 1 on node1 failed: {own.text if is_passed_on else parent}"
    # Another Python with JAX has succeeded since.
    error = find_failure(End(1, SRUN, 2), [*reports[:2], Report(1, "node1", "success"), *reports[2:]], ())
    assert error is not None
    assert error.what == f"task 1 on node1 failed: {parent}"


def test_an_interrupted_run_is_nobodys_fault() -> None:
    assert find_failure(End(143, SRUN, 4, interrupted=2), [STARTED, ABORTED, *TERMINATED], [CANCELLED]) is None
    ended = exit_of(2, 0, "")  # a program without JAX's processes may end when it likes
    assert find_failure(End(143, SRUN, 4, interrupted=2), [STARTED, ended, *TERMINATED], [CANCELLED]) is None


def test_the_time_limit_is_told_to_whom_it_ended_with_the_job() -> None:
    errors = [f"{CANCELLED[:-4]} DUE TO TIME LIMIT ***"]
    error = find_failure(End(143, SRUN, 4, interrupted=15), [STARTED, *TERMINATED], errors)
    assert (error.what, error.exit_code) == ("job 7 reached its time limit", 143)


def test_a_killed_srun_is_named() -> None:
    said = find(End(137, SRUN, 4, killed=True), errors=())
    assert said.startswith("jaxsif: error: srun was killed by SIGKILL\n  from: this host\n")
    task = find(End(137, choose_launcher("local", True, None), 4, killed=True), exit_of(0, 137), errors=())
    assert task.startswith("jaxsif: error: task 0 on node1 was killed by SIGKILL\n")


def test_slurm_calls_a_failed_task_a_reason() -> None:
    """From 25.05 on, with --kill-on-bad-exit."""
    errors = (f"{CANCELLED[:-4]} DUE TO TASK FAILURE ***",)
    said = find(End(143, SRUN, tasks=4), ABORTED, *TERMINATED, errors=errors)
    assert said.startswith("jaxsif: error: task 0 on node1 was killed by SIGTERM\n")


def test_the_log_of_another_job_counts_for_nothing() -> None:
    printed = f"{CANCELLED[:-4].replace('7.0', '6.0')} DUE TO TIME LIMIT ***"
    failed = Report(1, "node1", "exception", text="ValueError: boom", where="train.py:4")
    said = find(End(1, SRUN, tasks=4), ABORTED, failed, exit_of(1, 1), errors=(printed,))
    assert said.startswith("jaxsif: error: task 1 on node1 failed: ValueError: boom\n")
    assert find_failure(End(143, SRUN, 4, interrupted=2), [STARTED, *TERMINATED], [printed]) is None
    killed = "srun: error: node9: task 3: Killed"  # but task 3 has reported its end itself
    assert "task 3 on node2 failed: ValueError: reset" in find(
        End(1, SRUN, tasks=4), gone(3), exit_of(3, 1), exit_of(0, 143), errors=(killed,)
    )


@pytest.mark.parametrize("reason", ["aborting, io error with slurmstepd on node 1", "Aborting, slurmstepd is gone"])
def test_a_step_that_srun_gave_up_was_not_cancelled(reason: str) -> None:
    said = find(End(137, SRUN, tasks=4), ABORTED, errors=(f"srun: error: {reason}", CANCELLED))
    assert said.startswith(f"jaxsif: error: srun ended the step: {reason}\n")


def test_who_ends_because_of_a_signal_did_not_end_early() -> None:
    interrupted = Report(-1, "", "interrupted")
    reports = [STARTED, interrupted, end_of(1), exit_of(1, 0, ""), exit_of(0, 143)]
    assert find_failure(End(143, SRUN, 2, interrupted=15), reports, [CANCELLED]) is None
    assert render_places(reports) == "tasks were at train.py:9 (task 0)"


def test_who_kept_the_others_waiting_when_a_signal_ended_the_run() -> None:
    told = "task 1 on node1 kept the others waiting for 9 s: it is sleeping (train.py:4)"
    end = End(143, SRUN, 2, interrupted=15, hang=Hang(frozenset([1]), told, "", is_certain=False))
    assert told in render_remarks(end, [STARTED, Report(-1, "", "interrupted"), exit_of(0, 143)], [])
    assert told not in render_remarks(end._replace(interrupted=None), [STARTED], [])


@pytest.mark.parametrize(("turns", "is_early"), [(1, False), (3, True), (4, True)])
def test_who_has_ended_is_not_blamed_for_a_slower_task(turns: int, is_early: bool) -> None:
    """Those that had ended waited for it, until somebody pressed Ctrl-C."""
    interrupted = Report(-1, "", "interrupted")
    boxes = {0: 3, 1: turns, 2: 3, 3: 3}
    exits = [exit_of(task, 143)._replace(box=f"{count} 9.0 a.py:8|a.py:9|") for task, count in boxes.items()]
    failure = find_failure(End(143, SRUN, 4, interrupted=2), [STARTED, end_of(2), end_of(3), interrupted, *exits], ())
    assert (failure is not None) is is_early


def test_of_two_halves_the_one_that_has_ended_may_be_right() -> None:
    """Process 0 evaluates alone, and somebody presses Ctrl-C, or the time limit comes."""
    ends = [STARTED, end_of(1), Report(-1, "", "interrupted")]
    for quiet, is_early in (("0.4", False), ("9.0", True)):
        exits = [exit_of(task, 143)._replace(box=f"3 {quiet} a.py:8|a.py:9|") for task in (0, 1)]
        failure = find_failure(End(143, SRUN, 2, interrupted=2), [*ends, *exits], ())
        assert (failure is not None) is is_early


def test_who_exits_has_left_the_others_behind() -> None:
    """After jax.distributed.shutdown, each goes on alone."""
    reports = [STARTED, end_of(0), exit_of(0, 0, ""), end_of(2), exit_of(2, 0, ""), Report(-1, "", "interrupted")]
    assert find_failure(End(143, SRUN, 4, interrupted=2), [*reports, exit_of(1, 143), exit_of(3, 143)], ()) is None


def test_who_had_ended_before_a_signal_is_told() -> None:
    reports = [STARTED, exit_of(2, 0, ""), Report(-1, "", "interrupted"), *TERMINATED[:2]]
    assert render_places(reports) == "tasks were at train.py:9 (tasks 0-1); task 2 had ended with exit status 0"
    said = find(End(143, SRUN, 4), exit_of(2, 0, ""), ABORTED, *TERMINATED[:2], errors=(CANCELLED,))
    assert "; task 2 had ended with exit status 0\n" in said


@pytest.mark.parametrize(
    ("status", "text", "hint", "shown"),
    [
        (135, "", "", "copy a new image"),
        (1, "ValueError: boom", "", "copy a new image"),
        (1, "ValueError: boom", "see there", "see there"),
        (1, "OSError: boom", "see there", "copy a new image"),
    ],
    ids=["a signal", "no hint", "a hint of its own", "a file of the image"],
)
def test_an_image_that_was_written_to(status: int, text: str, hint: str, shown: str) -> None:
    failed = [Report(0, "node1", "exception", text=text, where="a.py:4", hint=hint)] if text else []
    said = find(End(status, SRUN, 1, changed_image="/sw/jax.sif"), *failed, exit_of(0, status, ""))
    place = "a.py:4 and /sw/jax.sif" if text else "/sw/jax.sif"
    assert f"from: {place}, which was written to during the run\n  try:  {shown}" in said
    # Its cause comes before the symptom, that it cannot be read.
    reports = (*failed, Report(0, "node1", "unmounted"), exit_of(0, status, ""))
    assert find(End(status, SRUN, 1, changed_image="/sw/jax.sif"), *reports) == said


SPAWNED = Report(2, "node2", "exception", text=f"RuntimeError: {contract.SPAWNED[1]}", where="a.py:3", hint="guard it")


def test_a_worker_that_runs_the_script_again_is_the_cause_of_the_abort() -> None:
    aborts = [exit_of(0, 134), exit_of(2, 134), exit_of(3, 134)]
    shown = find(End(134, SRUN, tasks=4), SPAWNED, *aborts)
    assert shown == f"jaxsif: error: task 2 on node2 failed: {SPAWNED.text}\n  from: a.py:3\n  try:  guard it"
    pool = Report(2, "node2", "exception", text="BrokenProcessPool: terminated abruptly")
    assert find(End(1, SRUN, tasks=4), SPAWNED, pool, exit_of(2, 1)) == shown
    other = find(End(3, SRUN, tasks=4), SPAWNED, exit_of(1, 3, ""))
    assert other == "jaxsif: error: task 1 on node1 ended with exit status 3"


def test_an_image_that_was_lost_is_named_with_the_task_that_lost_it() -> None:
    lost = Report(2, "node2", "unmounted")
    said = find(End(139, SRUN, tasks=4), lost, exit_of(2, 139), *TERMINATED[:2])
    what = "task 2 on node2 was killed by SIGSEGV; the image on node2 can no longer be read"
    hint = "read the kernel's log on node2: memory ran out, or a signal killed squashfuse"
    assert said == f"jaxsif: error: {what}\n  from: train.py:9\n  try:  {hint}"
    ended_later = find(End(139, SRUN, tasks=4), exit_of(2, 139), lost._replace(task=3), *TERMINATED[3:])
    assert "image" not in ended_later
    # A signal to the whole step ends the server of the files, too.
    cancelled = find(End(143, SRUN, tasks=4), lost, exit_of(2, 143))
    assert cancelled == "jaxsif: error: task 2 on node2 was killed by SIGTERM\n  from: train.py:9"


def test_tasks_that_never_started_are_the_cause_of_a_timeout() -> None:
    end = End(134, SRUN, tasks=4, name_unstarted=lambda: "tasks 2-3 on node2")
    said = find(end, exit_of(0, 134), exit_of(1, 134), errors=(GAVE_UP,))
    what = "tasks 2-3 on node2 have not started, and task 0 on node1 timed out waiting at train.py:9"
    assert said.startswith(f"jaxsif: error: {what}\n")
    assert find(end, exit_of(0, 3, "")) == "jaxsif: error: task 0 on node1 ended with exit status 3"


def test_a_device_that_the_sites_fabric_needs_is_no_mistake_of_the_site() -> None:
    """The user can do without; the staff hear of it."""
    hint = "pass another --fabric, such as tcp, or --exclude=NODE"
    lacking = Report(0, "node1", "lacking", text="no /dev/infiniband", hint=hint)
    sources = {"fabric": Setting("ib", f"run.fabric in {staff_files()[0]}", Rank.SITE)}
    for given, told in ((sources, "; tell site staff"), ({}, "")):
        options = RunOptions(("true",), sources=given)
        said = find(End(125, SRUN, options=options), lacking)
        assert said.endswith(f"  try:  {hint}{told}")
