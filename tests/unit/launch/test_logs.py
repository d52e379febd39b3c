"""The files of --log-dir that the launcher names, and those that it writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jaxsif.errors import HostError, JaxsifError
from jaxsif.launch.children import Child
from jaxsif.launch.logs import copy_output, name_files, reserve_files


def test_each_attempt_has_its_own_names(tmp_path: Path) -> None:
    names = []
    for _ in range(3):
        names.append(name_files(str(tmp_path / "logs"), "--log-dir"))
        reserve_files(names[-1], "--log-dir")
    assert [name.rpartition("/")[2] for name in names] == ["task-%t", "task-%t.2", "task-%t.3"]
    assert len(os.listdir(tmp_path / "logs")) == 6


def test_files_of_another_run_are_refused(tmp_path: Path) -> None:
    """That took the same names a moment before."""
    pattern = name_files(str(tmp_path), "--log-dir")
    (tmp_path / "task-0.err").write_text("its own")
    with pytest.raises(HostError, match=r"cannot write log files to /"):
        reserve_files(pattern, "--log-dir")
    assert (tmp_path / "task-0.err").read_text() == "its own"


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "heat.py").touch()
    with pytest.raises(HostError, match=r"^not a folder for log files: '.*/heat\.py'$") as caught:
        reserve_files(name_files(str(tmp_path / "heat.py"), "--log-dir"), "run.log-dir in a.toml")
    assert (caught.value.where, caught.value.hint) == (
        "run.log-dir in a.toml",
        "pass --log-dir with another folder, which may be new",
    )


@pytest.mark.parametrize("folder", ["a:b", "a,b", "a%t"])
def test_a_folder_that_no_bind_can_name(folder: str) -> None:
    with pytest.raises(JaxsifError, match="not a folder for log files"):
        name_files(folder, "--log-dir")


def test_what_is_shown_is_kept_until_the_disk_is_full(tmp_path: Path) -> None:
    pattern = str(tmp_path / "task-%t")
    reserve_files(pattern, "--log-dir")
    (tmp_path / "task-0.err").unlink()
    (tmp_path / "task-0.err").symlink_to("/dev/full")
    notes: list[str] = []
    child = copy_output(Child(("x",), {}, lambda data: data.replace(b"report", b"")), pattern, notes.append)
    assert child.stdout is not None
    assert (child.stdout(b"half"), child.stdout(b" a line\n"), child.stdout(b"")) == (b"half", b" a line\n", b"")
    assert (child.stderr(b"one report\n"), child.stderr(b"two\n")) == (b"one \n", b"two\n")
    assert (tmp_path / "task-0.out").read_bytes() == b"half a line\n"
    assert notes == [f"warning: {tmp_path}/task-0.err is incomplete: No space left on device"]
