"""The list of a staged image's files, and what it notices."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jaxsif.errors import HostError
from jaxsif.imagefile import staged_path
from jaxsif.node.files import find_damage, list_files
from jaxsif.node.stage import own_folder


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
    assert f"file(s) changed, such as {name}" in str(find_damage(str(staged)))


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
    assert str(find_damage(str(tmp_path / "image"))).startswith("damaged: 2 file(s)")


def test_folder_of_somebody_else_is_not_trusted(staged: Path) -> None:
    os.chmod(staged.parent, 0o755)
    assert find_damage(str(staged)) == "absent"


def test_image_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "image").write_text("1")
    (tmp_path / "image.list").write_bytes(b"".join(list_files(str(tmp_path / "image"))))
    assert find_damage(str(tmp_path / "image")) is None
    (tmp_path / "image").write_text("2")
    assert str(find_damage(str(tmp_path / "image"))).startswith("damaged: 1 file(s) changed")


def test_launcher_and_nodes_mean_the_same_place(tmp_path: Path) -> None:
    digest = "sha256:" + "0123456789abcdef" * 4
    assert staged_path(str(tmp_path), digest) == f"{own_folder(str(tmp_path))}/0123456789abcdef"


def test_folder_that_others_can_write(tmp_path: Path) -> None:
    own_folder(str(tmp_path))
    os.chmod(own_folder(str(tmp_path)), 0o777)
    with pytest.raises(HostError, match="not a folder of this user alone"):
        own_folder(str(tmp_path))
