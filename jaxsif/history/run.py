"""What is kept of one run, as a value and as the text of run.json.

What a program said is a part of it, and anybody's editor may have been at the file: each field that
is read has a type and a range, and a file with anything else is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from jaxsif.foreign import (
    Check,
    check_list,
    check_number,
    check_object,
    check_pattern,
    check_text,
    or_none,
    parse_json,
)
from jaxsif.limits import MOST_COUNT, MOST_NODES

_SCHEMA = 1
MOST_BYTES = 16 << 20  # of run.json; the bounds below add up to less
# Bytes of JSON: of a command, of the ends of tasks, of an alarm's picture, of its lists of nodes.
_MOST_COMMAND, _MOST_ENDS, _MOST_PICTURE, _MOST_NAMES = 2 << 20, 4 << 20, 256 << 10, 16 << 10
MOST_EXITS = 1000  # tasks whose ends are kept, those that failed first
MOST_ALARMS = 20
_MOST_LINES, _LONGEST_LINE = 25, 400  # of an alarm
_MOST_WORDS, _LONGEST_WORD = 10_000, 1 << 17  # of a command
_LONGEST = 4096  # letters of any other text
NAME = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-[0-9a-f]{4}")
_Value = TypeVar("_Value")


class Complaint(NamedTuple):
    """The error that a run ended with."""

    what: str
    where: str  # '' where nothing is known, as the next
    hint: str


class TaskEnd(NamedTuple):
    """How one task ended."""

    task: int
    node: str
    status: int  # 128 + N for signal N
    where: str  # FILE:LINE; '' where that is not known
    text: str  # its last exception; '' without one
    doing: str  # a moment before: 'it was in iteration 40 of the loop at …'; '' where not known


class Alarm(NamedTuple):
    """What was told of tasks that wait."""

    time: float  # seconds since 1970
    level: str  # busy, wait or hang
    seconds: float  # how long the longest wait had lasted
    lines: tuple[str, ...]  # as they were shown
    picture: Mapping[str, Any]  # as `jaxsif stacks --json` prints it, see cut_picture


class RunRecord(NamedTuple):
    """One run. Its texts may hold anything."""

    name: str  # such as 2026-11-22T18-25-03-0a1b, the local time of its begin
    begin: float  # seconds since 1970
    end: float | None  # None until it is over, and for ever where the launcher was killed
    status: int | None  # the exit status of `jaxsif run`; None as `end`
    error: Complaint | None
    step: str  # Slurm's number, such as 12.0; '' without one
    launcher: str
    layout: str  # nodes, tasks and GPUs, as far as the plan knows them
    tasks: int | None  # None where Slurm decided
    nodes: str  # a node list; '' where no task has started
    command: tuple[str, ...]  # without what looks like a secret
    image: str  # '' without a container
    digest: str  # of the image, where the run had to know it; else ''
    jaxsif: str  # versions
    python: str  # of the launcher
    slurm: str  # '' without Slurm, of a short run, and until its end
    host: str  # where the launcher runs
    pid: int  # its process there
    started: int  # of that process: clock ticks after the boot
    variables: Mapping[str, str]  # of the launcher; a few that hold no secrets
    ended: int  # how many tasks have told how they ended
    exits: tuple[TaskEnd, ...]  # of these, MOST_EXITS at most
    alarms: tuple[Alarm, ...]

    @property
    def seconds(self) -> float | None:
        """Return how long it took; None where its end is not known."""
        return None if self.end is None else max(0.0, self.end - self.begin)


_is_text = check_text(_LONGEST)


def _are_variables(value: object) -> bool:
    return type(value) is dict and len(value) <= 100 and all(map(_is_text, value.values()))


_TIME = check_number(1e12, int, float)
_COUNT = check_number(MOST_COUNT, int)
_STATUS = check_number(255, int)
_OF_A_COMPLAINT = dict.fromkeys(Complaint._fields, _is_text)
_OF_A_TASK: Mapping[str, Check] = {
    "task": _COUNT,
    "node": _is_text,
    "status": _STATUS,
    "where": _is_text,
    "text": _is_text,
    "doing": _is_text,
}
_OF_AN_ALARM: Mapping[str, Check] = {
    "time": _TIME,
    "level": check_text(16),
    "seconds": _TIME,
    "lines": check_list(_MOST_LINES, check_text(_LONGEST_LINE)),
    "picture": check_object({}),
}
_OF_A_RUN: Mapping[str, Check] = {
    "name": check_pattern(NAME.pattern),
    "begin": _TIME,
    "end": or_none(_TIME),
    "status": or_none(_STATUS),
    "error": or_none(check_object(_OF_A_COMPLAINT)),
    **dict.fromkeys(("step", "launcher", "layout", "image", "digest", "jaxsif"), _is_text),
    **dict.fromkeys(("python", "slurm", "host"), _is_text),
    "nodes": check_text(16 * MOST_NODES),
    "tasks": or_none(_COUNT),
    "command": check_list(_MOST_WORDS, check_text(_LONGEST_WORD)),
    "pid": _COUNT,
    "started": check_number(1 << 63, int),
    "variables": _are_variables,
    "ended": _COUNT,
    "exits": check_list(MOST_EXITS, check_object(_OF_A_TASK)),
    "alarms": check_list(MOST_ALARMS, check_object(_OF_AN_ALARM)),
}
_is_run = check_object({"schema": check_number(_SCHEMA, int, least=_SCHEMA), **_OF_A_RUN})


def describe_run(run: RunRecord) -> dict[str, Any]:
    """Return the run as values of JSON, under the names of the fields above."""
    return {
        "schema": _SCHEMA,
        **run._asdict(),
        "error": run.error and run.error._asdict(),
        "exits": [end._asdict() for end in run.exits],
        "alarms": [alarm._asdict() for alarm in run.alarms],
    }


def render_record(run: RunRecord) -> bytes:
    """Return the content of run.json: what `parse_run` reads, with long texts cut."""
    words = (word[:_LONGEST_WORD] for word in run.command[:_MOST_WORDS])
    ends = (end._replace(text=end.text[:_LONGEST]) for end in run.exits[:MOST_EXITS])
    kept = run._replace(
        command=tuple(_take_bytes(words, _MOST_COMMAND)),
        exits=tuple(_take_bytes(ends, _MOST_ENDS)),
        alarms=tuple(map(_cut_lines, run.alarms[-MOST_ALARMS:])),
    )
    if run.error:
        kept = kept._replace(error=Complaint(*(text[:_LONGEST] for text in run.error)))
    return json.dumps(describe_run(kept)).encode() + b"\n"


def _cut_lines(alarm: Alarm) -> Alarm:
    lines = (line[:_LONGEST_LINE] for line in alarm.lines[:_MOST_LINES])
    return alarm._replace(lines=tuple(lines))


def cut_picture(picture: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a picture of at most _MOST_PICTURE bytes as it is; a longer one without single tasks,
    with as many of its largest groups as fit, and with long texts cut.
    """
    if len(json.dumps(picture)) <= _MOST_PICTURE:
        return picture
    silent = _take_bytes(picture["silent"], _MOST_NAMES)
    groups = _take_bytes(map(_cut_group, picture["groups"]), _MOST_PICTURE)
    return {**picture, "silent": silent, "groups": groups}


def _cut_group(group: Mapping[str, Any]) -> Mapping[str, Any]:
    nodes = _take_bytes(group["nodes"], _MOST_NAMES)
    tasks = group["tasks"]
    if len(tasks) > _MOST_NAMES:
        tasks = tasks[:_MOST_NAMES].rpartition(",")[0]
    return {**group, "tasks": tasks, "nodes": nodes, "members": []}


def _take_bytes(values: Iterable[_Value], most: int) -> list[_Value]:
    """Return the first of these values, as many as `most` bytes of JSON hold."""
    taken = []
    for value in values:
        most -= len(json.dumps(value)) + len(", ")
        if most < 0:
            break
        taken.append(value)
    return taken


def parse_run(text: str) -> RunRecord | None:
    """Return the run of such a text; None where a field is missing or strange."""
    try:
        found = parse_json(text)
    except ValueError:
        return None
    if not _is_run(found):
        return None
    error = found["error"] and Complaint(**_take(found["error"], _OF_A_COMPLAINT))
    ends = tuple(TaskEnd(**_take(one, _OF_A_TASK)) for one in found["exits"])
    alarms = tuple(_take_alarm(one) for one in found["alarms"])
    kept = {**_take(found, _OF_A_RUN), "error": error, "exits": ends, "alarms": alarms}
    return RunRecord(**{**kept, "command": tuple(found["command"])})


def _take(found: Mapping[str, Any], fields: Mapping[str, Check]) -> dict[str, Any]:
    return {name: found[name] for name in fields}


def _take_alarm(found: Mapping[str, Any]) -> Alarm:
    return Alarm(**{**_take(found, _OF_AN_ALARM), "lines": tuple(found["lines"])})
