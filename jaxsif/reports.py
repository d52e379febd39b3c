"""What the tasks and srun say on standard error -> which task failed first, and why.

The task shim (jaxsif/task) writes its reports as lines that begin with MARKER into the task's standard error, because
that is the one channel which exists wherever srun works: no port, no shared folder. `ReportFilter` takes them out.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from typing import NamedTuple

from jaxsif.errors import HostError, JaxsifError, PortTakenError
from jaxsif.launchers import LAUNCHERS

MARKER = b"\x1ejaxsif "  # as in jaxsif/task/failure.py and start.sh
_LABEL = re.compile(rb" *\d+: ")  # what srun --label begins lines with
_LINES = re.compile(rb"[^\n]*\n|[^\n]+")  # unlike splitlines, a carriage return ends none
# As JAX says it of itself, when another process did not come to jax.distributed.initialize.
_GAVE_UP = re.compile(r"F.*JAX distributed service detected fatal errors.*DEADLINE_EXCEEDED")
_KEPT_LINES = re.compile(
    r"^(srun: error: |slurmstepd: error: |slurmstepd-\S+: error: \*\*\* |FATAL: |Error for command |"
    rf"F.*Unknown flags? in XLA_|{_GAVE_UP.pattern})"
)
_UNKNOWN_FLAGS = re.compile(r"F.*Unknown flags? in (XLA_\w+): (.*)")
_TASK_ENDED = re.compile(r"srun: error: \S+: tasks? \d|slurmstepd")
_LONGEST_ERROR = 4096  # bytes; a progress bar can make one endless line
_KILLED = re.compile(r"srun: error: (\S+): tasks? (\d+).*: Killed$")
# What JAX says of a barrier that not all processes have reached in time, in three lines or more.
_BARRIER = re.compile(r".*\bBarrier timed out\. Id: (\S*?)(?:::\d+)*\. ")
_REACHED = re.compile(r"# of tasks that reached the barrier: (\d+)/(\d+)\.$")
_FIRST = re.compile(r"The first task at the barrier: (\d+)\. Some timed out task names:$")
_INIT = "[Init]Wait_for_all_tasks_to_register"
_AT = {"Shutdown": "the end of the program", _INIT: "jax.distributed.initialize"}
_IN_VAIN = re.compile(r"(Jax|Xla)RuntimeError: .*(DEADLINE_EXCEEDED|Timed out waiting)")  # JAX's coordinator, Gloo
_ABORTED = 128 + signal.SIGABRT
_TERMINATED = 128 + signal.SIGTERM
_MOST_PLACES, _MOST_TASKS = 4, 8  # in one line
_LAST_SIGNAL = 64  # of Linux; a greater status was given to exit()


class Report(NamedTuple):
    """One line of the task shim."""

    task: int  # SLURM_PROCID
    node: str  # SLURMD_NODENAME; empty without Slurm
    event: str  # started, warning, refused, port-taken, exception, exit or cache
    status: int = 0  # of an exit, as a shell gives it: 128 + N for signal N
    text: str = ""  # of an exception, a refusal or a warning
    where: str = ""  # FILE:LINE of an exception, or of what a signal like SIGABRT has ended
    consequence: bool = False  # the exception says that a neighbour is gone
    requests: int = 0  # of JAX to its compile cache
    hits: int = 0
    written: int = 0  # entries
    saved: float = 0.0  # seconds of compiling
    hint: str = ""  # what to do about a refusal

    @property
    def place(self) -> str:
        """The task and its node, for people."""
        return f"task {self.task} on {self.node}" if self.node else f"process {self.task}"


class Barrier(NamedTuple):
    """A place where JAX's processes wait for each other, and which not all of them have reached in time."""

    name: str  # JAX's, such as 'Shutdown'
    reached: int = 0  # processes
    processes: int = 0  # all
    first: int = -1  # the process that came first
    missing: tuple[int, ...] = ()  # some of those that have not come


class ReportFilter:
    """Passes standard error on as it comes, without the reports, which it collects."""

    def __init__(self, label: bool = False, beside: ReportFilter | None = None) -> None:
        # Several streams, one order of arrival: a filter adds to the lists of the one that it stands beside.
        self.reports: list[Report] = beside.reports if beside else []
        self.errors: list[str] = beside.errors if beside else []  # what srun, slurmstepd and the runtime complained of
        self.barriers: list[Barrier] = beside.barriers if beside else []  # the first one is what went wrong
        self._barrier: dict[bytes, Barrier] = {}  # label -> the one whose lines are being read
        self._label = label
        self._pending = b""  # an unfinished line that must wait
        self._begun = b""  # the beginning of a line, as far as it is shown already

    def feed(self, data: bytes) -> bytes:
        """The part of `data` that people should see now; b'' means the end of the stream and flushes."""
        lines = _LINES.findall(self._pending + data)
        self._pending = b""
        # An unfinished line is shown at once (a progress bar), unless it may become a report.
        if data and lines and not lines[-1].endswith(b"\n") and (self._label or b"\x1e" in lines[-1]):
            self._pending = lines.pop()
        shown = b"".join(map(self._filter_line, lines))
        if not data:
            self._end_line()
        return shown

    def _filter_line(self, line: bytes) -> bytes:
        before, marker, rest = line.partition(MARKER)
        report = _parse_report(rest) if marker else None
        warning = self._render_warning(report) if report else b""
        if report is None:
            before = line
        else:
            self.reports.append(report)
        self._begun = (self._begun + before)[:_LONGEST_ERROR]
        if line.endswith(b"\n"):
            self._end_line()
        if report and self._label and _LABEL.fullmatch(before):
            return warning
        return before + warning

    def _render_warning(self, report: Report) -> bytes:
        """What is seen of a report: a warning, when the first task says it."""
        if report.event != "warning" or any(report.text == other.text for other in self.reports):
            return b""
        return f"jaxsif: warning: {report.text} ({report.place})\n".encode()

    def _end_line(self) -> None:
        """Keep the line that is now whole if srun, slurmstepd or the runtime complains in it."""
        label = _LABEL.match(self._begun) if self._label else None
        text = self._begun[label.end() if label else 0 :].decode(errors="replace").rstrip()
        if _KEPT_LINES.match(text):
            self.errors.append(text)
        self._read_barrier(label[0] if label else b"", text)
        self._begun = b""

    def _read_barrier(self, label: bytes, line: str) -> None:
        """Learn of a barrier from one more line; another line ends what is known of it."""
        begin = _BARRIER.match(line)
        before = Barrier(begin[1]) if begin else self._barrier.pop(label, None)
        if before is None:
            return
        reached, first = _REACHED.match(line), _FIRST.match(line)
        if reached:
            before = before._replace(reached=int(reached[1]), processes=int(reached[2]))
        elif first:
            before = before._replace(first=int(first[1]))
        elif before.first >= 0 and line.isdecimal():
            if before in self.barriers:
                self.barriers.remove(before)
            before = before._replace(missing=tuple(dict.fromkeys((*before.missing, int(line)))))
            if before not in self.barriers:  # as each task says it
                self.barriers.append(before)
        elif not begin:
            return
        self._barrier[label] = before


def _parse_report(text: bytes) -> Report | None:
    """The report of a marked line; None if the line is not ours after all."""
    import json  # here: when the first report comes, the step runs already, and the import costs no time

    try:
        return Report(**json.loads(text))
    except (ValueError, TypeError):
        return None


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
    raised = [report for report in reports if report.event == "exception" and report.task == culprit.task]
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


def _find_stuck(culprit: Report, reports: Sequence[Report], errors: Sequence[str]) -> Report | None:
    """The task that others have waited for in vain: srun had to end it, and fewest of those were at its line."""
    gave_up = culprit.status == _ABORTED and any(map(_GAVE_UP.match, errors))
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
    if culprit.status == 127:
        return "the program must be in the image or below a folder that is bound into it"
    return ""


def _describe_no_start(status: int, errors: Sequence[str], launcher: str) -> JaxsifError | None:
    """Why no task has started; None if some did, whose reports went elsewhere (srun --output=log-%t.txt)."""
    fatal = [line for line in errors if line.startswith(("FATAL: ", "Error for command "))]
    if fatal:
        reason = fatal[0].partition(":")[2].strip()
        return HostError(f"the container did not start: {reason}", "the runtime, on a node", "run it there by hand")
    if any(map(_TASK_ENDED.match, errors)):
        return None
    if errors:
        reason = errors[-1].partition("error: ")[2]
        who = LAUNCHERS[launcher]
        return HostError(f"{who.refuses} refused the request: {reason}", launcher, who.remedy)
    return HostError(f"no task started (exit status {status})", launcher)


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
