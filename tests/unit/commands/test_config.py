"""jaxsif config: what is told of settings, where it is printed, what is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from jaxsif.cli import main

Jaxsif = Callable[..., tuple[int, str, str]]
DIGEST = "sha256:" + "0" * 64


@pytest.fixture
def jaxsif(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Jaxsif:
    """`jaxsif config` of a project whose file sets a few things."""
    for name in [name for name in os.environ if name.startswith(("SLURM", "JAX"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "personal"))
    monkeypatch.setenv("JAXSIF_NODES", "2")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jaxsif.toml").write_text(
        '[run]\nstage = true\ntime = "10"\nbinds = ["/a", "/b"]\n[policy]\ndigests = ["' + DIGEST + '"]\n'
        '[profile.ours]\ninherits = "ib"\nenv = ["NCCL_IB_HCA=mlx5"]\n'
    )

    def run(*arguments: str) -> tuple[int, str, str]:
        return (main(["config", *arguments]), *capsys.readouterr())

    return run


def test_all_settings(jaxsif: Jaxsif, tmp_path: Path) -> None:
    status, out, err = jaxsif()
    file = tmp_path / "jaxsif.toml"
    rows = {line.split()[0]: line.split(maxsplit=1)[1] for line in out.splitlines()}
    assert status == 0
    assert " ".join(rows["run.nodes"].split()) == "2 JAXSIF_NODES (environment)"
    assert " ".join(rows["run.stage"].split()) == f"true run.stage in {file}"
    assert " ".join(rows["run.binds"].split()) == f'["/a", "/b"] run.binds in {file}'
    assert " ".join(rows["run.containers"].split()) == '"node" default'
    assert rows["run.account"] == rows["policy.signed-by"] == "not set"
    assert " ".join(rows["policy.digests"].split()) == f'["{DIGEST}"] policy.digests in {file}'
    assert " ".join(rows["profile.ours"].split()) == f"inherits ib, env {file}"
    assert f"jaxsif: read {file}\n" in err
    assert f"jaxsif: not there: {tmp_path}/personal/jaxsif/jaxsif.toml\n" in err


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("run.stage", "run.stage  true  run.stage in {file}\n"),
        ("stage", "run.stage  true  run.stage in {file}\n"),
        ("run.account", "run.account  not set\n"),
    ],
)
def test_one_setting(jaxsif: Jaxsif, tmp_path: Path, key: str, line: str) -> None:
    assert jaxsif(key) == (0, line.format(file=tmp_path / "jaxsif.toml"), "")


def test_a_table(jaxsif: Jaxsif) -> None:
    assert [line.split()[0] for line in jaxsif("policy")[1].splitlines()] == ["policy.signed-by", "policy.digests"]


def test_a_profile_with_what_it_inherits(jaxsif: Jaxsif, tmp_path: Path) -> None:
    status, out, _ = jaxsif("profile.ours")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert status == 0
    assert lines[0].startswith('profile.ours.env ["NCCL_NET=IB"] profile.ib.env in ')
    assert lines[1] == f'profile.ours.env ["NCCL_IB_HCA=mlx5"] profile.ours.env in {tmp_path}/jaxsif.toml'
    assert lines[2].startswith('profile.ours.devices ["/dev/infiniband/uverbs*"] profile.ib.devices in ')


def test_json(jaxsif: Jaxsif, tmp_path: Path) -> None:
    status, out, err = jaxsif("--json", "run")
    told = json.loads(out)
    file = str(tmp_path / "jaxsif.toml")
    assert (status, err) == (0, "")
    assert {"key": "run.binds", "value": ["/a", "/b"], "source": f"run.binds in {file}"} in told["settings"]
    assert {"key": "run.account", "value": None, "source": ""} in told["settings"]
    assert {"path": file, "read": True, "state": "read"} in told["files"]
    personal = f"{tmp_path}/personal/jaxsif/jaxsif.toml"
    assert {"path": personal, "read": False, "state": "not there"} in told["files"]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("zzz", "unknown setting zzz\n  from: jaxsif config\n  try:  jaxsif config lists the keys\n"),
        ("run.stagge", "unknown setting run.stagge\n  from: jaxsif config\n  try:  run.stage?\n"),
        ("profile.our", "no fabric profile 'our'\n  from: jaxsif config\n  try:  ours?\n"),
    ],
)
def test_refused(jaxsif: Jaxsif, key: str, message: str) -> None:
    assert jaxsif(key) == (2, "", f"jaxsif: error: {message}")


def test_a_file_of_others_is_shown_as_such_until_it_is_named(
    jaxsif: Jaxsif, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "jaxsif.toml"
    file.chmod(0o666)
    remedy = f"chmod go-w {file}, or export JAXSIF_CONFIG={file}\n"
    status, out, err = jaxsif()
    assert (status, "sha256:0000000000000000000000000000000000000000000000000000000000000000" in out) == (0, False)
    (line,) = [line for line in err.splitlines(keepends=True) if "not allowed: " in line]
    assert line.startswith(f"jaxsif: not allowed: others may have written {file} (owner ")
    assert line.endswith(f"; {remedy}")
    assert jaxsif("run.stage")[1:] == ("run.stage  false  default\n", line)
    assert {"path": str(file), "read": False, "state": "not allowed"} in json.loads(jaxsif("--json")[1])["files"]

    monkeypatch.setenv("JAXSIF_CONFIG", str(file))
    assert jaxsif("run.stage")[1:] == (f"run.stage  true  run.stage in {file}\n", "")
    assert {"path": str(file), "read": True, "state": "read"} in json.loads(jaxsif("--json")[1])["files"]
