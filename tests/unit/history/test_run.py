"""run.json: what is written is read again, and nothing else is believed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.runs import a_run, picture

from jaxsif.history.run import (
    MOST_ALARMS,
    MOST_BYTES,
    MOST_EXITS,
    Attempt,
    Complaint,
    RunRecord,
    TaskEnd,
    cut_picture,
    describe_run,
    parse_run,
    render_record,
)
from jaxsif.limits import MOST_NODES

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
    assert parse_run(render_record(run).decode()) == run


# Twelve bytes each in JSON, and printable.
WIDE = "\U0001f600"
NAMES = [f"node{number:05}" for number in range(MOST_NODES)]


def a_picture(groups: int, nodes: list[str], members: int) -> dict[str, Any]:
    whole = picture()
    (group,) = whole["groups"]
    longer = {
        **group,
        "nodes": nodes,
        "stack": [[WIDE * 240, 1, WIDE * 120]] * 40,
        "members": group["members"] * members,
    }
    return {**whole, "silent": nodes, "groups": [longer] * groups}


def test_the_longest_run_is_not_too_long_to_be_read() -> None:
    wide = WIDE * 4096
    ends = (TaskEnd(2**31 - 1, wide, 137, wide, wide, wide),) * MOST_EXITS
    alarm = a_run().alarms[0]._replace(lines=(WIDE * 400,) * 25, picture=cut_picture(a_picture(100, NAMES, 9)))
    texts = ("step", "launcher", "layout", "image", "digest", "jaxsif", "python", "slurm", "host")
    run = a_run(
        **dict.fromkeys(texts, wide),
        nodes="n" * 16 * MOST_NODES,
        command=(wide,) * 10_000,
        error=Complaint(wide, wide, wide),
        variables={str(number): WIDE * 256 for number in range(6)},
        exits=ends,
        alarms=(alarm,) * MOST_ALARMS,
    )
    content = render_record(run)
    assert len(content) <= MOST_BYTES
    found = parse_run(content.decode())
    assert found.command[0] == wide
    assert found.exits[0] == ends[0]
    assert len(found.alarms) == MOST_ALARMS


def test_a_short_picture_is_kept_whole() -> None:
    assert cut_picture(picture()) == picture()


@pytest.mark.parametrize(
    ("long", "groups"),
    [(a_picture(1, ["node1"], 1000), 1), (a_picture(1, NAMES, 1), 1), (a_picture(100, ["node1"], 1), 1)],
    ids=["members", "nodes", "groups"],
)
def test_of_a_long_picture_the_largest_groups_are_kept(long: dict[str, Any], groups: int) -> None:
    found = cut_picture(long)
    assert len(json.dumps(found)) < 300_000
    assert len(found["groups"]) == groups
    first = found["groups"][0]
    assert first == {**long["groups"][0], "members": [], "nodes": long["groups"][0]["nodes"][: len(first["nodes"])]}
    assert found["silent"] == long["silent"][: len(found["silent"])]
    assert found["silent"]


@pytest.mark.parametrize("field", sorted(WHOLE.keys() - RunRecord._field_defaults.keys()))
def test_a_missing_field_is_refused(field: str) -> None:
    with pytest.raises(KeyError, match=field):
        parse_run(json.dumps({name: value for name, value in WHOLE.items() if name != field}))


def test_a_start_that_an_earlier_version_recorded_has_no_costs() -> None:
    failed = {"end": 1.0, "status": 1, "what": "it failed", "where": "", "left_out": {}}
    assert parse_run(json.dumps({**WHOLE, "attempts": [failed]})).attempts == (Attempt(**failed),)


def test_a_field_of_a_later_version_is_left_out() -> None:
    more = {**WHOLE, "later": 1, "exits": [{**end, "later": 1} for end in WHOLE["exits"]]}
    assert parse_run(json.dumps(more)) == a_run()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "1", "[" * 100_000, '{"begin": ' + "9" * 10_000 + "}", json.dumps({**WHOLE, "schema": 2})],
)
def test_what_is_no_run_is_refused(text: str) -> None:
    with pytest.raises((LookupError, TypeError, ValueError)):
        parse_run(text)
