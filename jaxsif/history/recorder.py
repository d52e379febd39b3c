"""Record a run: in memory while it lasts, and in its folder at its start and its end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from jaxsif import __version__, process
from jaxsif.diagnose.facts import find_hidden, render_activity
from jaxsif.diagnose.reports import Report, ReportFilter, by_task, find_start
from jaxsif.errors import Fault, JaxsifError, Notify
from jaxsif.history.folder import RUN, STDERR, find_folder, make_run, prune, read_start, write
from jaxsif.history.run import (
    MOST_ALARMS,
    Alarm,
    Attempt,
    Complaint,
    RunRecord,
    TaskEnd,
    cut_picture,
    render_record,
)
from jaxsif.plan.launcher import SRUN
from jaxsif.plan.plan import Plan
from jaxsif.settings.options import HIDDEN
from jaxsif.settings.secret import find_secrets, hide_secrets
from jaxsif.text import enclose, printable

if TYPE_CHECKING:
    from jaxsif.watch.rule import Verdict
    from jaxsif.watch.snapshot import Snapshot

_MOST_SAID = 1 << 20  # bytes of standard error that are kept
_SHORT = 1.0  # seconds
_LONGEST_VALUE = 256  # characters of a variable
# Their values hold no secrets; other values may.
_HARMLESS = (
    *("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"),
    *("SLURM_JOB_PARTITION", "JAX_PLATFORMS"),
)


class Recorder:
    """The record of one run. An error in its folder causes a single warning, and never makes the
    run fail.
    """

    def __init__(self, plan: Plan, seen: ReportFilter, notify: Notify) -> None:
        self._notify = notify
        self._seen = seen
        self._said = bytearray()
        self._since = 0  # where the output of the last attempt begins
        self._environ = plan.host.environ
        self._path = ""  # of the folder, or ''
        self._run = make_record(plan, time.time())
        try:
            self._path = make_run(find_folder(plan.host.environ), self._run.begin)
            self._run = self._run._replace(name=os.path.basename(self._path))
            write(self._path, RUN, render_record(self._run))
            prune(os.path.dirname(self._path), self._run.begin)  # while the tasks start
        except OSError as error:
            self._give_up(error)

    def start_again(self, seen: ReportFilter) -> None:
        """Record that the tasks have been started again, and now report to `seen`."""
        self._seen = seen
        self._since = len(self._said)
        self._run = self._run._replace(end=None, status=None, error=None, outside=False)
        self._write({})

    def write(self, data: bytes) -> None:
        """Keep a part of the standard error that was shown."""
        self._said += data
        surplus = len(self._said) - _MOST_SAID
        if surplus > _MOST_SAID:
            del self._said[:surplus]
            self._since = max(0, self._since - surplus)

    @property
    def output(self) -> bytes:
        """The end of the last attempt's standard error."""
        return bytes(self._said[self._since :])

    def note(self, line: str) -> None:
        """Keep a line from the launcher."""
        self.write(printable(f"jaxsif: {line}").encode() + b"\n")

    def alarm(self, verdict: Verdict, snapshot: Snapshot) -> None:
        """Record a report of waiting tasks immediately: whoever reads it may kill the run."""
        alarms = (*self._run.alarms, make_alarm(verdict, snapshot, time.time()))[-MOST_ALARMS:]
        self._run = self._run._replace(alarms=alarms)
        self._write({})

    def attempt(self, attempt: Attempt) -> None:
        """Record a failed attempt."""
        self._run = self._run._replace(attempts=(*self._run.attempts, attempt))
        self._write({})

    def end(self, status: int, error: JaxsifError | None = None, difference: str = "") -> None:
        """Keep the exit status of the run, its error, and a difference between its programs."""
        self._run = self._run._replace(slurm=self._find_slurm())
        self.foresee(status, error, difference)

    def foresee(self, status: int, error: JaxsifError | None, difference: str) -> None:
        """Record how the run will have ended if this process is killed before its end."""
        hidden = find_hidden(self._seen.reports) if status == 0 else None
        last = error.render().encode(errors="backslashreplace") + b"\n" if error else b""
        shown = error or hidden
        tasks = self._run.tasks
        if status == 0:  # all of them have reported their ends
            tasks = tasks or len(by_task(self._seen.reports, "exit")) or None
        self._run = self._run._replace(
            end=time.time(),
            status=status,
            error=Complaint(shown.what, shown.where, shown.hint) if shown else None,
            tasks=tasks,
            outside=bool(error and error.cause.fault == Fault.OUTSIDE),
            difference=printable(difference)[: _LONGEST_VALUE * 8],
        )
        self._write({STDERR: bytes(self._said + last)[-_MOST_SAID:]})

    def _find_slurm(self) -> str:
        """Return Slurm's version, or '' for a short run, for which that would take too long."""
        is_short = time.time() - self._run.begin < _SHORT
        return "" if is_short or self._run.launcher != SRUN else read_slurm_version(self._environ)

    def _write(self, files: Mapping[str, bytes]) -> None:
        """Write these files, and the record as it is now; little, since tasks may be running."""
        if not self._path:
            return
        reports = self._seen.reports
        started = find_start(reports)
        exits = list_exits(reports)
        run = self._run._replace(
            step=started.step, nodes=started.nodes, ended=len(exits), exits=exits
        )
        try:
            for name, content in {**files, RUN: render_record(run)}.items():
                write(self._path, name, content)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._path = ""
        where = enclose(" (", error.filename, ")")
        self._notify(printable(f"warning: no history of this run: {error.strerror}{where}"))


def make_record(plan: Plan, now: float) -> RunRecord:
    """Make the record of a run that is starting; raise OSError if this is not Linux."""
    container = plan.container
    known = container and (container.staged or container.allowed)
    environ = plan.host.environ
    return RunRecord(
        name="",
        begin=now,
        end=None,
        status=None,
        error=None,
        step="",
        launcher=plan.launcher.name,
        layout=plan.layout.describe(),
        tasks=plan.layout.ntasks,
        nodes="",
        command=hide_in_command(plan.options.command),
        image=container.image if container else "",
        digest=known.digest if known else "",
        jaxsif=__version__,
        python=sys.version.partition(" ")[0],
        slurm="",
        host=os.uname().nodename,
        pid=os.getpid(),
        started=read_start(os.getpid()),
        variables={name: environ[name][:_LONGEST_VALUE] for name in _HARMLESS if name in environ},
        ended=0,
        exits=(),
        alarms=(),
    )


def read_slurm_version(environ: Mapping[str, str]) -> str:
    """Return Slurm's version, such as '24.11.5', or '' if srun does not print it."""
    with suppress(OSError):
        output = process.captured((SRUN, "--version"), environ).stdout
        return printable(output.strip().rpartition(" ")[2])[:_LONGEST_VALUE]
    return ""  # it is no longer on the PATH


def hide_in_command(command: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command with apparent secrets hidden: a token, a login, the value of
    NAME=VALUE, the word after an option such as --token.
    """
    return tuple(map(_hide, command, ["", *command]))


def _hide(word: str, before: str) -> str:
    option = before if before.startswith("-") and "=" not in before else ""
    return HIDDEN if find_secrets([f"{option}={word}"]) else hide_secrets(word)


def list_exits(reports: Sequence[Report]) -> tuple[TaskEnd, ...]:
    """Return the reported ends of tasks, failed tasks first."""
    raised = by_task(reports, "exception")
    exits = by_task(reports, "exit")
    ends = (_make_task_end(end, raised.get(task, end)) for task, end in exits.items())
    return tuple(sorted(ends, key=lambda end: (end.status == 0, end.task)))


def _make_task_end(end: Report, last: Report) -> TaskEnd:
    where = end.where or last.where
    return TaskEnd(end.task, end.node, end.status, where, last.text, render_activity(end))


def make_alarm(verdict: Verdict, snapshot: Snapshot, now: float) -> Alarm:
    """Make the record of a verdict, with its snapshot cut to a maximum size."""
    # Here, since most runs have no alarm: the states of tasks are many patterns to compile.
    from jaxsif.watch.snapshot import render_json, render_text

    lines = tuple(map(printable, render_text(snapshot, verdict.title)))
    kept_picture = cut_picture(render_json(snapshot, ""))
    return Alarm(now, verdict.level.name.lower(), round(verdict.seconds, 1), lines, kept_picture)
