"""Reports of the tasks, and what srun complained of -> which task failed first, and why."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from jaxsif.errors import HostError, JaxsifError, PortTakenError
from jaxsif.launchers import LAUNCHERS
from jaxsif.reports import GAVE_UP, Barrier, Report

_UNKNOWN_FLAGS = re.compile(r"F.*Unknown flags? in (XLA_\w+): (.*)")
_TASK_ENDED = re.compile(r"srun: error: \S+: tasks? \d|slurmstepd")
_EXITED = re.compile(r"srun: error: (\S+): tasks? (\d{1,9})[-,\d]*: Exited with exit code (\d{1,3})$")
_KILLED = re.compile(r"srun: error: (\S+): tasks? (\d+).*: Killed$")
# As Apptainer and SingularityCE say it of what the launcher's host has.
_NOT_ON_NODE = re.compile(
    r"could not open image (?P<image>.+?): .*no such file or directory|mount source (?P<bind>.+?) doesn't exist"
)
_INIT = "[Init]Wait_for_all_tasks_to_register"
_AT = {"Shutdown": "the end of the program", _INIT: "jax.distributed.initialize"}
_IN_VAIN = re.compile(r"(Jax|Xla)RuntimeError: .*(DEADLINE_EXCEEDED|Timed out waiting)")  # JAX's coordinator, Gloo
_ABORTED = 128 + signal.SIGABRT
_TERMINATED = 128 + signal.SIGTERM
_MOST_PLACES, _MOST_TASKS = 4, 8  # in one line
_LAST_SIGNAL = 64  # of Linux; a greater status was given to exit()


def find_failure(
    status: int, reports: Sequence[Report], errors: Sequence[str], launcher: str, barriers: Sequence[Barrier] = ()
) -> JaxsifError | None:
    """The first cause of a run that ended with `status`, as an error with the exit code to end with; None for 0."""
    if status == 0:
        return None
    for report in reports:
        if report.event == "refused":
            return HostError(report.text, report.place, report.hint)
        if report.event == "port-taken":
            return PortTakenError(report.text, report.place, "run it again for another port, or --coordinator-ports")
    culprit = _find_culprit(reports)
    if culprit and culprit.status == 1:
        unknown = next(filter(None, map(_UNKNOWN_FLAGS.match, errors)), None)
        if unknown:
            return _describe_unknown_flags(culprit, unknown[1], unknown[2])
    if culprit and _is_consequence(culprit, reports):
        culprit = _find_killed(errors) or culprit
    if culprit:
        barrier = _find_barrier(culprit, reports, barriers)
        stuck = _find_stuck(culprit, reports, errors)
        if barrier:
            return _describe_barrier(barrier, culprit.status, reports)
        return _describe_stuck(stuck, culprit, reports) if stuck else _describe_culprit(culprit, reports)
    if not any(report.event == "started" for report in reports):
        no_start = _describe_no_start(status, errors, launcher)
        if no_start:
            return no_start
    ended = _find_ended(errors)
    if ended:
        return _describe_culprit(ended, reports)
    error = HostError(
        f"the step ended with exit status {status}, and no task said why",
        errors[-1] if errors else launcher,
        LAUNCHERS[launcher].look,
    )
    error.exit_code = status
    return error


def _find_culprit(reports: Sequence[Report]) -> Report | None:
    """The first exit that is not the consequence of another: a neighbour's exception, JAX's SIGABRT, srun's SIGTERM."""
    exits = [report for report in reports if report.event == "exit"]
    followers = {report.task for report in reports if report.consequence}
    first_causes = [report for report in exits if report.task not in followers and report.status != _ABORTED]
    # SIGTERM behind another exit is srun's, which ends the step.
    first_causes = [report for report in first_causes if report.status != _TERMINATED or report is exits[0]]
    return next(iter(first_causes or exits), None)


def _describe_culprit(culprit: Report, reports: Sequence[Report]) -> JaxsifError:
    raised = _exceptions(culprit.task, reports)
    where = raised[-1].where if raised else culprit.where
    if 128 < culprit.status <= 128 + _LAST_SIGNAL:
        what = f"{culprit.place} was killed by {signal_name(culprit.status - 128)}"
    elif raised:
        what = f"{culprit.place} failed: {raised[-1].text}"
    else:
        what = f"{culprit.place} ended with exit status {culprit.status}"
    error = JaxsifError(what, where, _hint(culprit, raised[-1].text if raised else ""))
    error.exit_code = culprit.status
    return error


def _exceptions(task: int, reports: Sequence[Report]) -> list[Report]:
    return [report for report in reports if report.event == "exception" and report.task == task]


def _is_consequence(culprit: Report, reports: Sequence[Report]) -> bool:
    """Whether its end was another's fault, and so nobody has reported the first cause."""
    gone = any(report.consequence for report in _exceptions(culprit.task, reports))
    return gone or culprit.status in (_ABORTED, _TERMINATED)


def _find_barrier(culprit: Report, reports: Sequence[Report], barriers: Sequence[Barrier]) -> Barrier | None:
    """The barrier for which JAX has ended the process; a program may go on after one that it has set itself."""
    texts = "".join(report.text for report in _exceptions(culprit.task, reports))
    if culprit.status == _ABORTED or "Barrier timed out" in texts:
        return next((one for one in barriers if one.name in _AT or one.name in texts), None)
    return None


def _find_killed(errors: Sequence[str]) -> Report | None:
    """A task that was killed with the parent that would have reported it, before Slurm itself ended the step."""
    for line in errors:
        killed = _KILLED.match(line)
        if killed:
            return Report(int(killed[2]), killed[1], "exit", 128 + signal.SIGKILL)
        if "CANCELLED" in line:
            return None
    return None


def _find_ended(errors: Sequence[str]) -> Report | None:
    """The first task that failed, by srun's words: all that is known where standard error goes to files."""
    ends = [Report(int(end[2]), end[1], "exit", int(end[3])) for end in map(_EXITED.match, errors) if end]
    return next((end for end in ends if end.status != _TERMINATED), None)


def _find_stuck(culprit: Report, reports: Sequence[Report], errors: Sequence[str]) -> Report | None:
    """The task that others have waited for in vain: srun had to end it, and fewest of those were at its line."""
    gave_up = culprit.status == _ABORTED and any(map(GAVE_UP.match, errors))
    if not gave_up and not any(_IN_VAIN.match(report.text) for report in _exceptions(culprit.task, reports)):
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
    what = f"{stuck.place} did not come, and {culprit.place} has waited in vain" + (f" at {place}" if place else "")
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
        others = barrier.processes - barrier.reached - len(barrier.missing[:_MOST_PLACES])  # JAX does not tell all
        odd += f" and {others} more" if others > 0 else ""
        what = f"{odd} did not come to {at}, and {barrier.reached} of {barrier.processes} did"
    else:
        what = f"{place(barrier.first)} came to {at}, and {barrier.processes - barrier.reached} of {barrier.processes}"
        what += " did not" if barrier.reached == 1 else f" did not; it was the first of {barrier.reached}"
    stuck = [report for task in barrier.missing for report in reports if report.task == task and report.where]
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


def _describe_no_start(status: int, errors: Sequence[str], launcher: str) -> JaxsifError | None:
    """Why no task has started; None if some did, whose reports went elsewhere (srun --output=log-%t.txt)."""
    fatal = [line for line in errors if line.startswith(("FATAL: ", "Error for command "))]
    if fatal:
        reason = fatal[0].partition(":")[2].strip()
        missing = _NOT_ON_NODE.search(reason)
        if missing:
            return _describe_missing(missing, errors)
        return HostError(f"the container did not start: {reason}", "the runtime, on a node", "run it there by hand")
    if any(map(_TASK_ENDED.match, errors)):
        return None
    if errors:
        reason = errors[-1].partition("error: ")[2]
        who = LAUNCHERS[launcher]
        return HostError(f"{who.refuses} refused the request: {reason}", launcher, who.remedy)
    return HostError(f"no task started (exit status {status})", launcher)


def _describe_missing(missing: re.Match[str], errors: Sequence[str]) -> JaxsifError:
    """The error of an image, or of a folder to bind, that a node does not have."""
    nodes = [end[1] for end in map(_EXITED.match, errors) if end]
    node = nodes[0] if nodes else "the node"
    if missing["image"]:
        what, hint = f"the image is not on {node}: {missing['image']}", "put it on a disk that all nodes see"
    else:
        what = f"what is to be bound is not on {node}: {missing['bind']}"
        hint = "put it on a disk that all nodes see, or leave out --bind"
    return HostError(what, "the runtime, on a node", hint)


def describe_places(reports: Sequence[Report]) -> str:
    """Where tasks were when a signal to all ended them, the fewest first; '' where all were at one line: no hang."""
    where = {report.task: report.where for report in reports if report.where}  # of an exception, before the exit
    places: dict[str, list[int]] = {}
    for task in sorted(where):
        places.setdefault(where[task], []).append(task)
    if len(places) < 2:
        return ""
    fewest = sorted(places.items(), key=lambda item: len(item[1]))
    shown = [f"{place} (task {_few(tasks)})" for place, tasks in fewest[:_MOST_PLACES]]
    more = f" and {len(fewest) - _MOST_PLACES} other places" if len(fewest) > _MOST_PLACES else ""
    return f"tasks were at {', '.join(shown)}{more}"


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


def signal_name(number: int) -> str:
    """'SIGKILL' for 9; the number itself where Python knows no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
