"""All that is known of a run that has failed, as one value: each possible cause looks at it."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from typing import NamedTuple

from jaxsif.diagnose.barriers import Barrier
from jaxsif.diagnose.places import until_outside
from jaxsif.diagnose.reports import REFUSALS, Report, by_task, find_start, of_event
from jaxsif.diagnose.symptoms import (
    BARRIER,
    CANCELLATIONS,
    CANCELLED,
    CONTAINER,
    GAVE_UP,
    INTRUDED,
    NOT_FOUND,
    NOT_LAUNCHED,
    NOT_REACHED,
    SRUN_GAVE_UP,
    TASK_EXITED,
    TASK_KILLED,
    TIMED_OUT,
    UNKNOWN_FLAGS,
    Found,
    Symptom,
    find_first,
    find_symptoms,
)
from jaxsif.errors import HostError
from jaxsif.plan.launcher import Launcher
from jaxsif.task.contract import SPAWNED

ABORTED = 128 + signal.SIGABRT
KILLED = 128 + signal.SIGKILL
TERMINATED = 128 + signal.SIGTERM
INIT_BARRIER = "[Init]Wait_for_all_tasks_to_register"
NOBODY = Report(-1, "", "exit")
_NO_BARRIER = Barrier("")


class Meeting(NamedTuple):
    """A barrier, in words."""

    place: str  # where a program meets it
    hint: str  # what to do where a task did not come


JAX_BARRIERS = {  # JAX's own
    "Shutdown": Meeting("the end of the program", BARRIER.remedy),
    INIT_BARRIER: Meeting(
        "jax.distributed.initialize",
        "see what it does before, and whether it can reach task 0; --init-timeout says how long the"
        " others wait",
    ),
}


class End(NamedTuple):
    """How a run ended, as far as the launcher knows without its tasks."""

    status: int  # exit status of srun or its like
    launcher: Launcher
    tasks: int | None = None  # in all; None where Slurm alone decides
    interrupted: int | None = None  # the signal to `jaxsif run` that ended the run
    killed: bool = False  # srun itself was ended by a signal
    unstarted: str = ""  # the tasks that have not started, in words
    changed_image: str = ""  # the image's path, where its file was written to during the run

    @property
    def exit_code(self) -> int:
        """What jaxsif ends with where no task is at fault."""
        return 128 + self.interrupted if self.interrupted else self.status


class _Told(NamedTuple):
    """How a run ended, and what was said in it, in the order of arrival."""

    end: End
    reports: Sequence[Report]
    errors: Sequence[str]
    barriers: Sequence[Barrier]


class Facts(_Told):
    """What is known of a run: the views of it that the causes look at.

    Where a view finds no report, symptom or barrier, it is NOBODY, NOT_FOUND or a barrier without a
    name.
    """

    @cached_property
    def _before(self) -> Sequence[Report]:
        """The reports before something outside ended the run."""
        return until_outside(self.reports)

    @cached_property
    def exits(self) -> Mapping[int, Report]:
        """The last exit of each task."""
        return by_task(self.reports, "exit")

    @cached_property
    def started(self) -> bool:
        """Whether a task has started its program."""
        return bool(of_event(self.reports, "started"))

    @cached_property
    def tasks(self) -> int:
        """The number of tasks, as far as it is known."""
        return max([self.end.tasks or 0, *(report.task + 1 for report in self.reports)])

    @cached_property
    def refusal(self) -> Report:
        """The first refusal of a task that did not start its program.

        Such a task ends with 125, and so one that ended otherwise did start it.
        """
        refusals = of_event(self.reports, *REFUSALS)
        ends = self.exits.values()
        began = {end.task for end in ends if end.status != HostError.exit_code}
        return next((one for one in refusals if one.task not in began), NOBODY)

    @cached_property
    def early(self) -> Mapping[int, Report]:
        """The last report of each task that came to its end without an error, exits first; none
        where more tasks did than did not.
        """
        ended = [report for report in self._before if not report.status]
        exits, ends = by_task(ended, "exit"), by_task(ended, "end")
        early = {**exits, **ends, **exits}  # an exit says more than the end of the program before
        return early if 2 * len(early) <= self.tasks else {}

    @cached_property
    def connected(self) -> bool:
        """Whether JAX held a task in its barrier at the end."""
        return bool(of_event(self._before, "end"))

    @cached_property
    def not_launched(self) -> Found:
        """Why srun could start no task on a node."""
        return find_first([NOT_REACHED, NOT_LAUNCHED], self.errors)

    @cached_property
    def cancelled(self) -> Found:
        """Why Slurm ended the step before any task had failed; without words where it did not, or
        only because a task has failed.

        slurmstepd says CANCELLED of a step whose task has failed, too. srun says that the step was
        aborted only when something outside of it has ended it. When a signal ended `jaxsif run`,
        only a reason of Slurm's own counts: it is jaxsif that has cancelled the step.
        """
        aborted = of_event(self.reports, "cancelled")
        if self._failed_before or not (aborted or self.end.interrupted):
            return NOT_FOUND
        told = self._told_of_job
        if told.symptom is not CANCELLED:
            return told
        return NOT_FOUND if self.end.interrupted else find_first([SRUN_GAVE_UP], self.errors, told)

    @property
    def _failed_before(self) -> bool:
        """Whether a task has failed before something outside ended the run."""
        statuses = {report.status for report in by_task(self._before, "exit").values()}
        return not statuses <= {0, TERMINATED, KILLED}

    @property
    def _told_of_job(self) -> Found:
        """What slurmstepd told first of this job; what a program prints of another counts for
        nothing.
        """
        job = find_start(self.reports).step.partition(".")[0]
        told = find_symptoms(CANCELLATIONS, self.errors)
        return next((one for one in told if job in ("", one.words["job"])), NOT_FOUND)

    @cached_property
    def _followers(self) -> set[int]:
        """The tasks whose exceptions say that a neighbour is gone."""
        return {report.task for report in self.reports if report.consequence}

    @cached_property
    def _first(self) -> Report:
        """The first exit that is not the consequence of another: a neighbour's exception, JAX's
        SIGABRT, srun's SIGTERM. Where all are, the first one.
        """
        failed = [report for report in of_event(self.reports, "exit") if report.status]
        by_others: Sequence[int] = (ABORTED,)
        for report in failed:
            if report.status not in by_others and report.task not in self._followers:
                return report
            by_others = (ABORTED, TERMINATED)  # srun ends tasks when another one has failed
        return [*failed, NOBODY][0]

    @cached_property
    def _first_follows(self) -> bool:
        """Whether even the first exit is the consequence of another."""
        return self._is_by_others(self._first) or self._first.task in self._followers

    @cached_property
    def culprit(self) -> Report:
        """The first exit that is not the consequence of another, as far as it can be told."""
        return self._first_told if self._first_follows else self._first

    @property
    def _first_told(self) -> Report:
        """The first task that failed before Slurm itself ended the step, by srun's words: a report
        comes late behind much output, or never, as where its parent was killed with it. The first
        exit where srun names none.
        """
        before = list(takewhile(lambda line: "CANCELLED" not in line, self.errors))
        ends = read_ends([TASK_KILLED, TASK_EXITED], before)
        told = (self.exits.get(end.task, end) for end in ends if end.task not in self._followers)
        return next((end for end in told if not self._is_by_others(end)), self._first)

    @staticmethod
    def _is_by_others(end: Report) -> bool:
        return end.status in (ABORTED, TERMINATED)

    @cached_property
    def spawned(self) -> Report:
        """The first exception of a worker that ran the script again, where the task that failed is
        the same, or where all tasks fail as neighbours do: JAX aborts all of them.
        """
        found = (
            report
            for report in of_event(self.reports, "exception")
            if any(phrase in report.text for phrase in SPAWNED)
        )
        first = next(found, NOBODY)
        is_cause = self._first_follows or self.culprit.task == first.task
        return first if is_cause else NOBODY

    @cached_property
    def _raised(self) -> list[str]:
        """The texts of the culprit's exceptions."""
        return [report.text for report in find_exceptions(self.culprit.task, self.reports)]

    @cached_property
    def has_lost_image(self) -> bool:
        """Whether the culprit could not read its image any more."""
        return self.culprit.task in by_task(self.reports, "unmounted")

    @cached_property
    def last(self) -> Report:
        """What the culprit said last."""
        return find_last(self.culprit, self.reports)

    @cached_property
    def gave_up(self) -> bool:
        """Whether JAX told of a process that did not come to jax.distributed.initialize."""
        return any(map(GAVE_UP.match, self.errors))

    @cached_property
    def intruder(self) -> Found:
        """What JAX told of a process that connected as one which is connected already."""
        found = find_first([INTRUDED], self.errors)
        return found if self.culprit.status == ABORTED else NOT_FOUND

    @cached_property
    def waited(self) -> bool:
        """Whether the culprit ended because another task did not come."""
        by_jax = self.culprit.status == ABORTED and self.gave_up
        return by_jax or any(map(TIMED_OUT.match, self._raised))

    @cached_property
    def follows(self) -> bool:
        """Whether the culprit's end is the consequence of another task's, of which nobody has
        reported more.
        """
        return self.culprit is self._first and (self._first_follows or self.waited)

    @cached_property
    def barrier(self) -> Barrier:
        """The barrier for which JAX has ended the culprit; a program may go on after one that it
        has set itself.
        """
        texts = "".join(self._raised)
        if self.culprit.status != ABORTED and "Barrier timed out" not in texts:
            return _NO_BARRIER
        known = (one for one in self.barriers if one.name in JAX_BARRIERS or one.name in texts)
        return next(known, _NO_BARRIER)

    @cached_property
    def stuck(self) -> Report:
        """The exit of a task that srun had to end, with fewest others at its line, where no other
        line has as few.
        """
        others = {report.where for report in self.reports if report.status != TERMINATED}
        known = others.union([""])
        exits = [end for end in self.exits.values() if end.where not in known]
        tasks_at = Counter(end.where for end in exits)
        loneliest = min(exits, key=lambda end: tasks_at[end.where], default=NOBODY)
        is_odd = list(tasks_at.values()).count(tasks_at[loneliest.where]) == 1
        return loneliest if is_odd else NOBODY

    @cached_property
    def unknown_flags(self) -> Found:
        """What an XLA said that does not know a flag."""
        return find_first([UNKNOWN_FLAGS], self.errors)

    @cached_property
    def container(self) -> Found:
        """What the runtime complained of, with the node that srun names."""
        node = find_first([TASK_EXITED], self.errors).words.get("node", "the node")
        return find_first(CONTAINER, self.errors, node=node)

    @cached_property
    def first_ended(self) -> Report:
        """The first task that failed, by srun's words: all that is known where standard error goes
        to files.
        """
        ends = read_ends([TASK_EXITED], self.errors)
        return next((end for end in ends if end.status != TERMINATED), NOBODY)


def find_exceptions(task: int, reports: Sequence[Report]) -> list[Report]:
    """Return the exceptions of a task, the last one last."""
    return [report for report in of_event(reports, "exception") if report.task == task]


def find_last(end: Report, reports: Sequence[Report]) -> Report:
    """Return what the task of an exit said last: its exception, or the exit."""
    return [end, *find_exceptions(end.task, reports)][-1]


def read_ends(rows: Sequence[Symptom], errors: Sequence[str]) -> list[Report]:
    """Return the ends of tasks of which srun tells as in one of `rows`."""
    # What it says of a task that was killed has no status.
    found = find_symptoms(rows, errors, status=str(KILLED))
    return [_read_end(**one.words) for one in found]


def _read_end(task: str, node: str, status: str) -> Report:
    return Report(int(task), node, "exit", int(status))
