"""Programs that start.sh starts as task 5 of a step."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

from kit.reporting import NONCES

import jaxsif
from jaxsif.diagnose.reports import Report, ReportFilter

TASK_FOLDER = Path(jaxsif.__file__).parent / "task"
ENVIRON = {
    "PATH": os.environ["PATH"],
    "PYTHONPATH": str(TASK_FOLDER / "site"),
    "SLURM_PROCID": "5",
    "SLURM_STEP_NODELIST": "node[1-2]",
    "SLURMD_NODENAME": "node2",
    "JAXSIF_REPORT": ":".join(NONCES),
}


class EndedTask(NamedTuple):
    """How a program ended, and what it wrote: standard error is without its reports."""

    status: int
    out: bytes
    err: bytes
    reports: list[Report]


def run_task(*argv: object, shell: str = "sh", cwd: Path | None = None, **variables: str) -> EndedTask:
    return run_python(*shell.split(), TASK_FOLDER / "start.sh", *argv, cwd=cwd, **variables)


def run_python(*argv: object, cwd: Path | None = None, **variables: str) -> EndedTask:
    """Execute a program without start.sh."""
    environ = {**ENVIRON, **variables}
    ended = subprocess.run([*map(str, argv)], env=environ, cwd=cwd, capture_output=True, check=False, timeout=30)
    seen = ReportFilter(NONCES)
    shown = seen.feed(ended.stderr) + seen.feed(b"")
    return EndedTask(ended.returncode, ended.stdout, shown, seen.reports)
