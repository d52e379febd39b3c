"""Whose files count without being named, what the user allows, and where the search for a project's file ends."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from bounds import read_bounded
from hypothesis import given
from hypothesis import strategies as st

from jaxsif import trust
from jaxsif.errors import JaxsifError
from jaxsif.trust import IGNORED, READ, REFUSED, allow, disallow, find_project, find_writers, has_other_writers

NAME = "jaxsif.toml"


def status(owner: int, mode: int) -> os.stat_result:
    return os.stat_result((mode, 1, 1, 1, owner, 0, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("owner", "mode", "folder_owner", "folder_mode", "others"),
    [
        (1000, 0o644, 1000, 0o755, False),
        (0, 0o644, 1000, 0o755, False),
        (1000, 0o644, 0, 0o755, False),
        (1000, 0o600, 1000, 0o1700, False),
        (1001, 0o644, 1000, 0o755, True),
        (1000, 0o644, 1001, 0o755, True),
        (65534, 0o644, 1000, 0o755, True),
        (1000, 0o664, 1000, 0o755, True),
        (1000, 0o646, 1000, 0o755, True),
        (1000, 0o644, 1000, 0o775, True),
        (1000, 0o644, 0, 0o1777, True),
        (1000, 0o644, 0, 0o2775, True),
    ],
)
def test_who_may_write(owner: int, mode: int, folder_owner: int, folder_mode: int, others: bool) -> None:
    file, folder = status(owner, stat.S_IFREG | mode), status(folder_owner, stat.S_IFDIR | folder_mode)
    assert has_other_writers((file, folder), 1000) is others


def test_for_root_a_users_file_is_of_others() -> None:
    assert has_other_writers((status(1000, 0o644), status(0, 0o755)), 0)
    assert not has_other_writers((status(0, 0o644), status(0, 0o755)), 0)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder that is the user's, and a project's file in it that a group may write."""
    folder = tmp_path / "project"
    folder.mkdir(mode=0o755)
    (folder / NAME).write_text("[run]\nlabel = true\n")
    (folder / NAME).chmod(0o664)
    return folder


@pytest.fixture
def list_path(tmp_path: Path) -> str:
    return str(tmp_path / "config/jaxsif/allowed.json")


def states(folder: Path, list_path: str) -> list[tuple[str, str]]:
    """The files that are found from `folder` on, and what becomes of each."""
    return [(one.path, one.state) for one in find_project(NAME, str(folder), list_path)]


def test_a_file_that_a_group_may_write_counts_while_its_content_is_allowed(project: Path, list_path: str) -> None:
    file = str(project / NAME)
    (found,) = find_project(NAME, str(project), list_path)
    assert (found.state, found.content) == (REFUSED, b"")
    assert found.error is not None
    assert found.error.what == f"others may have written {file}"
    assert ", mode 0664; folder " in found.error.where
    assert found.error.hint == f"chmod go-w {file}, or jaxsif config --allow {file}"

    allow(file, (project / NAME).read_bytes(), list_path)
    assert stat.S_IMODE(os.stat(list_path).st_mode) == 0o600
    assert os.listdir(os.path.dirname(list_path)) == ["allowed.json"]
    (found,) = find_project(NAME, str(project), list_path)
    assert (found.state, found.content) == (READ, b"[run]\nlabel = true\n")

    (project / NAME).write_text("[run]\nlabel = false\n")
    (found,) = find_project(NAME, str(project), list_path)
    assert found.error is not None
    assert (found.state, found.error.what) == (REFUSED, f"{file} has changed since you allowed it")

    (project / NAME).write_text("[run]\nlabel = true\n")
    disallow(file, list_path)
    assert states(project, list_path) == [(file, REFUSED)]
    with pytest.raises(JaxsifError, match="not in the list of allowed files: "):
        disallow(file, list_path)


def test_a_file_counts_by_itself_once_nobody_else_may_write_it(project: Path, list_path: str) -> None:
    (project / NAME).chmod(0o644)
    assert states(project, list_path) == [(str(project / NAME), READ)]
    project.chmod(0o775)
    assert states(project, list_path) == [(str(project / NAME), REFUSED)]


@pytest.mark.parametrize("mode", [0o1777, 0o777, 0o1770])
def test_in_a_folder_of_all_it_is_ignored_and_the_search_goes_on(project: Path, list_path: str, mode: int) -> None:
    (project / NAME).chmod(0o644)
    shared = project / "shared"
    for folder in (shared, shared / "mine"):
        folder.mkdir()
    shared.chmod(mode)
    (shared / NAME).write_text("[run]\nsrun-args = ['--prolog=/evil']\n")
    assert states(shared / "mine", list_path) == [(str(shared / NAME), IGNORED), (str(project / NAME), READ)]
    for made in ("a FIFO", "a folder", "a loop"):
        (shared / NAME).unlink()
        {
            "a FIFO": lambda: os.mkfifo(shared / NAME),
            "a folder": lambda: (shared / "other").mkdir() or (shared / NAME).symlink_to("other"),
            "a loop": lambda: (shared / NAME).symlink_to(NAME),
        }[made]()
        assert states(shared / "mine", list_path)[0] == (str(shared / NAME), IGNORED)
    (shared / NAME).unlink()
    (shared / NAME).write_text("[run]\n")
    allow(str(shared / NAME), b"[run]\n", list_path)
    assert states(shared / "mine", list_path) == [(str(shared / NAME), READ)]


def test_a_link_is_judged_by_both_folders(project: Path, list_path: str) -> None:
    (project / NAME).chmod(0o644)
    mine = project / "mine"
    mine.mkdir()
    (mine / NAME).symlink_to(project / NAME)
    assert states(mine, list_path) == [(str(mine / NAME), READ)]
    project.chmod(0o1777)
    (found,) = find_project(NAME, str(mine), list_path)
    assert found.state == REFUSED
    assert found.error is not None
    assert f"folder {project}: owner " in found.error.where
    assert f"chmod go-w {project}, or " in found.error.hint


def test_an_empty_file_of_ones_own_ends_the_search(project: Path, list_path: str) -> None:
    mine = project / "mine"
    mine.mkdir(mode=0o755)
    (mine / NAME).write_text("")
    assert states(mine, list_path) == [(str(mine / NAME), READ)]


def test_what_is_no_file_is_refused(project: Path, list_path: str) -> None:
    (project / NAME).unlink()
    os.mkfifo(project / NAME)
    (found,) = find_project(NAME, str(project), list_path)
    assert found.state == REFUSED
    assert found.error is not None
    assert found.error.what == f"not a regular file: {project / NAME}"
    with pytest.raises(JaxsifError, match="not a regular file: /dev/zero"):
        trust.read_own("/dev/zero")


def test_the_writers_of_an_image(project: Path) -> None:
    image = project / "jax.sif"
    image.write_bytes(b"")
    image.chmod(0o644)
    assert find_writers(str(image)) == ""
    image.chmod(0o666)
    assert ", mode 0666; folder " in find_writers(str(image))


@pytest.mark.parametrize("text", ["", "{}"])
def test_an_empty_list(tmp_path: Path, text: str) -> None:
    (tmp_path / "list").write_text(text)
    assert trust.read_allowed(str(tmp_path / "list")) == {}


@given(
    st.sampled_from(["[", '{"a":', "9", "{", '"', "\ud800", "null", '{"a": null}', "\0"]), st.sampled_from([1, 200_000])
)
def test_a_list_that_cannot_be_read_is_refused_in_bounds(
    tmp_path_factory: pytest.TempPathFactory, text: str, times: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "allowed.json"
    path.write_text(text * times, errors="surrogatepass")
    error = read_bounded(lambda: trust.read_allowed(str(path)))
    assert error is not None
    assert error.what == f"not a list of allowed files: {path}"
