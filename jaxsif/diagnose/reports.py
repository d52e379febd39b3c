"""What the tasks and srun say on standard error -> reports, and what is shown of it.

The task shim (jaxsif/task) writes its reports into the task's standard error, because that is the
one channel which exists wherever srun works: no port, no shared folder. `ReportFilter` takes them
out. A report is the end of a line:

    \\x1ejaxsif NONCE {"task": 2, "node": "node1", "event": "exit", "status": 1, "where": "a.py:7"}

Each run draws two nonces. The first is known to what runs before the program and around it
(start.sh, stage.py), the second to the Pythons of the program (failure.py), and so to the program.
Without a nonce of this run, a line is the program's: a log of another run that it prints cannot be
taken for a report. What a program says with the second nonce can be a lie, so it counts for little:
how a task ended comes with the first nonce alone, each event has its own fields, of fixed types and
ranges, and nothing of it reaches the terminal but printable text.

A task refuses to start its program, or finds the port taken, before the program's first line. So
`refused` and `port-taken` with the second nonce count as the first report of a task with that
nonce, and no later. In task 0 another one always comes before the first line of a Python program:
`port-held`. And a task that refused ends with status 125: where start.sh reports another one,
culprit.py does not believe the refusal.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from jaxsif.diagnose.barriers import Barrier, BarrierReader
from jaxsif.diagnose.symptoms import GAVE_UP, STEP_ABORTED, UNKNOWN_FLAGS
from jaxsif.errors import printable
from jaxsif.task.contract import (
    CACHE_COUNTS,
    LONGEST_TEXT,
    PROGRAM_EVENTS,
    SEPARATOR,
    START_EVENTS,
    render_marker,
)

_START, _PROGRAM = 0, 1  # which of the nonces
_LONGEST_REPORT = 8192  # bytes; what goes on for longer behind a marker is the program's
_LONGEST_PLACE = 1000  # letters
_MOST_TASKS = 1 << 24  # where the plan does not know their number
# A run makes a few for each task. A program may make any number: they are not kept.
_MOST_REPORTS, _MOST_ALIKE = 100_000, 100  # of a run; of one event and task
_MOST_WARNINGS = 100  # to show
_MOST_ERRORS = 1000  # the first half and the last are kept

# What srun --label begins lines with; and the beginning of such a label. Without --label: nothing.
_LABEL = re.compile(rb"( {0,16}\d{1,9}: )?")
_LABEL_BEGUN = re.compile(rb" {0,16}(\d{1,9}(: ?)?)?")
_NO_LABEL = re.compile(b"")
_LINES = re.compile(rb"[^\n]*\n|[^\n]+")  # unlike splitlines, a carriage return ends none
# What srun, slurmstepd, the runtime and JAX complain of.
_KEPT_LINES = re.compile(
    r"srun: error: |slurmstepd: error: |slurmstepd-\S+: error: (\*\*\*|couldn't chdir) |FATAL: "
    rf"|Error for command |{UNKNOWN_FLAGS.pattern}|{GAVE_UP.pattern}"
)
# One of these is in all that _filter_line and _end_line look for.
_NOTABLE = (
    SEPARATOR,
    b"srun",
    b"slurm",
    b"FATAL",
    b"Error for",
    b"Unknown flag",
    b"detected fatal",
    b"Barrier timed",
)
_LONGEST_ERROR = 4096  # bytes; a progress bar can make one endless line


class Report(NamedTuple):
    """One line of the task shim; its texts are printable."""

    task: int  # SLURM_PROCID
    node: str  # SLURMD_NODENAME; empty without Slurm
    # Of _EVENTS; and two of the launcher's own: cancelled, by Slurm, and interrupted, by a signal
    # to us.
    event: str
    status: int = 0  # of an exit, as a shell gives it: 128 + N for signal N
    text: str = ""  # of an exception, a refusal or a warning
    where: str = ""  # FILE:LINE of an exception, or of what a signal like SIGABRT has ended
    consequence: bool = False  # the exception says that a neighbour is gone
    requests: int = 0  # of JAX to its compile cache
    hits: int = 0
    written: int = 0  # entries
    saved: float = 0.0  # seconds of compiling
    hint: str = ""  # what to do about a refusal or an exception
    step: str = ""  # of the first task's start: Slurm's number of the step, such as 12.0

    @property
    def place(self) -> str:
        """The task and its node, in words."""
        return f"task {self.task} on {self.node}" if self.node else f"process {self.task}"


_ORIGIN = ("event", "task", "node")
REFUSALS = ("refused", "port-taken")  # the program is not started
_EVENTS = (START_EVENTS, PROGRAM_EVENTS)  # by the nonce


def _number(most: float, *types: type) -> Callable[[object], bool]:
    """Return the check of a number from 0 to `most`; its type is one of `types`. NaN is none."""
    return lambda value: type(value) in types and 0 <= value <= most  # type: ignore[operator]


def _text(pattern: str = "(?s).*") -> Callable[[object], bool]:
    """Return the check of a text, which matches `pattern` as a whole."""
    return lambda value: isinstance(value, str) and bool(re.fullmatch(pattern, value))


_CHECKS: Mapping[str, Callable[[object], bool]] = {
    "task": _number(_MOST_TASKS, int),
    "node": _text(r"[A-Za-z0-9_.-]{0,255}"),
    "step": _text(r"[0-9a-zA-Z_]*\.[0-9a-zA-Z_]*"),
    "status": _number(255, int),
    **dict.fromkeys(("event", "text", "where", "hint"), _text()),
    "consequence": lambda value: isinstance(value, bool),
    **dict.fromkeys(CACHE_COUNTS, _number(1 << 40, int)),
    "saved": _number(1e9, int, float),
}


def _parse_report(text: bytes, fields: Mapping[str, tuple[str, ...]], tasks: int) -> Report | None:
    """Return the report of a marked line; None if the line has not the form of one.

    `fields` are those that each event may have beside its origin, which all must have.
    """
    # Here: when the first report comes, the step runs already, and the import costs no time.
    import json

    try:
        found = json.loads(text)
        allowed = {*_ORIGIN, *fields[found["event"]]}
    # Not JSON; a thousand brackets; not an object, or its event is none; without one, or unknown.
    except (ValueError, RecursionError, TypeError, KeyError):
        return None
    if not set(_ORIGIN) <= found.keys() <= allowed:
        return None
    if not all(_CHECKS[name](value) for name, value in found.items()) or found["task"] >= tasks:
        return None
    report = Report(**found)
    return report._replace(
        text=printable(report.text)[:LONGEST_TEXT],
        where=printable(report.where)[-_LONGEST_PLACE:],
        hint=printable(report.hint)[:LONGEST_TEXT],
    )


class _Intake:
    """What the streams of one run have told, in the order of arrival, and as much as a run can
    mean.
    """

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.errors: list[str] = []  # what srun, slurmstepd and the runtime complained of
        self.barriers: list[Barrier] = []
        self._alike: Counter[tuple[int, str]] = Counter()
        self._begun: set[int] = set()  # tasks whose programs may have begun
        self._warnings: set[str] = set()

    def take(self, report: Report, by_program: bool) -> bytes:
        """Keep a report; return what is shown of it: a warning, when the first task says it."""
        if by_program and report.event in REFUSALS and report.task in self._begun:
            report = report._replace(event="warning")  # it comes too late to be a refusal
        self.keep(report, by_program)
        is_new = report.text not in self._warnings and len(self._warnings) < _MOST_WARNINGS
        if report.event != "warning" or not is_new:
            return b""
        self._warnings.add(report.text)
        return f"jaxsif: warning: {report.text} ({report.place})\n".encode()

    def keep(self, report: Report, by_program: bool = False) -> None:
        """Add a report, unless there are many like it, or the program has made too many."""
        full = by_program and len(self.reports) >= _MOST_REPORTS
        if full or self._alike[report.task, report.event] >= _MOST_ALIKE:
            return
        self._alike[report.task, report.event] += 1
        self.reports.append(report)
        if by_program:
            self._begun.add(report.task)

    def keep_error(self, line: str) -> None:
        """Add a line to the errors, of which the first half and the last are kept."""
        self.errors.append(line)
        if len(self.errors) > _MOST_ERRORS:
            del self.errors[_MOST_ERRORS // 2]


class ReportFilter:
    """Passes standard error on as it comes, without the reports, which it collects."""

    def __init__(
        self,
        nonces: Sequence[str] = (),
        tasks: int | None = None,
        label: bool = False,
        beside: ReportFilter | None = None,
    ) -> None:
        """`nonces` are the run's two, or none where nobody reports; `tasks` is the number of tasks,
        if it is known.

        Several streams, one order of arrival: a filter adds to what the one `beside` it collects.
        """
        self._markers = tuple(map(render_marker, nonces))
        self._tasks = tasks or _MOST_TASKS
        self._intake: _Intake = beside._intake if beside else _Intake()
        self.reports = self._intake.reports
        self.errors = self._intake.errors
        self.barriers = self._intake.barriers
        self._barriers = BarrierReader(self.barriers)
        self._label = _LABEL if label else _NO_LABEL
        self._label_begun = _LABEL_BEGUN if label else _NO_LABEL
        self._pending = b""  # the end of an unfinished line that must wait
        self._begun = b""  # the beginning of a line, as far as it is shown already

    def feed(self, data: bytes) -> bytes:
        """Return the part of `data` to show now; b'' means the end of the stream and flushes."""
        lines = data[: data.rfind(b"\n") + 1]
        text = self._begun + lines
        waits = self._pending or self._barriers.open
        if waits or not lines or any(word in text for word in _NOTABLE):
            return self._feed_lines(data)
        # There is nothing in them to look for, as in most of what programs print.
        self._begun = b""
        rest = data[len(lines) :]
        return lines + self._feed_lines(rest) if rest else lines

    def _feed_lines(self, data: bytes) -> bytes:
        """As `feed`, line by line.

        An unfinished line is shown at once (a progress bar), but for an end that may become a
        report.
        """
        text = self._pending + data
        whole = text.rfind(b"\n") + 1 if data else len(text)
        shown = [self._filter_line(line) for line in _LINES.findall(text[:whole])]
        last = text[whole:]
        begin = self._find_wait(last)
        self._pending = last[begin:]
        shown.append(self._show(last[:begin]))
        if not data:
            self._end_line()
        return b"".join(shown)

    def interrupt(self) -> None:
        """Note that a signal to us ends the run: what tasks say from here on is its consequence."""
        self._intake.keep(Report(-1, "", "interrupted"))

    def _find_wait(self, line: bytes) -> int:
        """Return where the end of an unfinished line begins that may become a report, with its
        label.
        """
        before, separator, rest = line.rpartition(SEPARATOR)
        marked = separator + rest
        may_be = any(marker.startswith(marked[: len(marker)]) for marker in self._markers)
        begin = len(before) if may_be and len(marked) <= _LONGEST_REPORT else len(line)
        if not self._begun and self._label_begun.fullmatch(line, 0, begin):
            return 0
        return begin

    def _filter_line(self, line: bytes) -> bytes:
        """Return what is shown of a line that is whole, or of the end of one."""
        before, separator, rest = line.rpartition(SEPARATOR)
        marked = separator + rest
        which = next((i for i, one in enumerate(self._markers) if marked.startswith(one)), None)
        if which is None or len(marked.rstrip(b"\n")) > _LONGEST_REPORT:
            return self._show(line)
        text = marked[len(self._markers[which]) :]
        report = _parse_report(text, _EVENTS[which], self._tasks)
        if report is None:
            return self._show(line)
        seen = self._intake.take(report, by_program=which == _PROGRAM)
        if not self._begun and self._label.fullmatch(before):
            return seen
        return self._show(before, ends=line.endswith(b"\n")) + seen

    def _show(self, text: bytes, ends: bool = False) -> bytes:
        """Return the next part of a line as it is; errors are looked for in lines that end."""
        self._begun = (self._begun + text)[:_LONGEST_ERROR]
        if ends or text.endswith(b"\n"):
            self._end_line()
        return text

    def _end_line(self) -> None:
        """Learn what the line that is now whole tells, without its label."""
        found = self._label.match(self._begun)
        label = found[0] if found else b""
        text = self._begun[len(label) :].decode(errors="replace").rstrip()
        self._begun = b""
        if _KEPT_LINES.match(text):
            self._intake.keep_error(text)
        if STEP_ABORTED.match(text):  # a report, because what has failed before it counts
            self._intake.keep(Report(-1, "", "cancelled"))
        self._barriers.read(label, text)


def by_task(reports: Sequence[Report], event: str) -> dict[int, Report]:
    """Return the last report of `event` of each task."""
    return {report.task: report for report in reports if report.event == event}


def find_step(reports: Sequence[Report]) -> str:
    """Return Slurm's number of the step, such as '12.0'; '' until its first task has started."""
    return next((report.step for report in reports if re.fullmatch(r"\d+\.\d+", report.step)), "")
