"""The list of a staged image's files, and what it notices; which copies go."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from unittest.mock import ANY

import pytest

from jaxsif.errors import FolderTakenError
from jaxsif.images.file import staged_path
from jaxsif.node.copies import find_damage, hold, list_files
from jaxsif.node.stage import check, own_folder


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    place = tmp_path / "0123"
    (place / "opt/a b").mkdir(parents=True)
    (place / "opt/a b/file").write_text("1")
    (place / "opt/link").symlink_to("a b")
    (tmp_path / "0123.list").write_bytes(b"".join(list_files(str(place))))
    return place


def test_unchanged(staged: Path) -> None:
    assert find_damage(str(staged)) is None


@pytest.mark.parametrize(
    ("spoil", "name"),
    [
        (lambda place: (place / "opt/a b/file").write_text("2"), "'opt/a b/file'"),
        (lambda place: (place / "opt/a b/file").chmod(0o777), "'opt/a b/file'"),
        (lambda place: (place / "opt/link").unlink(), "'opt'"),
        (lambda place: (place / "opt/new").mkdir(), "'opt'"),
        (lambda place: (place / "new").write_text(""), "'.'"),
        (lambda place: (place / "opt").rename(place / "other"), "'.'"),
        (lambda place: ((place / "opt").rename(place / "other"), (place / "opt").write_text("")), "'.'"),
    ],
    ids=["content of the same size", "mode", "gone", "new folder", "new at the top", "renamed", "folder is a file"],
)
def test_changed(staged: Path, spoil: object, name: str) -> None:
    spoil(staged)  # type: ignore[operator]
    assert f"files changed, such as {name}" in str(find_damage(str(staged)))


def test_absent(staged: Path) -> None:
    os.rename(staged, f"{staged}.away")
    assert find_damage(str(staged)) == "absent"
    os.rename(f"{staged}.away", staged)
    os.unlink(f"{staged}.list")
    assert find_damage(str(staged)) == "absent"


def test_list_that_a_crash_has_emptied(staged: Path) -> None:
    Path(f"{staged}.list").write_text("")
    assert find_damage(str(staged)) == "damaged: its list is empty"


def test_names_with_anything_in_them(tmp_path: Path) -> None:
    (tmp_path / "image").mkdir()
    (tmp_path / "image/a\nb\t c").write_text("1")
    (tmp_path / "image.list").write_bytes(b"".join(list_files(str(tmp_path / "image"))))
    assert find_damage(str(tmp_path / "image")) is None
    os.unlink(tmp_path / "image/a\nb\t c")
    assert str(find_damage(str(tmp_path / "image"))).startswith("damaged: 2 of ")


def test_folder_of_somebody_else_is_not_trusted(staged: Path) -> None:
    os.chmod(staged.parent, 0o755)
    assert find_damage(str(staged)) == "absent"


def test_image_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "image").write_text("1")
    (tmp_path / "image.list").write_bytes(b"".join(list_files(str(tmp_path / "image"))))
    assert find_damage(str(tmp_path / "image")) is None
    (tmp_path / "image").write_text("2")
    assert str(find_damage(str(tmp_path / "image"))).startswith("damaged: 1 of ")


def test_launcher_and_nodes_mean_the_same_place(tmp_path: Path) -> None:
    digest = "sha256:" + "0123456789abcdef" * 4
    assert staged_path(str(tmp_path), digest) == f"{own_folder(str(tmp_path))}/0123456789abcdef"


def test_folder_that_others_can_write(tmp_path: Path) -> None:
    own_folder(str(tmp_path))
    os.chmod(own_folder(str(tmp_path)), 0o777)
    with pytest.raises(FolderTakenError, match=r"not a folder private to this user: .*/jaxsif-\d+ \(drwxrwxrwx \w+\)"):
        own_folder(str(tmp_path))


def test_a_folder_in_which_others_can_replace_ours(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(FolderTakenError, match=f"others may replace what is in {tmp_path}: it has no sticky bit"):
        own_folder(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    tmp_path.chmod(0o1777)
    assert own_folder(str(tmp_path)).startswith(str(tmp_path))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """As `staged`, in this user's folder below tmp_path."""
    place = Path(own_folder(str(tmp_path))) / "0123"
    place.mkdir()
    Path(f"{place}.list").write_bytes(b"".join(list_files(str(place))))
    return place


def age(place: Path, days: float) -> None:
    os.utime(f"{place}.list", (0, time.time() - days * 24 * 3600))


@pytest.mark.parametrize(("days", "removed"), [(29, 0), (31, 1)])
def test_a_copy_goes_when_it_was_not_used_for_long(tmp_path: Path, place: Path, days: float, removed: int) -> None:
    age(place, days)
    assert check(str(tmp_path), "sha256:other")["removed"] == removed
    assert sorted(os.listdir(place.parent)) == (["lock"] if removed else ["0123", "0123.list", "lock"])


def test_a_copy_that_is_held_stays(tmp_path: Path, place: Path) -> None:
    held = hold(str(place))
    assert held is not None
    age(place, 31)
    assert check(str(tmp_path), "sha256:other")["removed"] == 0
    os.close(held)
    assert check(str(tmp_path), "sha256:other")["removed"] == 1


def test_what_cannot_be_removed_does_not_hinder(tmp_path: Path, place: Path) -> None:
    (place.parent / "dangling.list").symlink_to("nothing")
    (place.parent / "folder.list").mkdir()
    age(place, 31)
    assert check(str(tmp_path), "sha256:other")["removed"] == 1
    assert sorted(os.listdir(place.parent)) == ["dangling.list", "folder.list", "lock"]


def test_nobody_waits_for_another_run_to_tidy(tmp_path: Path, place: Path) -> None:
    age(place, 31)
    with open(place.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert check(str(tmp_path), "sha256:other")["removed"] == 0


def test_a_look_is_a_use(tmp_path: Path, place: Path) -> None:
    age(place, 31)
    assert check(str(tmp_path), "sha256:0123") == {"damage": None, "free": ANY, "removed": 0}
    assert time.time() - os.stat(f"{place}.list").st_mtime < 60
    assert find_damage(str(place)) is None


def test_what_is_not_there_cannot_be_held(tmp_path: Path) -> None:
    assert hold(str(tmp_path / "0123")) is None
    assert hold(str(tmp_path / "gone/0123")) is None


def test_others_cannot_keep_us_waiting(place: Path) -> None:
    """In a folder that they can read, they could lock the list."""
    place.parent.chmod(0o755)
    with open(f"{place}.list") as listed:
        fcntl.flock(listed, fcntl.LOCK_EX)
        assert hold(str(place)) is None
