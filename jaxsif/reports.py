"""What the tasks and srun say on standard error -> reports, and what is shown of it.

The task shim (jaxsif/task) writes its reports as lines that begin with MARKER into the task's standard error, because
that is the one channel which exists wherever srun works: no port, no shared folder. `ReportFilter` takes them out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

MARKER = b"\x1ejaxsif "  # as in jaxsif/task/failure.py and start.sh
_LABEL = re.compile(rb" *\d+: ")  # what srun --label begins lines with
_LINES = re.compile(rb"[^\n]*\n|[^\n]+")  # unlike splitlines, a carriage return ends none
# As JAX says it of itself, when another process did not come to jax.distributed.initialize.
GAVE_UP = re.compile(r"F.*JAX distributed service detected fatal errors.*DEADLINE_EXCEEDED")
_KEPT_LINES = re.compile(
    r"^(srun: error: |slurmstepd: error: |slurmstepd-\S+: error: (\*\*\*|couldn't chdir) |FATAL: |Error for command |"
    rf"F.*Unknown flags? in XLA_|{GAVE_UP.pattern})"
)
_ABORTED = "srun: Job step aborted: "  # of a step that is cancelled, and not of one whose task has failed
_LONGEST_ERROR = 4096  # bytes; a progress bar can make one endless line
# What JAX says of a barrier that not all processes have reached in time, in three lines or more.
_BARRIER = re.compile(r".*\bBarrier timed out\. Id: (\S*?)(?:::\d+)*\. ")
_REACHED = re.compile(r"# of tasks that reached the barrier: (\d+)/(\d+)\.$")
_FIRST = re.compile(r"The first task at the barrier: (\d+)\. Some timed out task names:$")


class Report(NamedTuple):
    """One line of the task shim."""

    task: int  # SLURM_PROCID
    node: str  # SLURMD_NODENAME; empty without Slurm
    event: str  # started, warning, refused, port-taken, exception, end, exit or cache; and Slurm's cancelled
    status: int = 0  # of an exit, as a shell gives it: 128 + N for signal N
    text: str = ""  # of an exception, a refusal or a warning
    where: str = ""  # FILE:LINE of an exception, or of what a signal like SIGABRT has ended
    consequence: bool = False  # the exception says that a neighbour is gone
    requests: int = 0  # of JAX to its compile cache
    hits: int = 0
    written: int = 0  # entries
    saved: float = 0.0  # seconds of compiling
    hint: str = ""  # what to do about a refusal
    step: str = ""  # of the first task's start: Slurm's number of the step, such as 12.0

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
        if text.startswith(_ABORTED):  # among the reports, because what has failed before it counts
            self.reports.append(Report(-1, "", "cancelled"))
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


def find_step(reports: Sequence[Report]) -> str:
    """Slurm's number of the step, such as '12.0'; '' until its first task has started."""
    return next((report.step for report in reports if re.fullmatch(r"\d+\.\d+", report.step)), "")


def _parse_report(text: bytes) -> Report | None:
    """The report of a marked line; None if the line is not ours after all."""
    import json  # here: when the first report comes, the step runs already, and the import costs no time

    try:
        return Report(**json.loads(text))
    except (ValueError, TypeError):
        return None
