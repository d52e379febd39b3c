"""Extract reports, messages and barriers from the standard error of tasks and srun; show the rest.

The task shim (jaxsif/task) writes its reports into the task's standard error, because that is the
only channel that exists wherever srun works: no port, no shared folder. `ReportFilter` removes
them. A report is the end of a line:

    \\x1ejaxsif NONCE {"task": 2, "node": "node1", "event": "exit", "status": 1, "where": "a.py:7"}

Each run draws two nonces. The scripts that start and surround the program (start.sh, stage.py) know
the first; the program's Python processes (failure.py), and thus the program, know the second. A
line without a nonce of this run is the program's: if it prints the log of another run, that cannot
be mistaken for a report. A report with the second nonce can be forged, so it counts for little: the
end of a task is reported only with the first nonce, each event has its own fields, of fixed types
and ranges, and only printable text reaches the terminal.

A task refuses to start its program, or finds the port taken, before the program's first line. So
`refused` and `port-taken` with the second nonce count only as a task's first report with that
nonce. In task 0 another report always comes before the first line of a Python program: `port-held`.
And a task that refused ends with status 125: if start.sh reports another status, culprit.py does
not believe the refusal.

The name that srun was started under (`ReportFilter.name_srun`) distinguishes srun's lines from
those that a program prints. If srun is a script of the site, the name is lost: until a line has
the name, the lines of any srun count.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxsif.diagnose.symptoms import (
    BARRIER,
    BARRIER_TEXT,
    KEPT_LINES,
    NOTABLE,
    OTHER_NAME,
    OTHER_NAME_TEXT,
    STEP_ABORTED,
)
from jaxsif.limits import MOST_TASKS_OF_A_STEP
from jaxsif.task.contract import (
    CACHE_COUNTS,
    LONGEST_TEXT,
    PROGRAM_EVENTS,
    SEPARATOR,
    START_EVENTS,
    render_marker,
)
from jaxsif.text import printable

_LONGEST_REPORT = 8192  # bytes; anything longer after a marker is the program's
_LONGEST_PLACE = 1000  # characters
# A run makes a few per task. A program may make any number, which are not kept.
MOST_REPORTS, MOST_ALIKE = 100_000, 100  # per run; per event and task
_MOST_WARNINGS = 100  # to show
_MOST_ERRORS = 1000  # the first half and the last are kept

_LINES = re.compile(rb"[^\n]*\n")  # unlike with splitlines, a carriage return ends no line
_MOST_BARRIERS, _MOST_MISSING = 100, 100
_LONGEST_NAME = 300  # characters, of a barrier
# The lines after symptoms.BARRIER, before the numbers of missing tasks.
_REACHED = r"# of tasks that reached the barrier: (\d{1,9})/(\d{1,9})\.$"
_FIRST = r"The first task at the barrier: (\d{1,9})\. Some timed out task names:$"
_TASK = r"\d{1,9}$"
_LONGEST_ERROR = 4096  # bytes; a progress bar can make one endless line
_SRUN = "srun: "  # begins its lines


class Report(NamedTuple):
    """One line of the task shim; its texts are printable."""

    task: int  # SLURM_PROCID
    node: str  # SLURMD_NODENAME; empty without Slurm
    # From the contract, or one of the launcher's own: cancelled, by Slurm, and interrupted or
    # announced, by a signal to us.
    event: str
    status: int = 0  # of an exit, as in a shell: 128 + N for signal N
    text: str = ""  # of an exception, a refusal or a warning
    where: str = ""  # FILE:LINE of an exception, or where a signal such as SIGABRT ended the task
    consequence: bool = False  # the exception says that a neighbour is gone
    jax: bool = False  # the Python process has imported JAX, and is no worker of another one
    requests: int = 0  # of JAX to its compile cache
    hits: int = 0
    written: int = 0  # entries
    saved: float = 0.0  # seconds of compiling
    hint: str = ""  # the remedy for a refusal or an exception
    hides: str = ""  # of an exception: the one that it was raised from or hides, and its place
    step: str = ""  # in the first task's start: Slurm's number of the step, such as 12.0
    nodes: str = ""  # of that step, a node list; the end of a long one, after other reports'
    seconds: float = 0.0  # of a wait
    # Of an exit, the task's status a moment before: 'TURNS QUIET LOOP|WHERE|TURNS.TURNS', see
    # task/watch/status_file.py.
    box: str = ""
    crashed: bool = False  # of an exit by SIGABRT: it came from a thread in the program, at `where`
    # Of a program that JAX compiles for devices of several processes; `where` is its first use.
    order: int = 0  # among those of the main thread, from 1; 0 for another thread's
    group: str = ""  # digest of the devices
    processes: int = 0  # that have the devices
    name: str = ""  # such as jit_loss
    types: str = ""  # of its arguments
    digest: str = ""  # of its computation
    at: str = ""  # the loops around its first call, see render_position() in the contract

    @property
    def place(self) -> str:
        """The task and its node, in words."""
        return f"task {self.task} on {self.node}" if self.node else f"process {self.task}"


HAS_ENDED, MAY_COMPILE = "has ended", "may compile"


class ProgramDifference(NamedTuple):
    """How the programs of tasks differ."""

    text: str  # in words; empty if they do not
    outcome: str = ""  # what follows, in words
    how: str = ""  # the tasks without a program go on: HAS_ENDED, MAY_COMPILE or in other words

    @property
    def warning(self) -> str:
        """The difference and what follows, in words."""
        return f"{self.text}: {self.outcome}"


ALIKE = ProgramDifference("")


class LastStatus(NamedTuple):
    """A task's status a moment before its end."""

    turns: str  # iterations of the innermost enclosing loop
    quiet: str  # seconds
    loop: str  # FILE:LINE of that loop, or ''
    where: str  # FILE:LINE of the task, or ''
    around: tuple[str, ...]  # iterations of all enclosing loops, the outermost first; () if unknown


def parse_status(box: str) -> LastStatus | None:
    """Parse the `box` of a report; return None if it has none."""
    if not box:
        return None
    turns, quiet, places = box.split(" ", 2)
    loop, where, *around = places.split("|")
    return LastStatus(turns, quiet, loop, where, tuple(around[0].split(".")) if around else ())


_NOTABLE = (SEPARATOR, *NOTABLE)  # each line of interest has one of these
_ORIGIN = {"event", "task", "node"}
AT_THE_END = "the end of the program"  # where JAX holds a task until the others arrive
REFUSALS = ("refused", "lacking", "port-taken")  # the program is not started
OUTSIDE = ("cancelled", "interrupted")  # the whole run was ended by Slurm, or by a signal to us
# From a running task: passed to the listener, and not kept.
LIVE = ("wait", "moved", "program")


class _Label(NamedTuple):
    """The label that begins each line of srun --label, and an incomplete one."""

    whole: re.Pattern[bytes]  # also matches a line without a label
    begun: re.Pattern[bytes]


_LABELS = {  # by whether srun has --label
    True: _Label(re.compile(rb"( {0,16}\d{1,9}: )?"), re.compile(rb" {0,16}(\d{1,9}(: ?)?)?")),
    False: _Label(re.compile(b""), re.compile(b"")),
}


class _Channel(NamedTuple):
    """The events that one of the nonces allows."""

    events: Mapping[str, tuple[str, ...]]  # each with its fields
    most: float = math.inf  # no more of these are kept once a run has this many reports
    late: Mapping[str, str] = {}  # event -> what it counts as if it is not the task's first
    marker: bytes = b""  # begins a report


_CHANNELS = (
    _Channel(START_EVENTS),
    _Channel(PROGRAM_EVENTS, MOST_REPORTS, dict.fromkeys(REFUSALS, "warning")),
)
_LAUNCHER = _Channel({})  # ourselves


class _Number(NamedTuple):
    """The form of a field that holds a number from 0 to `most`, or a boolean."""

    most: float
    types: tuple[type, ...] = (int,)


# By field: a pattern of the whole text, or a range. For tasks, see ReportFilter.
_FORMS: Mapping[str, str | _Number] = {
    "node": r"[A-Za-z0-9_.-]{0,255}",
    "step": r"[0-9a-zA-Z_]*\.[0-9a-zA-Z_]*",
    "nodes": r"[][A-Za-z0-9_.,-]{0,600}",
    "status": _Number(255),
    "box": r"(\d{1,18} \d{1,9}\.\d [ -{}~]{0,240}\|[ -{}~]{0,240}(\|[\d.]{0,60})?)?",
    **dict.fromkeys(("event", "text", "where", "hint", "hides", "name", "types"), "(?s).*"),
    **dict.fromkeys(("group", "digest"), "[0-9a-f]{1,16}"),
    "order": _Number(1 << 40),
    "at": r"([0-9a-f]{1,8}:-?\d{1,18}(,(?=.)|$)){0,4}",
    "processes": _Number(MOST_TASKS_OF_A_STEP),
    **dict.fromkeys(("consequence", "jax", "crashed"), _Number(1, (bool,))),
    **dict.fromkeys(CACHE_COUNTS, _Number(1 << 40)),
    **dict.fromkeys(("saved", "seconds"), _Number(1e9, (int, float))),
}


def _parse_report(
    marked: bytes, channel: _Channel, forms: Mapping[str, str | _Number]
) -> Report | None:
    """Parse a line that begins with the channel's marker; return None for any other line. A report
    has the fields of its origin, and otherwise only fields that its event may have.
    """
    is_marked = marked.startswith(channel.marker)
    if not is_marked or len(marked.rstrip(b"\n")) > _LONGEST_REPORT:
        return None
    import json

    try:
        fields = json.loads(marked[len(channel.marker) :].decode())
        allowed = _ORIGIN.union(channel.events[fields["event"]])
    # Not JSON, or nested too deeply; not an object, or no valid event; no event, or unknown.
    except (ValueError, RecursionError, TypeError, KeyError):
        return None
    if not _ORIGIN <= fields.keys() <= allowed:
        return None
    if not all(_has_form(value, forms[name]) for name, value in fields.items()):
        return None
    report = Report(**fields)
    return report._replace(
        text=printable(report.text)[:LONGEST_TEXT],
        where=printable(report.where)[-_LONGEST_PLACE:],
        hint=printable(report.hint)[:LONGEST_TEXT],
        name=printable(report.name)[:LONGEST_TEXT],
        types=printable(report.types)[:LONGEST_TEXT],
    )


def _has_form(value: Any, form: str | _Number) -> bool:
    if isinstance(form, str):
        return type(value) is str and re.fullmatch(form, value) is not None
    return type(value) in form.types and 0 <= value <= form.most  # no NaN


class Barrier(NamedTuple):
    """A place where JAX's processes wait for each other, and that some have not reached in time."""

    name: str  # JAX's, such as 'Shutdown'
    reached: int = 0  # processes
    processes: int = 0  # all
    first: int = -1  # the process that arrived first
    missing: tuple[int, ...] = ()  # some of those that did not arrive


class _BarrierParser:
    """Parses the barriers of one stream, in which the lines of several tasks may alternate."""

    def __init__(self, barriers: list[Barrier]) -> None:
        self._barriers = barriers  # shared by all streams of a run; the first one went wrong
        self.open: dict[bytes, Barrier] = {}  # label -> the barrier whose lines are being read

    def feed(self, label: bytes, line: str) -> None:
        """Add one more line of the task with that label; an unrelated line ends its barrier."""
        after = self._parse_line(self.open.pop(label, None), line)
        if after is not None:
            self.open[label] = after

    def _parse_line(self, before: Barrier | None, line: str) -> Barrier | None:
        """Return the barrier with one more line, or None if the line ends it."""
        begin = re.match(BARRIER.pattern, line)
        if begin:
            # The id is NAME::NUMBER::NUMBER.
            return Barrier(re.sub(r"(::\d+)+$", "", begin["id"])[:_LONGEST_NAME])
        if before is None:
            return None
        reached, first = re.match(_REACHED, line), re.match(_FIRST, line)
        if reached:
            return before._replace(reached=int(reached[1]), processes=int(reached[2]))
        if first:
            return before._replace(first=int(first[1]))
        is_open = before.first >= 0 and len(before.missing) < _MOST_MISSING
        if is_open and re.match(_TASK, line) and int(line) not in before.missing:
            return self._add_missing(before, int(line))
        return None

    def _add_missing(self, before: Barrier, task: int) -> Barrier:
        """Keep the barrier with one more task that did not arrive."""
        if before in self._barriers:
            self._barriers.remove(before)
        after = before._replace(missing=(*before.missing, task))
        # Each task prints the same.
        if after not in self._barriers and len(self._barriers) < _MOST_BARRIERS:
            self._barriers.append(after)
        return after


class _Log:
    """Reports and messages of one run's streams, in order of arrival and limited in number."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.errors: list[str] = []  # messages from srun, slurmstepd, the runtime and JAX
        self.barriers: list[Barrier] = []
        self.listener: Callable[[Report], object] | None = None
        self._alike: Counter[tuple[int, str]] = Counter()
        self._kept: set[tuple[bytes, int]] = set()  # marker and task
        self._warnings: set[str] = set()
        self._knows_srun = False  # by its name

    def take(self, report: Report, channel: _Channel) -> bytes:
        """Keep a report; for a new warning, return its text, which names the first task that
        reported it.
        """
        if report.event in LIVE:
            self._kept.add((channel.marker, report.task))
            if self.listener:
                self.listener(report)
            return b""
        if (channel.marker, report.task) in self._kept:
            report = report._replace(event=channel.late.get(report.event, report.event))
        self.add(report, channel)
        is_new = report.text not in self._warnings and len(self._warnings) < _MOST_WARNINGS
        if report.event != "warning" or not is_new:
            return b""
        self._warnings.add(report.text)
        return f"jaxsif: warning: {report.text} ({report.place})\n".encode()

    def add(self, report: Report, channel: _Channel = _LAUNCHER) -> None:
        """Add a report, unless there are many like it, or too many for its channel."""
        is_full = len(self.reports) >= channel.most
        if not is_full and self._alike[report.task, report.event] < MOST_ALIKE:
            self._alike[report.task, report.event] += 1
            self._kept.add((channel.marker, report.task))
            self.reports.append(report)
        if self.listener:
            self.listener(report)

    def keep_line(self, line: str, is_named: bool) -> None:
        """Keep a message; an `is_named` line has srun's own name."""
        if is_named and not self._knows_srun:
            # Those before the first line with the name were the program's.
            self._knows_srun = True
            self.errors[:] = [line for line in self.errors if not line.startswith(_SRUN)]
            self.reports[:] = [report for report in self.reports if report.event != "cancelled"]
        if line.startswith(_SRUN) and self._knows_srun and not is_named:
            return  # the program's
        if KEPT_LINES.match(line):
            self.errors.append(line)
            half = _MOST_ERRORS // 2
            del self.errors[half:-half]  # nothing while they are few
        if re.match(STEP_ABORTED.pattern, line):  # a report: only failures before it count
            self.add(Report(-1, "", "cancelled"))


class ReportFilter:
    """Passes standard error on as it arrives, without the reports, which it collects."""

    def __init__(
        self,
        nonces: Sequence[str] = (),
        tasks: int | None = None,
        label: bool = False,
        beside: ReportFilter | None = None,
        whole: bool = False,
    ) -> None:
        """`nonces` are the run's two, or empty if tasks do not report; `tasks` is their number, or
        None if unknown. With `whole`, only long lines are shown before their end.

        To keep several streams in one order of arrival, a filter shares the log of the filter
        `beside`.
        """
        markers = map(render_marker, nonces)
        self._channels = [channel._replace(marker=m) for channel, m in zip(_CHANNELS, markers)]
        self.tasks = tasks
        self._forms = {**_FORMS, "task": _Number((tasks or MOST_TASKS_OF_A_STEP) - 1)}
        self._log: _Log = beside._log if beside else _Log()
        self.reports = self._log.reports
        self.errors = self._log.errors
        self.barriers = self._log.barriers
        self._barrier_parser = _BarrierParser(self.barriers)
        self._label = _LABELS[label]
        self._whole = whole
        self._srun = b""  # begins the lines of the run's own srun; b"" if unknown
        self._pending = b""  # the end of an unfinished line that must wait
        self._begun = b""  # the beginning of a line that was already shown

    def feed(self, data: bytes) -> bytes:
        """Filter the next data and return the part to show now. b'' ends the stream and flushes."""
        if not data:
            shown, self._pending = self._filter_line(self._pending), b""
            self._end_line()
            return shown
        text, self._pending = self._pending + data, b""
        end = text.rfind(b"\n") + 1
        lines, last = text[:end], text[end:]
        seen = self._begun + lines
        if not lines or self._barrier_parser.open or any(map(seen.__contains__, _NOTABLE)):
            shown = b"".join(map(self._filter_line, _LINES.findall(lines)))
        else:  # most of what programs print
            shown, self._begun = lines, b""
        if not last:
            return shown
        # Show it immediately (a progress bar), except for an end that may become a report.
        begin = self._find_wait(last)
        self._pending = last[begin:]
        return shown + self._show(last[:begin])

    def listen(self, listener: Callable[[Report], object]) -> None:
        """Pass each report to `listener` when it arrives."""
        self._log.listener = listener

    def name_srun(self, name: str) -> None:
        """Keep only messages of the srun with this name, once a line has the name."""
        self._srun = f"{name}: ".encode()

    def interrupt(self, number: int) -> None:
        """Record that a signal to us ends the run: later reports are consequences."""
        self._log.add(Report(-1, "", "interrupted", number))

    def announce(self) -> None:
        """Record SIGURG to us: the job is about to end."""
        self._log.add(Report(-1, "", "announced"))

    def _find_wait(self, line: bytes) -> int:
        """Return the start of the part of an unfinished line that must wait: it may become a
        labelled report, or srun's own name, which is not shown.
        """
        begin = self._find_report(line)
        # A single character, as in '3.2 s', is not held back.
        begun = range(2, len(self._srun))
        held = [size for size in begun if line.endswith(self._srun[:size], 0, begin)]
        return begin - max(held, default=0)

    def _find_report(self, line: bytes) -> int:
        """Do the same as `_find_wait`, but only for reports."""
        if self._whole and len(line) <= _LONGEST_REPORT:
            return 0
        begin = len(line.rpartition(SEPARATOR)[0])
        marked = line[begin:]
        markers = [channel.marker for channel in self._channels]
        may_be = any(marker.startswith(marked[: len(marker)]) for marker in markers)
        begin = begin if may_be and len(marked) <= _LONGEST_REPORT else len(line)
        if not self._begun and self._label.begun.fullmatch(line, 0, begin):
            return 0
        return begin

    def _filter_line(self, line: bytes) -> bytes:
        """Filter a whole line, or the end of one, and return the part to show."""
        before = line.rpartition(SEPARATOR)[0]
        marked = line[len(before) :]
        for channel in self._channels:
            report = _parse_report(marked, channel, self._forms)
            if report:
                warning = self._log.take(report, channel)
                if not self._begun and self._label.whole.fullmatch(before):
                    return warning
                return self._show(before, ends=line.endswith(b"\n")) + warning
        if OTHER_NAME_TEXT in line and not self._begun and self._misses_coordinator(line):
            return b""
        return self._show(line)

    def _misses_coordinator(self, line: bytes) -> bool:
        """Return whether the line is gRPC's complaint that the run's certificate, which names no
        node, lacks the coordinator's name.
        """
        label = next(self._label.whole.finditer(line))[0]
        text = line[len(label) :].decode(errors="replace").rstrip()
        match = re.match(OTHER_NAME.pattern, text)
        held = [report.text for report in of_event(self.reports, "port-held")]
        return match is not None and match["name"] in held

    def _show(self, text: bytes, ends: bool = False) -> bytes:
        """Show the next part of a line; a line that ends may be a message."""
        self._begun = (self._begun + text)[:_LONGEST_ERROR]
        if ends or text.endswith(b"\n"):
            self._end_line()
        return text.replace(self._srun, _SRUN.encode()) if self._srun else text

    def _end_line(self) -> None:
        """Keep the message of the line that is now complete, without its label."""
        label = next(self._label.whole.finditer(self._begun))[0]  # b"" if there is none
        line = self._begun[len(label) :]
        # srun may write after a program's unfinished line.
        _, name, message = line.partition(self._srun) if self._srun else (b"", b"", b"")
        if name:
            line = _SRUN.encode() + message
        text = line.decode(errors="replace").rstrip()
        self._begun = b""
        self._log.keep_line(text, is_named=bool(name))
        if self._barrier_parser.open or BARRIER_TEXT in line:
            self._barrier_parser.feed(label, text)


def of_event(reports: Sequence[Report], *events: str) -> list[Report]:
    """Return the reports of these events."""
    return [report for report in reports if report.event in events]


def by_task(reports: Sequence[Report], event: str) -> dict[int, Report]:
    """Return each task's last report of `event`."""
    return {report.task: report for report in of_event(reports, event)}


def find_start(reports: Sequence[Report]) -> Report:
    """Return the first report of a start, with Slurm's number of the step, such as '12.0' (''
    without Slurm), and all nodes of the step; an empty report until there is one.
    """
    starts = (report for report in reports if re.fullmatch(r"\d+\.\d*", report.step))
    start = next(starts, Report(-1, "", "started"))
    step = "" if start.step.endswith(".") else start.step  # only a job, without a step
    pieces = (*of_event(reports, "nodes"), start)
    return start._replace(step=step, nodes="".join(report.nodes for report in pieces))
