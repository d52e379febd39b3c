"""Texts of /proc."""

from __future__ import annotations

import os

import pytest

from jaxsif.node.processes import Stat, find_descriptors, name_file, parse_stat, read_environ, read_io, read_stat
from jaxsif.node.status_files import is_whole, parse_dump
from jaxsif.node.syscalls import list_names


def test_stat() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    line = f"7 (a) S b) R 5 7 7 0 -1 4194304 1 0 0 0 {ticks} {ticks * 2} {ticks} {ticks * 3} 20 0 1 0 4242 1 1"
    assert parse_stat(line.encode()) == Stat("R", 5, 3.0, 4.0, 4242)
    assert parse_stat(b"") is None
    assert parse_stat(b"7 (a) R") is None


def test_this_process() -> None:
    stat = read_stat(os.getpid())
    assert stat.parent == os.getppid()
    assert read_environ(os.getpid()).keys() <= {*map(os.fsencode, os.environ), *read_environ(os.getpid())}
    assert read_io(os.getpid()) is not None
    assert 0 in find_descriptors(os.getpid())


def test_a_process_that_is_gone() -> None:
    gone = 1 << 22  # above the highest number that the kernel gives
    assert read_stat(gone) is None
    assert read_environ(gone) == {}
    assert find_descriptors(gone) == {}


@pytest.mark.parametrize(
    ("link", "name"),
    [
        ("pipe:[77]", "pipe"),
        ("socket:[77]", "socket"),
        ("/dev/pts/3", "terminal"),
        ("/scratch/data.bin", "/scratch/data.bin"),
        ("anon_inode:[eventpoll]", "eventpoll"),
        ("", ""),
    ],
)
def test_descriptors(link: str, name: str) -> None:
    assert name_file(link) == name


def test_system_calls() -> None:
    assert {number: list_names("x86_64")[number] for number in (0, 202, 230)} == {
        0: "read",
        202: "futex",
        230: "clock_nanosleep",
    }
    assert {number: list_names("aarch64")[number] for number in (63, 98, 115)} == {
        63: "read",
        98: "futex",
        115: "clock_nanosleep",
    }
    assert list_names("riscv64") == {}


MAIN = b'Stack (most recent call first):\n  File "/a", line 9.py", line 41 in step\n'
MAIN += b'  File "/a.py", line ??? in <module>\n'
FRAMES = [['/a", line 9.py', 41, "step"], ["/a.py", 0, "<module>"]]
DEEP = MAIN.replace(b"in <module>", b"in f") + b"  ...\n"


@pytest.mark.parametrize(
    ("dump", "whole", "frames"),
    [
        (b"", False, []),
        (MAIN, True, FRAMES),
        (MAIN[:-12], False, FRAMES[:1]),
        (MAIN[:20], False, []),
        (MAIN[: MAIN.index(b"step") + 5], False, FRAMES[:1]),
        (MAIN[:-12] + MAIN, True, FRAMES),
        (DEEP, True, [FRAMES[0], ["/a.py", 0, "f"]]),
    ],
    ids=["nothing", "whole", "half", "less", "half, by lines", "asked twice", "deep"],
)
def test_dumps(dump: bytes, whole: bool, frames: list[list[object]]) -> None:
    assert is_whole(dump) == whole
    assert parse_dump(dump) == frames
