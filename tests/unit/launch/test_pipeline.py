"""Secrets that others may read; the history of a run; the hint of its error."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest
from kit.caught import catch
from kit.hosts import LAPTOP, NONCES, plan_for
from kit.reporting import report_line

import jaxsif
from jaxsif.diagnose.reports import ALIKE, Report, ReportFilter
from jaxsif.errors import HostError, JaxsifError
from jaxsif.history.folder import STDERR, list_runs, read_run
from jaxsif.history.run import RunRecord
from jaxsif.job.srun_options import split_options
from jaxsif.launch.children import Ended
from jaxsif.launch.pipeline import Outcome, _Monitor, diagnose, run_plan
from jaxsif.settings.options import Rank, RunOptions, Setting

FILE = "run.env in /home/user/jaxsif.toml"
CHDIR = "slurmstepd-node1: error: couldn't chdir to `/tmp/my x': No such file or directory: going to /tmp instead"


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


class Ending:
    """What is kept of a run, and shown, while something outside ends it."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.foreseen: list[tuple[int, str]] = []

    def notify(self, line: str) -> None:
        self.shown.append(line)

    def foresee(self, status: int, error: JaxsifError | None, _difference: str) -> None:
        self.foreseen.append((status, error.what if error else ""))


ABORTED = b"srun-x: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
LIMIT = b"slurmstepd-node1: error: *** %s ON node1 CANCELLED AT 2026-11-28T16:40:11 DUE TO TIME LIMIT ***\n"
IN_TIME = "job 12 reached its time limit"


@pytest.mark.parametrize(
    ("lines", "number", "what", "status"),
    [
        ([LIMIT % b"JOB 12", ABORTED], None, IN_TIME, 143),
        ([], 2, "a signal ended the run", 130),
        ([LIMIT % b"JOB 12"], 15, IN_TIME, 143),
        # A program prints messages of steps that it has started itself, or of other jobs.
        ([LIMIT % b"STEP 12.1", ABORTED.replace(b"srun-x", b"srun")], None, "", 0),
        ([LIMIT % b"JOB 9", ABORTED.replace(b"srun-x", b"srun")], None, "", 0),
        # A task has failed, and Slurm ends the others.
        ([report_line(NONCES[0], event="exit", status=1, task=1), ABORTED], None, "", 0),
    ],
    ids=["the time limit", "Ctrl-C", "both", "a step of its own", "another job", "a failure"],
)
def test_tasks_that_do_not_end_are_named(
    monkeypatch: pytest.MonkeyPatch, lines: list[bytes], number: int | None, what: str, status: int
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    seen, history = ReportFilter(NONCES, 2), Ending()
    seen.name_srun("srun-x")
    plan = plan_for(RunOptions(("python", "a.py"), nodes=1, ntasks_per_node=2))
    monitor = _Monitor(plan, seen, cast(Any, history))
    seen.listen(monitor._hear)
    seen.feed(report_line(NONCES[0], event="started", step="12.0", nodes="node1"))
    for line in lines:
        seen.feed(line)
    if number:
        seen.interrupt(number)
    for _ in range(4):
        assert not monitor.poll()
        now += 4.0
    assert history.shown == ([f"{what}; tasks 0-1 have not ended after 10 s"] if what else [])
    assert history.foreseen == ([(status, what if what == IN_TIME else "")] if what else [])


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
    error = catch(JaxsifError, diagnose, plan, Outcome(Ended(2, None), seen, "", None, ALIKE, None), print)
    assert (error.where, error.hint) == (where, hint)


def test_a_folder_that_a_setting_names_and_a_node_lacks(folder: Path) -> None:
    seen = ReportFilter()
    seen.reports += [Report(0, "node1", "started"), Report(0, "node1", "exit", 2)]
    seen.errors += [CHDIR]
    remedy = "work in a folder that all nodes see: /tmp/my x is not on node1"
    outcome = Outcome(Ended(2, None), seen, "", None, ALIKE, None)
    chdir = tuple(split_options(["--chdir=/tmp/my x"]))
    error = catch(JaxsifError, diagnose, plan_for(RunOptions(("python", "q.py"), passed=chdir)), outcome, print)
    assert (error.where, error.hint) == ("--chdir", remedy)
    sources = {"srun-args": Setting(chdir, "run.srun-args in /sw/a.toml", Rank.SITE)}
    options = RunOptions(("python", "q.py"), srun_args=chdir, sources=sources)
    error = catch(JaxsifError, diagnose, plan_for(options), outcome, print)
    assert (error.where, error.hint) == ("run.srun-args in /sw/a.toml", remedy)


def test_a_bind_that_hides_the_script(folder: Path) -> None:
    (folder / "q.py").touch()
    seen = ReportFilter()
    seen.reports += [Report(0, "node1", "started"), Report(0, "node1", "exit", 2)]
    plan = plan_for(RunOptions(("python", "q.py")))
    assert plan.container
    hiding = f"/data/{folder.name}/:{folder.parent}:ro"
    binds = ("/data,/tmp/x", f"{folder.parent}:/mnt,{hiding}")
    plan = plan._replace(container=plan.container.add_binds(binds, "run.binds in /sw/a.toml"))
    error = catch(JaxsifError, diagnose, plan, Outcome(Ended(2, None), seen, "", None, ALIKE, None), print)
    assert error.hint == f"leave out the bind {hiding} of run.binds in /sw/a.toml, which hides {folder}/q.py"
    shown = plan._replace(container=plan.container.add_binds((str(folder),), "--bind"))
    error = catch(JaxsifError, diagnose, shown, Outcome(Ended(2, None), seen, "", None, ALIKE, None), print)
    assert error.hint == "put q.py on a disk that all nodes see, if the node does not find it"


@pytest.mark.parametrize("srun_args", [["--error=x"], ["--pty"], ["--out=x"], ["--test-only"]])
def test_without_reports_nobody_knows_whether_the_program_has_started(srun_args: list[str]) -> None:
    plan = plan_for(RunOptions(("false",), srun_args=tuple(split_options(srun_args))))
    assert diagnose(plan, Outcome(Ended(0, None), ReportFilter(), "", None, ALIKE, None), print) == 0


def test_a_step_that_succeeds_without_starting_the_program() -> None:
    """As with an image whose runscript has other plans."""
    plan = plan_for(RunOptions(("false",)))
    assert plan.container
    plan = plan._replace(container=plan.container._replace(source="JAX_IMAGE (environment)"))
    outcome = Outcome(Ended(0, None), ReportFilter(), "", None, ALIKE, None)
    error = catch(HostError, diagnose, plan, outcome, print)
    assert (error.what, error.where) == ("no task started (exit status 0)", "JAX_IMAGE (environment)")
    assert "%runscript" in error.hint
    outcome.seen.reports.append(Report(0, "node1", "started"))
    assert diagnose(plan, outcome, print) == 0


@pytest.mark.parametrize(
    ("named", "hint"),
    [
        ("'/data/x.npz'", "this host has it, but perhaps not the container: --bind /data"),
        ("'/data/nowhere'", ""),
        ("'/usr/bin/git'", ""),  # of the image
        ("'/tmp/x'", ""),  # usually there, and perhaps made later
        ("'/data/x.npz' -> '/nowhere/x'", ""),
        ("'/data/x.npz' (then sys.exit(3))", "this host has it, but perhaps not the container: --bind /data"),
        ("'/bound/x.npz'", ""),
    ],
)
def test_a_path_that_only_the_host_has(monkeypatch: pytest.MonkeyPatch, named: str, hint: str) -> None:
    monkeypatch.setattr(
        os.path, "lexists", lambda path: path in ("/data/x.npz", "/usr/bin/git", "/tmp/x", "/bound/x.npz")
    )
    monkeypatch.setattr(os, "getcwd", lambda: os.stat("/nowhere").st_size)  # the program has removed it
    seen = ReportFilter()
    text = f"FileNotFoundError: [Errno 2] No such file or directory: {named}"
    raised = Report(0, "node1", "exception", text=text, where="a.py:7")
    seen.reports += [Report(0, "node1", "started"), raised, Report(0, "node1", "exit", 1)]
    plan = plan_for(RunOptions(("python", "a.py"), binds=("/mine:/bound:ro",)))
    error = catch(JaxsifError, diagnose, plan, Outcome(Ended(1, None), seen, "", None, ALIKE, None), print)
    assert error.hint == hint


def test_a_program_that_a_setting_has_hidden() -> None:
    seen = ReportFilter()
    seen.reports += [Report(0, "node1", "started"), Report(0, "node1", "exit", 127)]
    sources = {"env": Setting((), FILE, Rank.USER)}
    plan = plan_for(RunOptions(("python", "-V"), env=(("PATH", "/opt/bin"),), sources=sources))
    error = catch(JaxsifError, diagnose, plan, Outcome(Ended(127, None), seen, "", None, ALIKE, None), print)
    assert error.hint == f"PATH in {FILE} replaces the image's own; to add to that, --env PREPEND_PATH=DIR"


@pytest.mark.parametrize("rank", [Rank.USER, Rank.COMMAND_LINE])
def test_a_platform_that_a_setting_names(rank: Rank) -> None:
    seen = ReportFilter()
    raised = Report(0, "node1", "exception", text="JAX cannot use any platform in JAX_PLATFORMS=cuda", hint="use cpu")
    seen.reports += [Report(0, "node1", "started"), raised, Report(0, "node1", "exit", 1)]
    sources = {"env": Setting((), FILE, rank)}
    plan = plan_for(RunOptions(("python", "-V"), env=(("JAX_PLATFORMS", "cuda"),), sources=sources))
    error = catch(JaxsifError, diagnose, plan, Outcome(Ended(1, None), seen, "", None, ALIKE, None), print)
    assert error.hint == ("use cpu" if rank == Rank.COMMAND_LINE else f"use cpu; {FILE} sets JAX_PLATFORMS")
