"""The folder of the runs: private, pruned with care, and each run found by its name."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from kit.caught import catch
from kit.runs import BEGIN, a_run

from jaxsif.errors import JaxsifError
from jaxsif.history import folder

DAY = 86400.0


def mode_of(path: Path | str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_a_run_is_private(tmp_path: Path) -> None:
    runs = tmp_path / "state/jaxsif/runs"
    path = folder.make_run(str(runs), BEGIN)
    folder.write(path, folder.STDERR, b"words")
    assert [mode_of(runs), mode_of(path), mode_of(f"{path}/stderr")] == [0o700, 0o700, 0o600]
    assert os.path.basename(path) == folder.name_run(BEGIN)
    assert os.listdir(path) == ["stderr"]


def test_names_sort_as_the_runs_begin() -> None:
    times = [BEGIN + step for step in (0, 1e-4, 0.3, 0.9, 1, 60, DAY)]
    names = [folder.name_run(time) for time in times]
    assert names == sorted(set(names))


def test_two_runs_at_once_have_two_folders(tmp_path: Path) -> None:
    runs = str(tmp_path / "runs")
    assert len({folder.make_run(runs, BEGIN) for _ in range(3)}) == 3


def test_a_folder_that_others_may_read_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir(mode=0o755)
    with pytest.raises(PermissionError, match="others may read"):
        folder.make_run(str(tmp_path / "runs"), BEGIN)


def test_a_file_is_replaced_whole_also_where_the_folder_was_pruned(tmp_path: Path) -> None:
    path = folder.make_run(str(tmp_path / "runs"), BEGIN)
    folder.write(path, folder.RUN, b"first")
    folder.write(path, folder.RUN, b"second")
    assert Path(path, folder.RUN).read_bytes() == b"second"
    Path(path, folder.RUN).unlink()
    os.rmdir(path)
    folder.write(path, folder.RUN, b"third")
    assert (os.listdir(path), mode_of(path)) == ([folder.RUN], 0o700)


def test_old_runs_go_and_others_stay(tmp_path: Path) -> None:
    runs = str(tmp_path / "runs")
    paths = [folder.make_run(runs, BEGIN - age * DAY) for age in (40, 31, 29, 0)]
    for path in paths:
        folder.write(path, folder.RUN, b"{}")
    (tmp_path / "runs/notes").mkdir()
    folder.prune(runs, BEGIN)
    assert folder.list_runs(runs) == [os.path.basename(path) for path in paths[2:]]
    assert (tmp_path / "runs/notes").exists()


def test_of_many_runs_the_newest_stay(tmp_path: Path) -> None:
    runs = str(tmp_path / "runs")
    names = [os.path.basename(folder.make_run(runs, BEGIN + number)) for number in range(260)]
    folder.prune(runs, BEGIN + 300)
    assert folder.list_runs(runs) == names[50:]  # so many at once
    folder.prune(runs, BEGIN + 300)
    assert folder.list_runs(runs) == names[60:]


def test_nothing_is_removed_through_links(tmp_path: Path) -> None:
    runs, other = tmp_path / "runs", tmp_path / "other"
    other.mkdir()
    (other / "run.json").write_text("theirs")
    old = Path(folder.make_run(str(runs), BEGIN - 40 * DAY))
    (old / "run.json").symlink_to(other / "run.json")
    (old / "more").symlink_to(other)
    (runs / folder.name_run(BEGIN - 42 * DAY)).symlink_to(other)
    (runs / folder.name_run(BEGIN - 43 * DAY)).write_text("a file")
    folder.prune(str(runs), BEGIN)
    assert (other / "run.json").read_text() == "theirs"
    assert not old.exists()


NAMES = ["2026-11-21T18-25-03-0a1b", "2026-11-22T08-00-00-ffff", "2026-11-22T18-25-03-0a1b"]


@pytest.mark.parametrize(
    ("word", "found"), [("last", NAMES[2]), (NAMES[0], NAMES[0]), ("ffff", NAMES[1]), ("22T18-25-03-0a1b", NAMES[2])]
)
def test_a_run_is_found(word: str, found: str) -> None:
    assert folder.find_run(NAMES, word) == found


@pytest.mark.parametrize(
    ("names", "word", "what"),
    [
        (NAMES, "0a1b", "the names of 2 runs end with '0a1b'"),
        (NAMES, "abcd", "no run 'abcd' in the history"),
        ([], "last", "the history has no runs"),
        (NAMES, "\x1b[2J", "no run '\\x1b[2J' in the history"),
        (NAMES, "../../etc", "no run '../../etc' in the history"),
    ],
)
def test_no_single_run_is_found(names: list[str], word: str, what: str) -> None:
    assert catch(JaxsifError, folder.find_run, names, word).what == what


def test_whether_a_run_goes_on() -> None:
    run = a_run(pid=os.getpid(), started=folder.read_start(os.getpid()), host=os.uname().nodename)
    assert folder.is_running(run, os.uname().nodename)
    assert not folder.is_running(run, "elsewhere")
    assert not folder.is_running(run._replace(started=1), os.uname().nodename)
    assert not folder.is_running(run._replace(pid=(1 << 31) - 1), os.uname().nodename)
