"""Endless streams of anything are read in linear time and bounded memory."""

from __future__ import annotations

import time

import pytest
from kit.bounds import read_bounded
from kit.reporting import EXIT, NONCES, PROGRAM, barrier_text, marked, report_line

from jaxsif.diagnose.reports import MOST_ALIKE, ReportFilter

TASKS = 10_000
ENDLESS = {
    "one separator": (b"\x1e", b"x"),
    "separators": (b"", b"\x1e"),
    "a marker": (marked("")[:-1], b"x"),
    "markers": (b"", marked("")[:-1]),
    "a label": (b"12: ", b"x"),
    "blanks": (b"", b" "),
    "reports without a newline": (b"", EXIT.rstrip()),
    "reports": (b"", EXIT),
    "warnings": (b"", report_line(PROGRAM, event="warning", text="x" * 200)),
    "brackets": (marked("")[:-1], b"["),
    "errors of srun": (b"", b"srun: error: x\n"),
    "barriers": (b"", barrier_text("x" + "::1" * 1300, "1/4", 3, "1")),
    "tasks at a barrier": (barrier_text("x", "1/4", 3, "1").partition(b"1\n [")[0], b"1\n"),
}


def feed_endless(begin: bytes, repeated: bytes, size: int, label: bool) -> float:
    """Seconds of processor time that a stream of about `size` bytes takes, as it comes from a pipe."""
    one = ReportFilter(NONCES, TASKS, label)
    chunk = repeated * max(1, 65536 // len(repeated))
    before = time.process_time()
    one.feed(begin or chunk)
    for _ in range(size // len(chunk)):
        one.feed(chunk)
    one.feed(b"")
    return time.process_time() - before


@pytest.mark.parametrize("label", [False, True])
@pytest.mark.parametrize("stream", ENDLESS)
def test_an_endless_line_takes_linear_time_and_bounded_memory(stream: str, label: bool) -> None:
    """Four times as much takes four times as long, and sixteen times where time is quadratic."""
    begin, repeated = ENDLESS[stream]
    size = 1 << 18 if b"\n" in repeated else 1 << 20
    assert read_bounded(lambda: feed_endless(begin, repeated, size, label)) is None
    short = min(feed_endless(begin, repeated, size, label) for _ in range(3))
    assert feed_endless(begin, repeated, 4 * size, label) < 8 * short + 0.02


def test_a_listener_hears_a_report_once_it_is_kept_or_dropped() -> None:
    seen, heard = ReportFilter(NONCES, TASKS), []
    seen.listen(lambda _: heard.append(len(seen.reports)))
    seen.feed(report_line(PROGRAM, event="watched", jax=True) * (MOST_ALIKE + 1))
    assert heard == [*range(1, MOST_ALIKE + 1), MOST_ALIKE]
