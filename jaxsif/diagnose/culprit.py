"""Reports of the tasks, and what srun complained of -> which task failed first, and why.

Each cause that jaxsif knows is a row of `CAUSES`, in the order in which they are tried: whether it
is the cause, by the facts of a run, and the error that tells it.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jaxsif.diagnose.barriers import Barrier
from jaxsif.diagnose.facts import (
    INIT_BARRIER,
    JAX_BARRIERS,
    NOBODY,
    End,
    Facts,
    Meeting,
    find_last,
)
from jaxsif.diagnose.places import MOST_PLACES, describe_box, describe_places, list_few
from jaxsif.diagnose.reports import Report
from jaxsif.diagnose.starts import say_unstarted
from jaxsif.diagnose.symptoms import (
    BARRIER,
    IMAGE_READ,
    NO_GPU,
    NOT_FOUND,
    SIGNALS,
    TASKS_RAN,
)
from jaxsif.errors import HostError, JaxsifError, PortTakenError, RunError, enclose
from jaxsif.plan.launcher import LOCAL

_LAST_SIGNAL = 64  # of Linux; a greater status was given to exit()
_ENDINGS = {"exit": "ended with exit status 0", "end": "came to the end of the program"}


def find_failure(
    end: End, reports: Sequence[Report], errors: Sequence[str], barriers: Sequence[Barrier] = ()
) -> JaxsifError | None:
    """Return the first cause of a run's end, as an error with the exit code to end with; None where
    nothing failed.
    """
    if end.exit_code == 0:
        return None
    facts = Facts(end, reports, errors, barriers)
    for cause in _OUTSIDE if end.interrupted else CAUSES:
        if cause.applies(facts):
            return cause.describe(facts)
    return None


def _is_refused(facts: Facts) -> bool:
    return facts.refusal is not NOBODY


def _describe_refusal(facts: Facts) -> HostError:
    """Return the error of a task that did not start its program, in its own words."""
    report = facts.refusal
    if report.event == "port-taken":
        hint = "run it again for another port, or --coordinator-ports"
        return PortTakenError(report.text, report.place, hint)
    return HostError(report.text, report.place, report.hint)


def _is_launcher_killed(facts: Facts) -> bool:
    """Return whether a signal ended what starts the tasks on this host."""
    return facts.end.killed and facts.end.launcher.name != LOCAL


def _describe_killed_launcher(facts: Facts) -> RunError:
    status = facts.end.status
    return RunError(
        f"{facts.end.launcher.name} was killed by {signal_name(status - 128)}",
        "this host",
        "the kernel's log tells of processes that it killed; `squeue --me --steps` shows what is"
        " left",
        status,
    )


def _is_not_launched(facts: Facts) -> bool:
    return facts.not_launched is not NOT_FOUND


def _describe_not_launched(facts: Facts) -> HostError:
    """Return the error of a node on which no task could start; the others were ended for that."""
    found = facts.not_launched
    return HostError(found.what, facts.end.launcher.name, found.remedy)


def _is_early_before_outside(facts: Facts) -> bool:
    """Return whether others did not come to tasks at their end, until something outside ended the
    run.
    """
    is_outside = facts.end.interrupted or facts.cancelled.what
    return bool(is_outside and facts.early and facts.connected)


def _describe_early_before_outside(facts: Facts) -> RunError:
    return _describe_early(facts, facts.end.exit_code)


def _is_cancelled(facts: Facts) -> bool:
    return bool(facts.cancelled.what)


def _describe_cancellation(facts: Facts) -> RunError:
    """Return the error of a step that Slurm has ended: why, or who asked it for that."""
    told = facts.cancelled
    return RunError(told.what, describe_places(facts.reports), told.remedy, facts.end.exit_code)


def _is_flag_unknown(facts: Facts) -> bool:
    return facts.culprit.status == 1 and facts.unknown_flags is not NOT_FOUND


def _describe_unknown_flags(facts: Facts) -> RunError:
    """Return the error of flags that this XLA does not have."""
    found = facts.unknown_flags
    where = f"{found.words['variable']}, in {facts.culprit.place}"
    return RunError(found.what, where, found.remedy, facts.culprit.status)


def _is_spawned(facts: Facts) -> bool:
    return facts.spawned is not NOBODY


def _describe_spawned(facts: Facts) -> RunError:
    """Return the error of a task whose workers ran its script again."""
    found = facts.spawned
    end = facts.exits.get(found.task, facts.culprit)
    return RunError(f"{found.place} failed: {found.text}", found.where, found.hint, end.status)


def _is_unstarted(facts: Facts) -> bool:
    """Return whether tasks waited in jax.distributed.initialize for others that never started."""
    at_init = facts.waited or facts.barrier.name == INIT_BARRIER
    return bool(at_init and facts.end.unstarted)


def _describe_unstarted(facts: Facts) -> RunError:
    last = facts.last
    what = f"{say_unstarted(facts.end.unstarted)}, and {facts.culprit.place} timed out waiting"
    hint = (
        "see what keeps the container there, such as the image's disk; --exclude leaves a node out"
    )
    return RunError(f"{what}{enclose(' at ', last.where)}", "", hint, facts.culprit.status)


def _is_intruded(facts: Facts) -> bool:
    return facts.intruder is not NOT_FOUND


def _describe_intruder(facts: Facts) -> RunError:
    """Return the error of a process that came as another one's, for which JAX ends all."""
    told, culprit = facts.intruder, facts.culprit
    where = _place(culprit) if culprit.where else culprit.place
    return RunError(told.what, where, told.remedy, culprit.status)


def _is_early(facts: Facts) -> bool:
    """Return whether tasks ended without an error while others waited for them."""
    at_own_barrier = facts.barrier.name not in ("", INIT_BARRIER)
    return bool(facts.follows and facts.early) and not at_own_barrier


def _describe_early_tasks(facts: Facts) -> RunError:
    at_init = facts.gave_up or _is_at_barrier(facts)
    return _describe_early(facts, facts.culprit.status, at_init)


def _describe_early(facts: Facts, exit_code: int, at_init: bool = False) -> RunError:
    """Return the error of tasks that ended early: which, how, and where the others were."""
    early = list(facts.early.values())
    who = list_few([report.place for report in early], MOST_PLACES, len(early))
    how = _ENDINGS[early[-1].event]  # exits come first
    others = [report for report in facts.reports if report.task not in facts.early]
    told = (facts.cancelled.what, describe_places(others, "the others"))
    missing = f", and {facts.tasks - len(early)} of {facts.tasks} tasks did not"
    hint = BARRIER.remedy
    if at_init:
        missing = " and never came to jax.distributed.initialize, where the others waited"
        hint = "let every task call jax.distributed.initialize() before it can end"
    return RunError(f"{who} {how}{missing}", "; ".join(filter(None, told)), hint, exit_code)


def _is_at_barrier(facts: Facts) -> bool:
    return facts.barrier.name != ""  # a program may print one without a name


def _describe_barrier(facts: Facts) -> RunError:
    """Return the error of the tasks that are not where the others are: the fewer ones, be it that
    they came or that they did not.
    """
    barrier = facts.barrier
    unknown = Meeting(f"the barrier {barrier.name}", BARRIER.remedy)
    at, hint = JAX_BARRIERS.get(barrier.name, unknown)
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


def _is_stuck(facts: Facts) -> bool:
    """Return whether it is known which task did not come where others waited until they gave up."""
    return facts.waited and facts.stuck is not NOBODY


def _describe_stuck(facts: Facts) -> RunError:
    stuck, culprit, last = facts.stuck, facts.culprit, facts.last
    at = enclose(" at ", last.where)
    more = "--init-timeout says how long others wait in jax.distributed.initialize"
    if last.event == "exception":
        more = f"what the other one said: {last.text}"
    return RunError(
        f"{stuck.place} never came, and {culprit.place} timed out waiting{at}",
        _place(stuck),
        f"see what keeps it there; {more}",
        culprit.status,
    )


def _is_known(facts: Facts) -> bool:
    """Return whether a task failed first, as far as tasks have reported it."""
    return facts.culprit is not NOBODY


def _is_image_changed(facts: Facts) -> bool:
    """Return whether the image's file was written to while a program that failed ran from it."""
    return _is_known(facts) and bool(facts.end.changed_image)


def _describe_image(facts: Facts) -> RunError:
    """Return the error of the task that failed first, which blames the image, too."""
    error = _describe_culprit(facts)
    written = f"{facts.end.changed_image}, which was written to during the run"
    where = enclose("", error.where, " and ") + written
    by_image = error.exit_code > 128 or IMAGE_READ.match(facts.last.text)
    hint = IMAGE_READ.remedy if by_image or not error.hint else error.hint
    return RunError(error.what, where, hint, error.exit_code)


def _has_lost_image(facts: Facts) -> bool:
    return _is_known(facts) and facts.has_lost_image


def _describe_lost_image(facts: Facts) -> RunError:
    """Return the error of the task that failed first, because its image's files were gone."""
    error, node = _describe_culprit(facts), facts.culprit.node or "its node"
    what = f"{error.what}; the image on {node} can no longer be read"
    hint = f"read the kernel's log on {node}: memory ran out, or a signal ended squashfuse"
    return RunError(what, error.where, hint, error.exit_code)


def _describe_culprit(facts: Facts) -> RunError:
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
    where = last.where or describe_box(end)
    return RunError(what, where, last.hint or hint, end.status)


def _is_runtime_at_fault(facts: Facts) -> bool:
    return not facts.started and facts.container is not NOT_FOUND


def _describe_container(facts: Facts) -> HostError:
    return HostError(facts.container.what, "the runtime, on a node", facts.container.remedy)


def _is_request_refused(facts: Facts) -> bool:
    """Return whether no task has started, nor ended: the reports of some go elsewhere, as with
    srun --output=log-%t.txt.
    """
    return not (facts.started or any(map(TASKS_RAN.match, facts.errors)))


def _describe_request(facts: Facts) -> HostError:
    launcher = facts.end.launcher
    if not facts.errors:
        return HostError(f"no task started (exit status {facts.end.status})", launcher.name)
    reason = re.split("(?:error|fatal): ", facts.errors[-1], maxsplit=1)[-1]
    words = launcher.words
    what = f"{words.refuses} refused the request: {reason}"
    return HostError(what, launcher.name, words.remedy)


def _is_end_told(facts: Facts) -> bool:
    """Return whether srun has told of a task that failed."""
    return facts.first_ended is not NOBODY


def _describe_first_ended(facts: Facts) -> RunError:
    return _describe_end(facts.first_ended, find_last(facts.first_ended, facts.reports))


def _has_failed(facts: Facts) -> bool:
    """Return whether the run has failed for any reason."""
    return facts.end.exit_code != 0


def _describe_unknown(facts: Facts) -> RunError:
    """Return the error of a run of whose end nothing is known."""
    return RunError(
        f"the step ended with exit status {facts.end.status}, and no task said why",
        [facts.end.launcher.name, *facts.errors][-1],
        facts.end.launcher.words.look,
        facts.end.status,
    )


def signal_name(number: int) -> str:
    """Return 'SIGKILL' for 9; the number itself where Python knows no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Cause(NamedTuple):
    """What may have ended a run."""

    applies: Callable[[Facts], bool]  # whether it has
    describe: Callable[[Facts], JaxsifError]  # where it has


_OUTSIDE = (
    Cause(_is_early_before_outside, _describe_early_before_outside),
    Cause(_is_cancelled, _describe_cancellation),
)
CAUSES = (
    Cause(_is_refused, _describe_refusal),
    Cause(_is_launcher_killed, _describe_killed_launcher),
    Cause(_is_not_launched, _describe_not_launched),
    *_OUTSIDE,
    Cause(_is_flag_unknown, _describe_unknown_flags),
    Cause(_is_spawned, _describe_spawned),
    Cause(_is_unstarted, _describe_unstarted),
    Cause(_is_intruded, _describe_intruder),
    Cause(_is_early, _describe_early_tasks),
    Cause(_is_at_barrier, _describe_barrier),
    Cause(_is_stuck, _describe_stuck),
    Cause(_has_lost_image, _describe_lost_image),
    Cause(_is_image_changed, _describe_image),
    Cause(_is_known, _describe_culprit),
    Cause(_is_runtime_at_fault, _describe_container),
    Cause(_is_request_refused, _describe_request),
    Cause(_is_end_told, _describe_first_ended),
    Cause(_has_failed, _describe_unknown),
)
