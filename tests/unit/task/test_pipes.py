"""A program ends when what it printed is read, or when nobody reads."""

from __future__ import annotations

import os
import threading
import time

import pytest

from jaxsif.task import pipes


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """The ends of a pipe; the second one in place of standard output and error."""
    read, write = os.pipe()
    real = os.fstat
    monkeypatch.setattr(pipes.os, "fstat", lambda _: real(write))
    count = pipes._count_unread
    monkeypatch.setattr(pipes, "_count_unread", lambda _: count(write))
    return read, write


def duration() -> float:
    begin = time.monotonic()
    pipes.wait_for_readers()
    return time.monotonic() - begin


def test_nothing_unread(pipe: tuple[int, int]) -> None:
    assert duration() < pipes._PAUSE


def test_a_slow_reader(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"x" * 300)
    reader = threading.Timer(0.2, os.read, (pipe[0], 300))
    reader.start()
    assert 0.15 + pipes._PAUSE <= duration() < pipes._LIMIT
    reader.join()


def test_no_reader(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"x")
    assert pipes._LIMIT <= duration() < pipes._LIMIT + 1
