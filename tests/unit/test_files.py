"""Files that are written whole or not at all, private folders, and where there is room."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.caught import catch

from jaxsif.files import (
    create_file,
    fast_folder,
    make_private,
    remove_abandoned,
    scratch_folder,
    user_folder,
    write_file,
    write_files,
)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_file_is_replaced_with_its_folder_made(tmp_path: Path) -> None:
    path = tmp_path / "a/b/file"
    write_file(str(path), b"one", 0o600)
    write_file(str(path), b"two", 0o600)
    assert path.read_bytes() == b"two"
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)
    assert os.listdir(path.parent) == ["file"]


def test_a_file_of_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_file("file", b"one")
    assert os.listdir() == ["file"]


def test_all_files_or_none(tmp_path: Path) -> None:
    """The folder of the second one is a file."""
    (tmp_path / "plain").write_bytes(b"old")
    first, second = str(tmp_path / "first"), str(tmp_path / "plain/second")
    error = catch(FileExistsError, write_files, {first: b"1", second: b"2"})
    assert (error.filename, error.errno) == (second, errno.EEXIST)
    assert os.listdir(tmp_path) == ["plain"]


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"mine")
    (tmp_path / "link").symlink_to("precious")
    write_file(str(tmp_path / "link"), b"new")
    assert (tmp_path / "precious").read_bytes() == b"mine"
    assert not (tmp_path / "link").is_symlink()


def test_a_new_file_is_never_over_another(tmp_path: Path) -> None:
    path = tmp_path / "file"
    create_file(str(path), b"one", 0o600)
    assert mode(path) == 0o600
    with pytest.raises(FileExistsError):
        create_file(str(path), b"two")
    assert path.read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("kind", ["absent", "private", "open", "link", "file"])
def test_a_private_folder(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "folder"
    if kind in ("private", "open"):
        folder.mkdir(0o700 if kind == "private" else 0o750)
    elif kind == "link":
        (tmp_path / "other").mkdir(0o700)
        folder.symlink_to("other")
    elif kind == "file":
        folder.touch(0o600)
    assert make_private(str(folder)) == (kind in ("absent", "private"))


def test_a_folder_in_memory(tmp_path: Path) -> None:
    """Only one that has room, on this host, and that is there."""
    assert fast_folder(1, "disk", str(tmp_path)) == str(tmp_path)
    assert fast_folder(1 << 60, "disk", str(tmp_path)) == "disk"
    assert fast_folder(1, "disk", str(tmp_path / "none")) == "disk"
    assert fast_folder(1, "disk", "/proc/self") == "disk"


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"XDG_STATE_HOME": "/state", "HOME": "/home/u"}, "/state"),
        ({"XDG_STATE_HOME": "state", "HOME": "/home/u"}, "/home/u/.local/state"),
        ({"HOME": "/home/u"}, "/home/u/.local/state"),
        ({}, "/.local/state"),
    ],
    ids=["named", "relative", "not named", "no home"],
)
def test_folders_of_the_user(environ: dict[str, str], folder: str) -> None:
    assert user_folder(environ, "XDG_STATE_HOME") == folder


@pytest.mark.parametrize("write", [create_file, write_file])
def test_a_full_disk_is_named_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[str, bytes], None]
) -> None:
    def sync(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", sync)
    path = str(tmp_path / "file")
    with pytest.raises(OSError, match="No space left on device") as caught:
        write(path, b"one")
    assert (caught.value.filename, os.listdir(tmp_path)) == (path, [])


def leave(place: Path, prefix: str) -> Path:
    """Leave a scratch folder as a killed process does; return its path."""
    with scratch_folder(str(place), prefix) as name:
        folder = Path(name)
        (folder / "system/closed").mkdir(parents=True)
        (folder / "system/closed/file").touch()
        (folder / "system/closed").chmod(0)
        (folder / "out").symlink_to(place / "precious")
        folder.rename(place / "kept")
        Path(f"{name}.lock").rename(place / "kept.lock")
    (place / "kept").rename(folder)
    (place / "kept.lock").rename(f"{folder}.lock")
    return folder


def test_a_scratch_folder_and_its_lock_are_removed(tmp_path: Path) -> None:
    with scratch_folder(str(tmp_path), ".a-") as name:
        assert mode(Path(name)) == 0o700
        assert {str(path) for path in tmp_path.iterdir()} == {name, f"{name}.lock"}
    assert os.listdir(tmp_path) == []


def test_scratch_folders_of_killed_processes_are_removed(tmp_path: Path) -> None:
    """Neither one that is in use, nor one of another prefix or host, nor what a link leads to."""
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").touch()
    killed, other = leave(tmp_path, ".a-"), leave(tmp_path, ".b-")
    elsewhere = tmp_path / ".a-another.host-x"
    elsewhere.mkdir()
    Path(f"{elsewhere}.lock").write_text("held")
    with scratch_folder(str(tmp_path), ".a-") as first, scratch_folder(str(tmp_path), ".a-") as second:
        assert os.path.isdir(first)
        assert os.path.isdir(second)
        assert not killed.exists()
        assert not os.path.lexists(f"{killed}.lock")
        assert other.exists()
        assert elsewhere.exists()
    assert (tmp_path / "precious/file").exists()


def test_locks_that_nobody_has_held_yet_or_that_are_no_files_stay(tmp_path: Path) -> None:
    """The process that makes one holds it a moment later; and another user may put anything there."""
    begin = f".a-{os.uname().nodename}-"
    for name in ("new", "link", "folder"):
        (tmp_path / f"{begin}{name}").mkdir()
    (tmp_path / f"{begin}new.lock").touch()
    (tmp_path / "target").write_text("held")
    (tmp_path / f"{begin}link.lock").symlink_to("target")
    (tmp_path / f"{begin}folder.lock").mkdir()
    os.mkfifo(tmp_path / f"{begin}fifo.lock")
    before = sorted(os.listdir(tmp_path))
    remove_abandoned(str(tmp_path), ".a-")
    assert sorted(os.listdir(tmp_path)) == before


def test_a_lock_of_another_user_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = leave(tmp_path, ".a-")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    remove_abandoned(str(tmp_path), ".a-")
    assert killed.exists()


def test_a_disk_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(_file: int, _how: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(fcntl, "flock", flock)
    with scratch_folder(str(tmp_path), ".a-") as name:
        assert os.listdir(tmp_path) == [os.path.basename(name)]
    assert os.listdir(tmp_path) == []


def test_a_scratch_folder_that_cannot_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock stays for the next one, and signals are heard again."""

    def cleanup(_folder: tempfile.TemporaryDirectory[str]) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with monkeypatch.context() as patch:
        patch.setattr(tempfile.TemporaryDirectory, "cleanup", cleanup)
        with pytest.raises(PermissionError), scratch_folder(str(tmp_path), ".a-") as name:
            pass
    assert os.path.exists(f"{name}.lock")
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    Path(name).mkdir(exist_ok=True)  # as it would be, were it not for Python's own cleaning
    remove_abandoned(str(tmp_path), ".a-")
    assert os.listdir(tmp_path) == []


def test_a_full_disk_of_a_scratch_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space") as caught, scratch_folder(str(tmp_path), ".a-") as name:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.filename == name
