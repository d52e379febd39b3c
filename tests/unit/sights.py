"""Sights for tests, as the inspector would write them."""

from __future__ import annotations

import json
from typing import Any

from jaxsif.watch.sight import Sight, parse_line

USER = ["/home/ada/train.py", 41, "step"]
MAIN = ["/home/ada/train.py", 60, "<module>"]
BOX: dict[str, Any] = {
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
    "around": [],
    "thread": 0,
    "others": 0,
    "programs": 0,
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
    "native": "",
    "answered": True,
    "age": 0.5,
    "box": BOX,
}


def line(**fields: Any) -> bytes:
    """A line with these fields; those of its box replace some of BOX, but for an empty one. Unless told otherwise, the
    task is inside of the box's loop alone.
    """
    box = fields.pop("box", BOX)
    if box:
        box = {**BOX, **box}
        box = {**box, "around": box["around"] or [[box["loop"], box["turns"]]] * box["inside"]}
    return json.dumps({**FIELDS, **fields, "box": box}).encode()


def sight(**fields: Any) -> Sight:
    """The sight of such a line."""
    found = parse_line(line(**fields))
    assert isinstance(found, Sight)
    return found
