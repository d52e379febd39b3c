"""The record of one run, as a value and as the text of run.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from jaxsif.foreign import parse_json

_SCHEMA = 1
MOST_BYTES = 16 << 20  # of run.json; the bounds below add up to less
# Bytes of JSON: of a command, of the ends of tasks, of an alarm's picture, of its lists of nodes.
_MOST_COMMAND, _MOST_ENDS, _MOST_PICTURE, _MOST_NAMES = 2 << 20, 4 << 20, 256 << 10, 16 << 10
MOST_EXITS = 1000  # tasks whose ends are kept, those that failed first
MOST_ALARMS = 20
MOST_ATTEMPTS, _MOST_ATTEMPTS = 100, 2 << 20  # and bytes
NAME = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-[0-9a-f]{4}")
_Value = TypeVar("_Value")


class Complaint(NamedTuple):
    """The error that a run ended with."""

    what: str
    where: str  # '' if unknown, like the next field
    hint: str


class TaskEnd(NamedTuple):
    """How one task ended."""

    task: int
    node: str
    status: int  # 128 + N for signal N
    where: str  # FILE:LINE, or '' if unknown
    text: str  # its last exception, or ''
    doing: str  # a moment before: 'it was in iteration 40 or later of …'; '' if unknown


class Alarm(NamedTuple):
    """A report of waiting tasks."""

    time: float  # seconds since 1970
    level: str  # busy, wait or hang
    seconds: float  # how long the longest wait had lasted
    lines: tuple[str, ...]  # as they were shown
    picture: Mapping[str, Any]  # as `jaxsif stacks --json` prints it, see cut_picture


class Attempt(NamedTuple):
    """A failed attempt that was followed by another one: see jaxsif/launch/restart.py."""

    end: float  # seconds since 1970, before the pause
    status: int
    what: str
    where: str  # '' if unknown
    left_out: Mapping[str, str]  # nodes that the next attempt does not use -> why
    # Seconds from the newest checkpoint, or from the beginning of this attempt if it saved none, to
    # the beginning of the next one; None if unknown, like the next field.
    lost: float | None = None
    repeated: int | None = None  # iterations that the next attempt computes again, at least


class RunRecord(NamedTuple):
    """One run. Its texts may hold anything."""

    name: str  # such as 2026-11-22T18-25-03-0a1b, the local time of its start
    begin: float  # seconds since 1970
    end: float | None  # None until it is over, and forever if the launcher was killed
    status: int | None  # the exit status of `jaxsif run`; None like `end`
    error: Complaint | None
    step: str  # Slurm's number, such as 12.0, or ''
    launcher: str
    layout: str  # nodes, tasks and GPUs, as far as the plan knows them
    tasks: int | None  # None if Slurm decided, until the run has succeeded
    nodes: str  # a node list; '' if no task has started
    command: tuple[str, ...]  # with apparent secrets hidden
    image: str  # '' without a container
    digest: str  # of the image, if the run had to know it; else ''
    jaxsif: str  # versions
    python: str  # of the launcher
    slurm: str  # '' without Slurm, for a short run, and until the run's end
    host: str  # where the launcher runs
    pid: int  # its process there
    started: int  # of that process: clock ticks after the boot
    variables: Mapping[str, str]  # of the launcher; a few that hold no secrets
    ended: int  # how many tasks have reported their ends
    exits: tuple[TaskEnd, ...]  # of these, MOST_EXITS at most
    alarms: tuple[Alarm, ...]
    attempts: tuple[Attempt, ...] = ()  # that failed before the last one; MOST_ATTEMPTS at most
    difference: str = ""  # between the programs of the tasks, in words; '' if none was found
    outside: bool = False  # something else than its program ended it, such as its time limit

    @property
    def job(self) -> str:
        """Return the number of the Slurm job in which the launcher ran, or ''."""
        return self.variables.get("SLURM_JOB_ID", "")

    @property
    def seconds(self) -> float | None:
        """Return the duration of the run, or None if its end is not known."""
        return None if self.end is None else max(0.0, self.end - self.begin)


def describe_run(run: RunRecord) -> dict[str, Any]:
    """Return the run as values of JSON, under the names of the fields above."""
    return {
        "schema": _SCHEMA,
        **run._asdict(),
        "error": run.error and run.error._asdict(),
        "exits": [end._asdict() for end in run.exits],
        "alarms": [alarm._asdict() for alarm in run.alarms],
        "attempts": [attempt._asdict() for attempt in run.attempts],
    }


def render_record(run: RunRecord) -> bytes:
    """Render run.json, for `parse_run`, with a long command and long lists cut."""
    cut = run._replace(
        command=tuple(_take_bytes(run.command, _MOST_COMMAND)),
        exits=tuple(_take_bytes(run.exits[:MOST_EXITS], _MOST_ENDS)),
        alarms=run.alarms[-MOST_ALARMS:],
        attempts=tuple(_take_bytes(run.attempts[-MOST_ATTEMPTS:], _MOST_ATTEMPTS)),
    )
    return json.dumps(describe_run(cut)).encode() + b"\n"


def cut_picture(picture: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a picture of at most _MOST_PICTURE bytes unchanged; a longer picture without single
    tasks, with as many of its largest groups as fit, and with long texts cut.
    """
    if len(json.dumps(picture)) <= _MOST_PICTURE:
        return picture
    groups = _take_bytes(map(_cut_group, picture["groups"]), _MOST_PICTURE)
    return {**picture, "silent": _take_bytes(picture["silent"], _MOST_NAMES), "groups": groups}


def _cut_group(group: Mapping[str, Any]) -> Mapping[str, Any]:
    nodes = _take_bytes(group["nodes"], _MOST_NAMES)
    tasks = group["tasks"]
    if len(tasks) > _MOST_NAMES:
        tasks = tasks[:_MOST_NAMES].rpartition(",")[0]
    return {**group, "tasks": tasks, "nodes": nodes, "members": []}


def _take_bytes(values: Iterable[_Value], most: int) -> list[_Value]:
    """Return as many of the first of these values as fit into `most` bytes of JSON."""
    taken = []
    for value in values:
        most -= len(json.dumps(value)) + len(", ")
        if most < 0:
            break
        taken.append(value)
    return taken


def parse_run(text: str) -> RunRecord:
    """Parse run.json; raise LookupError, TypeError or ValueError for another program's text.

    The fields' types are not checked, since jaxsif wrote them into its private folder.
    """
    record = parse_json(text)
    if record["schema"] != _SCHEMA:
        raise ValueError("another schema")
    alarms = ({**alarm, "lines": tuple(alarm["lines"])} for alarm in record["alarms"])
    fields = {
        **RunRecord._field_defaults,  # earlier versions lack these fields
        **record,
        "command": tuple(record["command"]),
        "error": record["error"] and _pick(Complaint, record["error"]),
        "exits": tuple(_pick(TaskEnd, end) for end in record["exits"]),
        "alarms": tuple(_pick(Alarm, alarm) for alarm in alarms),
        "attempts": tuple(
            _pick(Attempt, {**Attempt._field_defaults, **attempt})
            for attempt in record.get("attempts", ())
        ),
    }
    run: RunRecord = _pick(RunRecord, fields)
    return run


def _pick(kind: Any, fields: Mapping[str, Any]) -> Any:
    """Make a named tuple from the fields that it has, without those of a later version."""
    return kind(*(fields[name] for name in kind._fields))
