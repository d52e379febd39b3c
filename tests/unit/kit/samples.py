"""Samples for tests, as the inspector would write them."""

from __future__ import annotations

import json
from typing import Any

from jaxsif.watch.sample import Sample, parse_line

USER = ["/home/ada/train.py", 41, "step"]
MAIN = ["/home/ada/train.py", 60, "<module>"]
STATUS: dict[str, Any] = {
    "pid": 77,
    "time": 1e9,
    "quiet": 60.0,
    "loop": "/home/ada/train.py:38",
    "turns": 12044,
    "compiling": "",
    "since": 0.0,
    "aside": False,
    "call": "",
    "deadlock": False,
    "inside": True,
    "may_be_over": False,
    "around": [],
    "thread": 0,
    "others": 0,
    "programs": 0,
    "own": [],
}
FIELDS: dict[str, Any] = {
    "task": 0,
    "node": "node1",
    "pid": 77,
    "command": "python3",
    "state": "S",
    "call": "futex",
    "descriptor": -1,
    "file": "",
    "frames": [USER, MAIN],
    "threads": 9,
    "main_cpu": 0.0,
    "cpu": 0.01,
    "spent": 3.0,
    "runs": 500,
    "read": 1,
    "written": 2,
    "gpu": False,
    "answered": True,
    "age": 0.5,
    "status": STATUS,
}


def line(**fields: Any) -> bytes:
    """A line with these fields; those of its status replace some of STATUS, but for an empty one. By default,
    the task is inside of the loop of its status alone.
    """
    status = fields.pop("status", STATUS)
    if status:
        status = {**STATUS, **status}
        status = {**status, "around": status["around"] or [[status["loop"], status["turns"]]] * status["inside"]}
    return json.dumps({**FIELDS, **fields, "status": status}).encode()


def sample(**fields: Any) -> Sample:
    """The sample of such a line."""
    found = parse_line(line(**fields))
    assert isinstance(found, Sample)
    return found
