"""Watch a run: report tasks that keep the others waiting or compile a different program, and lost
nodes.

Tasks report when they stand still (jaxsif/task/watch/observer.py) and which programs they compile
(jaxsif/task/watch/census.py). While all goes well, neither they nor Slurm nor the nodes are polled.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from jaxsif import process
from jaxsif.diagnose.facts import (
    AFTER_EXCEPTION,
    FAILURES,
    LEFT_EARLY,
    NEVER_CONNECTED,
    NO_REPORT,
    Hang,
    build_mismatch_error,
    find_early_exit,
    find_hidden,
    list_last_pythons,
    match_symptoms,
)
from jaxsif.diagnose.reports import (
    ALIKE,
    MOST_REPORTS,
    OUTSIDE,
    Report,
    ReportFilter,
    by_task,
    find_start,
    of_event,
)
from jaxsif.diagnose.starts import name_unstarted, render_unstarted
from jaxsif.diagnose.symptoms import BARRIER, SIZES_DIFFER
from jaxsif.errors import LOST_NODE, Cause, Fault, HostError, JaxsifError, Notify, RunError
from jaxsif.job.allocation import name_job, outside_of_job
from jaxsif.plan.launcher import SRUN
from jaxsif.plan.plan import Plan
from jaxsif.process import Running, end_fed, start_fed
from jaxsif.settings.options import OFF, REPORT, RESTART
from jaxsif.task.contract import STOP, THREAD_ENDED, WORKER_ENDED
from jaxsif.text import enclose, name_tasks
from jaxsif.watch.inspector import Inspection, Part, Target, is_reachable, make_listener
from jaxsif.watch.programs import ProgramCensus
from jaxsif.watch.rule import Level, Verdict, Waits
from jaxsif.watch.sample import HIDDEN_FAILURE, NO_STATUS, UNMET, Sample, make_sample
from jaxsif.watch.snapshot import (
    MOST_NODES,
    Snapshot,
    conjugate,
    describe_odd,
    find_cause,
    list_nodes,
    list_samples,
    make_snapshot,
    render_text,
    tasks_of,
)
from jaxsif.watch.squeue import is_preempted, waits_for_resources, was_suspended
from jaxsif.watch.states import DEADLOCK, INITIALIZE, LEFT, LOCK, SHUTDOWN, STOPPED, THREADS

_FAILS_WITHIN = 1.0  # seconds without a failure before a wait is reported as over
_ENDS_WITHIN = 5.0  # seconds from the first failure until the nodes are inspected
# Seconds from a program that only some tasks have compiled to an inspection of all tasks, and from
# one inspection to the next: the minimum, a fraction of the time since then, and the maximum.
_LEAD_PAUSE, _LEAD_PART, _MOST_LEAD_PAUSE = 1.0, 0.125, 60.0
# The beginning of a warning -> the object that the task may be waiting for.
_AWAITED = {THREAD_ENDED: "thread", WORKER_ENDED: "worker"}
_BLOCKED = 2.0  # seconds between two turns of the launcher, which makes ten per second
_ALL_ASK = 5.0  # seconds in which all tasks report the same SIGTERM
_END = 3.0  # seconds for the step that listens to end
_JAX_HEARTBEAT = 100  # seconds; its default for heartbeat_timeout_seconds
_START_WITHIN = 15.0  # seconds from the start of the first task
_FIRST_WITHIN = 5.0  # seconds until the first task starts, unless others have its resources
_STOPPED = 124  # exit status, as timeout(1) has it
# Seconds between two attempts to inspect while none succeeds: the minimum, a fraction of the time
# without success, and the maximum.
_AGAIN, _AGAIN_PART, _MOST_AGAIN = 5.0, 0.2, 12.0
_UNWATCHED = 2  # hang timeouts from the start to an inspection of tasks that are not watched
_MOST_COMMANDS = 3  # by name

Keep = Callable[[Verdict, Snapshot], None]


class Watcher:
    """Watches one run: it receives the tasks' reports, is polled ten times per second, and may
    inspect the tasks.
    """

    purpose = "hang detection"  # that stops if it fails
    must_end = False  # whether the run must end
    failure: JaxsifError | None = None  # the reason, if nothing else gives one
    difference = ALIKE  # between the programs of tasks: the last one found
    _announces = False  # its inspections tell the program that the job is about to end
    _needs_stacks = False  # beyond what the tasks report on their own
    _inspection: Inspection | None = None  # in progress
    _due = math.inf  # when to inspect the tasks, by the monotonic clock

    def __init__(self, plan: Plan, seen: ReportFilter, notify: Notify) -> None:
        self._plan = plan
        self._seen = seen
        self._notify = notify

    @property
    def hang(self) -> Hang | None:
        """The wait that was reported last, if it is not over."""
        return None

    def hear(self, report: Report) -> None:
        """Handle a report from a task."""

    def poll(self) -> None:
        """Start an inspection when it is due, and handle its results, without waiting."""
        now = time.monotonic()
        if self._inspection is None:
            if self._is_due(now):
                self._inspection = self._begin(now)
        elif self._inspection.poll():
            over, self._inspection = self._inspection, None
            self._take(over, now)

    def close(self) -> None:
        """Finish at the end of the run."""
        if self._inspection:
            self._inspection.stop()

    def _is_due(self, now: float) -> bool:
        return now > self._due

    def _begin(self, now: float) -> Inspection | None:
        """Start an inspection; return None before the first task has started, or if Slurm's
        controller does not answer.
        """
        self._due = now + self._find_pause(now)
        started = find_start(self._seen.reports)
        if started.task < 0:
            return None
        parts = [Part(job, nodes) for job, nodes in self._plan.launcher.nodes(self._plan, started)]
        steps = {self._plan.coordinator.step, started.step} - {""}
        target = Target(
            *(started.step, tuple(steps), tuple(parts)),
            announces=self._announces,
            stacks=self._needs_stacks,
        )
        try:
            return Inspection.start(target, self._plan.host.environ)
        except HostError as error:
            self._fail(error.what, now)
            return None

    def _find_pause(self, now: float) -> float:
        """Return the seconds until the next inspection; infinite if there is only one."""
        return math.inf

    def _fail(self, why: str, now: float) -> None:
        """Handle an inspection that could not start."""

    def _take(self, inspection: Inspection, now: float) -> None:
        """Handle the results of an inspection."""


class ProgramWatcher(Watcher):
    """Reports tasks that run different programs for the same devices."""

    def __init__(
        self, plan: Plan, seen: ReportFilter, notify: Notify, census: ProgramCensus
    ) -> None:
        super().__init__(plan, seen, notify)
        self._census = census
        self._ended: set[int] = set()  # tasks that ended without an error
        self._any_failed = False
        self._leads = 0  # their number at the last turn
        self._since = math.inf  # when their number last grew, by the monotonic clock
        self._before: Mapping[int, Sample] = {}  # by task, at the last inspection

    def hear(self, report: Report) -> None:
        """Record a program that a task has compiled, or the end of a task."""
        if report.event == "program":
            self._census.add(report, time.monotonic())
            if report.task in self._ended:  # from another Python process: all of them start over
                self._ended.clear()
        elif report.event == "exit" and report.status:
            self._any_failed = True
        elif report.event in ("end", "exit") and not self._any_failed:  # then srun ends the others
            self._ended.add(report.task)

    def poll(self) -> None:
        """Also report differences that have become certain."""
        self._report({})
        super().poll()

    def close(self) -> None:
        """Also report the remaining differences: the run may have ended before they were
        certain.
        """
        super().close()
        self._report({}, has_ended=True)
        if not self.difference.text and any(match_symptoms([SIZES_DIFFER], self._seen.errors)):
            self.difference = self._census.describe_again()

    def _report(self, samples: Mapping[int, Sample], has_ended: bool = False) -> None:
        """Report programs that differ, and those that only some tasks have compiled; in the second
        case, --check-programs=stop ends the run.
        """
        for found in self._census.check(time.monotonic(), has_ended):
            self._notify(f"warning: {found.warning}")
            self.difference = found
        for lead, found in self._census.judge_leads(self._ended, samples, self._before):
            if self._plan.options.check_programs != STOP:
                if found != self.difference:  # two lambdas of a line have the same name and place
                    self._notify(f"warning: {found.warning}")
            elif self.failure is None:
                self.failure = build_mismatch_error(found.warning, lead.report.where, 1)
                self.must_end = True
            self.difference = found

    def _is_due(self, now: float) -> bool:
        """Return whether to inspect, which happens less often the longer tasks are behind, as in a
        compile.
        """
        leads = len(self._census.find_leads())
        if leads > self._leads:
            self._since, self._due, self._before = now, now + _LEAD_PAUSE, {}
        self._leads = leads
        return leads > 0 and now >= self._due

    def _find_pause(self, now: float) -> float:
        return min(max(_LEAD_PAUSE, _LEAD_PART * (now - self._since)), _MOST_LEAD_PAUSE)

    def _take(self, inspection: Inspection, now: float) -> None:
        samples = {sample.task: sample for sample in inspection.samples}
        self._report(samples)
        self._before = samples


class _Told(NamedTuple):
    """A wait that was reported."""

    level: Level
    since: float
    snapshot: Snapshot

    @property
    def odd(self) -> frozenset[int]:
        """The tasks that kept the others waiting."""
        return tasks_of(self.snapshot.odd)


class WaitWatcher(Watcher):
    """Reports tasks that wait too long, and the tasks they wait for."""

    _needs_stacks = True

    def __init__(
        self, plan: Plan, seen: ReportFilter, notify: Notify, keep: Keep, census: ProgramCensus
    ) -> None:
        """`keep` is called with each verdict that was shown."""
        super().__init__(plan, seen, notify)
        self._keep = keep
        self._census = census
        self._waits = Waits(plan.options.hang_seconds, time.monotonic(), plan.options.busy_seconds)
        self._turn = time.monotonic()  # the launcher's last turn
        self._due = 0.0  # not before
        self._blind_since = math.inf  # since when no inspection works, which was reported
        self._waiting: dict[int, Report] = {}  # by task, its report of a wait
        self._ended: dict[int, Report] = {}  # by task
        self._silent: frozenset[str] = frozenset()  # nodes, at the last inspection
        self._told: _Told | None = None  # unless it is over
        self._over: tuple[float, str] | None = None  # when to tell that a wait is over, and how

    @property
    def hang(self) -> Hang | None:
        """The wait that was reported last, with its duration by now, if it is not over."""
        if self._told is None:
            return None
        level, since, snapshot = self._told
        what, place = describe_odd(snapshot, time.monotonic() - since)
        what = f"{what} ({place})" if place else what
        hint = _find_hint(snapshot, self._seen.reports)
        what = what if level > Level.BUSY else ""
        return Hang(self._told.odd, what, hint, level == Level.HANG)

    def hear(self, report: Report) -> None:
        """Handle a report of a wait; the end of a task ends its wait."""
        now = time.monotonic()
        if report.event == "wait":
            self._waiting[report.task] = report
            # A report that could not arrive in time may be about a wait that is over.
            stood = 0.0 if self._was_blocked(now) else report.seconds
            self._waits.wait(report.task, stood, report.where, now)
        elif report.event == "exception":
            self._over = None
        elif report.event in ("moved", "exit"):
            if report.event == "exit":
                self._ended[report.task] = report
            self._end_wait(report, now)

    def _end_wait(self, report: Report, now: float) -> None:
        """Handle the end of a task's wait: it has continued, or ended."""
        self._waiting.pop(report.task, None)
        seconds = self._waits.go_on(report.task, report.seconds, now)
        # A program's own handler of SIGTERM runs when the run is ended.
        if report.status or of_event(self._seen.reports, *OUTSIDE):
            self._over = None
            return
        has_ended = report.event == "exit"
        odd = self._told.odd if self._told and not has_ended else ()
        if seconds is not None or report.task in odd:
            self._told = None
        if seconds is not None:
            how = "have ended" if has_ended else "are running again"
            due = now if has_ended else now + _FAILS_WITHIN
            self._over = due, f"after {seconds:.0f} s: the tasks {how}"
            self._tell_end(now)

    def _tell_end(self, now: float) -> None:
        """Show that a wait is over, if that is due: it may have ended because the tasks fail."""
        if self._over and now >= self._over[0]:
            self._notify(f"the wait is over {self._over[1]}")
            self._over = None

    def poll(self) -> None:
        """Poll as usual, but restart all waits after a period in which no reports were read."""
        now = time.monotonic()
        if self._was_blocked(now):
            self._waits.restart(now)
        self._turn = now
        self._tell_end(now)
        super().poll()

    def close(self) -> None:
        """Also show that a wait is over, if all tasks have ended well since."""
        super().close()
        statuses = [report.status for report in self._ended.values()]
        if statuses == [0] * (self._seen.tasks or 0) and not self.must_end:
            self._tell_end(math.inf)

    def _was_blocked(self, now: float) -> bool:
        """Return whether the launcher was blocked, for example while nobody read its output."""
        return now - self._turn > _BLOCKED

    def _is_due(self, now: float) -> bool:
        return now >= self._due and self._waits.is_due(now)

    def _find_pause(self, now: float) -> float:
        return min(max(_AGAIN, _AGAIN_PART * (now - self._blind_since)), _MOST_AGAIN)

    def _take(self, inspection: Inspection, now: float) -> None:
        snapshot = self._make_snapshot(inspection)
        if not snapshot.groups:
            reason = "no node has answered" if inspection.silent else "no task was found"
            # All tasks may have ended since: some have.
            if inspection.silent or not of_event(self._seen.reports, "exit"):
                self._fail(inspection.complaint or reason, now)
            return
        self._blind_since, self._due = math.inf, now
        if self._plan.options.on_hang == RESTART:
            self._find_lost(inspection)
        verdict = self._waits.judge(snapshot, now)
        self._replace_told(_Told(verdict.level, now - verdict.seconds, snapshot))
        if verdict.level > Level.NOTHING:
            self._tell(verdict, snapshot)

    def _tell(self, verdict: Verdict, snapshot: Snapshot) -> None:
        """Show a wait; end the run if it hangs and must not."""
        hidden = _find_failure(snapshot, self._seen.reports)
        raised = _find_raised(snapshot, self._seen.reports)
        if raised:
            note = f"{raised.place} raised {raised.text}{enclose(' at ', raised.where)}"
        elif hidden:
            note = hidden.what
        else:
            notes = (lead.describe() for lead in self._census.find_leads())
            note = next(filter(None, notes), self._census.mismatch)
        snapshot = snapshot._replace(note=note)
        for line in render_text(snapshot, verdict.title):
            self._notify(line)
        self._keep(verdict, snapshot)
        what, place = describe_odd(snapshot, verdict.seconds)
        hint = _find_hint(snapshot, self._seen.reports)
        if self._plan.options.on_hang != REPORT and verdict.level == Level.HANG:
            what = f"{what}{enclose('; ', note)}; the run was ended"
            hint = f"{hint}; with --on-hang=report, the run continues"
            left = _find_early_exit(snapshot, self._seen.reports)
            where = "; ".join(filter(None, (left, place)))
            self._end(what, where, hint, find_cause(snapshot, place))

    def _replace_told(self, found: _Told) -> None:
        """Replace the wait that was reported by what was found now, if that is worse; forget it if
        other tasks are at fault.
        """
        if found.level > Level.NOTHING:
            self._told = found if found.odd else None
        elif self._told and found.odd and found.odd.isdisjoint(self._told.odd):
            self._told = None

    def _end(self, what: str, where: str, hint: str, cause: Cause) -> None:
        self.failure = RunError(what, where, hint, _STOPPED)
        self.failure.cause = cause
        self.must_end = True

    def _find_lost(self, inspection: Inspection) -> None:
        """End the run if a node has failed to answer twice in a row while others answered, and it
        cannot be reached either: JAX would wait for its tasks for minutes.
        """
        lost = self._silent.intersection(inspection.lost if inspection.has_answer else ())
        self._silent = frozenset(inspection.lost)
        nodes = [node for node in sorted(lost)[:MOST_NODES] if not is_reachable(node)]
        if nodes and not self.must_end:
            what = f"no answer from {list_nodes(nodes)} while tasks were waiting; the run was ended"
            self._end(what, "", _find_remedy(nodes), Cause(Fault.NODE, tuple(nodes), LOST_NODE))

    def _make_snapshot(self, inspection: Inspection) -> Snapshot:
        """Return the snapshot of all tasks. For a task that was not seen, such as one on another of
        mpirun's hosts, use the task's own report.
        """
        if inspection.silent:
            return make_snapshot(inspection.samples, inspection.silent)
        apart = self._census.find_apart({sample.task: sample for sample in inspection.samples})
        reported = (
            make_sample(sample.task, sample.node, sample.where) for sample in self._waiting.values()
        )
        snapshot = make_snapshot([*reported, *inspection.samples], apart=apart)
        exited = list(self._find_exited(snapshot))
        if exited:
            snapshot = make_snapshot([*list_samples(snapshot.groups), *exited], apart=apart)
        known = self._ended.keys() | tasks_of(snapshot.groups)
        missing = (self._plan.layout.ntasks or 0) - len(known)
        return snapshot._replace(
            unseen=max(inspection.unseen, missing),
            lost_threads=_have_lost_threads(snapshot, self._seen.reports),
        )

    def _find_exited(self, snapshot: Snapshot) -> Iterator[Sample]:
        """Yield the tasks that have ended although others may need them: they never connected, and
        others wait in jax.distributed.initialize; they left out JAX's shutdown, where all others
        wait; or their Python failed, which a shell has hidden.
        """
        reports = self._seen.reports
        if len(reports) >= MOST_REPORTS:  # some may be missing
            return
        connected, alone = by_task(reports, "end"), by_task(reports, "alone")
        last = {report.task: report for report in list_last_pythons(reports)}
        many = by_task(reports, "success").keys() - last.keys()
        kinds = {group.state.kind for group in snapshot.groups}
        seen = tasks_of(snapshot.groups)
        for task in self._ended.keys() - seen - many:
            end = last.get(task, NO_REPORT)
            sample = make_sample(task, self._ended[task].node, end.where)
            is_needed = task in last and task not in alone and kinds == {SHUTDOWN}
            if task not in connected and (INITIALIZE in kinds or is_needed):
                yield sample._replace(state=UNMET)
            elif end.event in FAILURES:
                yield sample._replace(state=HIDDEN_FAILURE)

    def _fail(self, why: str, now: float) -> None:
        is_ending = bool(of_event(self._seen.reports, *OUTSIDE))
        if self._blind_since == math.inf and not is_ending:
            self._blind_since = now
            self._notify(f"cannot inspect the waiting tasks: {why}; trying again")


class UnwatchedWatcher(Watcher):
    """Reports once which tasks cannot report that they wait, because their program is not Python.

    A Python process that has not used JAX yet may still use it, and is left out.
    """

    _needs_stacks = True  # such a process answers

    def __init__(self, plan: Plan, seen: ReportFilter, notify: Notify) -> None:
        super().__init__(plan, seen, notify)
        self._known: set[int] = set()  # tasks that are watched, or have ended

    def hear(self, report: Report) -> None:
        """Record the start of the run, and tasks that are watched or have ended."""
        if report.event == "started":
            self._due = time.monotonic() + _UNWATCHED * self._plan.options.hang_seconds
        elif report.event in ("watched", "exit"):
            self._known.add(report.task)

    def _is_due(self, now: float) -> bool:
        return super()._is_due(now) and len(self._known) < (self._plan.layout.ntasks or math.inf)

    def _take(self, inspection: Inspection, now: float) -> None:
        others = (sample for sample in inspection.samples if sample.task not in self._known)
        unwatched = [
            sample for sample in others if sample.status == NO_STATUS and sample.answered is None
        ]
        if unwatched:
            tasks = name_tasks(sorted({sample.task for sample in unwatched}))
            commands = sorted({sample.command for sample in unwatched})[:_MOST_COMMANDS]
            names = f"{', '.join(commands)} {'is' if len(commands) == 1 else 'are'}"
            is_python = any(sample.startswith("python") for sample in commands)
            reason = "without jaxsif's hook" if is_python else "not Python"
            self._notify(f"cannot watch {tasks} for hangs: {names} {reason}")


class EndWatcher(Watcher):
    """Ends a run that has failed and is waiting for the tasks of a lost node: Slurm itself would
    wait for minutes. Or names the tasks that have not ended, such as those that still save.
    """

    _failed = Report(-1, "", "exit")  # the first task that did

    def hear(self, report: Report) -> None:
        """Record the first failure of a task."""
        if report.event == "exit" and report.status and self._failed.task < 0:
            self._failed, self._due = report, time.monotonic() + _ENDS_WITHIN

    def _is_due(self, now: float) -> bool:
        return super()._is_due(now) and not of_event(self._seen.reports, *OUTSIDE)

    def _take(self, inspection: Inspection, now: float) -> None:
        # If no node answers, Slurm may have refused the inspection, because the job is ending.
        if inspection.lost and inspection.has_answer:
            self._end(inspection.lost)
            return
        ended = by_task(self._seen.reports, "exit").keys()
        tasks = sorted({sample.task for sample in inspection.samples} - ended)
        if tasks:
            left = f"{name_tasks(tasks)} {conjugate('has', len(tasks))} not ended"
            self._notify(f"{self._failed.place} has failed; {left} after {_ENDS_WITHIN:.0f} s")

    def _end(self, nodes: Sequence[str]) -> None:
        """End the run, which takes Slurm half a minute."""
        self.must_end = True
        names = list_nodes(nodes)
        self._notify(f"no answer from {names}: ending the run")
        failed = self._failed
        if any(not report.consequence for report in of_event(self._seen.reports, "exception")):
            return  # the program's own failure says more
        what = f"no answer from {names}, after {failed.place} failed; the run was ended"
        self.failure = RunError(what, failed.where, _find_remedy(nodes), failed.status)
        self.failure.cause = Cause(Fault.NODE, tuple(nodes), LOST_NODE)


def _find_failure(snapshot: Snapshot, reports: Sequence[Report]) -> RunError | None:
    """Return the failure that a shell has hidden, if a task in the snapshot may have ended so."""
    return find_hidden(reports) if any(group.has_exited for group in snapshot.groups) else None


def _find_early_exit(snapshot: Snapshot, reports: Sequence[Report]) -> str:
    """Return the call with which the tasks at fault left early; '' if they have not ended."""
    return find_early_exit(reports, tasks_of(snapshot.odd)) if _have_ended(snapshot) else ""


def _have_ended(snapshot: Snapshot) -> bool:
    """Return whether the tasks at fault have ended."""
    odd = snapshot.odd
    return bool(odd) and all(group.has_exited or group.state.kind == SHUTDOWN for group in odd)


def _find_hint(snapshot: Snapshot, reports: Sequence[Report]) -> str:
    """Return the remedy for a hang; if a thread or process of a task at fault has ended, that is
    the cause.
    """
    hidden = _find_failure(snapshot, reports)
    if hidden and all(group.has_exited for group in snapshot.odd):
        return hidden.hint
    if any(group.state.kind == STOPPED for group in snapshot.odd or snapshot.groups):
        return "find the sender of SIGSTOP; to continue the task, send it SIGCONT"
    if _find_raised(snapshot, reports):
        return AFTER_EXCEPTION
    return _describe_awaited(snapshot, reports) or _find_usual_hint(snapshot)


def _find_raised(snapshot: Snapshot, reports: Sequence[Report]) -> Report | None:
    """Return the exception after which a task waits for the others: a task at fault or, if none is
    known, any of a few groups that wait at different lines.
    """
    suspects = tasks_of(snapshot.odd or snapshot.parted)
    raised = [report for report in by_task(reports, "raised").values() if report.text]
    is_usual = 2 * len(raised) > snapshot.size  # the program handles it
    return next((report for report in raised if report.task in suspects and not is_usual), None)


def _have_lost_threads(snapshot: Snapshot, reports: Sequence[Report]) -> bool:
    """Return whether each task that waits for a lock has lost a thread or worker."""
    locked = tasks_of(group for group in snapshot.groups if group.state.kind == LOCK)
    failed = {one.task for one in reports if one.text.startswith(tuple(_AWAITED))}
    return bool(locked) and locked <= failed


def _describe_awaited(snapshot: Snapshot, reports: Sequence[Report]) -> str:
    """Describe the last thread or worker of a task at fault, or else of one that waits for a lock,
    that has ended; or return ''.
    """
    kinds = (DEADLOCK, LOCK) if snapshot.lost_threads else (DEADLOCK,)
    locked = (group for group in snapshot.groups if group.state.kind in kinds)
    suspects = tasks_of(snapshot.odd or locked)
    for report in reversed(reports):  # the program may have handled the end of an earlier one
        for prefix, name in _AWAITED.items():
            if report.task in suspects and report.text.startswith(prefix):
                verb = "ended without" if _have_ended(snapshot) else "may be waiting for"
                return f"{report.text}; the task {verb} that {name}"
    return ""


def _find_usual_hint(snapshot: Snapshot) -> str:
    """Return the remedy for a hang by the states of the tasks."""
    kinds = {group.state.kind for group in snapshot.odd}
    has_ended = any(group.state.kind == SHUTDOWN for group in snapshot.groups)
    if kinds == {LEFT}:
        return LEFT_EARLY if has_ended else NEVER_CONNECTED
    if THREADS in kinds:
        return "end its threads before the program ends, or start them with daemon=True"
    # A task that waits where the others are not may have left out a collective before.
    if all(group.waits for group in snapshot.odd or snapshot.groups):
        return BARRIER.remedy
    who = "they are" if sum(group.size for group in snapshot.odd) > 1 else "it is"
    why = ", and why others have ended" if has_ended else ""
    return f"see what {who} doing there{why}"


def _find_remedy(lost: Sequence[str]) -> str:
    hint = "list lost nodes with sinfo --list-reasons"
    if len(lost) <= MOST_NODES:
        hint += f"; leave them out: --exclude={','.join(lost)}"
    return hint


class StartWatcher(Watcher):
    """Reports that no task has started because other steps have the job's resources, and tasks that
    have still not started long after the first one did; JAX ends the run itself.
    """

    _begun = math.inf  # when the first task started, by the monotonic clock
    _asks_at = math.inf  # when to ask Slurm why no task starts, likewise
    _is_told = False

    def __init__(self, plan: Plan, seen: ReportFilter, notify: Notify) -> None:
        super().__init__(plan, seen, notify)
        if plan.launcher.name == SRUN and "SLURM_JOB_ID" in plan.host.environ:
            self._asks_at = time.monotonic() + _FIRST_WITHIN

    def hear(self, report: Report) -> None:
        """Record the start of a node's first task."""
        if report.event not in ("started", "ready"):
            return
        now = time.monotonic()
        self._begun = min(self._begun, now)
        if self._is_told and not name_unstarted(self._plan, self._seen.reports):
            self._is_told = False
            self._notify(f"all tasks have started, {now - self._begun:.0f} s after the first one")

    def poll(self) -> None:
        """Report once why no task starts, and which tasks are missing."""
        if time.monotonic() > self._asks_at:
            self._asks_at = math.inf
            self._report_others()
        if time.monotonic() < self._begun + _START_WITHIN or self._is_told:
            return
        unstarted = name_unstarted(self._plan, self._seen.reports)
        if unstarted:
            self._is_told = True
            self._notify(
                f"{render_unstarted(unstarted)}, {_START_WITHIN:.0f} s after the first one"
            )
        else:
            self._begun = math.inf  # all have

    def _report_others(self) -> None:
        environ = self._plan.host.environ
        if self._seen.reports or not waits_for_resources(environ["SLURM_JOB_ID"], environ):
            return
        job = name_job(environ)
        what = f"the tasks wait for CPUs, GPUs or memory that other steps of job {job} use"
        self._notify(f"{what}: squeue --steps --jobs={job}")


class NoticeWatcher(Watcher):
    """Tells the tasks that the job is about to end: on SIGURG to this process, and, in runs that
    take notices, on a signal from Slurm to the job.

    Slurm may signal only the first process of each task, and the runtime does not pass SIGURG on.
    So a step of our own listens, and another one tells the tasks.
    """

    purpose = "announcing the end of the job"
    _announces = True
    _must_ask = _must_tell = _is_told = False
    _is_terminated = False  # a task has got SIGTERM
    _asked = -math.inf  # when Slurm was last asked, by the monotonic clock
    _listener: Running | None = None

    def hear(self, report: Report) -> None:
        """Handle the report of SIGTERM to a task, or of SIGURG, the announcement."""
        if report.event == "terminated":
            self._must_ask = self._is_terminated = True
        elif report.event == "announced":
            self._must_tell = True
        elif report.event == "noticed" and not self._is_told:
            self._is_told = True
            self._notify("the job is about to end: the program was told to save (SIGURG)")
        elif report.event == "watched" and self._is_told:  # it may have started too late to hear
            self._must_tell = True

    def poll(self) -> None:
        """Ask Slurm what SIGTERM to the tasks means: tell them, or let them end."""
        if self._plan.takes_notices:
            self._listen()
        has_news = self._must_ask or self._must_tell or self._is_terminated
        if has_news and of_event(self._seen.reports, *OUTSIDE):
            self.must_end |= self._is_terminated
            return
        if self._must_ask and time.monotonic() - self._asked > _ALL_ASK:
            self._ask()
        self._must_ask = False
        super().poll()

    def _ask(self) -> None:
        environ, step = self._plan.host.environ, find_start(self._seen.reports).step
        self._asked = time.monotonic()
        answer = is_preempted(name_job(environ) or step.partition(".")[0], environ)
        if answer:
            self._must_tell = True
        elif answer is False and self._is_terminated:  # a second one ends those that wait for it
            process.captured(("scancel", "--signal=TERM", step), outside_of_job(environ))

    def _listen(self) -> None:
        """Start the step that listens, and note which signal has ended it."""
        if self._listener is None:
            started = find_start(self._seen.reports)
            if started.step:
                job, nodes = self._plan.launcher.nodes(self._plan, started)[0]
                argv = make_listener(Part(job, nodes[:1]))
                self._listener = start_fed(argv, outside_of_job(self._plan.host.environ))
        elif self._listener.returncode is None and self._listener.poll() is not None:
            status = self._listener.returncode
            self._must_tell |= status == signal.SIGURG
            self._must_ask |= not self._must_tell
            by_slurm = status in (signal.SIGURG, signal.SIGTERM, 128 + signal.SIGTERM)
            if not (by_slurm or of_event(self._seen.reports, *OUTSIDE)):
                why = f"the step that listens for Slurm's signals ended with {status}"
                self._fail(why, time.monotonic())

    def close(self) -> None:
        """End the step that listens, too."""
        super().close()
        if self._listener and self._listener.poll() is None:
            end_fed(self._listener, _END)

    def _is_due(self, now: float) -> bool:
        return self._must_tell and find_start(self._seen.reports).task >= 0

    def _begin(self, now: float) -> Inspection | None:
        self._must_tell = False
        return super()._begin(now)

    def _fail(self, why: str, now: float) -> None:
        self._notify(f"warning: {why}: tasks may not learn that the job is about to end")

    def _take(self, inspection: Inspection, now: float) -> None:
        if inspection.silent:
            self._fail(f"no answer from {list_nodes(inspection.silent)}", now)


class SuspensionWatcher(Watcher):
    """Reports that Slurm has suspended the job, and with it this process, for a while."""

    def __init__(self, plan: Plan, seen: ReportFilter, notify: Notify) -> None:
        super().__init__(plan, seen, notify)
        self._turn = time.time()

    def poll(self) -> None:
        """Ask Slurm about the job if a long time has passed between two turns."""
        seconds, environ = time.time() - self._turn, self._plan.host.environ
        if seconds > _BLOCKED and "SLURM_JOB_ID" in environ:
            self._report(name_job(environ), seconds)
        self._turn = time.time()  # the question may have taken long, too

    def _report(self, job: str, seconds: float) -> None:
        if was_suspended(job, self._turn, self._plan.host.environ):
            most = self._plan.coordinator.heartbeat_timeout or _JAX_HEARTBEAT
            advice = f"; JAX may end after {most} s (--heartbeat-timeout)" if seconds > most else ""
            self._notify(f"job {job} was suspended for {seconds:.0f} s{advice}")


def watch(plan: Plan, seen: ReportFilter, notify: Notify, keep: Keep) -> list[Watcher]:
    """Return the watchers of a run, or [] if its tasks do not report."""
    if not plan.nonces:
        return []
    # It gets no reports if programs are not compared.
    census = ProgramCensus(plan.layout.ntasks or 0)
    watchers: list[Watcher] = [EndWatcher(plan, seen, notify), StartWatcher(plan, seen, notify)]
    if plan.launcher.name == SRUN:
        watchers.append(SuspensionWatcher(plan, seen, notify))
        watchers.append(NoticeWatcher(plan, seen, notify))
    if plan.options.hang_seconds:
        watchers.append(WaitWatcher(plan, seen, notify, keep, census))
        watchers.append(UnwatchedWatcher(plan, seen, notify))
    if plan.options.check_programs != OFF:
        watchers.append(ProgramWatcher(plan, seen, notify, census))
    return watchers
