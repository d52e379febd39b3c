"""Reports of the tasks, and what srun complained of -> which task failed first, and why.

Each cause that jaxsif knows is a function: facts of a run in, an error out, or None where it is not
the cause. `CAUSES` has them in the order in which they are tried.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

from jaxsif.diagnose.barriers import Barrier
from jaxsif.diagnose.facts import (
    INIT_BARRIER,
    JAX_BARRIERS,
    NOBODY,
    TERMINATED,
    End,
    Facts,
    collect_facts,
    find_exceptions,
    read_ends,
)
from jaxsif.diagnose.places import MOST_PLACES, describe_places, group_tasks, list_few
from jaxsif.diagnose.reports import REFUSALS, Report
from jaxsif.diagnose.symptoms import (
    BARRIER,
    CONTAINER,
    GAVE_UP,
    IMAGE_READ,
    NO_GPU,
    NOT_FOUND,
    SIGNALS,
    TASK_EXITED,
    TASKS_RAN,
    UNKNOWN_FLAGS,
    find_symptoms,
)
from jaxsif.errors import HostError, JaxsifError, PortTakenError, RunError
from jaxsif.plan.launcher import LOCAL

_REFUSED = Report(-1, "", "exit", HostError.exit_code)
_LAST_SIGNAL = 64  # of Linux; a greater status was given to exit()


def find_failure(
    end: End, reports: Sequence[Report], errors: Sequence[str], barriers: Sequence[Barrier] = ()
) -> JaxsifError | None:
    """Return the first cause of a run's end, as an error with the exit code to end with; None where
    nothing failed.
    """
    if end.status == 0 and not end.interrupted:
        return None
    facts = collect_facts(end, reports, errors, barriers)
    for describe in _OUTSIDE if end.interrupted else CAUSES:
        error = describe(facts)
        if error:
            return error
    return None


def _blame_refusal(facts: Facts) -> JaxsifError | None:
    """Blame the first task that did not start its program.

    Such a task ends with 125, and so one that ended otherwise did start it.
    """
    for report in facts.reports:
        end = facts.exits.get(report.task, _REFUSED)
        if report.event in REFUSALS and end.status == HostError.exit_code:
            return _describe_refusal(report)
    return None


def _describe_refusal(report: Report) -> HostError:
    """Return the error of a task that did not start its program, in its own words."""
    if report.event == "port-taken":
        hint = "run it again for another port, or --coordinator-ports"
        return PortTakenError(report.text, report.place, hint)
    return HostError(report.text, report.place, report.hint)


def _blame_signal_to_launcher(facts: Facts) -> JaxsifError | None:
    """Blame a signal that ended the launcher of the tasks on this host."""
    status, launcher = facts.end.status, facts.end.launcher
    if not facts.end.killed or launcher.name == LOCAL:
        return None
    return RunError(
        f"{launcher.name} was killed by {signal_name(status - 128)}",
        "this host",
        "the kernel's log tells of processes that it killed; `squeue --me --steps` shows what is"
        " left",
        status,
    )


def _blame_early_before_outside(facts: Facts) -> JaxsifError | None:
    """Blame tasks at their end for which others did not come, until something outside ended the
    run.
    """
    is_outside = facts.end.interrupted or facts.cancelled is not NOT_FOUND
    if not (is_outside and facts.early and facts.connected):
        return None
    return _describe_early(facts, facts.end.exit_code)


def _blame_slurm(facts: Facts) -> JaxsifError | None:
    """Blame Slurm for the end of the step, or who asked it for that."""
    told = facts.cancelled
    if told is NOT_FOUND:
        return None
    return RunError(told.what, describe_places(facts.reports), told.remedy, facts.end.exit_code)


def _blame_unknown_flags(facts: Facts) -> JaxsifError | None:
    """Blame flags that this XLA does not have."""
    found = next(find_symptoms([UNKNOWN_FLAGS], facts.errors), NOT_FOUND)
    if facts.culprit.status != 1 or found is NOT_FOUND:
        return None
    where = f"{found.words['variable']}, in {facts.culprit.place}"
    return RunError(found.what, where, found.remedy, facts.culprit.status)


def _blame_early(facts: Facts) -> JaxsifError | None:
    """Blame tasks that ended without an error while others waited for them."""
    if not (facts.follows and facts.early) or facts.barrier.name not in ("", INIT_BARRIER):
        return None
    at_init = bool(facts.barrier.name) or any(map(GAVE_UP.match, facts.errors))
    return _describe_early(facts, facts.culprit.status, at_init=at_init)


def _describe_early(facts: Facts, exit_code: int, at_init: bool = False) -> RunError:
    """Return the error of tasks that ended early: which, how, and where the others were."""
    places = [report.place for report in facts.early]
    who = list_few(places, MOST_PLACES, len(places))
    exited = all(report.event == "exit" for report in facts.early)
    how = "ended with exit status 0" if exited else "came to the end of the program"
    early = {report.task for report in facts.early}
    others = [report for report in facts.reports if report.task not in early]
    told = (facts.cancelled.what, describe_places(others, "the others"))
    missing = f", and {facts.tasks - len(early)} of {facts.tasks} tasks did not"
    hint = BARRIER.remedy
    if at_init:
        missing = " and never came to jax.distributed.initialize, where the others waited"
        hint = "let every task call jax.distributed.initialize() before it can end"
    return RunError(f"{who} {how}{missing}", "; ".join(filter(None, told)), hint, exit_code)


def _blame_barrier(facts: Facts) -> JaxsifError | None:
    """Blame the tasks that are not where the others are: the fewer ones, be it that they came or
    that they did not.
    """
    barrier = facts.barrier
    if not barrier.name:
        return None
    at = JAX_BARRIERS.get(barrier.name, f"the barrier {barrier.name}")
    absent = barrier.processes - barrier.reached
    if 2 * barrier.reached >= barrier.processes:
        missing = [_name_task(task, facts) for task in barrier.missing]
        odd = list_few(missing, MOST_PLACES, absent)  # JAX does not tell all
        what = f"{odd} did not come to {at}, and {barrier.reached} of {barrier.processes} did"
    else:
        odd = _name_task(barrier.first, facts)
        what = f"{odd} came to {at}, and {absent} of {barrier.processes} did not"
        if barrier.reached != 1:
            what += f"; it was the first of {barrier.reached}"
    hint = BARRIER.remedy
    if barrier.name == INIT_BARRIER:
        hint = (
            "see what it does before, and whether it can reach task 0; --init-timeout says how long"
            " the others wait"
        )
    return RunError(what, _place_missing(facts), hint, facts.culprit.status)


def _name_task(task: int, facts: Facts) -> str:
    return facts.exits[task].place if task in facts.exits else f"task {task}"


def _place_missing(facts: Facts) -> str:
    """Return where the first known one was of the tasks that did not come to the barrier."""
    where = {report.task: report for report in reversed(facts.reports) if report.where}
    known = (where[task] for task in facts.barrier.missing if task in where)
    return next(map(_place, known), "")


def _place(report: Report) -> str:
    return f"{report.where}, where {report.place} was"


def _blame_stuck(facts: Facts) -> JaxsifError | None:
    """Blame the task that did not come where others have waited until they gave up."""
    stuck, culprit, last = _find_stuck(facts), facts.culprit, facts.last
    if stuck is NOBODY or not facts.waited:
        return None
    at = f" at {last.where}" if last.where else ""
    more = "--init-timeout says how long others wait in jax.distributed.initialize"
    if last.event == "exception":
        more = f"what the other one said: {last.text}"
    return RunError(
        f"{stuck.place} did not come, and {culprit.place} has waited in vain{at}",
        _place(stuck),
        f"see what keeps it there; {more}",
        culprit.status,
    )


def _find_stuck(facts: Facts) -> Report:
    """Return the exit of a task that srun had to end, with fewest others at its line; NOBODY where
    it cannot be told which.
    """
    waited = {"", *(report.where for report in facts.reports if report.status != TERMINATED)}
    exits = [report for report in facts.exits.values() if report.where not in waited]
    places = group_tasks({report.task: report.where for report in exits})
    fewest = [tasks for _, tasks in places if len(tasks) == len(places[0][1])]
    return facts.exits[fewest[0][0]] if len(fewest) == 1 else NOBODY


def _blame_image(facts: Facts) -> JaxsifError | None:
    """Blame the image, too, where its file was written to while the program ran from it."""
    if facts.culprit is NOBODY or not facts.end.changed_image:
        return None
    error = _describe_end(facts.culprit, facts.last)
    written = f"{facts.end.changed_image}, which was written to during the run"
    where = f"{error.where} and {written}" if error.where else written
    by_image = error.exit_code > 128 or IMAGE_READ.match(facts.last.text)
    hint = IMAGE_READ.remedy if by_image or not error.hint else error.hint
    return RunError(error.what, where, hint, error.exit_code)


def _blame_culprit(facts: Facts) -> JaxsifError | None:
    """Blame the task that failed first."""
    if facts.culprit is NOBODY:
        return None
    return _describe_end(facts.culprit, facts.last)


def _describe_end(end: Report, last: Report) -> RunError:
    """Return the error of a task with its exit and what it said last."""
    what = f"{end.place} ended with exit status {end.status}"
    if 128 < end.status <= 128 + _LAST_SIGNAL:
        what = f"{end.place} was killed by {signal_name(end.status - 128)}"
    elif last.text:
        what = f"{end.place} failed: {last.text}"
    hint = SIGNALS.get(end.status - 128, NOT_FOUND.symptom).remedy
    if NO_GPU.match(last.text):
        hint = NO_GPU.remedy
    return RunError(what, last.where, last.hint or hint, end.status)


def _blame_container(facts: Facts) -> JaxsifError | None:
    """Blame the runtime, where no task has started."""
    ended = read_ends(TASK_EXITED, facts.errors)
    node = ended[0].node if ended else "the node"
    found = next(find_symptoms(CONTAINER, facts.errors, node=node), NOT_FOUND)
    if facts.started or found is NOT_FOUND:
        return None
    return HostError(found.what, "the runtime, on a node", found.remedy)


def _blame_request(facts: Facts) -> JaxsifError | None:
    """Blame the request, where no task has started, nor ended: the reports of some go elsewhere,
    as with srun --output=log-%t.txt.
    """
    if facts.started or any(map(TASKS_RAN.match, facts.errors)):
        return None
    launcher = facts.end.launcher
    if not facts.errors:
        return HostError(f"no task started (exit status {facts.end.status})", launcher.name)
    reason = facts.errors[-1].partition("error: ")[2]
    words = launcher.words
    what = f"{words.refuses} refused the request: {reason}"
    return HostError(what, launcher.name, words.remedy)


def _blame_first_ended(facts: Facts) -> JaxsifError | None:
    """Blame the first task that failed, by srun's words: all that is known where standard error
    goes to files.
    """
    ends = read_ends(TASK_EXITED, facts.errors)
    first = next((end for end in ends if end.status != TERMINATED), NOBODY)
    if first is NOBODY:
        return None
    raised = find_exceptions(first.task, facts.reports)
    return _describe_end(first, raised[-1] if raised else first)


def _blame_nobody(facts: Facts) -> JaxsifError:
    """Return the error of a run of whose end nothing is known."""
    return RunError(
        f"the step ended with exit status {facts.end.status}, and no task said why",
        facts.errors[-1] if facts.errors else facts.end.launcher.name,
        facts.end.launcher.words.look,
        facts.end.status,
    )


def signal_name(number: int) -> str:
    """Return 'SIGKILL' for 9; the number itself where Python knows no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


_OUTSIDE: Sequence[Callable[[Facts], JaxsifError | None]] = (
    _blame_early_before_outside,
    _blame_slurm,
)
CAUSES: Sequence[Callable[[Facts], JaxsifError | None]] = (
    _blame_refusal,
    _blame_signal_to_launcher,
    *_OUTSIDE,
    _blame_unknown_flags,
    _blame_early,
    _blame_barrier,
    _blame_stuck,
    _blame_image,
    _blame_culprit,
    _blame_container,
    _blame_request,
    _blame_first_ended,
    _blame_nobody,
)
