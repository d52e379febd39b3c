"""The facts of a run, from its tasks' reports and srun's messages, to find the causes of a failure
and to remark on runs that ended otherwise.
"""

from __future__ import annotations

import re
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from typing import NamedTuple

from jaxsif.diagnose.reports import (
    ALIKE,
    AT_THE_END,
    HAS_ENDED,
    MAY_COMPILE,
    MOST_ALIKE,
    MOST_REPORTS,
    OUTSIDE,
    Barrier,
    LastStatus,
    ProgramDifference,
    Report,
    by_task,
    find_start,
    of_event,
    parse_status,
)
from jaxsif.diagnose.symptoms import (
    ALL_ALIKE,
    BARRIER,
    CANCELLATIONS,
    CANCELLED,
    GAVE_UP,
    LOST_COORDINATOR,
    SIZES_DIFFER,
    SRUN_GAVE_UP,
    TASK_EXITED,
    TASK_KILLED,
    TIMED_OUT,
    Symptom,
)
from jaxsif.errors import Cause, RunError
from jaxsif.plan.container import Container
from jaxsif.plan.launcher import Launcher
from jaxsif.settings.options import OFF, RunOptions
from jaxsif.task.contract import INDEPENDENT, PROGRAM_EVENTS
from jaxsif.text import count_of, enclose, name_tasks, shorten_place

ABORTED = 128 + signal.SIGABRT
KILLED = 128 + signal.SIGKILL
TERMINATED = 128 + signal.SIGTERM
_CALLED_LATE = "jax.distributed.initialize() must be called before"
_SEGFAULT = 128 + signal.SIGSEGV
INIT_BARRIER = "[Init]Wait_for_all_tasks_to_register"
NO_REPORT = Report(-1, "", "exit")
NO_BARRIER = Barrier("")
MOST_PLACES = 4  # in one line
_LEAVES = ("end", "success")  # events of a Python without an error; they have an early exit's line
# The last reports of a Python process that has failed; after `watched`, it ended without a word.
FAILURES = ("exception", "watched")
# How a Python ends with a status: with that of another Python, it passes on that one's failure.
_PASSED_ON = re.compile(r"(?:(?:sys\.|os\._)exit\(|CalledProcessError: .* exit status )(\d+)[.)]$")
_BY_JAX = re.compile("Gloo|NCCL|(Jax|Xla)RuntimeError")  # in exceptions of its collectives
_AT_WORK = 2.0  # seconds without computing, at most, of a task that does not wait
_SPAN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")  # of tasks, in srun's lists
# Hints.
LEFT_EARLY = "end all tasks alike: os._exit leaves out JAX's shutdown, where the others wait"
AFTER_EXCEPTION = (
    "after an exception, call neither jax.distributed.shutdown() nor a barrier: the others may be"
    " elsewhere"
)
NEVER_CONNECTED = "make every task call jax.distributed.initialize() before it can end"
# JAX's own barriers -> where a program meets them, and the hint for a task that did not arrive.
JAX_BARRIERS = {
    "Shutdown": (AT_THE_END, BARRIER.remedy),
    INIT_BARRIER: (
        "jax.distributed.initialize",
        "see what it does before that, and whether it can reach task 0; --init-timeout sets how"
        " long the others wait",
    ),
}


class Match(NamedTuple):
    """A symptom in a text."""

    symptom: Symptom
    words: Mapping[str, str]  # of the text, by the names of the pattern's groups
    what: str  # the symptom's, filled in
    remedy: str


def match_symptoms(rows: Sequence[Symptom], texts: Iterable[str], **known: str) -> Iterator[Match]:
    """Match each of `texts` with the first of `rows` that fits; `known` has words for the row's
    texts, in case the pattern finds none.
    """
    for text in texts:
        for row in rows:
            match = re.match(row.pattern, text)
            if match:
                found = {name: text for name, text in match.groupdict().items() if text is not None}
                words = {**dict.fromkeys(match.re.groupindex, "the node"), **known, **found}
                yield Match(row, words, row.what.format(**words), row.remedy.format(**words))
                break


class Hang(NamedTuple):
    """A wait for tasks that was reported, and was not over when the run ended."""

    tasks: frozenset[int]  # those that kept the others waiting
    what: str  # '' if they were at work
    remedy: str
    is_certain: bool  # they would not have gone on


class End(NamedTuple):
    """How a run ended, as far as the launcher knows without its tasks."""

    status: int  # exit status of srun, or of another launcher
    launcher: Launcher
    tasks: int | None = None  # in all; None if only Slurm decides
    interrupted: int | None = None  # the signal to `jaxsif run` that ended the run
    killed: bool = False  # srun itself was ended by a signal
    name_unstarted: Callable[[], str] = str  # the tasks that have not started, in words
    changed_image: str = ""  # the image's path, if its file was written to during the run
    container: Container | None = None  # of the tasks
    options: RunOptions | None = None
    difference: ProgramDifference = ALIKE  # between the programs of the tasks
    hang: Hang | None = None

    @property
    def exit_code(self) -> int:
        """The exit status of jaxsif if no task is at fault."""
        return 128 + self.interrupted if self.interrupted else self.status


def _is_about(step: str, words: Mapping[str, str]) -> bool:
    """Return whether one of Slurm's messages is about this step, such as '12.0', or its job: a
    program may print the log of another one, or start steps itself.
    """
    job, part = words["job"], words.get("part", "")
    is_step = part.startswith(".") and part[1:].isdigit()
    return not step or (step == f"{job}{part}" if is_step else step.partition(".")[0] == job)


def _find_loneliest(exits: Sequence[Report]) -> Report:
    """Return the exit at the line with the fewest tasks; NO_REPORT if other lines have as few."""
    tasks_at = Counter(end.where for end in exits)
    loneliest = min(exits, key=lambda end: tasks_at[end.where])
    is_odd = list(tasks_at.values()).count(tasks_at[loneliest.where]) == 1
    return loneliest if is_odd else NO_REPORT


def _as_terminated(reports: Sequence[Report]) -> Sequence[Report]:
    """Replace the exit of a task from its own handler of SIGTERM by one with status 143, once
    another task has failed, so that srun ends all, or something outside ends the run.
    """
    handling = {one.task for one in reports if one.event == "stopped"}

    def is_reason(one: Report) -> bool:
        has_failed = one.event == "exit" and one.status
        has_failed = has_failed or (one.event == "exception" and not one.consequence)
        return one.event in OUTSIDE or bool(has_failed and one.task not in handling)

    kept = list(takewhile(lambda one: not is_reason(one), reports))
    exits: dict[int, Report] = {}  # which follow the failure
    for one in reports[len(kept) :]:
        if one.event == "stopped":
            exits.setdefault(one.task, one._replace(event="exit", status=TERMINATED))
        elif one.task not in exits or one.event not in (*_LEAVES, "exception", "exit"):
            kept.append(one)
    return [*kept, *exits.values()]


class Facts:
    """The known facts of a run that has failed.

    An unknown fact is NO_REPORT, NO_BARRIER or None.
    """

    def __init__(
        self,
        end: End,
        reports: Sequence[Report],
        errors: Sequence[str],
        barriers: Sequence[Barrier],
    ) -> None:
        self.end = end
        self.errors = errors
        self._barriers = barriers
        # When JAX gives up, it aborts its processes, of which one may crash instead.
        statuses = {report.status for report in reports}
        if {ABORTED, _SEGFAULT} <= statuses and self.gave_up:
            as_abort = {_SEGFAULT: ABORTED}
            reports = [one._replace(status=as_abort.get(one.status, one.status)) for one in reports]
        if "stopped" in [report.event for report in reports]:
            reports = _as_terminated(reports)
        self.reports = reports
        self.events: Mapping[str, list[Report]] = defaultdict(list)
        self.last: Mapping[str, dict[int, Report]] = defaultdict(dict)  # of an event and a task
        # Tasks with exceptions that say that a neighbour is gone.
        self._followers = {report.task for report in reports if report.consequence}
        for report in reports:
            self.events[report.event].append(report)
            self.last[report.event][report.task] = report
        self.exits = self.last["exit"]

    def find(self, *rows: Symptom, **known: str) -> Match | None:
        """Return the first message that matches one of `rows`, or None."""
        return next(match_symptoms(rows, self.errors, **known), None)

    @cached_property
    def _before(self) -> Sequence[Report]:
        return until_outside(self.reports)

    @cached_property
    def tasks(self) -> int:
        """The number of tasks, as far as it is known."""
        return max([self.end.tasks or 0, *(report.task + 1 for report in self.reports)])

    @cached_property
    def ended_well(self) -> Mapping[int, Report]:
        """The exit of each task that ended without an error."""
        return by_task([report for report in self._before if not report.status], "exit")

    @cached_property
    def ended_early(self) -> Mapping[int, Report]:
        """The last report of each task that ended without an error, exits first; empty if most
        tasks did, unless the others waited for them in jax.distributed.initialize.
        """
        exits, ends = self.ended_well, by_task(self._before, "end")
        early = {**exits, **ends, **exits}  # an exit says more than the end of the program before
        # If all that failed were in JAX's shutdown, or the first one failed because another process
        # was gone, those that left the shutdown out have ended too early.
        failed = {task for task, end in self.exits.items() if end.status}
        if 2 * len(early) > self.tasks and (failed <= ends.keys() or self._has_lost_another):
            jax = {report.task for report in self.events["watched"]}
            early = {task: end for task, end in exits.items() if task in jax - ends.keys()}
        if 2 * len(early) > self.tasks and not self.is_apart:
            return {}
        # Not those that came to their end when srun ended them, because another had failed.
        came = by_task(_until_failed(self.reports), "end")
        late = by_task(self.reports, "end").keys() - came.keys()
        return {task: end for task, end in early.items() if task not in late}

    @property
    def _has_lost_another(self) -> bool:
        """Whether the first task to fail did so in JAX, because another process was gone."""
        raised = self.last["exception"].get(self.first.task, NO_REPORT).text
        is_lost = _BY_JAX.search(raised) or self.find(LOST_COORDINATOR)
        return self.first_follows and bool(is_lost)

    @cached_property
    def absent(self) -> Mapping[int, Report]:
        """Those of the early tasks that never connected to others, as far as it is known."""
        return {task: end for task, end in self.ended_early.items() if task not in self.last["end"]}

    @cached_property
    def early_waited(self) -> bool:
        """Whether those that had ended may have waited for another task, or for none: who exits
        has left JAX's barrier at the end behind.
        """
        hang = self.end.hang
        has_left = all(report.event == "exit" for report in self.ended_early.values())
        is_other = bool(hang and hang.tasks.isdisjoint(self.ended_early))
        return has_left or is_other or self._has_slower or self._has_busy

    @cached_property
    def _statuses(self) -> Mapping[int, LastStatus]:
        """The last status of each task before its end, if it is known."""
        known = {task: parse_status(end.box) for task, end in self.exits.items()}
        return {task: status for task, status in known.items() if status}

    @property
    def _has_busy(self) -> bool:
        """Whether half of the tasks had ended, and one of the others computed: it did not wait."""
        others = [one for task, one in self._statuses.items() if task not in self.ended_early]
        is_half = 2 * len(self.ended_early) >= self.tasks
        return is_half and any(float(status.quiet) < _AT_WORK for status in others)

    @property
    def _has_slower(self) -> bool:
        """Whether another task was in an earlier iteration of the loop than those that had ended:
        then these waited for it.
        """
        counted = {task: status for task, status in self._statuses.items() if status.loop}
        ended = [int(counted[task].turns) for task in self.ended_early if task in counted]
        others = [int(counted[task].turns) for task in counted if task not in self.ended_early]
        is_one = len({status.loop for status in counted.values()}) == 1
        return is_one and bool(ended) and min(others, default=ended[0]) < min(ended)

    @cached_property
    def connected(self) -> bool:
        """Whether JAX held a task in its barrier at the end."""
        return bool(of_event(self._before, "end"))

    @cached_property
    def cancelled(self) -> Match | None:
        """The message that says why Slurm ended the step before any task had failed; None if Slurm
        did not end it, or only because a task had failed.

        slurmstepd also reports CANCELLED for a step with a failed task. srun reports that the step
        was aborted only if something outside the step has ended it. If a signal ended `jaxsif run`,
        only one of Slurm's own reasons counts, since it was jaxsif that cancelled the step.
        """
        interrupted = self.end.interrupted
        if not (self.events["cancelled"] or interrupted) or self._has_failed_before:
            return None
        step = find_start(self.reports).step
        matches = match_symptoms(CANCELLATIONS, self.errors)
        match = next((one for one in matches if _is_about(step, one.words)), None)
        if match and match.symptom is CANCELLED:
            return None if interrupted else self.find(SRUN_GAVE_UP) or match
        return match if match and match.what else None

    @property
    def _has_failed_before(self) -> bool:
        """Whether a task had failed before something outside ended the run."""
        statuses = {report.status for report in by_task(self._before, "exit").values()}
        return not statuses <= {0, TERMINATED, KILLED}

    @cached_property
    def first(self) -> Report:
        """The first exit that is not the consequence of another (a neighbour's exception, JAX's
        SIGABRT, srun's SIGTERM), or the first exit if all are.
        """
        first, by_others = NO_REPORT, [0, ABORTED]
        for report in self.events["exit"]:
            if report.status not in by_others and report.task not in self._followers:
                return report
            if report.status:
                by_others.append(TERMINATED)  # srun ends tasks when another one has failed
                first = first if first.status else report
        return first

    @cached_property
    def aborted(self) -> Report:
        """The exit of the culprit, or of another task if all only followed, by SIGABRT."""
        is_open = self.first_follows and self.culprit is self.first
        others = self.events["exit"] if is_open else ()
        ends = (end for end in (self.culprit, *others) if end.status == ABORTED)
        return next(ends, NO_REPORT)

    @cached_property
    def sizes_differ(self) -> Match | None:
        """Gloo's message that the sizes of arrays differ, unless it follows from the end of another
        task: then one had ended or aborted on its own, and no difference was found between programs
        that are compared; a program that a task has not compiled may be one that it would have.
        """
        options, difference = self.end.options, self.end.difference
        is_compared = options is not None and options.check_programs != OFF
        has_failed = self._named_by_srun or any(end.crashed for end in self.exits.values())
        has_ended = bool(self.ended_well or has_failed)
        is_open = not difference.text or difference.how == MAY_COMPILE
        is_other = (has_ended and is_open) or difference.how == HAS_ENDED
        return None if is_compared and is_other else self.find(SIZES_DIFFER)

    @cached_property
    def first_follows(self) -> bool:
        """Whether even the first exit is the consequence of another."""
        by_itself = self.first.status == ABORTED and self.sizes_differ
        by_others = self.first.status in (ABORTED, TERMINATED) and not by_itself
        return by_others or self.first.task in self._followers

    @cached_property
    def culprit(self) -> Report:
        """The first exit that is not the consequence of another, as far as it is known.

        If all are, and srun names another task, that one's; else the first exit.
        """
        return (self._named_by_srun if self.first_follows else None) or self.first

    @cached_property
    def _named_by_srun(self) -> Report | None:
        """The exit of the first task that failed on its own before Slurm itself ended the step,
        according to srun: a task's report is late after much output, and never arrives if the shim
        that sends it was killed, too.
        """
        before = takewhile(lambda line: "CANCELLED" not in line, self.errors)
        for end in parse_ends([TASK_KILLED, TASK_EXITED], before):
            known = self.exits.get(end.task, end)
            is_by_others = known.status in (ABORTED, TERMINATED)
            if not is_by_others and end.task not in self._followers:
                return known
        return None

    @cached_property
    def _raised(self) -> list[str]:
        """The texts of the culprit's exceptions."""
        raised = self.events["exception"]
        return [report.text for report in raised if report.task == self.culprit.task]

    def find_last(self, end: Report) -> Report:
        """Return the last exception of the task that exited, or else the exit. For a Python that
        only passed on the failure of a Python with JAX that it had started, return that one's.
        """
        last = end
        for report in self.reports:
            if report.task != end.task or report.event not in ("exception", "success"):
                continue
            status = _PASSED_ON.match(report.text) if last.jax and not report.jax else None
            own = _PASSED_ON.match(last.text) if status else None
            if not status or status[1] != (own[1] if own else "1"):
                last = report
        return end if last.event == "success" else last

    @cached_property
    def gave_up(self) -> bool:
        """Whether JAX gave up waiting for a process in jax.distributed.initialize."""
        return self.find(GAVE_UP) is not None

    @cached_property
    def waited(self) -> bool:
        """Whether the culprit ended because another task did not arrive in time."""
        by_jax = self.culprit.status == ABORTED and self.gave_up
        return by_jax or any(match_symptoms([TIMED_OUT], self._raised))

    @cached_property
    def barrier(self) -> Barrier:
        """The barrier that made JAX end the culprit. A program may survive a barrier of its own,
        and may print one without a name.
        """
        texts = "".join(self._raised)
        if self.culprit.status != ABORTED and "Barrier timed out" not in texts:
            return NO_BARRIER
        known = (b for b in self._barriers if b.name in JAX_BARRIERS or b.name in texts)
        return next(known, NO_BARRIER)

    @property
    def is_apart(self) -> bool:
        """Whether tasks waited for others in jax.distributed.initialize until JAX gave up."""
        return self.gave_up or self.barrier.name == INIT_BARRIER

    @cached_property
    def stuck(self) -> Report:
        """Of the tasks that srun had to end, the exit of the one at the line with the fewest tasks,
        if no other line has as few; if no line is known, the only task that has reported nothing.

        Where the culprit has failed by an exception, JAX may end them before srun does.
        """
        ends = {TERMINATED} if self.culprit.status == ABORTED else {TERMINATED, ABORTED}
        others = {report.where for report in self.reports if report.status not in ends}
        known = others.union([""])
        exits = [end for end in self.exits.values() if end.where not in known]
        if not exits:
            awaited = self._awaited_task
            return self._silent_task if awaited is NO_REPORT else awaited
        loneliest = _find_loneliest(exits)
        # Tasks that only wait may be ended in either way, too.
        by_srun = [end for end in exits if end.status == TERMINATED]
        is_sure = loneliest.where == _find_loneliest(by_srun or exits).where
        return loneliest if is_sure else NO_REPORT

    @property
    def _awaited_task(self) -> Report:
        """The last report of the only task that had not timed out waiting, where all others had."""
        raised = self.last["exception"]
        gave_up = [task for task in raised if any(match_symptoms([TIMED_OUT], [raised[task].text]))]
        others = [report for report in self.reports if report.task not in (*gave_up, -1)]
        is_only = len({report.task for report in others}) == 1 == self.tasks - len(gave_up)
        return others[-1]._replace(where="") if is_only else NO_REPORT

    @property
    def _silent_task(self) -> Report:
        """The exit of the only task of which no Python has reported anything, where all others use
        JAX and gave up connecting.
        """
        use_jax = {report.task for report in self.events["watched"]}
        heard = {report.task for report in self.reports if report.event in PROGRAM_EVENTS}
        mute = [one for one in self.exits.values() if not one.where and one.task not in heard]
        is_only = self.is_apart and len(mute) == 1 and len(use_jax) == self.tasks - 1
        return mute[0] if is_only and mute[0].status == TERMINATED else NO_REPORT

    @cached_property
    def first_ended(self) -> Report:
        """The first task that failed according to srun: all that is known if standard error goes to
        files.
        """
        ends = parse_ends([TASK_EXITED], self.errors)
        return next((end for end in ends if end.status != TERMINATED), NO_REPORT)


def parse_ends(rows: Sequence[Symptom], errors: Iterable[str]) -> Iterator[Report]:
    """Parse the ends of tasks in srun's messages, which name no status for a killed task."""
    for match in match_symptoms(rows, errors, status=str(KILLED)):
        words = match.words
        yield Report(int(words["task"]), words["node"], "exit", int(words["status"]))


def _until_failed(reports: Sequence[Report]) -> list[Report]:
    """Return the reports before the first exit of a task that failed: srun then ends the others."""
    return list(takewhile(lambda one: one.event != "exit" or not one.status, reports))


def until_outside(reports: Sequence[Report]) -> list[Report]:
    """Return the reports before something outside ended the run: later ones are consequences."""
    return list(takewhile(lambda report: report.event not in OUTSIDE, reports))


# --- Places


def render_places(reports: Sequence[Report], who: str = "tasks") -> str:
    """Render where the tasks, called `who`, were when something ended them, the rarest places
    first; '' if no place is known.
    """
    before = until_outside(reports)
    where = {**_find_places(reports), **dict.fromkeys(by_task(before, "end"), AT_THE_END)}
    # Of a task that had ended, also where a failure of its Python was hidden.
    ended = sorted(task for task, end in by_task(before, "exit").items() if not end.status)
    where = {task: place for task, place in where.items() if task not in ended}
    tasks_at: dict[str, list[int]] = {}
    for task, place in sorted(where.items()):
        tasks_at.setdefault(place, []).append(task)
    places = sorted(tasks_at.items(), key=lambda item: len(item[1]))
    shown = [f"{place} ({name_tasks(tasks)})" for place, tasks in places]
    lines = (
        enclose(f"{who} were at ", list_few(shown, len(shown), "other places")),
        f"{name_tasks(ended)} had ended with exit status 0" if ended else "",
    )
    return "; ".join(filter(None, lines))


def _find_places(reports: Sequence[Report]) -> dict[int, str]:
    """Return the last known place of each task."""
    # The exit's place counts: exceptions can be those of a worker, which may outlive its task. A
    # shell around the program reports none.
    in_order = sorted(reports, key=lambda report: report.event == "exit")
    statuses = ((report.task, parse_status(report.box)) for report in reports)
    where = {task: status.where for task, status in statuses if status and status.where}
    return {**where, **{report.task: report.where for report in in_order if report.where}}


def render_unended(reports: Sequence[Report], tasks: int | None) -> str:
    """Render which of the tasks have not ended, and where the others were."""
    left = _list_unended(reports, tasks)
    if tasks and not left:
        return "all tasks have ended, but their launcher has not"
    who = name_tasks(left) if left else "some tasks"
    places = enclose(" (", render_places(reports, "the others"), ")")
    return f"{who} {'has' if len(left) == 1 else 'have'} not ended{places}"


def render_killed(reports: Sequence[Report], errors: Iterable[str], tasks: int | None) -> str:
    """Render which of the tasks srun has killed; '' if there are none."""
    lists = [match.words["tasks"] for match in match_symptoms([TASK_KILLED], errors)]
    spans = [(int(first), int(last or first)) for first, last in _SPAN.findall(",".join(lists))]
    unended = _list_unended(reports, tasks)
    left = [task for task in unended if any(first <= task <= last for first, last in spans)]
    had = "it had" if len(left) == 1 else "they had"
    return f"srun killed {name_tasks(left)} before {had} ended on SIGTERM" if left else ""


def _list_unended(reports: Sequence[Report], tasks: int | None) -> list[int]:
    """Return the tasks that have not reported their ends, if it is known how many there are."""
    return sorted(set(range(tasks or 0)) - by_task(reports, "exit").keys())


def render_activity(end: Report) -> str:
    """Render the last status of a task that exited: 'it was in iteration 40 or later of the loop at
    train.py:16', or '' if it is not known.
    """
    status = parse_status(end.box)
    if status is None:
        return ""
    loop, where = map(shorten_place, (status.loop, status.where))
    begun, left = f"iteration {status.turns} or later of ", ""
    if status.turns == "0":
        begun, left = "", ", or had just left it"
    last = "" if status.around else "last "
    quiet = f"{float(status.quiet):.0f}"
    parts = (
        enclose(f"{last}in {begun}the loop at ", loop, left),
        enclose("at ", where, f" for {quiet} s" if quiet != "0" else ""),
    )
    return enclose("it was ", ", ".join(filter(None, parts)))


def list_few(names: Sequence[str], count: int, others: str = "more") -> str:
    """List the first `MOST_PLACES` names, and how many `others` there are of `count` in all."""
    shown = names[:MOST_PLACES]
    left = count - len(shown)
    return ", ".join(shown) + (f" and {left} {others}" if left > 0 else "")


# --- Remarks on the compile cache, this JAX, unconnected tasks and hidden failures


def render_remarks(end: End, reports: Sequence[Report], errors: Iterable[str]) -> list[str]:
    """Render remarks on a run without an error: where a signal ended its tasks, a wait that was not
    over, and the failures that nobody noticed; '' for each of those that do not apply.
    """
    hidden = find_hidden(until_outside(reports))
    wait = end.hang.what if end.hang else ""
    places = render_places(reports), wait, render_killed(reports, errors, end.tasks)
    return [
        *(places if end.interrupted else [render_alone(reports)]),
        f"warning: {hidden.what}; {hidden.hint}" if hidden else "",
    ]


def render_cache(reports: Sequence[Report]) -> str:
    """Render the use of JAX's compile cache by all tasks together, or '' if none has used it."""
    counts = [
        (report.requests, report.hits, report.hits > 0, report.saved, report.written)
        for report in of_event(reports, "cache")
    ]
    if not counts:
        return ""
    requests, hits, tasks, saved, written = map(sum, zip(*counts))
    return (
        f"compile cache: {hits} of {requests} programs reused, in {tasks} of"
        f" {count_of(len(counts), 'task')}, {saved:.0f} s of compile time saved; {written} new"
    )


def render_missing(reports: Sequence[Report]) -> str:
    """Render the JAX names that this run's JAX lacks, or '' if it lacks none."""
    names = ", ".join(dict.fromkeys(report.text for report in of_event(reports, "missing")))
    return enclose("this JAX lacks ", names, "; features that use it are off")


def render_alone(reports: Sequence[Report], has_failed: bool = False) -> str:
    """Render the warning that several tasks computed with JAX without being connected, or '' if any
    was connected. Of a run that has failed, most tasks could not report it.
    """
    last = {report.task: report.event for report in of_event(reports, "alone", "watched")}
    alone = [task for task, event in last.items() if event == "alone"]  # not its earlier Pythons
    if len(alone) < (1 if has_failed else 2) or of_event(reports, "end"):
        return ""
    if any(_CALLED_LATE in report.text for report in of_event(reports, "exception")):
        return ""  # which is the error of the run
    what = (
        f"{len(alone)} tasks ran JAX, and none called jax.distributed.initialize(): each computed"
    )
    if has_failed:
        each = "it" if len(alone) == 1 else "each"
        names = name_tasks(sorted(alone))
        what = f"{names} ran JAX without calling jax.distributed.initialize(): {each} computed"
    return f"warning: {what} on its own; if that is intended, pass --env {INDEPENDENT}=1"


def build_mismatch_error(difference: str, where: str, status: int) -> RunError:
    """Return the error of a run that was ended because its tasks compile different programs."""
    error = RunError(f"{difference}; the run was ended", where, ALL_ALIKE, status)
    error.cause = Cause(mark=("programs", where or difference))
    return error


def find_early_exit(reports: Iterable[Report], tasks: Iterable[int]) -> str:
    """Return the call with which all of these tasks left early, with its line; '' if they differ,
    or only came to their end. Of a task's several Pythons, the last one counts.
    """
    calls = {report.task: report.text for report in reports if report.event in _LEAVES}
    shared = {calls.get(task, "") for task in tasks}
    return shared.pop() if len(shared) == 1 else ""


def find_hidden(reports: Sequence[Report]) -> RunError | None:
    """Find the failure of a task's last Python process with JAX, if the task nevertheless ended
    with status 0.

    A Python process that failed earlier, or without JAX, is the program's own affair: a probe, or
    an attempt that was repeated. The last failure may be, too, such as that of a sweep's last
    trial: it is unknown whether the program has handled it.
    """
    succeeded = {task for task, end in by_task(reports, "exit").items() if not end.status}
    last = [report for report in list_last_pythons(reports) if report.task in succeeded]
    hidden = of_event(last, *FAILURES)
    if not hidden:
        return None
    # JAX aborts the neighbours of a task that failed: their Pythons end without an exception.
    first = min(hidden, key=lambda report: (report.consequence, not report.text))
    count = count_of(len(hidden) - 1, "other task") if hidden[1:] else ""
    others = enclose("; ", count, " failed, too")
    what = ", ".join(filter(None, (first.text, shorten_place(first.where))))
    how = f"failed ({what})" if what else "ended abruptly"
    return RunError(
        f"{first.place}: python {how}, but its command ended with status 0{others}",
        first.where,
        "if that is not intended: set -o pipefail, set -e",
        0,
    )


def list_last_pythons(reports: Sequence[Report]) -> list[Report]:
    """Return the last report of each task's last Python process with JAX; none for a task with so
    many such processes that their ends are no longer kept, as in a run with so many.
    """
    if len(reports) >= MOST_REPORTS:
        return []
    ends = of_event(reports, "end", "success", *FAILURES)
    ends = [report for report in ends if report.event not in FAILURES or report.jax]
    successes = Counter(report.task for report in of_event(ends, "success"))
    last = {report.task: report for report in ends if successes[report.task] < MOST_ALIKE}
    return list(last.values())
