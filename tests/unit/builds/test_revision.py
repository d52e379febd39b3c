"""What an image says of its origin, from a repository that the tests make."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from jaxsif.builds.recipe import Revision, find_revision
from jaxsif.errors import JaxsifError

pytestmark = pytest.mark.starts_processes  # git

DATES = {"GIT_AUTHOR_DATE": "1000000000 +0200", "GIT_COMMITTER_DATE": "1000000000 +0200"}


def git(root: Path, *arguments: str) -> str:
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    argv = ["git", "-C", str(root), *who, *arguments]
    return subprocess.run(argv, env={**os.environ, **DATES}, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture
def root(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    for name in ("input", "other"):
        (tmp_path / name).write_text("1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message=first")
    return tmp_path


def test_the_last_commit_that_touched_an_input(root: Path) -> None:
    first = Revision(git(root, "rev-parse", "HEAD").strip(), 1_000_000_000)
    assert find_revision(root, [root / "input"], {}) == first
    assert first.date == "2001-09-09T01:46:40+00:00"
    (root / "other").write_text("2\n")
    assert find_revision(root, [root / "input"], {}) == first
    git(root, "commit", "--quiet", "--all", "--message=another")
    assert find_revision(root, [root / "input"], {}) == first
    (root / "input").write_text("2\n")
    assert find_revision(root, [root / "input"], {}) == (f"{first.commit}-dirty", first.created)


def test_source_date_epoch_sets_the_time(root: Path) -> None:
    assert find_revision(root, [root / "input"], {"SOURCE_DATE_EPOCH": "5"}).created == 5
    for wrong in ("yesterday", "-1", str(1 << 32)):
        with pytest.raises(JaxsifError, match="not a time"):
            find_revision(root, [root / "input"], {"SOURCE_DATE_EPOCH": wrong})


def test_outside_a_repository_and_below_another_one(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert find_revision(elsewhere, [elsewhere / "input"], {}) == ("unknown", 0)
    (root / "installed").mkdir()
    assert find_revision(root / "installed", [root / "installed/input"], {}) == ("unknown", 0)
