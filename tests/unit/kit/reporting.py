"""Reports as tasks write them, and what is taken of them, for tests of what they tell."""

from __future__ import annotations

import json

from jaxsif.diagnose.reports import Report, ReportFilter

NONCES = START, PROGRAM = "2c3d", "4e5f"


def marked(text: str | bytes, nonce: str = PROGRAM) -> bytes:
    """A line that begins as a report does."""
    return f"\x1ejaxsif {nonce} ".encode() + (text.encode() if isinstance(text, str) else text) + b"\n"


def report_line(nonce: str = START, **fields: object) -> bytes:
    """As jaxsif/task writes it."""
    return marked(json.dumps({"task": 0, "node": "node1", **fields}), nonce)


STARTED = report_line(event="started")
EXIT = report_line(event="exit", status=3)
STARTED_REPORT = Report(0, "node1", "started")
EXIT_REPORT = Report(0, "node1", "exit", 3)


def feed_all(
    chunks: list[bytes], label: bool = False, tasks: int | None = None
) -> tuple[bytes, list[Report], list[str]]:
    """What is shown, the reports and the errors kept, after all `chunks` and the end of the stream."""
    one = ReportFilter(NONCES, tasks, label)
    shown = b"".join([*map(one.feed, chunks), one.feed(b"")])
    return shown, one.reports, one.errors


def started(task: int = 0) -> Report:
    return Report(task, f"node{task}", "started")


def ended(task: int, status: int) -> Report:
    return Report(task, f"node{task}", "exit", status)


def raised(task: int, text: str, consequence: bool = False) -> Report:
    return Report(task, f"node{task}", "exception", text=text, where=f"train.py:{task}0", consequence=consequence)


GONE = "XlaRuntimeError: INTERNAL: Connection closed by peer"


def barrier_text(name: str, reached: str, first: int, names: str) -> bytes:
    """As JAX 0.12 writes it, several times over."""
    text = f"""E1121 coordination_service.cc:1489] Shutdown barrier in coordination service has failed:
DEADLINE_EXCEEDED: Barrier timed out. Id: {name}::145846::0. This usually happens because a task triggered it too early.
# of tasks that reached the barrier: {reached}.
The first task at the barrier: {first}. Some timed out task names:
{names}
 [type.googleapis.com/tensorflow.BarrierError='Shutdown::145846']
12
"""
    return 2 * text.encode()
