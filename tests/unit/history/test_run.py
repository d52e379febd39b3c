"""run.json: what is written is read again, and nothing else is believed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import a_run

from jaxsif.history.run import MOST_ALARMS, MOST_EXITS, Complaint, TaskEnd, describe_run, parse_run, render_run

WHOLE = describe_run(a_run())


@pytest.mark.parametrize(
    "run",
    [
        a_run(),
        a_run(end=None, status=None, error=None, tasks=None, exits=(), alarms=()),
        a_run(command=("python", "-c", "print('ä\x1b[2J\udc80')"), variables={}),
    ],
    ids=["ended", "begun", "any text"],
)
def test_what_is_written_is_read(run: Any) -> None:
    assert parse_run(render_run(run).decode()) == run


def test_what_is_written_is_never_too_long_to_be_read() -> None:
    ends = (TaskEnd(0, "", 1, "", "x" * 10_000, ""),) * (MOST_EXITS + 5)
    alarm = a_run().alarms[0]._replace(lines=("x" * 1000,) * 100)
    error = Complaint("x" * 10_000, "x" * 10_000, "")
    run = a_run(exits=ends, alarms=(alarm,) * 100, error=error, command=("x" * (1 << 20),) * 10)
    found = parse_run(render_run(run).decode())
    assert found
    assert (len(found.exits), len(found.alarms)) == (MOST_EXITS, MOST_ALARMS)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"name": "../../etc"},
        {"name": "2026-11-22T18-25-03-0a1b\n"},
        {"status": 256},
        {"status": True},
        {"status": "0"},
        {"begin": -1},
        {"begin": float("nan")},
        {"end": "now"},
        {"error": {"what": "it failed"}},
        {"error": "it failed"},
        {"tasks": 1 << 40},
        {"command": "python"},
        {"command": [1]},
        {"variables": {"A": 1}},
        {"exits": [{"task": 0}]},
        {"alarms": [{**WHOLE["alarms"][0], "lines": ["x"] * 26}]},
        {"alarms": [{**WHOLE["alarms"][0], "picture": []}]},
        {"host": "x" * 5000},
    ],
    ids=str,
)
def test_a_strange_field_is_refused(change: dict[str, Any]) -> None:
    assert parse_run(json.dumps({**WHOLE, **change})) is None


@pytest.mark.parametrize("field", WHOLE)
def test_a_missing_field_is_refused(field: str) -> None:
    assert parse_run(json.dumps({name: value for name, value in WHOLE.items() if name != field})) is None


def test_a_field_of_a_later_version_is_left_out() -> None:
    more = {**WHOLE, "later": 1, "exits": [{**end, "later": 1} for end in WHOLE["exits"]]}
    assert parse_run(json.dumps(more)) == a_run()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "1", "[" * 100_000, '{"begin": ' + "9" * 10_000 + "}"])
def test_what_is_no_run_is_refused(text: str) -> None:
    assert parse_run(text) is None


@given(st.sampled_from(sorted(WHOLE)), st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=3))
def test_no_value_makes_the_reader_fail(field: str, value: object) -> None:
    parse_run(json.dumps({**WHOLE, field: value}))
