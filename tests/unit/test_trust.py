"""Whose files count without being named, and where the search for a project's file ends."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
import struct
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
from kit.caught import catch

from jaxsif import trust
from jaxsif.errors import JaxsifError
from jaxsif.trust import IGNORED, READ, REFUSED, find_places_of_others, find_project, find_writers

NAME = "jaxsif.toml"


def status(owner: int, mode: int) -> os.stat_result:
    return os.stat_result((mode, 1, 1, 1, owner, 0, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("owner", "mode", "folder_owner", "folder_mode", "of_file", "of_folder"),
    [
        (1000, 0o644, 1000, 0o755, False, False),
        (0, 0o644, 1000, 0o755, False, False),
        (1000, 0o644, 0, 0o755, False, False),
        (1000, 0o600, 1000, 0o1700, False, False),
        (1001, 0o644, 1000, 0o755, True, False),
        (1000, 0o644, 1001, 0o755, False, True),
        (65534, 0o644, 1000, 0o755, True, False),
        (1000, 0o664, 1000, 0o755, True, False),
        (1000, 0o646, 1000, 0o755, True, False),
        (1000, 0o644, 1000, 0o775, False, True),
        (1000, 0o644, 0, 0o1777, False, True),
        (1000, 0o644, 0, 0o2775, False, True),
    ],
)
def test_who_may_write(
    owner: int, mode: int, folder_owner: int, folder_mode: int, of_file: bool, of_folder: bool
) -> None:
    file, folder = status(owner, stat.S_IFREG | mode), status(folder_owner, stat.S_IFDIR | folder_mode)
    found = find_places_of_others({"file": file, "folder": folder}, 1000)
    assert found == [name for name, other in (("file", of_file), ("folder", of_folder)) if other]


def test_for_root_a_users_file_is_of_others() -> None:
    assert find_places_of_others({"file": status(1000, 0o644), "folder": status(0, 0o755)}, 0) == ["file"]
    assert find_places_of_others({"file": status(0, 0o644), "folder": status(0, 0o755)}, 0) == []


def give_group(monkeypatch: pytest.MonkeyPatch, path: Path, name: str, members: Sequence[str], *, own: bool) -> None:
    """Have the system tell of the group of `path` that it is called `name`, and whether it is that of user `me`."""
    group = path.stat().st_gid
    account = pwd.struct_passwd(("me", "x", os.geteuid(), group if own else group + 1, "", "/home/me", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _user: account)
    monkeypatch.setattr(grp, "getgrgid", lambda number: grp.struct_group((name, "x", number, list(members))))


@pytest.mark.parametrize(
    ("name", "members", "own", "private"),
    [
        ("me", [], True, True),
        ("me", ["me"], True, True),
        ("me", ["me", "other"], True, False),
        ("me", ["other"], True, False),
        ("users", [], True, False),
        ("me", [], False, False),
    ],
)
def test_a_private_group_is_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, members: list[str], own: bool, private: bool
) -> None:
    """As on systems with a umask of 002, where each user has a group."""
    give_group(monkeypatch, tmp_path, name, members, own=own)
    folder, file = tmp_path / "project", tmp_path / "project" / NAME
    folder.mkdir()
    file.write_text("[run]\n")
    folder.chmod(0o775)
    file.chmod(0o664)
    (found,) = find_project(NAME, str(folder))
    assert found.state == (READ if private else REFUSED)
    assert (find_writers(str(file)) == "") is private
    file.chmod(0o666)
    assert find_writers(str(file)) != ""
    (found,) = find_project(NAME, str(folder))
    assert found.error.hint.startswith(f"chmod go-w {file}{'' if private else f' {folder}'}, or export JAXSIF_CONFIG=")


@pytest.mark.parametrize("module", [pwd, grp])
def test_a_group_of_unknown_members_is_not_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> None:
    give_group(monkeypatch, tmp_path, "me", [], own=True)
    tmp_path.chmod(0o775)
    assert find_places_of_others({str(tmp_path): tmp_path.stat()}, os.geteuid()) == []

    def fail(_number: int) -> None:
        raise KeyError

    monkeypatch.setattr(module, "getpwuid" if module is pwd else "getgrgid", fail)
    assert find_places_of_others({str(tmp_path): tmp_path.stat()}, os.geteuid()) == [str(tmp_path)]


def test_an_access_list_gives_what_a_private_group_may_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_group(monkeypatch, tmp_path, "me", [], own=True)
    file = tmp_path / "file"
    file.write_text("")
    file.chmod(0o664)
    assert find_places_of_others({str(file): file.stat()}, os.geteuid()) == []
    # Version 2; then tag, permissions and number: owner, user 12345, group, mask, others.
    entries = [(1, 6, -1), (2, 6, 12345), (4, 4, -1), (16, 6, -1), (32, 4, -1)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(file, "system.posix_acl_access", acl)
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            pytest.skip("no access lists on this file system")
        raise
    assert stat.S_IMODE(file.stat().st_mode) == 0o664
    assert find_places_of_others({str(file): file.stat()}, os.geteuid()) == [str(file)]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the user's, and a project's file in it that a group of several users may write."""
    give_group(monkeypatch, tmp_path, "climate", [], own=True)
    folder = tmp_path / "project"
    folder.mkdir(mode=0o755)
    (folder / NAME).write_text("[run]\nlabel = true\n")
    (folder / NAME).chmod(0o664)
    return folder


def states(folder: Path) -> list[tuple[str, str]]:
    """The files that are found from `folder` on, and what becomes of each."""
    return [(one.path, one.state) for one in find_project(NAME, str(folder))]


def test_a_file_that_a_group_may_write_is_refused(project: Path) -> None:
    file = str(project / NAME)
    (found,) = find_project(NAME, str(project))
    assert (found.state, found.content) == (REFUSED, b"")
    assert found.error.what == f"others may have written {file}"
    assert ", mode 0664; folder " in found.error.where
    assert found.error.hint == f"chmod go-w {file}, or export JAXSIF_CONFIG={file}"


def test_a_file_of_another_user_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, real = project / NAME, os.geteuid()
    monkeypatch.setattr("os.geteuid", lambda: real + 1)
    (found,) = find_project(NAME, str(project))
    assert found.state == REFUSED
    assert found.error.hint == f"read it, then copy it to a folder of your own, or export JAXSIF_CONFIG={file}"


@pytest.mark.parametrize("mode", [0o1777, 0o777, 0o1770])
def test_in_a_folder_of_all_it_is_ignored_and_the_search_goes_on(project: Path, mode: int) -> None:
    (project / NAME).chmod(0o644)
    shared = project / "shared"
    for folder in (shared, shared / "mine"):
        folder.mkdir()
    shared.chmod(mode)
    (shared / NAME).write_text("[run]\nsrun-args = ['--prolog=/evil']\n")
    assert states(shared / "mine") == [(str(shared / NAME), IGNORED), (str(project / NAME), READ)]
    for made in ("a FIFO", "a folder", "a loop"):
        (shared / NAME).unlink()
        {
            "a FIFO": lambda: os.mkfifo(shared / NAME),
            "a folder": lambda: (shared / "other").mkdir() or (shared / NAME).symlink_to("other"),
            "a loop": lambda: (shared / NAME).symlink_to(NAME),
        }[made]()
        assert states(shared / "mine")[0] == (str(shared / NAME), IGNORED)


def test_a_link_is_judged_by_both_folders(project: Path) -> None:
    (project / NAME).chmod(0o644)
    mine = project / "mine"
    mine.mkdir()
    (mine / NAME).symlink_to(project / NAME)
    assert states(mine) == [(str(mine / NAME), READ)]
    project.chmod(0o1777)
    (found,) = find_project(NAME, str(mine))
    assert found.state == REFUSED
    assert f"folder {project}: owner " in found.error.where
    assert f"chmod go-w {project}, or " in found.error.hint


def test_an_empty_file_of_ones_own_ends_the_search(project: Path) -> None:
    mine = project / "mine"
    mine.mkdir(mode=0o755)
    (mine / NAME).write_text("")
    assert states(mine) == [(str(mine / NAME), READ)]


def test_what_is_no_file_is_refused(project: Path) -> None:
    (project / NAME).unlink()
    os.mkfifo(project / NAME)
    (found,) = find_project(NAME, str(project))
    assert found.state == REFUSED
    assert found.error.what == f"not a regular file: {project / NAME}"
    with pytest.raises(JaxsifError, match="not a regular file: /dev/zero"):
        trust.read_own("/dev/zero")


@pytest.mark.parametrize("target", ["gone", "file/gone"])
def test_a_link_to_nothing_is_not_an_absent_file(project: Path, target: str) -> None:
    """A policy must not end because its file was moved, or the disk that the link names is not mounted."""
    path = project / NAME
    (project / "file").write_text("")
    path.unlink()
    assert trust.read_own(str(path)) == (str(path), trust.ABSENT, b"", None)
    path.symlink_to(target)
    told = f"cannot read {path}: it is a dangling link"
    assert catch(JaxsifError, trust.read_own, str(path)).what == told
    (found,) = find_project(NAME, str(project))
    assert (found.state, found.error.what, found.error.hint) == (REFUSED, told, "correct the link, or remove it")
    project.chmod(0o1777)
    assert states(project)[0] == (str(path), IGNORED)


@pytest.mark.parametrize(
    ("owner", "mode", "why"),
    [
        (0, 0o40755, ""),
        (0, 0o41777, ""),
        (0, 0o41775, ""),
        (1000, 0o40700, ""),
        (0, 0o40777, "it has no sticky bit"),
        (1000, 0o40757, "it has no sticky bit"),
        (1000, 0o42775, "it has no sticky bit"),
        (4000000001, 0o41777, "it belongs to 4000000001"),
    ],
)
def test_who_may_replace_what_is_in_a_folder(monkeypatch: pytest.MonkeyPatch, owner: int, mode: int, why: str) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("os.stat", lambda _path: status(owner, mode))
        patch.setattr("os.geteuid", lambda: 1000)
        patch.setattr("jaxsif.trust._is_private_group", lambda _gid, _user: False)
        found = trust.find_replacers("/folder")
    assert found == why
