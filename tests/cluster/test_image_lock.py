"""`jaxsif image lock` with the real uv and package index."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from harness import HERE

REPOSITORY = HERE.parents[1]


def lock(source: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [REPOSITORY / "build/venv/bin/jaxsif", "image", "lock", "--source", source, "--flavour", "cpu", *options],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    shutil.copytree(REPOSITORY / "containers", tmp_path / "containers")
    return tmp_path


def contents(source: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (source / "containers/locks").iterdir()}


def test_locks_are_what_their_flavours_want() -> None:
    done = lock(REPOSITORY, "--check")
    assert (done.returncode, done.stdout.splitlines()) == (0, ["cpu.txt: unchanged", "cpu-aarch64.txt: unchanged"])


def test_another_version_of_jax(source: Path) -> None:
    before = contents(source)
    checked = lock(source, "--jax", "0.11.0", "--platform", "aarch64", "--check")
    assert checked.returncode == 1
    old = re.search("^jax==([0-9.]+)", before["cpu-aarch64.txt"], re.MULTILINE)
    assert old
    assert checked.stdout == f"cpu-aarch64.txt: would change, JAX {old[1]} -> 0.11.0\n"
    assert contents(source) == before
    done = lock(source, "--jax", "0.11.0", "--platform", "aarch64")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"cpu-aarch64.txt: changed, JAX {old[1]} -> 0.11.0\n"
    after = contents(source)
    assert {name for name in after if after[name] != before[name]} == {"cpu-aarch64.txt"}
    assert "\njaxlib==0.11.0 " in after["cpu-aarch64.txt"]
    assert "numpy==" in after["cpu-aarch64.txt"]


def test_what_cannot_be_resolved_changes_nothing(source: Path) -> None:
    (source / "containers/locks/cpu.in").write_text("jax\nnumpy<1\n")
    before = contents(source)
    done = lock(source)
    assert done.returncode == 125
    assert done.stderr.splitlines()[1] == "jaxsif: error: cannot resolve cpu.txt:"
    assert "numpy<1" in done.stderr
    assert contents(source) == before
