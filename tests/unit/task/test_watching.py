"""What watches a program is imported when the program uses JAX, and no earlier."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SITE = Path(__file__).parents[3] / "jaxsif/task/site"
WATCHERS = {f"jaxsif_task.{name}" for name in ("observer", "loops", "census")}


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("program", "imported"),
    [
        ("pass", set()),
        ("import jax._src.monitoring", {"jaxsif_task.observer", "jaxsif_task.loops"}),
        ("import jax._src.compiler", {"jaxsif_task.census"}),
    ],
    ids=["no JAX", "monitoring", "compiler"],
)
def test_what_a_program_imports(tmp_path: Path, program: str, imported: set[str]) -> None:
    folder = tmp_path / "jax/_src"
    folder.mkdir(parents=True)
    for file in ("../__init__.py", "__init__.py", "monitoring.py", "compiler.py"):
        (folder / file).touch()
    variables = {"SLURM_PROCID": "0", "SLURM_STEP_NODELIST": "node1", "PYTHONPATH": f"{SITE}:{tmp_path}"}
    wishes = {"JAXSIF_HANG_TIMEOUT": "60", "JAXSIF_CHECK_PROGRAMS": "warn"}
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{program}\nprint(*sys.modules)"],
        env={"PATH": os.environ["PATH"], **variables, **wishes},
        capture_output=True,
        text=True,
        check=True,
    )
    assert WATCHERS.intersection(done.stdout.split()) == imported
