"""Unit tests start no processes, unless they say so; hypothesis draws the same examples on every run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NoReturn

import hypothesis
import pytest
from hypothesis.configuration import set_hypothesis_home_dir

_STARTS = ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system", "popen")
_STARTS += ("execl", "execle", "execlp", "execlpe", "execv", "execve", "execvp", "execvpe")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "starts_processes: a unit test that may start processes")
    set_hypothesis_home_dir(config.rootpath / "build/hypothesis")
    hypothesis.settings.register_profile("unit", deadline=None, database=None, derandomize=True, max_examples=200)
    # `make test-long`; other examples on every run.
    hypothesis.settings.register_profile("long", deadline=None, database=None, max_examples=10_000)
    if not config.getoption("--hypothesis-profile"):
        hypothesis.settings.load_profile("unit")


@pytest.fixture(autouse=True)
def no_processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever starts or replaces a process raises, except in tests marked starts_processes."""
    if request.node.get_closest_marker("starts_processes"):
        return

    def refuse(*arguments: object, **_options: object) -> NoReturn:
        pytest.fail(f"a unit test starts a process: {arguments}")

    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    for name in _STARTS:
        monkeypatch.setattr(os, name, refuse)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
