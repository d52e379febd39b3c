"""Reports of the tasks, and what srun complained of -> which task failed first, and why."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jaxsif.diagnose.reports import GAVE_UP, REFUSALS, Barrier, Report, find_step
from jaxsif.errors import HostError, JaxsifError, PortTakenError
from jaxsif.plan.launcher import LOCAL, Launcher

_UNKNOWN_FLAGS = re.compile(r"F.*Unknown flags? in (XLA_\w+): (.*)")
_TASK_ENDED = re.compile(r"srun: error: \S+: tasks? \d|slurmstepd")
_EXITED = re.compile(
    r"srun: error: (\S+): tasks? (\d{1,9})[-,\d]*: Exited with exit code (\d{1,3})$"
)
_KILLED = re.compile(r"srun: error: (\S+): tasks? (\d{1,9})\b.*: Killed$")
# As Apptainer and SingularityCE say it of what the launcher's host has.
_NOT_ON_NODE = re.compile(
    r"could not open image (?P<image>.+?): .*no such file or directory|mount source (?P<bind>.+?) doesn't exist"
)
# As slurmstepd says it of a step or a job: its number, and from Slurm 25.05 on always a reason:
# SIGNAL Terminated, say.
_CANCELLED = re.compile(
    r"slurmstepd\S*: error: \*\*\* (?:JOB|STEP) (\d+)(\S*) ON \S+ CANCELLED AT \S+(?: DUE [Tt][Oo] (.+?))? \*\*\*"
)
# srun's own reasons to end a step, see launch_abort and its like in src/api/step_launch.c.
_SRUN_GAVE_UP = re.compile(
    r"srun: error: (.*(?:io error with|Cannot communicate with node|Timed out waiting).*|Aborting, .*)"
)
_TASK_FAILURE = "TASK FAILURE"  # how Slurm from 25.05 on calls --kill-on-bad-exit
# Slurm's own reasons to end a job: what to say of the job, and what to do.
_REASONS = {
    "TIME LIMIT": (
        "reached its time limit",
        "pass a longer --time, or go on from a checkpoint: see slurm/checkpoint",
    ),
    "PREEMPTION": ("was preempted", "run it again, or let Slurm do it: `jaxsif submit --requeue`"),
    "NODE FAILURE": ("lost a node", "run it again, or let Slurm do it: `jaxsif submit --requeue`"),
    "JOB REQUEUE": ("was requeued", "Slurm starts it again"),
}
# What Python raises when files of the image have other bytes than before.
_READS_IMAGE = re.compile(
    r"(ImportError|ModuleNotFoundError|OSError|SyntaxError|EOFError|zlib\.error)\b"
)
_INIT = "[Init]Wait_for_all_tasks_to_register"
_AT = {"Shutdown": "the end of the program", _INIT: "jax.distributed.initialize"}
# JAX's coordinator, Gloo.
_IN_VAIN = re.compile(r"(Jax|Xla)RuntimeError: .*(DEADLINE_EXCEEDED|Timed out waiting)")
_ABORTED = 128 + signal.SIGABRT
_KILLED_STATUS = 128 + signal.SIGKILL
_TERMINATED = 128 + signal.SIGTERM
_REFUSED = HostError.exit_code
_MOST_PLACES, _MOST_TASKS = 4, 8  # in one line
_LAST_SIGNAL = 64  # of Linux; a greater status was given to exit()


class End(NamedTuple):
    """How a run ended, as far as the launcher knows without its tasks."""

    status: int  # exit status of srun or its like
    launcher: Launcher
    tasks: int | None = None  # in all; None where Slurm alone decides
    interrupted: int | None = None  # the signal to `jaxsif run` that ended the run
    killed: bool = False  # srun itself was ended by a signal
    changed_image: str = ""  # the image's path, where its file was written to during the run


def find_failure(
    end: End, reports: Sequence[Report], errors: Sequence[str], barriers: Sequence[Barrier] = ()
) -> JaxsifError | None:
    """The first cause of a run's end, as an error with the exit code to end with; None where
    nothing failed.
    """
    if end.status == 0 and not end.interrupted:
        return None
    cancelled = _find_cancellation(reports, errors, end)
    if end.interrupted:
        found = _describe_outside(cancelled, reports, end)
        if found:
            found.exit_code = 128 + end.interrupted
        return found
    refusal = _find_refusal(reports)
    if refusal and refusal.event == "port-taken":
        return PortTakenError(
            refusal.text, refusal.place, "run it again for another port, or --coordinator-ports"
        )
    if refusal:
        return HostError(refusal.text, refusal.place, refusal.hint)
    found = _describe_outside(cancelled, reports, end) if cancelled else None
    if end.killed and end.launcher.name != LOCAL:
        found = JaxsifError(
            f"{end.launcher.name} was killed by {signal_name(end.status - 128)}",
            "this host",
            "the kernel's log tells of processes that it killed; `squeue --me --steps` shows what is left",
        )
    if found:
        found.exit_code = end.status
        return found
    culprit = _find_culprit(reports)
    if culprit:
        return _explain(culprit, end, reports, errors, barriers)
    if not any(report.event == "started" for report in reports):
        no_start = _describe_no_start(end.status, errors, end.launcher)
        if no_start:
            return no_start
    ended = _find_ended(errors)
    if ended:
        return _describe_culprit(ended, reports)
    error = HostError(
        f"the step ended with exit status {end.status}, and no task said why",
        errors[-1] if errors else end.launcher.name,
        end.launcher.words.look,
    )
    error.exit_code = end.status
    return error


def _find_refusal(reports: Sequence[Report]) -> Report | None:
    """The first task that did not start its program; it ends with 125, and so one that ended
    otherwise did start it.
    """
    started = {
        report.task for report in reports if report.event == "exit" and report.status != _REFUSED
    }
    refusals = (
        report for report in reports if report.event in REFUSALS and report.task not in started
    )
    return next(refusals, None)


def _explain(
    culprit: Report,
    end: End,
    reports: Sequence[Report],
    errors: Sequence[str],
    barriers: Sequence[Barrier],
) -> JaxsifError:
    """The error of a run whose first report of a failure is `culprit`'s, which may be the
    consequence of another.
    """
    if culprit.status == 1:
        unknown = next(filter(None, map(_UNKNOWN_FLAGS.match, errors)), None)
        if unknown:
            return _describe_unknown_flags(culprit, unknown[1], unknown[2])
    waited = _is_consequence(culprit, reports) or _waited_in_vain(culprit, reports, errors)
    killed = _find_killed(errors, reports) if _is_consequence(culprit, reports) else None
    barrier = _find_barrier(killed or culprit, reports, barriers)
    early = _find_early(reports, end) if waited and not killed else None
    if early and (barrier is None or barrier.name == _INIT):
        error = _describe_early(early, reports, _gave_up(errors) or barrier is not None)
        error.exit_code = culprit.status
        return error
    culprit = killed or culprit
    stuck = _find_stuck(culprit, reports, errors)
    if barrier:
        return _describe_barrier(barrier, culprit.status, reports)
    return (
        _describe_stuck(stuck, culprit, reports)
        if stuck
        else _describe_culprit(culprit, reports, end.changed_image)
    )


class _Cancellation(NamedTuple):
    """What Slurm says of a step that it ended for another reason than a failed task."""

    what: str
    hint: str


def _find_cancellation(
    reports: Sequence[Report], errors: Sequence[str], end: End
) -> _Cancellation | None:
    """Why Slurm ended the step before any task had failed.

    slurmstepd says CANCELLED of a step whose task has failed, too. srun says that the step was
    aborted only when something outside of it has ended it. When a signal ended `jaxsif run`, only a
    reason of Slurm's own counts: it is jaxsif that has cancelled the step. What a program prints of
    another job counts for nothing.
    """
    before = _before_outside(reports)
    failed = any(
        one.event == "exit" and one.status not in (0, _TERMINATED, _KILLED_STATUS) for one in before
    )
    aborted = any(report.event == "cancelled" for report in reports)
    found = next(
        filter(None, (_match_cancelled(line, find_step(reports)) for line in errors)), None
    )
    if found is None or failed or not (aborted or end.interrupted):
        return None
    job, rest, reason = found.groups(default="")
    for name, (what, hint) in _REASONS.items():
        if reason.startswith(name):
            return _Cancellation(f"job {job} {what}", hint)
    if end.interrupted or reason.startswith(_TASK_FAILURE):
        return None
    gave_up = next(filter(None, map(_SRUN_GAVE_UP.match, errors)), None)
    if gave_up:
        return _Cancellation(
            f"srun ended the step: {gave_up[1]}", "sinfo --list-reasons tells of lost nodes"
        )
    return _Cancellation(
        f"the run was cancelled: step {job}{rest}", f"sacct --jobs={job} tells by whom"
    )


def _match_cancelled(line: str, step: str) -> re.Match[str] | None:
    """What slurmstepd says of our own step, '12.0', or of its job; of any where ours is not known."""
    found = _CANCELLED.match(line)
    ours = found and (not step or found[1] == step.partition(".")[0])
    return found if ours else None


def _before_outside(reports: Sequence[Report]) -> Sequence[Report]:
    """The reports until something outside ended the run: what tasks say behind that is its
    consequence.
    """
    marks = [
        index
        for index, report in enumerate(reports)
        if report.event in ("cancelled", "interrupted")
    ]
    return reports[: marks[0]] if marks else reports


def _describe_outside(
    cancelled: _Cancellation | None, reports: Sequence[Report], end: End
) -> JaxsifError | None:
    """The error of a run that something outside of it has ended; None where there is nothing more
    to say.
    """
    places = describe_places(reports)
    connected = any(report.event == "end" for report in _before_outside(reports))
    early = _find_early(reports, end) if connected else None
    if early:
        error = _describe_early(early, reports, at_init=False)
        error.where = "; ".join(filter(None, (cancelled.what if cancelled else "", error.where)))
        return error
    return JaxsifError(cancelled.what, places, cancelled.hint) if cancelled else None


class _Early(NamedTuple):
    """The tasks that came to their end, without an error, while others had not."""

    reports: tuple[Report, ...]  # one of each
    others: int
    tasks: int  # in all


def _find_early(reports: Sequence[Report], end: End) -> _Early | None:
    """The tasks that ended early; None where there are none, or more than of those that did not."""
    before = _before_outside(reports)
    ended = {
        report.task: report for report in before if report.event == "exit" and report.status == 0
    }
    ended.update(
        (report.task, report)
        for report in before
        if report.event == "end" and report.task not in ended
    )
    tasks = max([end.tasks or 0, *(report.task + 1 for report in reports)])
    others = tasks - len(ended)
    return _Early(tuple(ended.values()), others, tasks) if 0 < len(ended) <= others else None


def _describe_early(early: _Early, reports: Sequence[Report], at_init: bool) -> JaxsifError:
    who = ", ".join(report.place for report in early.reports[:_MOST_PLACES])
    who += (
        f" and {len(early.reports) - _MOST_PLACES} more"
        if len(early.reports) > _MOST_PLACES
        else ""
    )
    exited = all(report.event == "exit" for report in early.reports)
    what = f"{who} {'ended with exit status 0' if exited else 'came to the end of the program'}"
    names = {report.task for report in early.reports}
    rest = [report for report in reports if report.task not in names]
    if at_init:
        what += " and never came to jax.distributed.initialize, where the others waited"
        hint = "let every task call jax.distributed.initialize() before it can end"
    else:
        what += f", and {early.others} of {early.tasks} tasks did not"
        hint = "all processes must compute the same, equally often: see slurm/mistakes"
    return JaxsifError(what, describe_places(rest, who="the others"), hint)


def _find_culprit(reports: Sequence[Report]) -> Report | None:
    """The first exit that is not the consequence of another: a neighbour's exception, JAX's
    SIGABRT, srun's SIGTERM.
    """
    exits = [report for report in reports if report.event == "exit" and report.status]
    followers = {report.task for report in reports if report.consequence}
    first_causes = [
        report for report in exits if report.task not in followers and report.status != _ABORTED
    ]
    # SIGTERM behind another exit is srun's, which ends the step.
    first_causes = [
        report for report in first_causes if report.status != _TERMINATED or report is exits[0]
    ]
    return next(iter(first_causes or exits), None)


def _describe_culprit(
    culprit: Report, reports: Sequence[Report], changed_image: str = ""
) -> JaxsifError:
    raised = _exceptions(culprit.task, reports)
    where = raised[-1].where if raised else culprit.where
    hint = (raised and raised[-1].hint) or _hint(culprit, raised[-1].text if raised else "")
    if changed_image:
        where = " and ".join(
            filter(None, (where, f"{changed_image}, which was written to during the run"))
        )
        if (
            not hint
            or culprit.status > 128
            or _READS_IMAGE.match(raised[-1].text if raised else "")
        ):
            hint = "copy a new image beside the old one and rename it: programs that run keep the old one"
    if 128 < culprit.status <= 128 + _LAST_SIGNAL:
        what = f"{culprit.place} was killed by {signal_name(culprit.status - 128)}"
    elif raised:
        what = f"{culprit.place} failed: {raised[-1].text}"
    else:
        what = f"{culprit.place} ended with exit status {culprit.status}"
    error = JaxsifError(what, where, hint)
    error.exit_code = culprit.status
    return error


def _exceptions(task: int, reports: Sequence[Report]) -> list[Report]:
    return [report for report in reports if report.event == "exception" and report.task == task]


def _is_consequence(culprit: Report, reports: Sequence[Report]) -> bool:
    """Whether its end was another's fault, and so nobody has reported the first cause."""
    gone = any(report.consequence for report in _exceptions(culprit.task, reports))
    return gone or culprit.status in (_ABORTED, _TERMINATED)


def _find_barrier(
    culprit: Report, reports: Sequence[Report], barriers: Sequence[Barrier]
) -> Barrier | None:
    """The barrier for which JAX has ended the process; a program may go on after one that it has
    set itself.
    """
    texts = "".join(report.text for report in _exceptions(culprit.task, reports))
    if culprit.status == _ABORTED or "Barrier timed out" in texts:
        return next((one for one in barriers if one.name in _AT or one.name in texts), None)
    return None


def _find_killed(errors: Sequence[str], reports: Sequence[Report]) -> Report | None:
    """A task that was killed with the parent that would have reported it, before Slurm itself ended
    the step.
    """
    reported = {report.task for report in reports if report.event == "exit"}
    for line in errors:
        killed = _KILLED.match(line)
        if killed and int(killed[2]) not in reported:
            return Report(int(killed[2]), killed[1], "exit", _KILLED_STATUS)
        if "CANCELLED" in line:
            return None
    return None


def _find_ended(errors: Sequence[str]) -> Report | None:
    """The first task that failed, by srun's words: all that is known where standard error goes to
    files.
    """
    ends = [
        Report(int(end[2]), end[1], "exit", int(end[3]))
        for end in map(_EXITED.match, errors)
        if end
    ]
    return next((end for end in ends if end.status != _TERMINATED), None)


def _gave_up(errors: Sequence[str]) -> bool:
    """Whether JAX ended processes because another did not come to jax.distributed.initialize."""
    return any(map(GAVE_UP.match, errors))


def _waited_in_vain(culprit: Report, reports: Sequence[Report], errors: Sequence[str]) -> bool:
    gave_up = culprit.status == _ABORTED and _gave_up(errors)
    return gave_up or any(
        _IN_VAIN.match(report.text) for report in _exceptions(culprit.task, reports)
    )


def _find_stuck(culprit: Report, reports: Sequence[Report], errors: Sequence[str]) -> Report | None:
    """The task that others have waited for in vain: srun had to end it, and fewest of those were at
    its line.
    """
    if not _waited_in_vain(culprit, reports, errors):
        return None
    waited = {report.where for report in reports if report.status != _TERMINATED}
    places: dict[str, list[Report]] = {}
    for report in reports:
        if report.event == "exit" and report.where and report.where not in waited:
            places.setdefault(report.where, []).append(report)
    fewest = sorted(places.values(), key=len)
    if not fewest or len({len(one) for one in fewest[:2]}) < len(fewest[:2]):
        return None  # or it cannot be told which
    return fewest[0][0]


def _describe_stuck(stuck: Report, culprit: Report, reports: Sequence[Report]) -> JaxsifError:
    raised = _exceptions(culprit.task, reports)
    place = raised[-1].where if raised else culprit.where
    what = f"{stuck.place} did not come, and {culprit.place} has waited in vain" + (
        f" at {place}" if place else ""
    )
    hint = "see what keeps it there; --init-timeout says how long others wait in jax.distributed.initialize"
    if raised:
        hint = f"see what keeps it there; what the other one said: {raised[-1].text}"
    error = JaxsifError(what, f"{stuck.where}, where {stuck.place} was", hint)
    error.exit_code = culprit.status
    return error


def _describe_barrier(barrier: Barrier, status: int, reports: Sequence[Report]) -> JaxsifError:
    """Who is not where the others are: the fewer ones, those who came or those who did not."""
    ends = {report.task: report for report in reports if report.event == "exit"}

    def place(task: int) -> str:
        return ends[task].place if task in ends else f"task {task}"

    at = _AT.get(barrier.name, f"the barrier {barrier.name}")
    if 2 * barrier.reached >= barrier.processes:
        odd = ", ".join(map(place, barrier.missing[:_MOST_PLACES]))
        # JAX does not tell all.
        others = barrier.processes - barrier.reached - len(barrier.missing[:_MOST_PLACES])
        odd += f" and {others} more" if others > 0 else ""
        what = f"{odd} did not come to {at}, and {barrier.reached} of {barrier.processes} did"
    else:
        what = f"{place(barrier.first)} came to {at}, and {barrier.processes - barrier.reached} of {barrier.processes}"
        what += (
            " did not"
            if barrier.reached == 1
            else f" did not; it was the first of {barrier.reached}"
        )
    stuck = [
        report
        for task in barrier.missing
        for report in reports
        if report.task == task and report.where
    ]
    where = f"{stuck[0].where}, where {stuck[0].place} was" if stuck else ""
    hint = "all processes must compute the same, equally often: see slurm/mistakes"
    if barrier.name == _INIT:
        hint = "see what it does before, and whether it can reach task 0; --init-timeout says how long the others wait"
    error = JaxsifError(what, where, hint)
    error.exit_code = status
    return error


def _describe_unknown_flags(culprit: Report, variable: str, flags: str) -> JaxsifError:
    error = JaxsifError(
        f"XLA does not know {flags}",
        f"{variable}, in {culprit.place}",
        "correct it or take it out: flags come and go with versions of JAX, see jaxsif image inspect",
    )
    error.exit_code = culprit.status
    return error


def _hint(culprit: Report, text: str) -> str:
    if "JAX_PLATFORMS=cuda" in text or "Unable to initialize backend 'cuda'" in text:
        return (
            "the task was given GPUs, but JAX cannot use them: see nvidia-smi on the node, or set --env"
            " JAX_PLATFORMS=cpu to run on the CPU"
        )
    if culprit.status == 128 + signal.SIGKILL:
        return "if nobody killed it, the node ran out of memory: see the kernel's log there, and --mem of the job"
    if culprit.status == _ABORTED:
        return "JAX ended it, and says why above; DEADLINE_EXCEEDED: a process did not come, or cannot reach task 0"
    if culprit.status == 128 + signal.SIGBUS:
        return (
            "SIGUSR1 or SIGUSR2 to the step ends what serves the image's files (SIGURG does not);"
            " otherwise a full /dev/shm or a file cut short"
        )
    return ""


def _describe_no_start(
    status: int, errors: Sequence[str], launcher: Launcher
) -> JaxsifError | None:
    """Why no task has started; None if some did, whose reports went elsewhere (srun
    --output=log-%t.txt).
    """
    fatal = [line for line in errors if line.startswith(("FATAL: ", "Error for command "))]
    if fatal:
        reason = fatal[0].partition(":")[2].strip()
        missing = _NOT_ON_NODE.search(reason)
        if missing:
            return _describe_missing(missing, errors)
        return HostError(
            f"the container did not start: {reason}",
            "the runtime, on a node",
            "run it there by hand",
        )
    if any(map(_TASK_ENDED.match, errors)):
        return None
    if errors:
        reason = errors[-1].partition("error: ")[2]
        words = launcher.words
        what = f"{words.refuses} refused the request: {reason}"
        return HostError(what, launcher.name, words.remedy)
    return HostError(f"no task started (exit status {status})", launcher.name)


def _describe_missing(missing: re.Match[str], errors: Sequence[str]) -> JaxsifError:
    """The error of an image, or of a folder to bind, that a node does not have."""
    nodes = [end[1] for end in map(_EXITED.match, errors) if end]
    node = nodes[0] if nodes else "the node"
    if missing["image"]:
        what, hint = (
            f"the image is not on {node}: {missing['image']}",
            "put it on a disk that all nodes see",
        )
    else:
        what = f"{node} has no {missing['bind']}, which --bind asks for"
        hint = "put it on a disk that all nodes see, or leave out --bind"
    return HostError(what, "the runtime, on a node", hint)


def describe_places(reports: Sequence[Report], who: str = "tasks") -> str:
    """Where tasks, called `who`, were when something ended them, the fewest first; '' where none
    has said it.
    """
    before = _before_outside(reports)
    # Of an exception, before the exit.
    where = {report.task: report.where for report in reports if report.where}
    where.update(
        (report.task, "the end of the program") for report in before if report.event == "end"
    )
    ended = sorted(
        {report.task for report in before if report.event == "exit" and not report.status}
        - where.keys()
    )
    said = f"task {_few(ended)} had ended with exit status 0" if ended else ""
    return "; ".join(filter(None, (_describe_where(where, who), said)))


def _describe_where(where: Mapping[int, str], who: str) -> str:
    """'WHO were at ...', by the place of each task; '' for none."""
    if not where:
        return ""
    places: dict[str, list[int]] = {}
    for task in sorted(where):
        places.setdefault(where[task], []).append(task)
    fewest = sorted(places.items(), key=lambda item: len(item[1]))
    shown = [f"{place} (task {_few(tasks)})" for place, tasks in fewest[:_MOST_PLACES]]
    more = f" and {len(fewest) - _MOST_PLACES} other places" if len(fewest) > _MOST_PLACES else ""
    return f"{who} were at {', '.join(shown)}{more}"


def _few(tasks: Sequence[int]) -> str:
    shown = ", ".join(map(str, tasks[:_MOST_TASKS]))
    return f"{shown} and {len(tasks) - _MOST_TASKS} more" if len(tasks) > _MOST_TASKS else shown


def describe_cache(reports: Sequence[Report]) -> str:
    """What JAX's compile cache was good for, in all tasks together; '' where none has asked it."""
    found = [report for report in reports if report.event == "cache"]
    if not found:
        return ""
    requests, hits = sum(report.requests for report in found), sum(report.hits for report in found)
    tasks = len([report for report in found if report.hits])
    return (
        f"compile cache: {hits} of {requests} programs from it, in {tasks} of {len(found)} task(s),"
        f" {sum(report.saved for report in found):.0f} s of compiling saved;"
        f" {sum(report.written for report in found)} new"
    )


def describe_alone(reports: Sequence[Report]) -> str:
    """The warning that several tasks computed with JAX, and none was connected to another; '' where
    one was.
    """
    alone = {report.task for report in reports if report.event == "alone"}
    if len(alone) < 2 or any(report.event == "end" for report in reports):
        return ""
    return (
        f"warning: {len(alone)} tasks ran JAX, and none called jax.distributed.initialize(): each computed on its own;"
        " if that is meant, pass --env JAXSIF_INDEPENDENT=1"
    )


def signal_name(number: int) -> str:
    """'SIGKILL' for 9; the number itself where Python knows no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
