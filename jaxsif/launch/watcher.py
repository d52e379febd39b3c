"""What is said while the tasks of a run go on: which task keeps the others waiting, which compiles
another program, and which node is lost.

The tasks themselves tell when they stand still (jaxsif/task/observer.py), and what they compile
(jaxsif/task/census.py). While all goes well, nothing is asked of them, of Slurm or of the nodes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

from jaxsif.diagnose.places import OUTSIDE
from jaxsif.diagnose.reports import Report, ReportFilter, find_start, of_event
from jaxsif.diagnose.starts import name_unstarted, say_unstarted
from jaxsif.errors import HostError, JaxsifError, RunError, Show, name_tasks
from jaxsif.launch.inspector import Inspection, Part, Target
from jaxsif.plan.plan import Plan
from jaxsif.settings.request import OFF
from jaxsif.task.contract import STOP
from jaxsif.watch.picture import MOST_NODES, Picture, list_nodes, make_picture, render_text
from jaxsif.watch.programs import ProgramCensus
from jaxsif.watch.rule import Level, Verdict, Waits
from jaxsif.watch.sight import NO_BOX, NO_TRACER, Sight, make_sight
from jaxsif.watch.words import describe_odd, describe_verdict, describe_wait_over

_ENDS_WITHIN = 5.0  # seconds from the first failure, or the nodes are looked at
# Seconds from a program that only some tasks have compiled to a look at all tasks, and from one
# look to the next: at least so many, a part of the time since then, at most so many.
_LEAD_PAUSE, _LEAD_PART, _MOST_LEAD_PAUSE = 1.0, 0.125, 60.0
_BLOCKED = 2.0  # seconds between two turns of the launcher, of which it makes ten a second
_START_WITHIN = 15.0  # seconds from the start of the first task
_STOPPED = 124  # exit status, as timeout(1) has it
# Seconds between two attempts to look, where none could be made: they grow by this part of the time
# in which none could.
_AGAIN, _AGAIN_PART, _MOST_AGAIN = 5.0, 0.2, 12.0
_UNWATCHED = 2  # patiences from the start to a look at tasks that do not say they are watched
_MOST_COMMANDS = 3  # by name

Keep = Callable[[Verdict, Picture], None]


class Watcher:
    """Watches one run: it hears what tasks report, and looks ten times a second."""

    must_end = False  # the run
    failure: JaxsifError | None = None  # why, where nothing else tells

    def hear(self, report: Report) -> None:
        """Take what a task says."""

    def look(self) -> None:
        """Do what is due, without waiting."""

    def close(self) -> None:
        """Do what is left at the end of the run."""


class _Inspector(Watcher):
    """A watcher that looks at the nodes."""

    _inspection: Inspection | None = None  # that is under way

    def look(self) -> None:
        """Begin to look when it is due; take what was seen."""
        now = time.monotonic()
        if self._inspection is None:
            if self._is_due(now):
                self._inspection = self._begin(now)
        elif self._inspection.poll():
            over, self._inspection = self._inspection, None
            self._take(over, now)

    def close(self) -> None:
        """End what is still under way."""
        if self._inspection:
            self._inspection.stop()

    def _is_due(self, now: float) -> bool:
        raise NotImplementedError

    def _begin(self, now: float) -> Inspection | None:
        """Return a look that has begun; None where there is nothing to look at."""
        raise NotImplementedError

    def _take(self, inspection: Inspection, now: float) -> None:
        raise NotImplementedError


class ProgramWatcher(_Inspector):
    """Tells when tasks run different programs for the same devices."""

    def __init__(self, plan: Plan, seen: ReportFilter, show: Show, census: ProgramCensus) -> None:
        self._plan = plan
        self._seen = seen
        self._show = show
        self._census = census
        self._ended: set[int] = set()  # tasks, without an error
        self._leads = 0  # that were there at the last turn
        self._since = math.inf  # when their number grew last, by the monotonic clock
        self._due = math.inf  # when to look at the tasks
        self._before: Mapping[int, Sight] = {}  # tasks, at the last look

    def hear(self, report: Report) -> None:
        """Take what a task has compiled, and that it has ended."""
        if report.event == "program":
            self._census.add(report, time.monotonic())
            if report.task in self._ended:  # by another Python: all of them begin again
                self._ended.clear()
        elif report.event == "end" or (report.event == "exit" and not report.status):
            self._ended.add(report.task)

    def look(self) -> None:
        """Tell what has become certain."""
        self._tell(ended=False)
        super().look()

    def close(self) -> None:
        """Tell the rest: the run may have ended sooner than it is told."""
        super().close()
        self._tell(ended=True)

    def _tell(self, ended: bool) -> None:
        for text in self._census.check(time.monotonic(), ended):
            self._show(f"warning: {text}")
        self._judge({})

    def _judge(self, sights: Mapping[int, Sight]) -> None:
        """Tell of programs that only some tasks have compiled; end the run where that is asked."""
        for lead, text in self._census.judge_leads(self._ended, sights, self._before):
            if self._plan.asked.check_programs != STOP:
                self._show(f"warning: {text}")
            elif self.failure is None:
                hint = "let all tasks compute with the same shapes and types, in the same order"
                self.failure = RunError(f"{text}; the run was ended", lead.report.where, hint, 1)
                self.must_end = True

    def _is_due(self, now: float) -> bool:
        """Return whether to look: seldomer the longer some tasks are behind, as in a compile."""
        leads = len(self._census.find_leads())
        if leads > self._leads:
            self._since, self._due, self._before = now, now + _LEAD_PAUSE, {}
        self._leads = leads
        return leads > 0 and now >= self._due

    def _begin(self, now: float) -> Inspection | None:
        pause = max(_LEAD_PAUSE, _LEAD_PART * (now - self._since))
        self._due = now + min(pause, _MOST_LEAD_PAUSE)
        target = _find_target(self._plan, self._seen)
        try:
            return Inspection.start(target, self._plan.host.environ) if target else None
        except HostError:  # Slurm's controller may be away for now; the next look is due anyway
            return None

    def _take(self, inspection: Inspection, now: float) -> None:
        sights = {sight.task: sight for sight in inspection.sights}
        self._judge(sights)
        self._before = sights


class WaitWatcher(_Inspector):
    """Tells when tasks wait too long, and for which."""

    def __init__(
        self, plan: Plan, seen: ReportFilter, show: Show, keep: Keep, census: ProgramCensus
    ) -> None:
        """`keep` is told each verdict that was shown."""
        self._plan = plan
        self._seen = seen
        self._show = show
        self._keep = keep
        self._census = census
        self._waits = Waits(plan.asked.patience, time.monotonic(), plan.asked.busy_patience)
        self._turn = time.monotonic()  # of the launcher, the last one
        self._not_before = 0.0  # seconds of the monotonic clock
        self._blind_since = math.inf  # nobody answers, and that was told
        self._waiting: dict[int, Report] = {}  # tasks, and what they have said of their waits
        self._ended: set[int] = set()  # tasks

    def hear(self, report: Report) -> None:
        """Take what a task says of its waits; the end of a task ends its wait."""
        now = time.monotonic()
        if report.event == "wait":
            self._waiting[report.task] = report
            # A report that could not come in time may be of a wait that is over.
            stood = 0.0 if self._was_blocked(now) else report.seconds
            self._waits.wait(report.task, stood, report.where, now)
        elif report.event == "moved":
            self._waiting.pop(report.task, None)
            seconds = self._waits.go_on(report.task, report.seconds, now)
            if seconds is not None:
                self._show(describe_wait_over(seconds))
        elif report.event == "exit":
            self._ended.add(report.task)
            self._waiting.pop(report.task, None)
            self._waits.go_on(report.task, 0, now)

    def look(self) -> None:
        """Do as any inspector; begin all waits again after a time in which nothing was heard."""
        now = time.monotonic()
        if self._was_blocked(now):
            self._waits.restart(now)
        self._turn = now
        super().look()

    def _was_blocked(self, now: float) -> bool:
        """Return whether the launcher could not go on, as while nobody reads its output."""
        return now - self._turn > _BLOCKED

    def _is_due(self, now: float) -> bool:
        return now >= self._not_before and self._waits.is_due(now)

    def _begin(self, now: float) -> Inspection | None:
        pause = max(_AGAIN, _AGAIN_PART * (now - self._blind_since))
        self._not_before = now + min(pause, _MOST_AGAIN)
        target = _find_target(self._plan, self._seen)
        if target is None:
            return None
        try:
            return Inspection.start(target, self._plan.host.environ)
        except HostError as error:
            self._tell_blind(error.what, now)
            return None

    def _take(self, inspection: Inspection, now: float) -> None:
        picture = self._make_picture(inspection)
        if not picture.groups:
            self._tell_blind(inspection.complaint or _find_reason(inspection), now)
            return
        self._blind_since, self._not_before = math.inf, now
        verdict = self._waits.judge(picture, now)
        if verdict.level == Level.NOTHING:
            return
        notes = (lead.describe() for lead in self._census.find_leads())
        picture = picture._replace(note=next(filter(None, notes), ""))
        for line in render_text(picture, describe_verdict(verdict)):
            self._show(line)
        self._keep(verdict, picture)
        if self._plan.asked.on_hang == STOP and verdict.level == Level.HANG:
            self.must_end, self.failure = True, _describe_stop(verdict, picture)

    def _make_picture(self, inspection: Inspection) -> Picture:
        """Return what was seen of all tasks. Of one that nobody has seen, as on another host of
        mpirun, there is what it has said itself.
        """
        if inspection.silent:
            return make_picture(inspection.sights, inspection.silent)
        said = (make_sight(one.task, one.node, one.where) for one in self._waiting.values())
        picture = make_picture([*said, *inspection.sights])
        missing = (self._plan.layout.ntasks or 0) - picture.size - len(self._ended)
        return picture._replace(unseen=max(inspection.unseen, missing))

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
    steps = {plan.coordinator.step, started.step} - {""}
    words = (NO_TRACER, *steps)  # a tracer stops the tasks, and may leave one stopped
    return Target(started.step, words, tuple(parts))


class UnwatchedWatcher(_Inspector):
    """Tells once which tasks cannot tell that they wait: their program is not Python.

    A Python that has not used JAX yet may still do that, and is left out.
    """

    def __init__(self, plan: Plan, seen: ReportFilter, show: Show) -> None:
        self._plan = plan
        self._seen = seen
        self._show = show
        self._known: set[int] = set()  # tasks that are watched, or have ended
        self._due = math.inf  # when to look, by the monotonic clock

    def hear(self, report: Report) -> None:
        """Take the start of the run, and which tasks are watched or have ended."""
        if report.event == "started":
            self._due = time.monotonic() + _UNWATCHED * self._plan.asked.patience
        elif report.event in ("watched", "exit"):
            self._known.add(report.task)

    def _is_due(self, now: float) -> bool:
        return now > self._due

    def _begin(self, now: float) -> Inspection | None:
        """Look at the tasks, once."""
        self._due = math.inf
        if len(self._known) >= (self._plan.layout.ntasks or math.inf):
            return None
        target = _find_target(self._plan, self._seen)
        try:
            return Inspection.start(target, self._plan.host.environ) if target else None
        except HostError:  # the first wait tells that nobody can look
            return None

    def _take(self, inspection: Inspection, now: float) -> None:
        others = (one for one in inspection.sights if one.task not in self._known)
        unwatched = [one for one in others if one.box == NO_BOX and one.answered is None]
        if unwatched:
            tasks = name_tasks(sorted({one.task for one in unwatched}))
            commands = sorted({one.command for one in unwatched})[:_MOST_COMMANDS]
            self._show(f"cannot watch {tasks} for hangs: {_describe_commands(commands)}")


class EndWatcher(_Inspector):
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

    def _is_due(self, now: float) -> bool:
        return now > self._due

    def _begin(self, now: float) -> Inspection | None:
        """Look at the nodes, once."""
        self._due = math.inf
        target = _find_target(self._plan, self._seen)
        if target is None or not target.parts or of_event(self._seen.reports, *OUTSIDE):
            return None
        try:
            return Inspection.start(target, self._plan.host.environ)
        except HostError:  # Slurm ends the run itself, in minutes; the failure is the program's
            return None

    def _take(self, inspection: Inspection, now: float) -> None:
        # Where no node answers, Slurm may have refused to look: the job is ending.
        if inspection.lost and inspection.has_answer:
            self._end(inspection.lost)

    def _end(self, nodes: Sequence[str]) -> None:
        """End the run; Slurm takes half a minute for that."""
        self.must_end = True
        names = list_nodes(nodes)
        self._show(f"no answer from {names}: ending the run")
        failed = self._failed
        raised = of_event(self._seen.reports, "exception")
        if any(not report.consequence for report in raised):
            return  # the program's own failure tells more
        what = f"no answer from {names}, after {failed.place} has failed; the run was ended"
        hint = "list lost nodes with sinfo --list-reasons"
        if len(nodes) <= MOST_NODES:
            hint += f"; leave them out: --exclude={','.join(nodes)}"
        self.failure = RunError(what, failed.where, hint, failed.status)


class StartWatcher(Watcher):
    """Tells which tasks have not started long after the first one; JAX ends the run itself."""

    def __init__(self, plan: Plan, seen: ReportFilter, show: Show) -> None:
        self._plan = plan
        self._seen = seen
        self._show = show
        self._begun = math.inf  # when the first task started, by the monotonic clock
        self._is_told = False

    def hear(self, report: Report) -> None:
        """Take the start of a node's first task."""
        if report.event not in ("started", "ready"):
            return
        now = time.monotonic()
        self._begun = min(self._begun, now)
        if self._is_told and not name_unstarted(self._plan, self._seen.reports):
            self._is_told = False
            self._show(f"all tasks have started, {now - self._begun:.0f} s after the first one")

    def look(self) -> None:
        """Tell once which tasks are missing."""
        if time.monotonic() < self._begun + _START_WITHIN or self._is_told:
            return
        unstarted = name_unstarted(self._plan, self._seen.reports)
        if unstarted:
            self._is_told = True
            self._show(f"{say_unstarted(unstarted)}, {_START_WITHIN:.0f} s after the first one")
        else:
            self._begun = math.inf  # all have


def _describe_commands(commands: Sequence[str]) -> str:
    names = f"{', '.join(commands)} {'is' if len(commands) == 1 else 'are'}"
    is_python = any(one.startswith("python") for one in commands)
    return f"{names} without jaxsif's hook" if is_python else f"{names} not Python"


def _find_reason(inspection: Inspection) -> str:
    return "no node has answered" if inspection.silent else "no task was found"


def watch(plan: Plan, seen: ReportFilter, show: Show, keep: Keep) -> list[Watcher]:
    """Return what watches a run: nothing, where its tasks do not report."""
    if not plan.nonces:
        return []
    # It is told nothing where programs are not compared.
    census = ProgramCensus(plan.layout.ntasks or 0)
    watchers: list[Watcher] = [
        EndWatcher(plan, seen, show),
        StartWatcher(plan, seen, show),
    ]
    if plan.asked.patience:
        watchers.append(WaitWatcher(plan, seen, show, keep, census))
        watchers.append(UnwatchedWatcher(plan, seen, show))
    if plan.asked.check_programs != OFF:
        watchers.append(ProgramWatcher(plan, seen, show, census))
    return watchers


def _describe_stop(verdict: Verdict, picture: Picture) -> RunError:
    what, place = describe_odd(picture, verdict.seconds)
    hint = "see what it does there; --on-hang=report lets the run go on"
    return RunError(f"{what}; the run was ended", place, hint, _STOPPED)
