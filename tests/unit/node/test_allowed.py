"""Whether a node's image is the one that a policy allowed: two looks, and the digest where they do not tell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit.siffile import sha256, write_image

from jaxsif.images.file import find_state
from jaxsif.node.allowed import admit, describe_change, examine, find_change, read_state

GOOD = sha256(b"good")


def test_the_launcher_and_the_node_tell_the_same_state(tmp_path: Path) -> None:
    image = write_image(tmp_path / "a.sif", b"good")
    assert read_state(image) == find_state(image)
    (tmp_path / "link.sif").symlink_to(image)
    assert read_state(str(tmp_path / "link.sif")) == find_state(image)


def test_the_file_that_was_allowed(tmp_path: Path) -> None:
    image = write_image(tmp_path / "a.sif", b"good")
    assert examine("not computed", read_state(image), image) == (read_state(image), "")


def test_another_file_is_told_by_its_digest(tmp_path: Path) -> None:
    image = write_image(tmp_path / "a.sif", b"good")
    assert examine(GOOD, "1:2:3", image) == (read_state(image), "")
    write_image(tmp_path / "a.sif", b"evil")
    assert examine(GOOD, "1:2:3", image)[1] == f"it has {sha256(b'evil')}, but the policy allowed {GOOD}"


@pytest.mark.parametrize("kind", ["gone", "FIFO", "folder", "text"])
def test_what_is_no_image(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.sif"
    if kind == "FIFO":
        os.mkfifo(path)
    if kind == "folder":
        path.mkdir()
    if kind == "text":
        path.write_text("#!/bin/sh\n")
    reasons = {
        "gone": "cannot read it: No such file or directory",
        "FIFO": "cannot read it: it is not a file",
        "folder": "cannot read it: it is not a file",
        "text": f"not a SIF image: {path}",
    }
    assert examine(GOOD, "1:2:3", str(path))[1] == reasons[kind]


@pytest.mark.parametrize("is_there", [True, False])
def test_an_image_that_a_node_lacks_belongs_on_a_shared_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    path, said = tmp_path / "a.sif", list[str]()
    if is_there:
        path.mkdir()
    monkeypatch.setattr("jaxsif.node.stage.refuse", lambda _text, hint: said.append(hint))
    admit(GOOD, "1:2:3", str(path))
    assert said == ["" if is_there else "put it on a disk that all nodes see, or pass --stage"]


def test_a_file_that_gave_way_and_came_back_has_changed(tmp_path: Path) -> None:
    """It is the same file, and a change time that nobody can set tells that it was renamed."""
    image = write_image(tmp_path / "a.sif", b"good")
    before = read_state(image)
    assert find_change(image, before) == ""
    os.rename(image, tmp_path / "away")
    assert find_change(image, before) == "cannot read it: No such file or directory"
    os.rename(tmp_path / "away", image)
    assert find_change(image, before).startswith("it changed while the container started: change time ")


def test_what_changed_is_named() -> None:
    assert describe_change("1:2:3", "1:2:3") == ""
    assert describe_change("1:2:3", "4:2:5") == (
        "it changed while the container started: inode 1 became 4, change time 3 became 5"
    )


# Runs the program behind the gate, as share.py does with the runtime; with `swap`, the image changes meanwhile.
_START = """
import os, sys
from jaxsif.node.allowed import admit, guard
digest, image, swap = sys.argv[1:]
argv = guard(image, admit(digest, "1:2:3", image), ["/bin/sh", "-c", "ls /proc/self/fd | sort -n | tail -1; echo ran"])
if swap:
    os.rename(swap, image)
os.execv(argv[0], argv)
"""


@pytest.mark.starts_processes
@pytest.mark.parametrize("swap", [False, True])
def test_the_program_waits_for_the_second_look(tmp_path: Path, swap: bool) -> None:
    image = write_image(tmp_path / "a.sif", b"good")
    other = write_image(tmp_path / "b.sif", b"good")
    argv = [sys.executable, "-c", _START, GOOD, image, other if swap else ""]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    if swap:
        assert (done.returncode, done.stdout) == (125, "")
        assert done.stderr.startswith(f"this is not the image that the policy allowed: {image}: it changed while ")
    else:
        assert (done.returncode, done.stdout) == (0, "3\nran\n")  # no descriptor of the gate is left
