"""Lines of a stream; lists of tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxsif.text import Lines, list_tasks, shorten_place


def all_lines(lines: Lines, chunks: list[bytes]) -> list[bytes]:
    return [line for chunk in [*chunks, b""] for line in lines.feed(chunk)]


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([], []),
        ([b"a\n\nb"], [b"a", b"", b"b"]),
        ([b"a", b"b\nc\n"], [b"ab", b"c"]),
        ([b"12345678\n"], [b"12345678"]),
        ([b"12345678", b"\n"], [b"12345678"]),
        ([b"123456789\n"], [b"12345678", b"9"]),
        ([b"1234567", b"89", b"\n"], [b"12345678", b"9"]),
        ([b"1" * 20], [b"1" * 8, b"1" * 8, b"1" * 4]),
    ],
)
def test_lines(chunks: list[bytes], lines: list[bytes]) -> None:
    assert all_lines(Lines(8), chunks) == lines


@given(st.text("a\n", max_size=40), st.integers(1, 40))
def test_the_cut_of_chunks_changes_no_line(text: str, size: int) -> None:
    data = text.encode()
    chunks = [data[begin : begin + size] for begin in range(0, len(data), size)]
    assert all_lines(Lines(8), chunks) == all_lines(Lines(8), [data] if data else [])


@pytest.mark.parametrize(
    ("tasks", "text"),
    [([], ""), ([3], "3"), ([0, 1, 2, 5, 7, 8], "0-2,5,7-8"), (list(range(0, 99, 2)), "0,2,4,6,8,10,12,14,16,...")],
)
def test_lists_of_tasks(tasks: list[int], text: str) -> None:
    assert list_tasks(tasks, 26) == text


@pytest.mark.parametrize(
    ("place", "short"),
    [
        ("/home/ada/train.py:41", "train.py:41"),
        ("/home/ada/sim/__main__.py:7", "sim/__main__.py:7"),
        ("/__init__.py", "__init__.py"),
        ("<string>:1", "<string>:1"),
        ("", ""),
    ],
)
def test_places_are_named_without_their_folders(place: str, short: str) -> None:
    assert shorten_place(place) == short
