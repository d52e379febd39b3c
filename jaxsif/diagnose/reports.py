"""What the tasks and srun say on standard error -> reports, and what is shown of it.

The task shim (jaxsif/task) writes its reports into the task's standard error, because that is the
one channel which exists wherever srun works: no port, no shared folder. `ReportFilter` takes them
out. A report is the end of a line:

    \\x1ejaxsif NONCE {"task": 2, "node": "node1", "event": "exit", "status": 1, "where": "train.py:7"}

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
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxsif.errors import printable

_SEPARATOR = b"\x1e"
_START, _PROGRAM = 0, 1  # which of the nonces
_LONGEST_REPORT = 8192  # bytes; what goes on for longer behind a marker is the program's
_LONGEST_TEXT = 300  # letters; failure.py cuts there, too
_LONGEST_PLACE = 1000  # letters
_MOST_TASKS = 1 << 24  # where the plan does not know their number
# A run makes a few for each task. A program may make any number: they are not kept.
_MOST_REPORTS, _MOST_ALIKE = 100_000, 100  # of a run; of one event and task
_MOST_WARNINGS = 100  # to show
_MOST_ERRORS = 1000  # the first half and the last are kept
_MOST_BARRIERS, _MOST_MISSING = 100, 100

_LABEL = re.compile(rb" {0,16}\d{1,9}: ")  # what srun --label begins lines with
_LABEL_BEGUN = re.compile(rb" {0,16}(\d{1,9}(: ?)?)?")
_LINES = re.compile(rb"[^\n]*\n|[^\n]+")  # unlike splitlines, a carriage return ends none
# As JAX says it of itself, when another process did not come to jax.distributed.initialize.
GAVE_UP = re.compile(r"F.*JAX distributed service detected fatal errors.*DEADLINE_EXCEEDED")
_KEPT_LINES = re.compile(
    r"^(srun: error: |slurmstepd: error: |slurmstepd-\S+: error: (\*\*\*|couldn't chdir) |FATAL: |Error for command |"
    rf"F.*Unknown flags? in XLA_|{GAVE_UP.pattern})"
)
# Of a step that is cancelled, and not of one whose task has failed.
_ABORTED = "srun: Job step aborted: "
# One of these is in whatever _filter_line and _end_line look for.
_NOTABLE = (
    _SEPARATOR,
    b"srun",
    b"slurm",
    b"FATAL",
    b"Error for",
    b"Unknown flag",
    b"detected fatal",
    b"Barrier timed",
)
_LONGEST_ERROR = 4096  # bytes; a progress bar can make one endless line
# What JAX says of a barrier that not all processes have reached in time, in three lines or more.
_BARRIER = re.compile(r".*\bBarrier timed out\. Id: (\S*)\. ")
_REACHED = re.compile(r"# of tasks that reached the barrier: (\d{1,9})/(\d{1,9})\.$")
_FIRST = re.compile(r"The first task at the barrier: (\d{1,9})\. Some timed out task names:$")
_TASK = re.compile(r"\d{1,9}$")


class Report(NamedTuple):
    """One line of the task shim; its texts are printable."""

    task: int  # SLURM_PROCID
    node: str  # SLURMD_NODENAME; empty without Slurm
    # Of _FIELDS; and two of the launcher's own: cancelled, by Slurm, and interrupted, by a signal
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
        """The task and its node, for people."""
        return f"task {self.task} on {self.node}" if self.node else f"process {self.task}"


REFUSALS = ("refused", "port-taken")  # the program is not started
_COUNTS = ("requests", "hits", "written")
# Event -> its fields beside task and node, by who may report it: the first nonce's, the second
# nonce's.
_FIELDS: tuple[Mapping[str, tuple[str, ...]], ...] = (
    {"started": ("step",), "refused": ("text",), "warning": ("text",), "exit": ("status", "where")},
    {
        "port-held": (),
        "port-taken": ("text", "hint"),
        "refused": ("text", "hint"),
        "warning": ("text",),
        "exception": ("text", "where", "consequence", "hint"),
        "end": (),
        "alone": (),
        "cache": (*_COUNTS, "saved"),
    },
)


def _is_number(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _is_seconds(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value <= 1e9  # no NaN


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "node": lambda value: _is_text(value) and bool(re.fullmatch(r"[A-Za-z0-9_.-]{0,255}", value)),
    "step": lambda value: (
        _is_text(value) and bool(re.fullmatch(r"[0-9a-zA-Z_]*\.[0-9a-zA-Z_]*", value))
    ),
    "status": lambda value: _is_number(value, 255),
    "text": _is_text,
    "where": _is_text,
    "hint": _is_text,
    "consequence": lambda value: isinstance(value, bool),
    **dict.fromkeys(_COUNTS, lambda value: _is_number(value, 1 << 40)),
    "saved": _is_seconds,
}


def _parse_report(text: bytes, fields: Mapping[str, tuple[str, ...]], tasks: int) -> Report | None:
    """The report of a marked line; None if it has not the form of one."""
    # Here: when the first report comes, the step runs already, and the import costs no time.
    import json

    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # no JSON; a thousand brackets
        return None
    if (
        not isinstance(found, dict)
        or not _is_text(found.get("event"))
        or found["event"] not in fields
    ):
        return None
    event, task, node = (found.pop(name, None) for name in ("event", "task", "node"))
    if not _is_number(task, tasks - 1) or not _CHECKS["node"](node):
        return None
    if not all(name in fields[event] and _CHECKS[name](value) for name, value in found.items()):
        return None
    report = Report(task, node, event, **found)
    return report._replace(
        text=printable(report.text)[:_LONGEST_TEXT],
        where=printable(report.where)[-_LONGEST_PLACE:],
        hint=printable(report.hint)[:_LONGEST_TEXT],
    )


class Barrier(NamedTuple):
    """A place where JAX's processes wait for each other, and which not all of them have reached in
    time.
    """

    name: str  # JAX's, such as 'Shutdown'
    reached: int = 0  # processes
    processes: int = 0  # all
    first: int = -1  # the process that came first
    missing: tuple[int, ...] = ()  # some of those that have not come


class _Intake:
    """Keeps the reports of one run, in their order of arrival, and as many as a run can mean."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self._alike: dict[tuple[int, str], int] = {}
        self._begun: set[int] = set()  # tasks whose programs may have begun
        self._warnings: set[str] = set()
        self._of_program = 0

    def take(self, report: Report, by_program: bool) -> bytes:
        """Return what is seen of it: a warning, when the first task says it."""
        if by_program:
            report = self._judge(report)
        self.keep(report, by_program)
        if (
            report.event != "warning"
            or report.text in self._warnings
            or len(self._warnings) == _MOST_WARNINGS
        ):
            return b""
        self._warnings.add(report.text)
        return f"jaxsif: warning: {report.text} ({report.place})\n".encode()

    def keep(self, report: Report, by_program: bool = False) -> None:
        """Add it to the reports, unless there are many like it, or the program has made too many."""
        alike = self._alike.get((report.task, report.event), 0)
        if alike < _MOST_ALIKE and not (by_program and self._of_program == _MOST_REPORTS):
            self._alike[report.task, report.event] = alike + 1
            self._of_program += by_program
            self.reports.append(report)

    def _judge(self, report: Report) -> Report:
        """A refusal that comes too late to be one is a warning."""
        if report.task in self._begun and report.event in REFUSALS:
            return report._replace(event="warning")
        if len(self._begun) < _MOST_REPORTS:
            self._begun.add(report.task)
        return report


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
        self._markers = tuple(_SEPARATOR + f"jaxsif {nonce} ".encode() for nonce in nonces)
        self._tasks = tasks or _MOST_TASKS
        self._intake: _Intake = beside._intake if beside else _Intake()
        self.reports = self._intake.reports
        # What srun, slurmstepd and the runtime complained of.
        self.errors: list[str] = beside.errors if beside else []
        # The first one is what went wrong.
        self.barriers: list[Barrier] = beside.barriers if beside else []
        self._barrier: dict[bytes, Barrier] = {}  # label -> the one whose lines are being read
        self._label = label
        self._pending = b""  # the end of an unfinished line that must wait
        self._begun = b""  # the beginning of a line, as far as it is shown already

    def feed(self, data: bytes) -> bytes:
        """The part of `data` that people should see now; b'' means the end of the stream and
        flushes.
        """
        plain = self._take_plain(data)
        rest = data[len(plain) :]
        return plain if plain and not rest else plain + self._feed_lines(rest)

    def _take_plain(self, data: bytes) -> bytes:
        """The lines at the head of `data`, if there is nothing in them to look for: most of what
        programs print.
        """
        lines = data[: data.rfind(b"\n") + 1]
        if not lines or self._pending or self._barrier:
            return b""
        text = self._begun + lines
        if any(word in text for word in _NOTABLE):
            return b""
        self._begun = b""
        return lines

    def _feed_lines(self, data: bytes) -> bytes:
        """As `feed`, line by line."""
        *lines, last = _LINES.findall(self._pending + data) or [b""]
        shown = [self._filter_line(line) for line in lines]
        self._pending = b""
        if data and not last.endswith(b"\n"):
            # Shown at once (a progress bar), but for an end that may become a report.
            begin = self._find_wait(last)
            self._pending = last[begin:]
            shown.append(self._show(last[:begin]))
        elif last:
            shown.append(self._filter_line(last))
        if not data:
            self._end_line()
        return b"".join(shown)

    def interrupt(self) -> None:
        """Note that a signal to us ends the run: what tasks say from here on is its consequence."""
        self._intake.keep(Report(-1, "", "interrupted"))

    def _find_marker(self, line: bytes) -> tuple[int, int]:
        """Where the last marker of the line begins, and of which nonce it is; -1 where there is
        none.
        """
        return max(
            ((line.rfind(marker), which) for which, marker in enumerate(self._markers)),
            default=(-1, 0),
        )

    def _find_wait(self, line: bytes) -> int:
        """Where the end of an unfinished line begins that may become a report, with its label."""
        begin, _ = self._find_marker(line)
        if begin < 0 or len(line) - begin > _LONGEST_REPORT:
            begin = line.rfind(_SEPARATOR)
            if begin < 0 or not any(marker.startswith(line[begin:]) for marker in self._markers):
                begin = len(line)
        if self._label and not self._begun and _LABEL_BEGUN.fullmatch(line, 0, begin):
            return 0
        return begin

    def _filter_line(self, line: bytes) -> bytes:
        """What is seen of a line that is whole, or the end of one."""
        begin, which = self._find_marker(line)
        size = len(line.rstrip(b"\n")) - begin
        if begin < 0 or size > _LONGEST_REPORT:
            return self._show(line)
        text = line[begin + len(self._markers[which]) :]
        report = _parse_report(text, _FIELDS[which], self._tasks)
        if report is None:
            return self._show(line)
        seen = self._intake.take(report, by_program=which == _PROGRAM)
        before = line[:begin]
        if self._label and not self._begun and _LABEL.fullmatch(before):
            return seen
        return self._show(before, ends=line.endswith(b"\n")) + seen

    def _show(self, text: bytes, ends: bool = False) -> bytes:
        """The next part of a line as it is; errors are looked for in lines that end."""
        self._begun = (self._begun + text)[:_LONGEST_ERROR]
        if ends or text.endswith(b"\n"):
            self._end_line()
        return text

    def _end_line(self) -> None:
        """Keep the line that is now whole if srun, slurmstepd or the runtime complains in it."""
        label = _LABEL.match(self._begun) if self._label else None
        text = self._begun[label.end() if label else 0 :].decode(errors="replace").rstrip()
        if _KEPT_LINES.match(text):
            self.errors.append(text)
            if len(self.errors) > _MOST_ERRORS:
                del self.errors[_MOST_ERRORS // 2]
        if text.startswith(_ABORTED):  # among the reports, because what has failed before it counts
            self._intake.keep(Report(-1, "", "cancelled"))
        self._read_barrier(label[0] if label else b"", text)
        self._begun = b""

    def _read_barrier(self, label: bytes, line: str) -> None:
        """Learn of a barrier from one more line; another line ends what is known of it."""
        begin = _BARRIER.match(line)
        before = Barrier(_name_barrier(begin[1])) if begin else self._barrier.pop(label, None)
        if before is None:
            return
        reached, first = _REACHED.match(line), _FIRST.match(line)
        if reached:
            before = before._replace(reached=int(reached[1]), processes=int(reached[2]))
        elif first:
            before = before._replace(first=int(first[1]))
        elif _names_missing(line, before):
            before = self._add_missing(before, int(line))
        elif not begin:
            return
        self._barrier[label] = before

    def _add_missing(self, before: Barrier, task: int) -> Barrier:
        """The barrier with one more task that has not come."""
        if before in self.barriers:
            self.barriers.remove(before)
        after = before._replace(missing=(*before.missing, task))
        # As each task says it.
        if after not in self.barriers and len(self.barriers) < _MOST_BARRIERS:
            self.barriers.append(after)
        return after


def find_step(reports: Sequence[Report]) -> str:
    """Slurm's number of the step, such as '12.0'; '' until its first task has started."""
    return next((report.step for report in reports if re.fullmatch(r"\d+\.\d+", report.step)), "")


def _names_missing(line: str, barrier: Barrier) -> bool:
    """Whether the line is the number of one more task that has not come to the barrier."""
    open_ = barrier.first >= 0 and len(barrier.missing) < _MOST_MISSING
    return open_ and bool(_TASK.match(line)) and int(line) not in barrier.missing


def _name_barrier(id_: str) -> str:
    """The name in a barrier's id, NAME::NUMBER::NUMBER."""
    name, _, number = id_.rpartition("::")
    while number.isdecimal() and name:
        id_ = name
        name, _, number = id_.rpartition("::")
    return id_[:_LONGEST_TEXT]
