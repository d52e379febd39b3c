"""What the command line, variables and files say together becomes what is asked of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxsif.settings.options import DEFAULTS
from jaxsif.settings.read import read_settings
from jaxsif.settings.request import RunOptions


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jaxsif.toml").write_text("[run]\nlauncher = 'srun'\n")


@pytest.mark.parametrize(
    ("said", "variables", "launcher"),
    [
        ({"hosts": "a"}, {}, "mpirun"),
        ({"hostfile": "f"}, {}, "mpirun"),
        ({"hosts": "a", "launcher": "local"}, {}, "local"),
        ({"launcher": "local"}, {"JAXSIF_HOSTS": "a"}, "local"),
        ({}, {"JAXSIF_HOSTS": "a"}, "srun"),
        ({"hosts": "a"}, {"JAXSIF_LAUNCHER": "local"}, "mpirun"),
        ({}, {}, "srun"),
    ],
)
def test_a_list_of_hosts_asks_for_mpirun_where_it_is_stronger(
    said: dict[str, str], variables: dict[str, str], launcher: str
) -> None:
    assert read_settings(said, ["true"], variables, in_job=False).asked.launcher == launcher


def test_a_list_of_hosts_asks_for_mpirun_where_nothing_else_is_said(tmp_path: Path) -> None:
    (tmp_path / "jaxsif.toml").unlink()
    assert read_settings({}, ["true"], {"JAXSIF_HOSTS": "a"}, in_job=False).asked.launcher == "mpirun"


def test_defaults_are_those_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "jaxsif.toml").unlink()
    settings = read_settings({}, ["true"], {}, in_job=False)
    assert settings.asked._replace(sources={}) == RunOptions(("true",), sources={})
    assert {key: setting.value for key, setting in settings.values.items()} == DEFAULTS
    assert (settings.value("stage-folder"), settings.value("image")) == ("/tmp", None)
    assert not settings.is_on_command_line("image")
