"""What a report may hold, whoever wrote it: fields, types, ranges; and how much of it is believed."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.bounds import read_bounded
from kit.hosts import SRUN
from kit.reporting import (
    EXIT,
    EXIT_REPORT,
    NONCES,
    PROGRAM,
    START,
    STARTED,
    STARTED_REPORT,
    feed_all,
    marked,
    report_line,
)

from jaxsif.diagnose.culprit import find_failure
from jaxsif.diagnose.facts import End, render_alone, render_cache, render_places
from jaxsif.diagnose.reports import Report, ReportFilter, find_start
from jaxsif.task.contract import PROGRAM_EVENTS, START_EVENTS

# What a program may do that knows the nonces. Before, each of these lines ended the launcher with a traceback, or was
# believed, or reached the terminal.
FORGED = {
    "an exit of a task that is not there": marked('{"task": 99, "node": "x", "event": "exit", "status": 7}', START),
    "an exit": marked('{"task": 0, "node": "x", "event": "exit", "status": 7}'),
    "a cache that counts truths": marked('{"task": 0, "node": "x", "event": "cache", "hits": true}'),
    "a cache that saves for ever": marked('{"task": 0, "node": "x", "event": "cache", "saved": 1e400}'),
    "a cache that saves no number": marked('{"task": 0, "node": "x", "event": "cache", "saved": NaN}'),
    "a task below 0": marked('{"task": -5, "node": "x", "event": "exit", "status": 7}', START),
    "a task of 5,000 digits": marked('{"task": %s, "node": "x", "event": "started"}' % ("9" * 5000), START),
    "a status without end": marked('{"task": 0, "node": "x", "event": "exit", "status": 1e400}', START),
    "a status below 0": marked('{"task": 0, "node": "x", "event": "exit", "status": -3}', START),
    "a status above 255": marked('{"task": 0, "node": "x", "event": "exit", "status": 256}', START),
    "a node that is a sentence": marked('{"task": 0, "node": "x\\u001b[2J", "event": "started"}', START),
    "no event": marked('{"task": 0, "node": "x"}', START),
    "an unknown event": marked('{"task": 0, "node": "x", "event": "ended"}', START),
    "a step that is an option": marked('{"task": 0, "node": "x", "event": "started", "step": "--me 7.0"}', START),
    "a step of the program": marked('{"task": 0, "node": "x", "event": "started", "step": "7.0"}'),
    **{
        f"a status of {box!r} at the end": marked(
            json.dumps({"task": 0, "node": "x", "event": "exit", "status": 137, "box": box}), START
        )
        for box in (
            "40",
            "40 12 a|b",
            "40 1.0 a",
            "40 1.0 a|b|c",
            "4" * 19 + " 1.0 a|b",
            "40 1.0 \x1b|b",
            "40 1.0 " + "a" * 300 + "|",
            1,
        )
    },
    "a status of the program at its end": marked(
        '{"task": 0, "node": "x", "event": "exception", "text": "E", "where": "", "box": "40 1.0 a|"}'
    ),
    "an unknown field": marked('{"task": 0, "node": "x", "event": "started", "place": "x"}', START),
    "a field of another event": marked('{"task": 0, "node": "x", "event": "started", "status": 1}', START),
    "a list": marked("[1]"),
    "null": marked("null"),
    "half": marked('{"task": 0'),
    "no text": marked(b"\xff\x00"),
}


@pytest.mark.parametrize("line", FORGED.values(), ids=FORGED)
def test_what_is_no_report_is_shown_and_changes_nothing(line: bytes) -> None:
    """The run succeeds, or fails as it failed."""
    shown, reports, _ = feed_all([STARTED, line, EXIT], tasks=4)
    assert shown == line
    assert reports == [STARTED_REPORT, EXIT_REPORT]


FIELDS = [
    (nonce, event, field)
    for nonce, events in zip(NONCES, (START_EVENTS, PROGRAM_EVENTS))
    for event, fields in events.items()
    for field in fields
]


@pytest.mark.parametrize(("nonce", "event", "field"), FIELDS)
def test_each_field_of_an_event_has_a_check(nonce: str, event: str, field: str) -> None:
    line = report_line(nonce, event=event, **{field: None})
    assert feed_all([line]) == (line, [], [])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\ud800", b"\\ud800"),
        ("\x1b]0;owned\x07\x1b[2J\r\njaxsif: error: forged", rb"\x1b]0;owned\x07\x1b[2J\r\njaxsif: error: forged"),
        ("é" * 1000, "é".encode() * 300),
    ],
    ids=["half a letter", "escape sequences", "long"],
)
def test_a_warning_is_one_line_of_printable_text(text: str, shown: bytes) -> None:
    line = report_line(PROGRAM, event="warning", text=text)
    assert feed_all([line])[0] == b"jaxsif: warning: " + shown + b" (task 0 on node1)\n"


HELD = report_line(PROGRAM, event="port-held")
TAKEN = report_line(PROGRAM, event="port-taken", text="port 61234 is taken")
REFUSED = report_line(PROGRAM, event="refused", text="a GPU short", hint="--share-gpus")


REFUSALS = {
    "the port is taken": ([STARTED, TAKEN], 125, "port 61234 is taken"),
    "said by the program": ([STARTED, HELD, TAKEN], 3, "task 0 on node1 ended with exit status 3"),
    "with the status of a refusal": ([STARTED, HELD, TAKEN], 125, "task 0 on node1 ended with exit status 125"),
    "with another status": ([STARTED, TAKEN], 3, "task 0 on node1 ended with exit status 3"),
    "refused": ([STARTED, REFUSED], 125, "a GPU short"),
    "refused by the program": ([STARTED, HELD, REFUSED], 125, "task 0 on node1 ended with exit status 125"),
    "refused with another status": ([STARTED, REFUSED], 3, "task 0 on node1 ended with exit status 3"),
    "refused by start.sh": ([report_line(START, event="lacking", text="no /dev/nvidiactl")], None, "no /dev/nvidiactl"),
}


@pytest.mark.parametrize(("lines", "status", "what"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_counts_before_the_programs_first_line(lines: list[bytes], status: int | None, what: str) -> None:
    ends = [] if status is None else [report_line(event="exit", status=status)]
    shown, reports, errors = feed_all([*lines, *ends])
    assert b"\x1e" not in shown
    failure = find_failure(End(status or 125, SRUN), reports, errors)
    assert (failure.what, failure.exit_code) == (what, status or 125)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-1, 256),
    st.floats(),
    st.text(),
    st.sampled_from(["\x1b[2J", "\ud800", "a" * 9000, "node1", 10**400, [], [[[]]], {}, {"a": 1}]),
)
NAMES = st.sampled_from(sorted(Report._fields)) | st.text(max_size=5)
NAMED = st.sampled_from(sorted({*START_EVENTS, *PROGRAM_EVENTS}))
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=6)
LIKELY = st.fixed_dictionaries({"task": st.integers(0, 5) | VALUES, "node": st.just("n1") | VALUES, "event": NAMED})
RECORDS = st.builds(lambda likely, fields: {**likely, **fields}, LIKELY, OBJECTS) | OBJECTS


@given(
    st.lists(st.tuples(st.sampled_from(NONCES), RECORDS), min_size=1, max_size=4),
    st.sampled_from([1, 3, 125, 134, 137, 143]),
    st.booleans(),
)
def test_whatever_a_program_reports_the_end_is_told_as_it_was(
    forged: list[tuple[str, dict[str, Any]]], status: int, label: bool
) -> None:
    """With the nonces of the run: success is success, and nothing but printable text is shown of a report."""
    one = ReportFilter(NONCES, 6, label)
    prefix = b"3: " if label else b""
    lines = [prefix + marked(json.dumps(record), nonce) for nonce, record in forged]

    def tell() -> None:
        shown = b"".join(map(one.feed, [prefix + STARTED, *lines, prefix + EXIT, b""]))
        for line in shown.splitlines(True):
            assert line in lines or line[:-1].decode().isprintable()
        for text in (render_places(one.reports), render_cache(one.reports), render_alone(one.reports)):
            assert text.isprintable()
        assert re.fullmatch(r"(\d+\.\d+)?", find_start(one.reports).step)
        assert find_failure(End(0, SRUN), one.reports, one.errors, one.barriers) is None
        for end in (End(status, SRUN, 6), End(143, SRUN, 6, interrupted=15), End(137, SRUN, killed=True)):
            failure = find_failure(end, one.reports, one.errors, one.barriers)
            assert failure or end.interrupted
            if failure:
                assert 0 < failure.exit_code <= 255
                assert all(line.isprintable() for line in failure.render().split("\n"))

    assert read_bounded(tell) is None
