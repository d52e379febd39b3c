"""All that is known of a run that has failed, as one value: each possible cause looks at it."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from jaxsif.diagnose.barriers import Barrier
from jaxsif.diagnose.places import until_outside
from jaxsif.diagnose.reports import Report, by_task, find_step
from jaxsif.diagnose.symptoms import (
    CANCELLATIONS,
    CANCELLED,
    CONSEQUENCE,
    GAVE_UP,
    NOT_FOUND,
    SRUN_GAVE_UP,
    TASK_KILLED,
    TIMED_OUT,
    Found,
    Symptom,
    find_symptoms,
)
from jaxsif.plan.launcher import Launcher

ABORTED = 128 + signal.SIGABRT
KILLED = 128 + signal.SIGKILL
TERMINATED = 128 + signal.SIGTERM
INIT_BARRIER = "[Init]Wait_for_all_tasks_to_register"
# JAX's own barriers, and where a program meets them.
JAX_BARRIERS = {"Shutdown": "the end of the program", INIT_BARRIER: "jax.distributed.initialize"}
NOBODY = Report(-1, "", "exit")
_NO_BARRIER = Barrier("")


class End(NamedTuple):
    """How a run ended, as far as the launcher knows without its tasks."""

    status: int  # exit status of srun or its like
    launcher: Launcher
    tasks: int | None = None  # in all; None where Slurm alone decides
    interrupted: int | None = None  # the signal to `jaxsif run` that ended the run
    killed: bool = False  # srun itself was ended by a signal
    changed_image: str = ""  # the image's path, where its file was written to during the run

    @property
    def exit_code(self) -> int:
        """What jaxsif ends with where no task is at fault."""
        return 128 + self.interrupted if self.interrupted else self.status


class Facts(NamedTuple):
    """What is known of a run, and the views of it that several causes look at."""

    end: End
    reports: Sequence[Report]
    errors: Sequence[str]
    exits: Mapping[int, Report]  # by task
    started: bool  # a task has started its program
    tasks: int  # in all
    # The tasks that came to their end, without an error, while at least as many others had not.
    early: Sequence[Report]
    connected: bool  # JAX held one of these in its barrier at the end
    cancelled: Found  # why Slurm ended the step before any task had failed, or NOT_FOUND
    culprit: Report  # the first exit that is not the consequence of another; or NOBODY
    last: Report  # what the culprit said last: its exception, or its exit
    waited: bool  # the culprit has waited for another task until it gave up
    # The culprit's end is the consequence of another task's, of which nobody has reported more.
    follows: bool
    barrier: Barrier  # for which JAX has ended the culprit; without a name where there is none


def collect_facts(
    end: End, reports: Sequence[Report], errors: Sequence[str], barriers: Sequence[Barrier]
) -> Facts:
    """Return all that is known of the run."""
    before = until_outside(reports)
    exits = by_task(reports, "exit")
    followers = {report.task for report in reports if report.consequence}
    culprit = first = _find_first_cause(reports, followers)
    follows = first.task in followers or first.status in (ABORTED, TERMINATED)
    if follows:
        culprit = next(_read_killed(errors, exits), first)
    raised = find_exceptions(culprit.task, reports)
    waited = _has_waited(culprit, raised, errors)
    tasks = max([end.tasks or 0, *(report.task + 1 for report in reports)])
    return Facts(
        end,
        reports,
        errors,
        exits=exits,
        started="started" in [report.event for report in reports],
        tasks=tasks,
        early=_find_early(before, tasks),
        connected=any(report.event == "end" for report in before),
        cancelled=_find_cancellation(end, reports, before, errors),
        culprit=culprit,
        last=raised[-1] if raised else culprit,
        waited=waited,
        follows=culprit is first and (follows or waited),
        barrier=_find_barrier(culprit, raised, barriers),
    )


def find_exceptions(task: int, reports: Sequence[Report]) -> list[Report]:
    """Return the exceptions of a task, the last one last."""
    return [report for report in reports if report.event == "exception" and report.task == task]


def read_ends(row: Symptom, errors: Sequence[str]) -> list[Report]:
    """Return the ends of tasks of which srun tells as in `row`."""
    # What it says of a task that was killed has no status.
    found = find_symptoms([row], errors, status=str(KILLED))
    words = [one.words for one in found]
    return [Report(int(one["task"]), one["node"], "exit", int(one["status"])) for one in words]


def _find_first_cause(reports: Sequence[Report], followers: Collection[int]) -> Report:
    """Return the first exit that is not the consequence of another: a neighbour's exception, JAX's
    SIGABRT, srun's SIGTERM. Where all are, return the first one.
    """
    failed = [report for report in reports if report.event == "exit" and report.status]

    def is_consequence(report: Report) -> bool:
        by_srun = report.status == TERMINATED and report is not failed[0]
        return by_srun or report.status == ABORTED or report.task in followers

    return min(failed, key=is_consequence, default=NOBODY)


def _read_killed(errors: Sequence[str], exits: Collection[int]) -> Iterator[Report]:
    """Yield the tasks that were killed with the parent that would have reported it, before Slurm
    itself ended the step.
    """
    before = list(takewhile(lambda line: "CANCELLED" not in line, errors))
    return (report for report in read_ends(TASK_KILLED, before) if report.task not in exits)


def _has_waited(culprit: Report, raised: Sequence[Report], errors: Sequence[str]) -> bool:
    """Return whether a task ended because another one did not come."""
    if culprit.status == ABORTED and any(map(GAVE_UP.match, errors)):
        return True
    return any(TIMED_OUT.match(report.text) for report in raised)


def _find_barrier(
    culprit: Report, raised: Sequence[Report], barriers: Sequence[Barrier]
) -> Barrier:
    """Return the barrier for which JAX has ended the process; a program may go on after one that it
    has set itself.
    """
    texts = "".join(report.text for report in raised)
    if culprit.status != ABORTED and "Barrier timed out" not in texts:
        return _NO_BARRIER
    ended = (one for one in barriers if one.name in JAX_BARRIERS or one.name in texts)
    return next(ended, _NO_BARRIER)


def _find_early(before: Sequence[Report], tasks: int) -> list[Report]:
    """Return the last report of each task that ended early; [] where more ended than did not."""
    exits = by_task([report for report in before if not report.status], "exit")
    # An exit says more than the end of the program before it.
    early = list({**exits, **by_task(before, "end"), **exits}.values())
    return early if 2 * len(early) <= tasks else []


def _find_cancellation(
    end: End, reports: Sequence[Report], before: Sequence[Report], errors: Sequence[str]
) -> Found:
    """Return why Slurm ended the step before any task had failed; NOT_FOUND where it did not.

    slurmstepd says CANCELLED of a step whose task has failed, too. srun says that the step was
    aborted only when something outside of it has ended it. When a signal ended `jaxsif run`, only a
    reason of Slurm's own counts: it is jaxsif that has cancelled the step. What a program prints of
    another job counts for nothing.
    """
    exits = by_task(before, "exit").values()
    failed = any(report.status not in (0, TERMINATED, KILLED) for report in exits)
    aborted = any(report.event == "cancelled" for report in reports)
    if failed or not (aborted or end.interrupted):
        return NOT_FOUND
    job = find_step(reports).partition(".")[0]
    found = find_symptoms(CANCELLATIONS, errors)
    told = next((one for one in found if job in ("", one.words["job"])), NOT_FOUND)
    if told.symptom.means == CONSEQUENCE:
        return NOT_FOUND
    if told.symptom is not CANCELLED:
        return told
    return NOT_FOUND if end.interrupted else next(find_symptoms([SRUN_GAVE_UP], errors), told)
