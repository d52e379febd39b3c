"""Keep what a run tells while it goes on: in memory, and in its folder at its begin and its end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from jaxsif import __version__, process
from jaxsif.diagnose.places import describe_box
from jaxsif.diagnose.remarks import find_hidden
from jaxsif.diagnose.reports import Report, ReportFilter, by_task, find_start
from jaxsif.errors import JaxsifError, Show, enclose, printable
from jaxsif.history.folder import RUN, STDERR, find_folder, make_run, prune, read_start, write
from jaxsif.history.run import (
    MOST_ALARMS,
    Alarm,
    Complaint,
    RunRecord,
    TaskEnd,
    cut_picture,
    render_record,
)
from jaxsif.plan.launcher import SRUN
from jaxsif.plan.plan import Plan
from jaxsif.settings.secret import HIDDEN, find_secrets, hide_secrets

if TYPE_CHECKING:
    from jaxsif.watch.picture import Picture
    from jaxsif.watch.rule import Verdict

_MOST_SAID = 1 << 20  # bytes of standard error that are kept
_SHORT = 1.0  # seconds
_LONGEST_VALUE = 256  # letters of a variable
# What they hold is no secret; what others hold may be.
_HARMLESS = (
    *("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"),
    *("SLURM_JOB_PARTITION", "JAX_PLATFORMS"),
)


class Recorder:
    """What is kept of one run. A folder that cannot be written is told once, and fails no run."""

    def __init__(self, plan: Plan, seen: ReportFilter, show: Show) -> None:
        self._show = show
        self._seen = seen
        self._said = bytearray()
        self._environ = plan.host.environ
        self._path = ""  # of the folder; '' where there is none
        self._run = make_record(plan, time.time())
        try:
            self._path = make_run(find_folder(plan.host.environ), self._run.begin)
            self._run = self._run._replace(name=os.path.basename(self._path))
            write(self._path, RUN, render_record(self._run))
            prune(os.path.dirname(self._path), self._run.begin)  # while the tasks start
        except OSError as error:
            self._give_up(error)

    def start_again(self, seen: ReportFilter) -> None:
        """Note that the tasks have started again, on another port, and report to `seen`."""
        self._seen = seen

    def keep(self, data: bytes) -> None:
        """Keep what is shown of standard error."""
        self._said += data
        if len(self._said) > 2 * _MOST_SAID:
            del self._said[:-_MOST_SAID]

    def tell(self, line: str) -> None:
        """Keep what the launcher says."""
        self.keep(printable(f"jaxsif: {line}").encode() + b"\n")

    def alarm(self, verdict: Verdict, picture: Picture) -> None:
        """Keep what was told of tasks that wait: whoever sees that may kill the run at once."""
        told = make_alarm(verdict, picture, time.time())
        alarms = (*self._run.alarms, told)[-MOST_ALARMS:]
        self._run = self._run._replace(alarms=alarms)
        self._write({})

    def end(self, status: int, error: JaxsifError | None = None) -> None:
        """Keep how the run ended: its exit status, and the error that is told."""
        hidden = find_hidden(self._seen.reports) if status == 0 else None
        if error:
            self.keep(error.render().encode(errors="backslashreplace") + b"\n")
        told = error or hidden
        if told:
            complaint = Complaint(told.what, told.where, told.hint)
            self._run = self._run._replace(error=complaint)
        self._run = self._run._replace(end=time.time(), status=status, slurm=self._find_slurm())
        self._write({STDERR: bytes(self._said[-_MOST_SAID:])})

    def _find_slurm(self) -> str:
        """Return Slurm's version; '' of a short run, for which that would take long."""
        is_short = time.time() - self._run.begin < _SHORT
        return "" if is_short or self._run.launcher != SRUN else read_slurm_version(self._environ)

    def _write(self, files: Mapping[str, bytes]) -> None:
        """Write these files, and all that is known now: while tasks run, nothing long."""
        if not self._path:
            return
        reports = self._seen.reports
        started = find_start(reports)
        exits = list_exits(reports)
        kept = self._run._replace(
            step=started.step, nodes=started.nodes, ended=len(exits), exits=exits
        )
        try:
            for name, content in {**files, RUN: render_record(kept)}.items():
                write(self._path, name, content)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._path = ""
        where = enclose(" (", error.filename, ")")
        self._show(printable(f"warning: no history of this run: {error.strerror}{where}"))


def make_record(plan: Plan, now: float) -> RunRecord:
    """Return what is known of a run when it begins; raise OSError where this is no Linux."""
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
        command=hide_in_command(plan.asked.command),
        image=container.image if container else "",
        digest=known.digest if known else "",
        jaxsif=__version__,
        python=sys.version.partition(" ")[0],
        slurm="",
        host=os.uname().nodename,
        pid=os.getpid(),
        started=read_start(os.getpid()),
        variables=_harmless(environ),
        ended=0,
        exits=(),
        alarms=(),
    )


def read_slurm_version(environ: Mapping[str, str]) -> str:
    """Return Slurm's version, such as '24.11.5'; '' where srun does not tell it."""
    with suppress(OSError):
        said = process.captured((SRUN, "--version"), environ).stdout
        return printable(said.strip().rpartition(" ")[2])[:_LONGEST_VALUE]
    return ""  # it is not on the PATH any more


def _harmless(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[name][:_LONGEST_VALUE] for name in _HARMLESS if name in environ}


def hide_in_command(command: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command without what looks like a secret: a token, a login, the value
    of NAME=VALUE, the word after an option such as --token.
    """
    return tuple(map(_hide, command, ["", *command]))


def _hide(word: str, before: str) -> str:
    option = before if before.startswith("-") and "=" not in before else ""
    return HIDDEN if find_secrets([f"{option}={word}"]) else hide_secrets(word)


def list_exits(reports: Sequence[Report]) -> tuple[TaskEnd, ...]:
    """Return how each task ended that has told it, those that failed first."""
    raised = by_task(reports, "exception")
    found = by_task(reports, "exit")
    ends = (_make_task_end(end, raised.get(task, end)) for task, end in found.items())
    return tuple(sorted(ends, key=lambda end: (end.status == 0, end.task)))


def _make_task_end(end: Report, last: Report) -> TaskEnd:
    where = end.where or last.where
    return TaskEnd(end.task, end.node, end.status, where, last.text, describe_box(end))


def make_alarm(verdict: Verdict, picture: Picture, now: float) -> Alarm:
    """Return what is kept of a verdict, with its picture cut to a bound."""
    # Here, since most runs have none: the states of tasks are many patterns to compile.
    from jaxsif.watch.picture import render_json, render_text
    from jaxsif.watch.words import describe_verdict

    lines = tuple(map(printable, render_text(picture, describe_verdict(verdict))))
    found = cut_picture(render_json(picture, ""))
    level = verdict.level.name.lower()
    return Alarm(now, level, round(verdict.seconds, 1), lines, found)
