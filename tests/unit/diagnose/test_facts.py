"""Places of tasks and the last status of one; remarks on the compile cache, JAX and hidden failures."""

from __future__ import annotations

import pytest
from kit.reporting import EXIT_REPORT, GONE, STARTED_REPORT, ended, raised

from jaxsif.diagnose.facts import (
    find_hidden,
    render_activity,
    render_alone,
    render_cache,
    render_killed,
    render_missing,
    render_places,
    render_unended,
)
from jaxsif.diagnose.reports import MOST_REPORTS, Report


def test_places_of_tasks() -> None:
    reports = [Report(task, "", "exit", 143, where="a.py:9") for task in range(12) if task != 5]
    assert render_places(reports) == "tasks were at a.py:9 (tasks 0-4,6-11)"
    assert render_places([ended(5, 137)]) == ""
    interrupted = Report(5, "", "exception", text="KeyboardInterrupt", where="a.py:2")
    text = "tasks were at a.py:2 (task 5), a.py:9 (tasks 0-4,6-11)"
    assert render_places([*reports, interrupted, ended(5, 130)]) == text
    worker = Report(4, "", "exception", text="SystemExit: 1", where="<string>:1")
    assert render_places([*reports, worker]) == "tasks were at a.py:9 (tasks 0-4,6-11)"
    many = [Report(task, "", "exit", 143, where=f"a.py:{task}") for task in range(9)]
    assert render_places(many).endswith("a.py:3 (task 3) and 5 other places")


def test_places_of_tasks_whose_shells_report_none() -> None:
    """The program was in a shell: one task had failed there before, and the others waited."""
    failed = [Report(1, "", "exception", text="ValueError", where="a.py:5", jax=True), ended(1, 0)]
    waited = [Report(task, "", "exit", 143, box="0 4.5 |a.py:8") for task in (0, 2)]
    raised = Report(3, "", "exception", text="KeyboardInterrupt", where="a.py:2")
    late = Report(3, "", "exit", 130, box="0 4.5 |a.py:40")
    reports = [*failed, Report(-1, "", "interrupted"), *waited, raised, late]
    text = "tasks were at a.py:2 (task 3), a.py:8 (tasks 0,2); task 1 had ended with exit status 0"
    assert render_places(reports) == text


def test_tasks_that_do_not_end() -> None:
    reports = [Report(0, "", "exit", 143, where="a.py:9"), ended(1, 137)]
    assert render_unended(reports, 4) == "tasks 2-3 have not ended (the others were at a.py:9 (task 0))"
    assert render_unended([ended(1, 137)], 2) == "task 0 has not ended"
    assert render_unended([], None) == "some tasks have not ended"
    assert render_unended(reports, 2) == "all tasks have ended, but their launcher has not"
    killed = ["srun: error: node2: tasks 1-3,5: Killed", "srun: error: node3: task 7: Killed"]
    assert render_killed(reports, killed, 9) == "srun killed tasks 2-3,5,7 before they had ended on SIGTERM"
    assert render_killed(reports[:1], killed, 2) == "srun killed task 1 before it had ended on SIGTERM"
    assert render_killed(reports, [], 4) == render_killed(reports, killed, 2) == ""
    assert render_killed(reports, ["srun: error: n: tasks 2-99999999,: Killed"], 4).startswith("srun killed tasks 2-3 ")


@pytest.mark.parametrize(
    ("box", "words"),
    [
        ("", ""),
        ("0 0.0 |", ""),
        ("40 0.0 /home/ada/train.py:16||3.40", "it was in iteration 40 or later of the loop at train.py:16"),
        ("40 0.0 /home/ada/train.py:16|", "it was last in iteration 40 or later of the loop at train.py:16"),
        (
            "40 12.4 /home/ada/train.py:16|/home/ada/data.py:7|40",
            "it was in iteration 40 or later of the loop at train.py:16, at data.py:7 for 12 s",
        ),
        ("0 0.0 /home/ada/train.py:16||0", "it was in the loop at train.py:16, or had just left it"),
        ("0 12.4 |train.py:7", "it was at train.py:7 for 12 s"),
        ("0 0.4 |train.py:7", "it was at train.py:7"),
    ],
)
def test_what_a_task_did(box: str, words: str) -> None:
    assert render_activity(Report(0, "node1", "exit", 137, box=box)) == words


def test_what_the_compile_cache_was_good_for() -> None:
    reports = [
        STARTED_REPORT,
        Report(0, "node1", "cache", requests=10, hits=3, written=1, saved=4.4),
        Report(1, "node1", "cache", requests=10, saved=0.0),
        Report(2, "node2", "cache", requests=10, hits=2, saved=1.3),
    ]
    text = "compile cache: 5 of 30 programs reused, in 2 of 3 tasks, 6 s of compile time saved; 1 new"
    assert render_cache(reports) == text
    assert render_cache([STARTED_REPORT, EXIT_REPORT]) == ""


def test_what_this_jax_has_not_is_told_once() -> None:
    reports = [Report(0, "node1", "missing", text=text) for text in ("jax.a", "jax.b(key)", "jax.a")]
    assert render_missing(reports) == "this JAX lacks jax.a, jax.b(key); features that use it are off"
    assert render_missing([STARTED_REPORT]) == ""


@pytest.mark.parametrize(
    ("events", "tasks"),
    [
        ([(0, "alone"), (1, "alone"), (1, "alone")], 2),
        ([(task, "alone") for task in range(8)], 8),
        ([(0, "alone")], 0),
        ([(0, "alone"), (1, "alone"), (2, "end")], 0),
        ([(0, "started")], 0),
        ([(0, "alone"), (1, "alone"), (0, "watched"), (1, "watched")], 0),
    ],
    ids=["two", "eight", "one", "others were connected", "no JAX", "earlier Pythons"],
)
def test_tasks_that_computed_alone(events: list[tuple[int, str]], tasks: int) -> None:
    warning = render_alone([Report(task, "node1", event) for task, event in events])
    assert warning.startswith(f"warning: {tasks} tasks ran JAX, and none called ") == bool(tasks)
    assert bool(warning) == bool(tasks)


def test_tasks_that_connect_too_late_have_tried_to() -> None:
    late = raised(0, "RuntimeError: jax.distributed.initialize() must be called before any JAX calls")
    assert render_alone([late, Report(0, "node1", "alone")], has_failed=True) == ""


@pytest.mark.parametrize(("events", "who"), [([(3, "alone")], "task 3"), ([(3, "end"), (2, "alone")], "")])
def test_tasks_that_computed_alone_in_a_run_that_failed(events: list[tuple[int, str]], who: str) -> None:
    """Of the others, it is not known."""
    warning = render_alone([Report(task, "node1", event) for task, event in events], has_failed=True)
    what = "ran JAX without calling jax.distributed.initialize(): it computed on its own; if that is intended, pass "
    assert warning.startswith(f"warning: {who} {what}") == bool(warning) == bool(who)


BOOM = raised(0, "ValueError: boom")._replace(jax=True)
FOLLOWS = raised(1, GONE, consequence=True)._replace(jax=True)
SUCCESS = Report(0, "node0", "success")
WATCHED = Report(0, "node0", "watched", jax=True)


def test_a_failure_that_a_pipe_hides() -> None:
    hidden = find_hidden([FOLLOWS, SUCCESS, BOOM, ended(1, 0), ended(0, 0)])
    assert hidden is not None
    what = "task 0 on node0: python failed (ValueError: boom, train.py:00), but its command ended with status 0"
    assert hidden.what == f"{what}; 1 other task failed, too"
    assert hidden.hint.startswith("if that is not intended: ")  # the program may have handled it
    alone = find_hidden([BOOM, ended(0, 0)])
    assert alone.what == what


def test_a_signal_that_a_pipe_hides() -> None:
    """A Python that has used JAX, and whose end nobody has told of."""
    hidden = find_hidden([WATCHED, ended(0, 0)])
    assert hidden is not None
    assert hidden.what == "task 0 on node0: python ended abruptly, but its command ended with status 0"
    assert find_hidden([*[raised(1, "warning")] * MOST_REPORTS, WATCHED, ended(0, 0)]) is None  # some are missing


def test_an_exception_that_a_pipe_hides_comes_before_a_neighbour_that_jax_aborts() -> None:
    exits = [ended(0, 0), ended(1, 0)]
    hidden = find_hidden([WATCHED, raised(1, "ValueError: boom")._replace(jax=True), *exits])
    assert hidden is not None
    assert hidden.what.startswith("task 1 on node1: python failed (ValueError: boom, ")
    hidden = find_hidden([WATCHED, FOLLOWS, *exits])
    assert hidden is not None
    assert hidden.what.startswith("task 0 on node0: python ended abruptly, ")


@pytest.mark.parametrize(
    "reports",
    [
        [ended(0, 0)],
        [BOOM, SUCCESS, ended(0, 0)],
        [BOOM, Report(0, "node0", "end"), ended(0, 0)],
        [BOOM._replace(jax=False), ended(0, 0)],
        [BOOM],
        [BOOM, ended(0, 3)],
        [*([SUCCESS] * 100), BOOM, ended(0, 0)],
        [WATCHED, SUCCESS, ended(0, 0)],
        [WATCHED._replace(jax=False), ended(0, 0)],
        [WATCHED, ended(0, 137)],
    ],
    ids=[
        "none",
        "repeated",
        "connected again",
        "no JAX",
        "no end",
        "another status",
        "too many to know",
        "JAX",
        "a worker",
        "shown",
    ],
)
def test_a_failure_that_is_the_programs_own_affair(reports: list[Report]) -> None:
    assert find_hidden(reports) is None
