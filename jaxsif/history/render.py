"""Render runs: many as a table, or one in full. Each line is printable."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

from jaxsif.errors import PIPE_CLOSED
from jaxsif.history.run import Alarm, Attempt, RunRecord, TaskEnd
from jaxsif.task.contract import ellipsize
from jaxsif.text import align, count_of, enclose, name_tasks, printable

WIDTH = 80  # columns of the table on most terminals
_HEAD = ("RUN", "LASTED", "STEP", "TASKS", "ENDED", "COMMAND")
_LONGEST_CELL = 11
_MOST_ENDS = 20  # lines of tasks' ends
_MOST_COMMAND = 2000  # characters
# Units of a duration, each with its seconds, the larger ones first.
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
_CLOSED = "its output was closed, for example by `head`, and its tasks were ended"
# The states of a run.
RUNNING, IN_JOB, UNKNOWN = "runs", "job runs", "unknown"
DONE, INTERRUPTED, FAILED = "done", "interrupted", "failed"


class Listed(NamedTuple):
    """A run, and whether its launcher is still running; or else its job, on another host."""

    run: RunRecord
    running: bool
    in_job: bool = False

    @property
    def state(self) -> str:
        """Return the state of the run: one of those above."""
        if self.run.status is None:
            return RUNNING if self.running else IN_JOB if self.in_job else UNKNOWN
        if not self.run.status:
            return DONE
        return FAILED if self.run.error and not self.run.outside else INTERRUPTED

    @property
    def ended(self) -> str:
        """Return the state, with the exit status if the run failed: 'failed 137'; 'done*' if a
        Python process failed, or programs differed, despite status 0.
        """
        if self.state == FAILED:
            return f"{FAILED} {self.run.status}"
        is_marked = self.state == DONE and (self.run.error or self.run.difference)
        return f"{DONE}*" if is_marked else self.state


def render_table(rows: Sequence[Sequence[str]], width: int = WIDTH) -> list[str]:
    """Render the rows of runs under a heading, in lines of at most `width` columns; 0 for lines of
    any length, as for grep.
    """
    if not width:
        return list(align((_HEAD, *rows)))
    others = list(align([row[:-1] for row in (_HEAD, *rows)]))
    room = width - max(map(len, others)) - 2
    commands = _shorten_alike([row[-1] for row in rows], room)
    table = [(*row[:-1], command) for row, command in zip(rows, commands)]
    return [ellipsize(line, width) for line in align([_HEAD, *table])]


def _shorten_alike(commands: Sequence[str], room: int) -> Iterator[str]:
    """Yield commands for a column of `room` characters: longer ones without the interpreter, and
    without the arguments that all commands of the same script begin with.
    """
    split = [command.split(" ") for command in commands]
    for command, words in zip(commands, split):
        script = _find_script(words)
        begin = script + 1
        columns = zip(*(other for other in split if other[:begin] == words[:begin]))
        shared = len(list(takewhile(lambda column: len(set(column)) == 1, columns)))
        middle = ["…"] if begin < shared < len(words) else words[begin:shared]
        is_long = len(command) > room
        yield " ".join([words[script], *middle, *words[shared:]]) if is_long else command


def _find_script(words: Sequence[str]) -> int:
    """Return the index of Python's script or module, or 0 for another program or code."""
    is_python = words[0].startswith("python") and words[1:2] != ["-c"]
    names = (index for index, word in enumerate(words) if index and not word.startswith("-"))
    return next(names, 0) if is_python else 0


def render_row(listed: Listed) -> tuple[str, ...]:
    """Render the cells of a run in the table."""
    run = listed.run
    tasks = "" if run.tasks is None else str(run.tasks)
    cells = (describe_seconds(run.seconds), run.step, tasks, listed.ended)
    short = (ellipsize(printable(cell), _LONGEST_CELL) for cell in cells)
    command = printable(_shorten_command(run.command))
    return (run.name, *short, ellipsize(command, _MOST_COMMAND))


def _shorten_command(command: Sequence[str]) -> str:
    """Return a command with the names of its files without their folders; words with spaces, or
    after -c, are code.
    """
    return shlex.join(
        word if " " in word or before == "-c" else word.rpartition("/")[2] or word
        for word, before in zip(command, ["", *command])
    )


def describe_seconds(seconds: float | None) -> str:
    """Return a duration in its two largest units, such as '1h02m' or '0.4s', or '' for None."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    first = next(index for index, (_, size) in enumerate(_UNITS) if whole >= size)
    (unit, size), *below = _UNITS[first : first + 2]
    rest = "".join(f"{whole % size // less:02d}{name}" for name, less in below)
    return f"{whole // size}{unit}{rest}"


def render_run(listed: Listed, path: str, files: Sequence[str]) -> list[str]:
    """Render everything about a run, with its folder `path` and the files in it."""
    return [printable(line) for line in _render_run(listed, path, files)]


def _render_run(listed: Listed, path: str, files: Sequence[str]) -> Iterator[str]:
    run = listed.run
    yield f"run {run.name}: {describe_end(listed)}"
    yield from (_row(name, text) for name, text in _facts(run) if text)
    yield from _render_ends(run)
    yield from _render_silent(run)
    for attempt in run.attempts:
        yield from _render_attempt(attempt, run.begin)
    for alarm in run.alarms:
        yield from _render_alarm(alarm, run.begin)
    yield _row("folder", path)
    yield _row("files", ", ".join(files))


def _row(name: str, text: str) -> str:
    return f"  {name:9} {text}".rstrip()


def _facts(run: RunRecord) -> Iterator[tuple[str, str]]:
    yield "command", ellipsize(shlex.join(run.command), _MOST_COMMAND)
    yield "begin", time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.begin))
    yield "lasted", describe_seconds(run.seconds)
    yield "job", run.job
    yield "step", run.step
    layout = "" if run.layout == count_of(run.tasks, "task") else enclose(": ", run.layout)
    yield "tasks", f"{run.tasks or ''} by {run.launcher}{layout}".strip()
    yield "nodes", run.nodes
    yield "image", f"{run.image} {run.digest}".strip()
    versions = (f"jaxsif {run.jaxsif}", f"Python {run.python}", run.slurm and f"Slurm {run.slurm}")
    yield "launcher", f"{', '.join(filter(None, versions))}, process {run.pid} on {run.host}"
    yield from zip(("error", "from", "try"), run.error or ())
    yield "differs", run.difference


def describe_end(listed: Listed) -> str:
    """Return how a run ended, as a clause."""
    status = listed.run.status
    closed = status == PIPE_CLOSED
    ended = "it was ended from outside" if listed.run.outside else "a signal ended it"
    words = {
        RUNNING: "it is running",
        IN_JOB: f"it has recorded no end, and its job is running: squeue --jobs={listed.run.job}",
        UNKNOWN: "its outcome is unknown: jaxsif run was killed, or is running on another host",
        DONE: "it ended with exit status 0",
        INTERRUPTED: f"{_CLOSED if closed else ended}, exit status {status}",
        FAILED: f"it failed with exit status {status}",
    }
    return words[listed.state]


def _render_ends(run: RunRecord) -> Iterator[str]:
    """Yield a line for each group of tasks that ended alike, failed tasks first."""
    groups: dict[tuple[str, ...], list[TaskEnd]] = {}
    for end in run.exits:
        words = (f"status {end.status}", end.where, end.text, end.doing)
        groups.setdefault(words, []).append(end)
    shown = list(groups.items())[:_MOST_ENDS]
    for key, ends in shown:
        yield _row("ended", ", ".join(filter(None, (_name(ends), *key))))
    left = run.ended - sum(len(ends) for _, ends in shown)
    if left > 0:
        yield _row("ended", f"and {left} other tasks")


def _render_silent(run: RunRecord) -> Iterator[str]:
    """Yield a line if some tasks of a finished run have not reported their ends."""
    if run.tasks is None or run.status is None or not run.nodes:
        return
    silent = run.tasks - run.ended
    if silent > 0:
        who = f"{silent} of {count_of(run.tasks, 'task')}"
        yield _row("ended", f"no report from {who}: a lost node or a killed step sends none")


def _name(ends: Iterable[TaskEnd]) -> str:
    tasks = sorted(end.task for end in ends)
    nodes = {end.node for end in ends if end.node}
    on = f" on {nodes.pop()}" if len(nodes) == 1 else ""
    return f"{name_tasks(tasks)}{on}"


def _render_attempt(attempt: Attempt, begin: float) -> Iterator[str]:
    after = describe_seconds(max(0.0, attempt.end - begin))
    what = ", ".join(filter(None, (f"status {attempt.status}", attempt.where, attempt.what)))
    yield _row("failed", f"after {after}: {what}")
    costs = (
        enclose("", describe_seconds(attempt.lost), " lost"),
        f"at least {count_of(attempt.repeated, 'iteration')} computed twice"
        if attempt.repeated
        else "",
    )
    if any(costs):
        yield _row("", ", ".join(filter(None, costs)))
    for node, why in attempt.left_out.items():
        yield _row("", f"without {node}: {why}")


def _render_alarm(alarm: Alarm, begin: float) -> Iterator[str]:
    yield f"  after {describe_seconds(max(0.0, alarm.time - begin))}:"
    yield from (f"    {line}" for line in alarm.lines)
