"""Secrets that others may read; the history of a run; the hint of its error."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from kit.caught import catch
from kit.hosts import LAPTOP, plan_for

import jaxsif
from jaxsif.diagnose.reports import Report, ReportFilter
from jaxsif.errors import JaxsifError
from jaxsif.history.folder import STDERR, list_runs, read_run
from jaxsif.history.run import RunRecord
from jaxsif.launch.children import Ended
from jaxsif.launch.pipeline import Outcome, diagnose, run_plan, warn_of_secrets
from jaxsif.settings.options import Rank, RunOptions, Setting

CHDIR = "slurmstepd-node1: error: couldn't chdir to `/tmp/my x': No such file or directory: going to /tmp instead"
FILE = "run.env in /home/user/jaxsif.toml"


@pytest.mark.parametrize(
    ("source", "rank", "place"),
    [
        ("--env", Rank.COMMAND_LINE, "the list of processes"),
        (FILE, Rank.USER, FILE),
        ("JAXSIF_ENV (environment)", Rank.VARIABLE, None),
    ],
)
def test_a_secret_that_others_may_read_is_named(source: str, rank: Rank, place: str | None) -> None:
    lines: list[str] = []
    warn_of_secrets(Setting(["SEED=1", "HF_TOKEN=s3cret", "API_KEY"], source, rank), lines.append)
    expected = f"warning: HF_TOKEN looks like a secret, and others may read its value in {place}:"
    assert lines == ([f"{expected} export HF_TOKEN, and pass only its name, as in --env HF_TOKEN"] if place else [])


def run_here(folder: Path, script: str) -> tuple[int, RunRecord, str]:
    """The exit status of a run of two local tasks, and what its history has: the record, standard error."""
    asked = RunOptions(("sh", "-c", script), launcher="local", ntasks_per_node=2)
    environ = {"PATH": os.environ["PATH"], "XDG_STATE_HOME": str(folder)}
    host = LAPTOP._replace(environ=environ, python=sys.executable, package=os.path.dirname(jaxsif.__file__))
    try:
        status = run_plan(plan_for(asked, host), print)
    except JaxsifError as error:
        status = error.exit_code
    runs = str(folder / "jaxsif/runs")
    (name,) = list_runs(runs)
    return status, read_run(runs, name), Path(runs, name, STDERR).read_text()


# Task 1 fails while task 0 is in its program.
FAILS = """
cd "$XDG_STATE_HOME"
[ $SLURM_PROCID = 1 ] || { : >begun; sleep 5; }
until [ -e begun ]; do sleep 0.01; done
echo words >&2; exit 3
"""


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("script", "status", "what"), [("echo words >&2", 0, ""), (FAILS, 3, "task 1 on")], ids=["success", "failure"]
)
def test_the_history_has_what_happened(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], script: str, status: int, what: str
) -> None:
    ended, run, stderr = run_here(tmp_path, script)
    assert (ended, run.status, run.tasks, run.ended) == (status, status, 2, 2)
    assert (run.error.what if run.error else "").startswith(what)
    assert stderr.startswith("words\n")
    assert stderr.startswith(capfd.readouterr().err)  # without the error, which cli.py tells


@pytest.mark.starts_processes
def test_a_run_goes_on_without_a_history(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "jaxsif").write_text("a file")
    with pytest.raises(NotADirectoryError):  # nothing to read
        run_here(tmp_path, "exit 0")
    assert capfd.readouterr().out == f"warning: no history of this run: File exists ({tmp_path}/jaxsif)\n"


@pytest.mark.parametrize(
    ("where", "errors", "hint"),
    [
        ("", [], "put q.py on a disk that all nodes see, if the node does not find it"),
        ("q.py:7", [], ""),  # as argparse of a program that is not given what it needs
        ("q.py:7", [CHDIR], "work in a folder that all nodes see: /tmp/my x is not on node1"),
    ],
    ids=["no line", "a line of its own", "no folder"],
)
def test_the_hint_of_a_failure(folder: Path, where: str, errors: list[str], hint: str) -> None:
    (folder / "q.py").touch()
    seen = ReportFilter()
    seen.reports += [Report(0, "node1", "started"), Report(0, "node1", "exit", 2, where=where)]
    seen.errors += errors
    plan = plan_for(RunOptions(("python", "q.py")))
    error = catch(JaxsifError, diagnose, plan, Outcome(Ended(2, None), seen, "", None, "", None), print)
    assert (error.where, error.hint) == (where, hint)
