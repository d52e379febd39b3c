"""What is said while the tasks of a run go on: who keeps the others waiting, whose program is
another one, and which node is lost.

The tasks themselves tell when they stand still (jaxsif/task/observer.py), and what they compile
(jaxsif/task/census.py). While all goes well, nothing is asked of them, of Slurm or of the nodes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from jaxsif.diagnose.places import OUTSIDE
from jaxsif.diagnose.reports import Report, ReportFilter, find_start, find_step, of_event
from jaxsif.errors import HostError, JaxsifError, RunError
from jaxsif.launch.inspector import Inspection, Part, Target
from jaxsif.plan.plan import Plan
from jaxsif.settings.request import OFF
from jaxsif.task.contract import STOP
from jaxsif.watch.picture import Picture, make_picture, render_text
from jaxsif.watch.programs import ProgramCensus
from jaxsif.watch.rule import Level, Verdict, Waits
from jaxsif.watch.sight import NO_TRACER
from jaxsif.watch.words import describe_end, describe_odd, describe_verdict

_ENDS_WITHIN = 5.0  # seconds from the first failure, or the nodes are looked at
_MOST_NODES = 4  # to name
_STOPPED = 124  # exit status, as timeout(1) has it
# Seconds between two attempts to look, where none could be made; and as a part of the time in which
# none could.
_AGAIN, _AGAIN_PART = 5.0, 0.2

Show = Callable[[str], None]  # tells the user something
Keep = Callable[[Verdict, Picture], None]


class Watcher:
    """Watches one run: it hears what tasks report, and looks ten times a second."""

    must_end = False  # the run
    failure: JaxsifError | None = None  # why, where nothing else tells
    _inspection: Inspection | None = None  # that is under way

    def hear(self, report: Report) -> None:
        """Take what a task says."""

    def look(self) -> None:
        """Do what is due, without waiting."""

    def close(self) -> None:
        """Do what is left at the end of the run: end what is still under way."""
        if self._inspection:
            self._inspection.stop()


class ProgramWatcher(Watcher):
    """Tells when tasks compile different programs for the same devices."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self._census = ProgramCensus()

    def hear(self, report: Report) -> None:
        """Take what a task has compiled."""
        if report.event == "program":
            self._census.add(report, time.monotonic())

    def look(self) -> None:
        """Tell what has become certain."""
        self._tell(ended=False)

    def close(self) -> None:
        """Tell the rest: the run may have ended sooner than it is told."""
        self._tell(ended=True)

    def _tell(self, ended: bool) -> None:
        for text in self._census.check(time.monotonic(), ended):
            self._show(f"warning: {text}")


class WaitWatcher(Watcher):
    """Tells when tasks wait too long, and for which."""

    def __init__(self, plan: Plan, seen: ReportFilter, show: Show, keep: Keep) -> None:
        """`show` tells the user a line, `keep` is told each verdict that was shown."""
        self._plan = plan
        self._seen = seen
        self._show = show
        self._keep = keep
        self._waits = Waits(plan.asked.patience, time.monotonic())
        self._not_before = 0.0  # seconds of the monotonic clock
        self._blind_since = math.inf  # nobody answers, and that was told

    def hear(self, report: Report) -> None:
        """Take what a task says of its waits; one that has ended goes on nowhere."""
        now = time.monotonic()
        if report.event == "wait":
            self._waits.wait(report.task, report.seconds, report.where, now)
        elif report.event == "moved":
            seconds = self._waits.go_on(report.task, report.seconds, now)
            if seconds is not None:
                self._show(describe_end(seconds))
        elif report.event == "exit":
            self._waits.go_on(report.task, 0, now)

    def look(self) -> None:
        """Look at the tasks when it is due, and tell what was seen."""
        now = time.monotonic()
        if self._inspection is None:
            if now >= self._not_before and self._waits.is_due(now):
                self._begin(now)
        elif self._inspection.poll():
            inspection, self._inspection = self._inspection, None
            self._take(inspection, now)

    def _begin(self, now: float) -> None:
        self._not_before = now + max(_AGAIN, _AGAIN_PART * (now - self._blind_since))
        target = _find_target(self._plan, self._seen)
        if target is None:
            return
        try:
            self._inspection = Inspection.start(target, self._plan.host.environ)
        except HostError as error:
            self._tell_blind(error.what, now)

    def _take(self, inspection: Inspection, now: float) -> None:
        if not inspection.sights:
            self._tell_blind(inspection.complaint or _find_reason(inspection), now)
            return
        self._blind_since, self._not_before = math.inf, now
        picture = make_picture(inspection.sights, inspection.silent)
        verdict = self._waits.judge(picture, now)
        if verdict.level == Level.NOTHING:
            return
        for line in render_text(picture, describe_verdict(verdict)):
            self._show(line)
        self._keep(verdict, picture)
        # Tasks that all wait, at one place or at two, may wait for a long step of their devices.
        is_held_up = picture.odd and not all(group.waits for group in picture.odd)
        must_stop = verdict.level >= (Level.WAIT if is_held_up else Level.HANG)
        if self._plan.asked.on_hang == STOP and must_stop:
            self.must_end, self.failure = True, _describe_stop(verdict, picture)

    def _tell_blind(self, why: str, now: float) -> None:
        if self._blind_since == math.inf:
            self._blind_since = now
            self._show(f"tasks wait, and nobody can look at them: {why}; trying again")


def _find_target(plan: Plan, seen: ReportFilter) -> Target | None:
    """Return the step to look into; None until its first task has started."""
    started = find_start(seen.reports)
    if started.task < 0:
        return None
    parts = [Part(job, nodes) for job, nodes in plan.launcher.nodes(plan, started)]
    steps = {plan.coordinator.step, find_step(seen.reports)} - {""}
    words = (NO_TRACER, *steps)  # a tracer stops the tasks, and may leave one stopped
    return Target(started.step, words, tuple(parts))


class EndWatcher(Watcher):
    """Ends a run that has failed and waits for the tasks of a node that is lost: Slurm waits for
    such a node for minutes.
    """

    def __init__(self, plan: Plan, seen: ReportFilter, show: Show) -> None:
        self._plan = plan
        self._seen = seen
        self._show = show
        self._failed = Report(-1, "", "exit")  # the first task that did
        self._due = math.inf  # when to look, by the monotonic clock

    def hear(self, report: Report) -> None:
        """Take how a task has ended."""
        if report.event == "exit" and report.status and self._failed.task < 0:
            self._failed, self._due = report, time.monotonic() + _ENDS_WITHIN

    def look(self) -> None:
        """Look at the nodes, once, a while after a task has failed."""
        now = time.monotonic()
        if self._inspection is None and now > self._due:
            self._due = math.inf
            target = _find_target(self._plan, self._seen)
            if target and target.parts and not of_event(self._seen.reports, *OUTSIDE):
                self._inspection = Inspection.start(target, self._plan.host.environ)
        elif self._inspection and self._inspection.poll():
            silent, answered = self._inspection.silent, self._inspection.has_answer
            self._inspection = None
            # Where no node answers, Slurm may have refused to look: the job is ending.
            if silent and answered:
                self._end(silent)

    def _end(self, nodes: Sequence[str]) -> None:
        """End the run; Slurm takes half a minute for that."""
        self.must_end = True
        names = _name_nodes(nodes)
        self._show(f"no answer from {names}: ending the run")
        failed = self._failed
        raised = of_event(self._seen.reports, "exception")
        if any(not report.consequence for report in raised):
            return  # the program's own failure tells more
        what = f"no answer from {names}, after {failed.place} has failed; the run was ended"
        leave_out = f"; --exclude={names} leaves out what is lost" if "..." not in names else ""
        hint = f"sinfo lists lost nodes{leave_out}"
        self.failure = RunError(what, failed.where, hint, failed.status)


def _name_nodes(nodes: Sequence[str]) -> str:
    return ",".join(nodes[:_MOST_NODES]) + (",..." if len(nodes) > _MOST_NODES else "")


def _find_reason(inspection: Inspection) -> str:
    return "no node has answered" if inspection.silent else "no task was found"


def watch(plan: Plan, seen: ReportFilter, show: Show, keep: Keep) -> list[Watcher]:
    """Return what watches a run: nothing, where its tasks do not report."""
    if not plan.nonces:
        return []
    waits = [WaitWatcher(plan, seen, show, keep)] if plan.asked.patience else []
    programs = [ProgramWatcher(show)] if plan.asked.check_programs != OFF else []
    return [*waits, EndWatcher(plan, seen, show), *programs]


def _describe_stop(verdict: Verdict, picture: Picture) -> RunError:
    what, place = describe_odd(picture, verdict.seconds)
    hint = "see what it does there; --on-hang=report lets the run go on"
    return RunError(f"{what}; the run was ended", place, hint, _STOPPED)
