"""What `make install` refuses before it changes anything."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.starts_processes


def install(*words: str) -> list[str]:
    """Call the script that `make install` calls, which must fail; return the lines of its error."""
    done = subprocess.run([REPOSITORY / "modulefiles/install", *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr.splitlines()


@pytest.mark.parametrize("python", ["python3", "bin/python3", "/opt/a b/python3"])
def test_python_that_no_first_line_of_a_script_can_name(tmp_path: Path, python: str) -> None:
    prefix = tmp_path / "sw"
    error, hint = install(str(prefix), "cpu", python)
    assert error == f"install: error: INSTALL_PYTHON is not an absolute path without blanks: {python}"
    assert hint == "  try:  make install INSTALL_PYTHON=/path/to/python3"
    assert not prefix.exists()
