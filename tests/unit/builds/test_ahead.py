"""What the last image had is written before the next one is known, and written again only where that was wrong."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from jaxsif.builds.ahead import written_ahead
from jaxsif.builds.squashfs_writer import BIG, place_data, write
from jaxsif.images.squashfs import DIRECTORY, FILE, Data, Node

BLOCK = 1 << 20
STORED = 1 << 24


def packed(folder: Path, name: str, size: int) -> Node:
    """A file of random bytes that are packed as they are."""
    path = folder / name
    path.write_bytes(os.urandom(size))
    blocks = [BLOCK] * (size // BLOCK) + ([size % BLOCK] if size % BLOCK else [])
    return Node(FILE, 0o644, size=size, data=Data(str(path), 0, tuple(STORED | block for block in blocks)))


def tree(**children: Node) -> Node:
    return Node(DIRECTORY, 0o755, children={name.encode(): child for name, child in children.items()})


def finish(path: Path, root: Node, ahead: dict[Data, int]) -> bytes:
    """The image's file, written as `write_image` does."""
    with open(path, "wb", opener=lambda path, flags: os.open(path, flags & ~os.O_TRUNC, 0o666)) as out:
        write(out, root, BLOCK, 7, ahead)
        out.truncate()
    return path.read_bytes()


@pytest.fixture
def root(tmp_path: Path) -> Node:
    sizes = {"a": 100, "b": BIG + 5, "c": 3 * BIG, "d": 2 * BIG, "e": 50}
    return tree(**{name: packed(tmp_path, name, size) for name, size in sizes.items()})


@pytest.fixture
def note(tmp_path: Path, root: Node) -> Path:
    """Of a build that made `root`."""
    big = [[*data, place] for data, place in place_data(root).items() if data.length >= BIG]
    (tmp_path / "note").write_text(json.dumps(big))
    return tmp_path / "note"


def test_the_biggest_come_first(root: Node) -> None:
    """The small ones stay in the order of their names."""
    places = place_data(root)
    assert [data.path[-1] for data in sorted(places, key=lambda data: places[data])] == list("cdbae")


def test_only_what_was_guessed_wrong_is_written_again(
    tmp_path: Path, root: Node, note: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The biggest is where it was; the next is smaller than the third now; the bytes are as ever."""
    root.children[b"d"] = packed(tmp_path, "new", BIG + 1)
    plain = finish(tmp_path / "plain", root, {})
    with written_ahead(tmp_path / "image", note) as ahead:
        there = ahead()
    assert {Path(data.path).name for data in there} == set("bcd")
    copied, sendfile = [], os.sendfile
    monkeypatch.setattr(os, "sendfile", lambda *args: copied.append(sendfile(*args)) or copied[-1])
    assert finish(tmp_path / "image", root, there) == plain
    assert sorted(copied) == [50, 100, BIG + 1, BIG + 5]


def test_what_the_cache_lost_is_not_missed(tmp_path: Path, root: Node, note: Path) -> None:
    (tmp_path / "c").unlink()
    with written_ahead(tmp_path / "image", note) as ahead:
        assert {Path(data.path).name for data in ahead()} == set("bd")


def test_a_build_that_fails_does_not_wait_for_all_of_it(
    tmp_path: Path, note: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, failed = [], threading.Event()

    def slow(*args: int) -> int:
        calls.append(args)
        failed.wait(20)
        return 1  # byte

    monkeypatch.setattr(os, "sendfile", slow)
    with suppress(KeyboardInterrupt), written_ahead(tmp_path / "image", note):
        threading.Timer(0.2, failed.set).start()
        raise KeyboardInterrupt
    assert len(calls) <= 1


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[" * 100_000, "[1]", "[[]]", '[["a", 1, [2], "b"]]', '[["a", -1, [2], 3]]', '[["a", 1, [-2], 3]]'],
    ids=range(8),
)
def test_note_that_was_cut_short(tmp_path: Path, text: str) -> None:
    (tmp_path / "note").write_text(text)
    with written_ahead(tmp_path / "image", tmp_path / "note") as ahead:
        assert ahead() == {}


def test_nothing_is_noted_at_first(tmp_path: Path) -> None:
    with written_ahead(tmp_path / "image", tmp_path / "note") as ahead:
        assert ahead() == {}
