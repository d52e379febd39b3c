"""A launcher is one file."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jaxsif.installation import PACKAGE

FLUX = """
from jaxsif.launch.children import INSIST, Child
from jaxsif.launch.launchers.local import Local
from jaxsif.plan.launcher import Words

class Flux(Local):
    name = "flux"
    words = Words("by flux", "Flux")

    def argv(self, plan):
        return ("flux", "run", f"--ntasks={plan.layout.ntasks}", *plan.task_argv)

    def children(self, plan, environ, seen, stdout):
        return [Child(plan.argv, environ, seen.feed, stdout())]

LAUNCHER = Flux()
"""
FAKE = """#!/bin/sh
echo "$@" | cut -d' ' -f1,2
"""


@pytest.mark.starts_processes
def test_a_launcher_is_one_file(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "jaxsif")
    (tmp_path / "jaxsif/launch/launchers/flux.py").write_text(FLUX)
    (tmp_path / "flux").write_text(FAKE)
    (tmp_path / "flux").chmod(0o755)

    def run(*words: str) -> str:
        argv = [sys.executable, "-m", "jaxsif", "run", "--launcher", "flux", "--ntasks-per-node=3", *words]
        environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)}
        done = subprocess.run(argv, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert " flux run --ntasks=3 /bin/sh " in run("--dry-run", "--", "true")
    assert run("--", "true") == "run --ntasks=3\n"
