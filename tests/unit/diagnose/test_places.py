"""What a task did a moment before its end, in words."""

from __future__ import annotations

import pytest
from hosts import SRUN
from reporting import NONCES, START, STARTED, report_line, started

from jaxsif.diagnose.culprit import find_failure
from jaxsif.diagnose.facts import End
from jaxsif.diagnose.places import describe_box
from jaxsif.diagnose.reports import Report, ReportFilter


@pytest.mark.parametrize(
    ("box", "words"),
    [
        ("", ""),
        ("0 0.0 |", ""),
        ("40 0.0 /home/ada/train.py:16|", "it was in iteration 40 of the loop at train.py:16"),
        (
            "40 12.4 /home/ada/train.py:16|/home/ada/data.py:7",
            "it was in iteration 40 of the loop at train.py:16, at data.py:7 for 12 s",
        ),
        ("0 12.4 |train.py:7", "it was at train.py:7 for 12 s"),
    ],
)
def test_what_a_task_did(box: str, words: str) -> None:
    assert describe_box(Report(0, "node1", "exit", 137, box=box)) == words


@pytest.mark.parametrize(
    "box",
    [
        "40",
        "40 12 a|b",
        "40 1.0 a",
        "40 1.0 a|b|c",
        "4" * 19 + " 1.0 a|b",
        "40 1.0 \x1b|b",
        "40 1.0 " + "a" * 300 + "|",
        1,
    ],
)
def test_another_form_is_no_report(box: object) -> None:
    seen = ReportFilter(NONCES)
    seen.feed(report_line(START, event="exit", status=137, box=box))
    assert seen.reports == []


def test_a_program_says_nothing_of_it() -> None:
    seen = ReportFilter(NONCES)
    seen.feed(STARTED + report_line(event="exception", text="E", where="", box="40 1.0 a|"))
    assert [report.event for report in seen.reports if report.event != "started"] == []


def test_the_error_of_a_task_that_was_killed_has_it() -> None:
    box = "40 0.0 /home/ada/train.py:16|"
    reports = [started(), Report(0, "node0", "exit", 137, box=box)]
    failure = find_failure(End(137, SRUN, 1), reports, [], [])
    assert failure
    assert failure.what == "task 0 on node0 was killed by SIGKILL"
    assert failure.where == "it was in iteration 40 of the loop at train.py:16"


def test_the_line_of_an_exception_says_more() -> None:
    reports = [
        started(),
        Report(0, "node0", "exception", text="ValueError", where="train.py:20"),
        Report(0, "node0", "exit", 1, box="40 0.0 train.py:16|"),
    ]
    failure = find_failure(End(1, SRUN, 1), reports, [], [])
    assert failure
    assert failure.where == "train.py:20"
