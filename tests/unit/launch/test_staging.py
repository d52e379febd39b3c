"""What the errors of staging name as their source."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.caught import catch
from kit.hosts import CONTAINER, LOGIN_NODE
from kit.siffile import write_image

from jaxsif.errors import HostError, JaxsifError
from jaxsif.job.allocation import Allocation
from jaxsif.launch.staging import _check_missing, _plan
from jaxsif.settings.read import read_settings

JOB = Allocation.from_environ({"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "node1"})


@pytest.mark.parametrize(
    ("words", "text", "source"),
    [
        ({"stage": True}, "", "--stage"),
        ({}, "stage = true", "run.stage in {file}"),
        ({}, "stage = true\nstage-folder = '/x'", "run.stage-folder in {file}"),
        ({"stage": True}, "stage-folder = '/x'", "run.stage-folder in {file}"),
        ({"stage_folder": "/x"}, "stage = true", "--stage-folder"),
    ],
)
def test_the_source_is_what_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: dict[str, object], text: str, source: str
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "jaxsif.toml"
    file.write_text(f"[run]\n{text}\n")
    settings = read_settings(words, ["true"], {}, in_job=True)
    host = LOGIN_NODE._replace(allocation=JOB, environ={"XDG_CACHE_HOME": str(tmp_path / "cache")})
    staging = _plan(settings, CONTAINER._replace(image=write_image(tmp_path / "a.sif", b"fs")), host)
    assert staging.source == source.format(file=file)
    missing = [{"node": "node1", "damage": "absent", "free": 0}]
    assert catch(HostError, _check_missing, missing, 1, staging, print).where == staging.source
    error = catch(JaxsifError, _plan, settings, CONTAINER._replace(image=str(tmp_path)), host)
    assert error.hint == "pass a .sif file, or pass --no-stage"
