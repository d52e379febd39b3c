"""Lines of the inspector: what is read, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.samples import FIELDS, STATUS, line, sample

from jaxsif.watch.sample import LONGEST_LINE, Answer, Frame, Sample, parse_line, parse_status


def test_a_line() -> None:
    found = sample()
    assert (found.task, found.node, found.call) == (0, "node1", "futex")
    assert found.frames == (Frame("/home/ada/train.py", 41, "step"), Frame("/home/ada/train.py", 60, "<module>"))
    assert found.frames[0].place == "train.py:41 step"
    assert found.status.turns == 12044


def test_the_last_line() -> None:
    assert parse_line(b'{"node": "n1", "tasks": 4, "memory": 7}') == Answer("n1", 4, 7)


@pytest.mark.parametrize(
    "fields",
    [
        {"task": -1},
        {"task": 1 << 24},
        {"task": True},
        {"task": 1.0},
        {"node": "a b"},
        {"node": "\x1b[2J"},
        {"node": "n" * 256},
        {"state": "RS"},
        {"cpu": float("nan")},
        {"cpu": float("inf")},
        {"cpu": -1.0},
        {"read": 1 << 70},
        {"gpu": 1},
        {"answered": "yes"},
        {"file": "x" * 241},
        {"frames": {}},
        {"frames": [["a", 1, "b"]] * 41},
        {"frames": [["a", 1]]},
        {"frames": ["abc"]},
        {"frames": [["a", "1", "b"]]},
        {"frames": [["a", -1, "b"]]},
        {"frames": [["a" * 241, 1, "b"]]},
        {"status": []},
        {"status": {}},
        {"status": {**STATUS, "turns": -1}},
        {"status": {**STATUS, "quiet": "1"}},
        {"more": 1},
    ],
    ids=str,
)
def test_a_hostile_line_is_refused(fields: dict[str, Any]) -> None:
    assert parse_line(line(**fields)) is None


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"{", b"[]", b"null", b"7", b'"x"', b"[" * 8000, b'{"node": "n"}', b'{"node": "n", "tasks": 1}'),
        *(b'{"node": 1, "tasks": 1, "memory": 0}', b'{"node": "n", "tasks": "1", "memory": 0}'),
        *(b'{"node": "n", "tasks": -1, "memory": 0}', b"\xff\xfe", b"{}" + b" " * LONGEST_LINE),
    ],
    ids=lambda text: repr(text[:20]),
)
def test_no_line_of_the_inspector(text: bytes) -> None:
    assert parse_line(text) is None


def test_texts_are_printable() -> None:
    found = sample(command="a\nb", frames=[["\x1b[2J", 1, "\udce4"]], file="/a\tb", status={"loop": "\r"})
    assert found.command == "a\\nb"
    assert found.frames == (Frame("\\x1b[2J", 1, "\\udce4"),)
    assert found.file == "/a\\tb"
    assert found.status.loop == "\\r"


def test_a_box_of_a_later_version() -> None:
    found = parse_status({**STATUS, "new": "field"})
    assert found._asdict() == {**STATUS, "around": (), "own": ()}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*FIELDS]), _JSON), st.dictionaries(st.sampled_from([*STATUS]), _JSON))
def test_whatever_stands_in_fields(fields: dict[str, Any], status: dict[str, Any]) -> None:
    text = json.dumps({**FIELDS, "status": {**STATUS, **status}, **fields}).encode()
    found = parse_line(text)
    assert found is None or isinstance(found, Sample)
    if found:
        texts = [found.command, found.file, *(frame.file for frame in found.frames)]
        assert all(text.isprintable() for text in texts)
