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

srun's own lines are told from those that a program prints by the name that srun was started under
(`ReportFilter.name_srun`). A srun that is a script of the site loses that name: until the first
line has it, all lines of any srun count.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from jaxsif.diagnose.barriers import Barrier, BarrierReader
from jaxsif.diagnose.symptoms import (
    GAVE_UP,
    INTRUDED,
    OTHER_NAME,
    STEP_ABORTED,
    UNKNOWN_FLAGS,
    find_first,
)
from jaxsif.errors import printable
from jaxsif.foreign import Check, check_number, check_pattern, is_node, parse_json
from jaxsif.limits import MOST_TASKS_OF_A_STEP
from jaxsif.task.contract import (
    CACHE_COUNTS,
    LONGEST_TEXT,
    PROGRAM_EVENTS,
    SEPARATOR,
    START_EVENTS,
    render_marker,
)

_LONGEST_REPORT = 8192  # bytes; what goes on for longer after a marker is the program's
_LONGEST_PLACE = 1000  # letters
# A run makes a few for each task. A program may make any number: they are not kept.
_MOST_REPORTS, MOST_ALIKE = 100_000, 100  # of a run; of one event and task
_MOST_WARNINGS = 100  # to show
_MOST_ERRORS = 1000  # the first half and the last are kept

_LINES = re.compile(rb"[^\n]*\n")  # unlike splitlines, a carriage return ends none
# What srun, slurmstepd, the runtime and JAX complain of.
_KEPT_LINES = re.compile(
    r"srun: (error|fatal): |slurmstepd: error: |slurmstepd-\S+: error: (\*\*\*|couldn't chdir) "
    rf"|FATAL: |Error for command |{UNKNOWN_FLAGS.pattern}|{GAVE_UP.pattern}"
    rf"|{INTRUDED.pattern}"
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
    b"No match found for server name",
)
_LONGEST_ERROR = 4096  # bytes; a progress bar can make one endless line
_SRUN = "srun: "  # what begins its lines


class Report(NamedTuple):
    """One line of the task shim; its texts are printable."""

    task: int  # SLURM_PROCID
    node: str  # SLURMD_NODENAME; empty without Slurm
    # Of the contract; and two of the launcher's own: cancelled, by Slurm, and interrupted, by a
    # signal to us.
    event: str
    status: int = 0  # of an exit, as a shell gives it: 128 + N for signal N
    text: str = ""  # of an exception, a refusal or a warning
    where: str = ""  # FILE:LINE of an exception, or of what a signal like SIGABRT has ended
    consequence: bool = False  # the exception says that a neighbour is gone
    jax: bool = False  # the Python of the exception has imported JAX
    requests: int = 0  # of JAX to its compile cache
    hits: int = 0
    written: int = 0  # entries
    saved: float = 0.0  # seconds of compiling
    hint: str = ""  # what to do about a refusal or an exception
    step: str = ""  # of the first task's start: Slurm's number of the step, such as 12.0
    nodes: str = ""  # of that step, a node list; the end of a long one, behind other reports'
    seconds: float = 0.0  # of a wait
    # Of an exit, what the task did a moment before: 'TURNS QUIET LOOP|WHERE' (jaxsif/task/box.py).
    box: str = ""
    # Of a program that JAX compiles for devices of several processes; `where` is where it is used.
    order: int = 0  # among those of the main thread, from 1; 0 of another thread's
    group: str = ""  # digest of the devices
    processes: int = 0  # that have the devices
    name: str = ""  # such as jit_loss
    types: str = ""  # of its arguments
    digest: str = ""  # of what it computes
    at: str = ""  # the loops around its first call, see render_position() of the contract

    @property
    def place(self) -> str:
        """The task and its node, in words."""
        return f"task {self.task} on {self.node}" if self.node else f"process {self.task}"


_ORIGIN = {"event", "task", "node"}
REFUSALS = ("refused", "port-taken")  # the program is not started
# These are told to who listens, and not kept: they say what a task does while it runs.
LIVE = ("watched", "wait", "moved", "program")


class _Label(NamedTuple):
    """What srun --label begins lines with; and the beginning of such a label."""

    whole: re.Pattern[bytes]  # matches a line without one, too
    begun: re.Pattern[bytes]


_LABELS = {  # by whether srun was told --label
    True: _Label(re.compile(rb"( {0,16}\d{1,9}: )?"), re.compile(rb" {0,16}(\d{1,9}(: ?)?)?")),
    False: _Label(re.compile(b""), re.compile(b"")),
}


class _Channel(NamedTuple):
    """What may be said with one of the nonces."""

    events: Mapping[str, tuple[str, ...]]  # each with its fields
    most: float = math.inf  # as soon as a run has so many reports, no more of these are kept
    late: Mapping[str, str] = {}  # what an event counts as that is not the task's first
    marker: bytes = b""  # what begins a report


_CHANNELS = (
    _Channel(START_EVENTS),
    _Channel(PROGRAM_EVENTS, _MOST_REPORTS, dict.fromkeys(REFUSALS, "warning")),
)
_LAUNCHER = _Channel({})  # ourselves


_CHECKS: Mapping[str, Check] = {  # by field; and of a task, see ReportFilter
    "node": is_node,
    "step": check_pattern(r"[0-9a-zA-Z_]*\.[0-9a-zA-Z_]*"),
    "nodes": check_pattern(r"[][A-Za-z0-9_.,-]{0,600}"),
    "status": check_number(255, int),
    "box": check_pattern(r"(\d{1,18} \d{1,9}\.\d [ -{}~]{0,240}\|[ -{}~]{0,240})?"),
    **dict.fromkeys(("event", "text", "where", "hint", "name", "types"), check_pattern("(?s).*")),
    **dict.fromkeys(("group", "digest"), check_pattern("[0-9a-f]{1,16}")),
    "order": check_number(1 << 40, int),
    "at": check_pattern(r"([0-9a-f]{1,8}:-?\d{1,18}(,(?=.)|$)){0,4}"),
    "processes": check_number(MOST_TASKS_OF_A_STEP, int),
    **dict.fromkeys(("consequence", "jax"), lambda value: isinstance(value, bool)),
    **dict.fromkeys(CACHE_COUNTS, check_number(1 << 40, int)),
    **dict.fromkeys(("saved", "seconds"), check_number(1e9, int, float)),
}


def _parse_report(marked: bytes, channel: _Channel, checks: Mapping[str, Check]) -> Report | None:
    """Return the report of a line with the channel's marker; None if it has not the form of one:
    the origin, which all must have, and fields that the event may have beside it.
    """
    if len(marked.rstrip(b"\n")) > _LONGEST_REPORT:
        return None
    try:
        found = parse_json(marked[len(channel.marker) :].decode())
        allowed = _ORIGIN.union(channel.events[found["event"]])
    # Not JSON; not an object, or its event is none; without one, or unknown.
    except (ValueError, TypeError, KeyError):
        return None
    has_form = _ORIGIN <= found.keys() <= allowed
    if not (has_form and all(checks[name](value) for name, value in found.items())):
        return None
    report = Report(**found)
    return report._replace(
        text=printable(report.text)[:LONGEST_TEXT],
        where=printable(report.where)[-_LONGEST_PLACE:],
        hint=printable(report.hint)[:LONGEST_TEXT],
        name=printable(report.name)[:LONGEST_TEXT],
        types=printable(report.types)[:LONGEST_TEXT],
    )


def _ignore(_report: Report) -> None:
    """For runs that nobody watches."""


class _Intake:
    """What the streams of one run have told, in the order of arrival, and as much as a run can
    mean.
    """

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.errors: list[str] = []  # what srun, slurmstepd and the runtime complained of
        self.barriers: list[Barrier] = []
        self.listen: Callable[[Report], None] = _ignore
        self._alike: Counter[tuple[int, str]] = Counter()
        self._heard: set[tuple[bytes, int]] = set()  # marker and task of what is kept
        self._warnings: set[str] = set()
        self._knows_srun = False  # by its name

    def take(self, report: Report, channel: _Channel) -> bytes:
        """Keep a report; return what is shown of it: a warning, when the first task says it."""
        if report.event in LIVE:
            self._heard.add((channel.marker, report.task))
            self.listen(report)
            return b""
        if (channel.marker, report.task) in self._heard:
            report = report._replace(event=channel.late.get(report.event, report.event))
        self.keep(report, channel)
        is_new = report.text not in self._warnings and len(self._warnings) < _MOST_WARNINGS
        if report.event != "warning" or not is_new:
            return b""
        self._warnings.add(report.text)
        return f"jaxsif: warning: {report.text} ({report.place})\n".encode()

    def keep(self, report: Report, channel: _Channel = _LAUNCHER) -> None:
        """Add a report, unless there are many like it, or too many for its channel."""
        is_full = len(self.reports) >= channel.most
        if is_full or self._alike[report.task, report.event] >= MOST_ALIKE:
            return
        self._alike[report.task, report.event] += 1
        self._heard.add((channel.marker, report.task))
        self.reports.append(report)
        self.listen(report)

    def keep_line(self, line: str, is_named: bool) -> None:
        """Learn from a line, which has srun's own name or not."""
        if is_named and not self._knows_srun:
            self._forget_srun()
        if line.startswith(_SRUN) and self._knows_srun and not is_named:
            return  # the program's
        if _KEPT_LINES.match(line):
            self._keep_error(line)
        if STEP_ABORTED.match(line):  # a report, because what has failed before it counts
            self.keep(Report(-1, "", "cancelled"))

    def _forget_srun(self) -> None:
        """Forget the lines before the first one with srun's own name: they were the program's."""
        self._knows_srun = True
        self.errors[:] = [line for line in self.errors if not line.startswith(_SRUN)]
        self.reports[:] = [report for report in self.reports if report.event != "cancelled"]

    def _keep_error(self, line: str) -> None:
        """Add a line to the errors, of which the first half and the last are kept."""
        self.errors.append(line)
        half = _MOST_ERRORS // 2
        del self.errors[half:-half]  # nothing while they are few


class ReportFilter:
    """Passes standard error on as it comes, without the reports, which it collects."""

    def __init__(
        self,
        nonces: Sequence[str] = (),
        tasks: int | None = None,
        label: bool = False,
        beside: ReportFilter | None = None,
        whole: bool = False,
    ) -> None:
        """`nonces` are the run's two, or none where nobody reports; `tasks` is the number of tasks,
        if it is known. With `whole`, no line is shown before its end, unless it is long.

        Several streams, one order of arrival: a filter adds to what the one `beside` it collects.
        """
        markers = map(render_marker, nonces)
        self._channels = [one._replace(marker=text) for one, text in zip(_CHANNELS, markers)]
        self._checks = {**_CHECKS, "task": check_number((tasks or MOST_TASKS_OF_A_STEP) - 1, int)}
        self._intake: _Intake = beside._intake if beside else _Intake()
        self.reports = self._intake.reports
        self.errors = self._intake.errors
        self.barriers = self._intake.barriers
        self._barriers = BarrierReader(self.barriers)
        self._label = _LABELS[label]
        self._whole = whole
        self._srun = b""  # what begins the lines of the run's own srun; b"" where that is not known
        self._pending = b""  # the end of an unfinished line that must wait
        self._begun = b""  # the beginning of a line, as far as it is shown already

    def feed(self, data: bytes) -> bytes:
        """Return the part of `data` to show now; b'' means the end of the stream and flushes."""
        if not data:
            return self._flush()
        data, self._pending = self._pending + data, b""
        lines = data[: data.rfind(b"\n") + 1]
        text = self._begun + lines
        if self._barriers.open or not lines or any(word in text for word in _NOTABLE):
            return self._feed_lines(data)
        # There is nothing in them to look for, as in most of what programs print.
        self._begun = b""
        return lines + self._feed_lines(data[len(lines) :])

    def _feed_lines(self, text: bytes) -> bytes:
        """As `feed`, line by line.

        An unfinished line is shown at once (a progress bar), but for an end that may become a
        report.
        """
        whole = text.rfind(b"\n") + 1
        shown = b"".join(map(self._filter_line, _LINES.findall(text[:whole])))
        last = text[whole:]
        begin = self._find_wait(last)
        self._pending = last[begin:]
        return shown + self._show(last[:begin])

    def _flush(self) -> bytes:
        """Return what waits: nothing comes after it."""
        shown = self._filter_line(self._pending)
        self._pending = b""
        self._end_line()
        return shown

    def listen(self, listener: Callable[[Report], None]) -> None:
        """Have `listener` told of each report when it comes."""
        self._intake.listen = listener

    def name_srun(self, name: str) -> None:
        """Have only the lines of the srun with this name count, as soon as it has said one."""
        self._srun = f"{name}: ".encode()

    def interrupt(self) -> None:
        """Note that a signal to us ends the run: what tasks say from here on is its consequence."""
        self._intake.keep(Report(-1, "", "interrupted"))

    def _find_wait(self, line: bytes) -> int:
        """Return where the end of an unfinished line begins that must wait: it may become a report,
        with its label; or srun's own name, which is not shown.
        """
        begin = self._find_report(line)
        # One letter, as of '3.2 s', is not held back.
        begun = range(2, len(self._srun))
        held = [size for size in begun if line.endswith(self._srun[:size], 0, begin)]
        return begin - max(held, default=0)

    def _find_report(self, line: bytes) -> int:
        """As `_find_wait`, of reports alone."""
        if self._whole and len(line) <= _LONGEST_REPORT:
            return 0
        before, marked = _split_line(line)
        may_be = any(one.marker.startswith(marked[: len(one.marker)]) for one in self._channels)
        begin = len(before) if may_be and len(marked) <= _LONGEST_REPORT else len(line)
        if not self._begun and self._label.begun.fullmatch(line, 0, begin):
            return 0
        return begin

    def _filter_line(self, line: bytes) -> bytes:
        """Return what is shown of a line that is whole, or of the end of one."""
        before, marked = _split_line(line)
        for channel in self._channels:
            if marked.startswith(channel.marker):
                return self._take_report(line, before, marked, channel)
        return b"" if self._is_of_certificate(line) else self._show(line)

    def _is_of_certificate(self, line: bytes) -> bool:
        """Return whether gRPC misses the coordinator's name in the certificate of the run, in which
        no node has one.
        """
        if self._begun or b"server name" not in line:
            return False
        label = next(self._label.whole.finditer(line))[0]
        text = line[len(label) :].decode(errors="replace").rstrip()
        held = of_event(self.reports, "port-held")
        found = find_first([OTHER_NAME], [text])
        return any(report.text == found.words.get("name") for report in held)

    def _take_report(self, line: bytes, before: bytes, marked: bytes, channel: _Channel) -> bytes:
        """As `_filter_line`, of a line that has the channel's marker after what comes before."""
        report = _parse_report(marked, channel, self._checks)
        if report is None:
            return self._show(line)
        seen = self._intake.take(report, channel)
        if not self._begun and self._label.whole.fullmatch(before):
            return seen
        return self._show(before, ends=line.endswith(b"\n")) + seen

    def _show(self, text: bytes, ends: bool = False) -> bytes:
        """Return the next part of a line as it is; errors are looked for in lines that end."""
        self._begun = (self._begun + text)[:_LONGEST_ERROR]
        if ends or text.endswith(b"\n"):
            self._end_line()
        return text.replace(self._srun, _SRUN.encode()) if self._srun else text

    def _end_line(self) -> None:
        """Learn what the line that is now whole tells, without its label."""
        label = next(self._label.whole.finditer(self._begun))[0]  # b"" where there is none
        line = self._begun[len(label) :]
        # srun may speak behind an unfinished line of a program.
        _, name, said = line.partition(self._srun) if self._srun else (b"", b"", b"")
        if name:
            line = _SRUN.encode() + said
        text = line.decode(errors="replace").rstrip()
        self._begun = b""
        self._intake.keep_line(text, is_named=bool(name))
        self._barriers.read(label, text)


def _split_line(line: bytes) -> tuple[bytes, bytes]:
    """Return a line before the last separator, and from it on: where a report begins."""
    before, separator, rest = line.rpartition(SEPARATOR)
    return before, separator + rest


def of_event(reports: Sequence[Report], *events: str) -> list[Report]:
    """Return the reports of these events."""
    return [report for report in reports if report.event in events]


def by_task(reports: Sequence[Report], event: str) -> dict[int, Report]:
    """Return the last report of `event` of each task."""
    return {report.task: report for report in of_event(reports, event)}


def find_start(reports: Sequence[Report]) -> Report:
    """Return the first task's start, with Slurm's number of the step, such as '12.0', and all of
    its nodes; an empty report until then. Without Slurm, the number is ''.
    """
    starts = (report for report in reports if re.fullmatch(r"\d+\.\d*", report.step))
    found = next(starts, Report(-1, "", "started"))
    step = "" if found.step.endswith(".") else found.step  # a job alone has no step
    pieces = (*of_event(reports, "nodes"), found)
    return found._replace(step=step, nodes="".join(report.nodes for report in pieces))
