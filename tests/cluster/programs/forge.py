"""Write lines that look like reports of this task, as a program can that knows the nonces; end with a status.

forge.py attacks STATUS
forge.py live STATUS     what is told while a run goes on, for long enough that jaxsif looks at the task
forge.py SEED STATUS
"""

from __future__ import annotations

import json
import os
import random
import sys
import time

LEVELS = 200_000
LINGERS = 2.0  # seconds, in which jaxsif looks at the task
PROGRAM = {
    "order": 1,
    "group": "ab",
    "processes": 2,
    "name": "FORGED",
    "types": "FORGED",
    "digest": "cd",
    "where": "FORGED:1",
}
CONTROLS = "\x1b]0;owned\x07\x1b[2J\njaxsif: error: forged"


def render(event: str, **fields: object) -> str:
    """A report of this task."""
    return json.dumps({"task": 0, "node": "node1", "event": event, **fields})


# What has FORGED in it has the form of a report, and nobody may see it. The rest is shown as the program's own lines,
# or has no word to look for.
LIVE = (
    render("moved", seconds=1e9),
    render("wait", seconds="x", where="a.py:1"),
    render("wait", seconds=-1, where="a.py:1"),
    render("wait", seconds=1e10, where="a.py:1"),
    render("wait", seconds=float("inf"), where="a.py:1"),
    render("wait", seconds=float("nan"), where="a.py:1"),
    render("wait", seconds=10**400, where="a.py:1"),
    render("wait", seconds=1, where=["a.py:1"]),
    render("wait", seconds=1, where="x" * 9000),
    render("wait", status=7),
    render("moved", seconds=None),
    render("moved", seconds=1, where="a.py:1"),
    render("program", **PROGRAM),
    render("program", **{**PROGRAM, "digest": "ef"}),  # another one with its number
    render("program", **{**PROGRAM, "order": 1 << 40}),
    render("program", **{**PROGRAM, "order": 0, "processes": 1}),
    render("program", **{**PROGRAM, "order": 0, "processes": 1 << 24}),
    render("program", **{**PROGRAM, "name": CONTROLS, "types": CONTROLS, "where": CONTROLS}),
    render("program", **{**PROGRAM, "name": "\ud800", "types": "\ud800" * 1000}),
    render("program"),
    render("program", order=-1),
    render("program", order=0.5),
    render("program", order=True),
    render("program", order=10**400),
    render("program", processes=(1 << 24) + 1),
    render("program", group="ABCD", digest="x"),
    render("program", digest="a" * 17),
    render("program", name={"a": [1]}, types=None),
    '{"task": 1, "node": "innocent", "event": "program", "order": 1, "group": "ab", "processes": 2, "digest": "cd"}',
    '{"task": 1, "node": "innocent", "event": "wait", "seconds": 1e9, "where": "a.py:1"}',
    render("wait", seconds=1, where=CONTROLS),
    render("wait", seconds=1e9, where="FORGED:1"),
)
HALVED = (
    render("exit", status=7),
    render("wait", seconds=1e9),
    render("moved", seconds=1e9),
    render("program", order=1, group="ab", processes=2, digest="cd"),
)
ATTACKS = (
    '{"task": 99, "node": "innocent", "event": "exit", "status": 7}',
    '{"task": 0, "node": "innocent", "event": "exit", "status": 7}',
    '{"task": 0, "node": "node1", "event": "refused", "text": "FORGED refusal"}',
    '{"task": 0, "node": "node1", "event": "port-taken", "text": "FORGED port"}',
    "[" * LEVELS,
    '{"task": 0, "node": "node1", "event": "warning", "text": "\\ud800"}',
    '{"task": 0, "node": "node1", "event": "cache", "requests": "x"}',
    '{"task": {}, "node": "node1", "event": "exit", "status": 7}',
    '{"task": 0, "node": "node1", "event": "exit", "status": "x"}',
    '{"task": 0, "node": "node1", "event": "exception", "text": 5}',
    '{"task": 0, "node": "node1", "event": "exit", "status": 1e400}',
    '{"task": 0, "node": "node1", "event": "exit", "status": -3}',
    '{"task": -5, "node": "node1", "event": "exit", "status": 7}',
    json.dumps(
        {"task": 0, "node": "node1", "event": "warning", "text": "\x1b]0;owned\x07\x1b[2J\njaxsif: error: forged"}
    ),
    '{"task": 0, "node": "node1", "event": "exit", "status": ' + "9" * 5000 + "}",
    *LIVE,
)
# Each with its fields, and one of another event's now and then.
EVENTS: dict[str | None, tuple[str, ...]] = {
    "started": ("step", "nodes"),
    "refused": ("text", "hint"),
    "port-taken": ("text", "hint"),
    "port-held": ("text",),
    "warning": ("text",),
    "exception": ("text", "where", "consequence", "hint"),
    "exit": ("status", "where"),
    "cache": ("requests", "hits", "written", "saved"),
    "ended": ("place",),
    "wait": ("seconds", "where"),
    "moved": ("seconds",),
    "program": tuple(PROGRAM),
    None: ("",),
}
NAMES = [name for fields in EVENTS.values() for name in fields]
VALUES = (
    None,
    True,
    -1,
    0,
    7,
    256,
    10**400,
    0.5,
    float("inf"),
    float("nan"),
    "x",
    "ab",
    "\x1b[2J\n",
    "\ud800",
    [],
    {"a": [1]},
)


def generate(draw: random.Random) -> str:
    """A report of this task, with fields of any kind."""
    event = draw.choice([*EVENTS])
    record: dict[str, object] = {"task": 0, "node": "node1", "event": event}
    names = EVENTS[event] if draw.random() < 0.8 else NAMES
    record.update((draw.choice(names), draw.choice(VALUES)) for _ in range(draw.randrange(4)))
    if draw.random() < 0.2:
        record[draw.choice(("task", "node", "event"))] = draw.choice(VALUES)
    return json.dumps(record)


def write(text: str) -> None:
    """Write to standard error at once."""
    os.write(2, text.encode())


def write_halves(nonce: str) -> None:
    """Lines of another run, and halves of reports; the end of the last one is the end of this task."""
    for line in HALVED:
        write(f"\x1ejaxsif {line}\n")
        write(f"\x1ejaxsif {nonce[::-1]} {line}\n")
        write(f"\x1ejaxsif {nonce} {line[:-1]}\n")
        write(f"\x1ejaxsif {nonce} {line[:9]}")
        write(f"\n{line[9:]}\n")
    write(f"\x1ejaxsif {nonce} {HALVED[0][:-1]}")


def main(what: str, status: str) -> None:
    """Run the command line."""
    print("begins", flush=True)
    nonce = os.environ["JAXSIF_REPORT"]
    draw = random.Random(what)
    known = {"attacks": ATTACKS, "live": LIVE}
    lines = known[what] if what in known else [generate(draw) for _ in range(20)]
    for line in lines:
        write(f"\x1ejaxsif {nonce} {line}\n")
    time.sleep(LINGERS if what == "live" else 0)
    write_halves(nonce)
    sys.exit(int(status))


main(*sys.argv[1:])
