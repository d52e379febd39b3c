"""jaxsif.toml: which files count, in what order, and what is refused in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxsif.config import Config, Setting, find_files, read_config
from jaxsif.errors import JaxsifError


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home")}


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_no_files(tmp_path: Path, environ: dict[str, str]) -> None:
    assert read_config(environ, str(tmp_path)) == Config({}, ())
    assert read_config(environ, str(tmp_path)).get("run.stage") is None


def test_the_project_wins_over_the_user(tmp_path: Path, environ: dict[str, str]) -> None:
    user = write(tmp_path / "home/.config/jaxsif/jaxsif.toml", "[run]\nstage = true\nlayers = ['a', 'b']\n")
    project = write(tmp_path / "project/jaxsif.toml", "[run]\nlayers = ['c']\n")
    config = read_config(environ, str(tmp_path / "project"))
    assert (config.get("run.stage"), config.source("run.stage")) == (True, user)
    assert (config.get("run.layers"), config.source("run.layers")) == (["c"], project)


def test_policies_of_all_files_are_kept(tmp_path: Path, environ: dict[str, str]) -> None:
    user = write(tmp_path / "xdg/jaxsif/jaxsif.toml", "[policy]\nsigned-by = ['/keys/site.pem']\n")
    project = write(tmp_path / "jaxsif.toml", "[policy]\nsigned-by = []\ndigests = ['sha256:00']\n")
    config = read_config({"XDG_CONFIG_HOME": str(tmp_path / "xdg")}, str(tmp_path))
    assert config.settings == {}
    assert config.policies == (
        ("policy.signed-by", Setting(["/keys/site.pem"], user)),
        ("policy.signed-by", Setting([], project)),
        ("policy.digests", Setting(["sha256:00"], project)),
    )


def test_the_nearest_project_counts(tmp_path: Path, environ: dict[str, str]) -> None:
    write(tmp_path / "jaxsif.toml", "")
    near = write(tmp_path / "a/jaxsif.toml", "")
    (tmp_path / "a/b").mkdir()
    assert find_files(environ, str(tmp_path / "a/b")) == (near,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[run]\nstages = true", "no setting run.stages in {path}\n  from: {path}\n  try:  stage?"),
        ("[runs]", "no table [runs] in {path}\n  from: {path}\n  try:  run?"),
        ("run = 1", "no table [run] in {path}\n  from: {path}\n  try:  run?"),
        ("[zzz]", "no table [zzz] in {path}\n  from: {path}\n  try:  one of policy, run"),
        ("[run]\nstage = 1", "run.stage is not true or false in {path}\n  from: {path}\n  try:  stage = …, true or"),
        ("[run]\nimage = true", "run.image is not a string in {path}"),
        ("[policy]\ndigests = [1]", "policy.digests is not a list of strings in {path}"),
        ("[run", "cannot read {path}: "),
        ("[run]\nimage = '\udcff'", "cannot read {path}: "),
    ],
)
def test_what_is_no_setting(tmp_path: Path, environ: dict[str, str], text: str, message: str) -> None:
    (tmp_path / "jaxsif.toml").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(JaxsifError) as caught:
        read_config(environ, str(tmp_path))
    assert caught.value.render().startswith("jaxsif: error: " + message.format(path=tmp_path / "jaxsif.toml"))
