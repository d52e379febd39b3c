"""A request walks a short way through the package."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kit.executables import executable
from kit.hosts import NONCES, plan_for
from kit.reporting import PROGRAM, START, report_line
from kit.siffile import write_image
from kit.walking import trace

from jaxsif import cli
from jaxsif.diagnose.reports import ALIKE, ReportFilter
from jaxsif.launch.children import Ended
from jaxsif.launch.pipeline import Outcome, diagnose
from jaxsif.settings.options import RunOptions

RAISED = {"text": "ValueError: shapes", "where": "train.py:7", "consequence": False, "hint": "", "jax": True}
# Standard error of a step of four tasks on two nodes, the third of which raises, as it arrives.
CHUNKS = (
    report_line(START, event="nodes", nodes="node[1-2]") + report_line(START, event="started", step="7.0", nodes=""),
    report_line(START, task=2, node="node2", event="ready") + b"loss 0.1\n",
    report_line(PROGRAM, event="port-held", text="node1"),
    b"Traceback (most recent call last):\nValueError: shapes\n",
    report_line(PROGRAM, task=2, node="node2", event="exception", **RAISED),
    report_line(START, task=2, node="node2", event="exit", status=1, where="", box=""),
    b"srun-1a2b: error: node2: task 2: Exited with exit code 1\n",
    b"slurmstepd-node1: error: *** STEP 7.0 ON node1 CANCELLED AT 2026-11-22T10:39:36 DUE TO TASK FAILURE ***\n",
    report_line(START, event="exit", status=143, where="train.py:7", box=""),
    b"srun-1a2b: error: node1: tasks 0-1: Exited with exit code 143\n",
    b"",
)


def test_from_an_exception_to_the_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_for(RunOptions(("python", "train.py"), nodes=2, ntasks_per_node=2))
    seen = ReportFilter(NONCES, 4)
    seen.name_srun("srun-1a2b")

    def fail(_argv: object) -> int:
        """As `jaxsif run`, from the first output of the step on."""
        for chunk in CHUNKS:
            seen.feed(chunk)
        return diagnose(plan, Outcome(Ended(1, None), seen, "", None, ALIKE, None), print)

    monkeypatch.setattr(cli, "_call", fail)
    walk = trace(lambda: cli.main([]))
    error = capsys.readouterr().err
    assert error == "jaxsif: error: task 2 on node2 failed: ValueError: shapes\n  from: train.py:7\n"
    walk.check(files=8, functions=45, moves=17)  # one looks for tasks that were not connected


def test_from_the_command_line_to_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With an image, and stubs of srun and the runtime that --dry-run does not start."""
    for name in ("srun", "apptainer"):
        executable(tmp_path / name, "echo slurm 24.11.5\n")
    (tmp_path / "train.py").touch()
    image = write_image(tmp_path / "jax.sif", b"system")
    monkeypatch.chdir(tmp_path)
    environ = {"PATH": str(tmp_path), "HOME": str(tmp_path), "JAX_IMAGE": image}
    monkeypatch.setattr(os, "environ", environ)
    options = ["--nodes=2", "--gpus-per-node=4", "--dry-run"]
    walk = trace(lambda: cli.main(["run", *options, "--", "python", "train.py"]))
    out = capsys.readouterr().out
    assert " srun --export=ALL --kill-on-bad-exit=1 --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 " in out
    walk.check(files=30, functions=168, moves=91)
