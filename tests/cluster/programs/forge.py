"""Write lines that look like reports of this task, as a program can that knows the nonces; end with a status.

forge.py attacks STATUS
forge.py SEED STATUS
"""

from __future__ import annotations

import json
import os
import random
import sys

LEVELS = 200_000
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
)
NAMES = ("text", "where", "hint", "status", "consequence", "requests", "hits", "written", "saved", "place", "")
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
    "\x1b[2J\n",
    "\ud800",
    [],
    {"a": [1]},
)
EVENTS = ("started", "refused", "port-taken", "port-held", "warning", "exception", "exit", "cache", "ended", None)


def generate(draw: random.Random) -> str:
    """A report of this task, with fields of any kind."""
    record: dict[str, object] = {"task": 0, "node": "node1", "event": draw.choice(EVENTS)}
    record.update((draw.choice(NAMES), draw.choice(VALUES)) for _ in range(draw.randrange(4)))
    if draw.random() < 0.2:
        record[draw.choice(("task", "node", "event"))] = draw.choice(VALUES)
    return json.dumps(record)


def main(what: str, status: str) -> None:
    """Run the command line."""
    print("begins", flush=True)
    nonce = os.environ["JAXSIF_REPORT"]
    draw = random.Random(what)
    lines = ATTACKS if what == "attacks" else [generate(draw) for _ in range(20)]
    for line in lines:
        os.write(2, f"\x1ejaxsif {nonce} {line}\n".encode())
    os.write(2, b'\x1ejaxsif {"task": 0, "node": "node1", "event": "exit", "status": 7}\n')  # of another run
    sys.exit(int(status))


main(*sys.argv[1:])
