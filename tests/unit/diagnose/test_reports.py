"""Reports taken out of standard error, however it is cut, and what is shown of it."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.reporting import (
    EXIT,
    EXIT_REPORT,
    NONCES,
    PROGRAM,
    START,
    STARTED,
    STARTED_REPORT,
    barrier_text,
    feed_all,
    marked,
    report_line,
)

from jaxsif.diagnose.reports import Barrier, Report, ReportFilter, find_start

FILTER = {
    "none": (b"loss 0.1\nloss 0.2\n", b"loss 0.1\nloss 0.2\n", []),
    "between lines": (STARTED + b"loss\n" + EXIT, b"loss\n", [STARTED_REPORT, EXIT_REPORT]),
    "behind an unfinished line": (b"no newline" + EXIT + b"more\n", b"no newlinemore\n", [EXIT_REPORT]),
    "behind a number that is no label": (b"12: " + EXIT, b"12: ", [EXIT_REPORT]),
    "without its newline": (EXIT.rstrip(), b"", [EXIT_REPORT]),
    "of another run": (EXIT.replace(b"2c3d", b"0000"), EXIT.replace(b"2c3d", b"0000"), []),
    "without a nonce": (EXIT.replace(b" 2c3d", b""), EXIT.replace(b" 2c3d", b""), []),
    "behind half of one": (EXIT.rstrip() + b" " + EXIT, EXIT.rstrip() + b" ", [EXIT_REPORT]),
    "another use of the separator": (b"\x1e[1mbold\n", b"\x1e[1mbold\n", []),
    "no text": (b"\xff\xfe\x00\r\n\n", b"\xff\xfe\x00\r\n\n", []),
}


@pytest.mark.parametrize(("data", "shown", "reports"), FILTER.values(), ids=FILTER)
def test_filter(data: bytes, shown: bytes, reports: list[Report]) -> None:
    assert feed_all([data]) == (shown, reports, [])


HELD = report_line(PROGRAM, event="port-held", text="node3")
OTHER_NAME = b"E1123 19:35:24.904707     451 ssl_transport_security.cc:3050] No match found for server name: %s\n"


@pytest.mark.parametrize("label", [False, True])
def test_what_grpc_misses_in_the_certificate_of_the_run_is_not_shown(label: bool) -> None:
    """Of the coordinator alone: another name is of a connection that the program makes."""
    begin = b"12: " if label else b""
    lines = [begin + OTHER_NAME % name for name in (b"node3", b"node33", b"example.org")]
    assert feed_all([b"".join(lines)], label)[0] == b"".join(lines)
    assert feed_all([begin + HELD, *lines], label)[0] == b"".join(lines[1:])
    assert feed_all([begin + HELD, b"half of " + lines[0]], label)[0] == b"half of " + lines[0]


def test_filter_takes_labelled_reports_out() -> None:
    data = b" 0: " + STARTED + b" 0: loss\n12: " + EXIT + b"10: half" + EXIT
    assert feed_all([data], label=True) == (b" 0: loss\n10: half", [STARTED_REPORT, EXIT_REPORT, EXIT_REPORT], [])


def test_unfinished_line_is_shown_at_once() -> None:
    one = ReportFilter(NONCES)
    assert one.feed(b"epoch 1\r 10 %") == b"epoch 1\r 10 %"
    assert one.feed(b"\r 20 %") == b"\r 20 %"


def test_unfinished_line_among_several_tasks_waits() -> None:
    one = ReportFilter(NONCES, whole=True)
    assert [one.feed(data) for data in (b"a\nepo", b"ch 1", b"\nb", b"")] == [b"a\n", b"", b"epoch 1\n", b"b"]
    long = b"x" * 10_000
    assert one.feed(long) == long


def test_unfinished_line_that_may_become_a_report_waits() -> None:
    one = ReportFilter(NONCES)
    assert one.feed(b"loss\nepoch\x1ejax") == b"loss\nepoch"
    assert one.feed(b"sif 2c3d {") == b""
    assert one.feed(b"}") == b""
    assert one.feed(b"\n") == b"\x1ejaxsif 2c3d {}\n"
    assert one.feed(b"\x1ejax") == b""
    assert one.feed(b"on's") == b"\x1ejaxon's"


def test_labelled_line_that_cannot_become_a_report_is_shown_at_once() -> None:
    one = ReportFilter(NONCES, label=True)
    assert [one.feed(data) for data in (b" 1", b"2: ", b"10 %", b"\r20 %")] == [b"", b"", b" 12: 10 %", b"\r20 %"]


def test_without_nonces_nothing_is_a_report() -> None:
    one = ReportFilter()
    assert (one.feed(EXIT) + one.feed(b"\x1e"), one.reports) == (EXIT + b"\x1e", [])


@pytest.mark.parametrize(
    ("data", "label", "errors"),
    [
        (b"srun: job 7 queued\nslurmstepd: error: a\nb\n", False, ["slurmstepd: error: a"]),
        (b"my FATAL: x\n1: FATAL: y\n", False, []),
        (b"1: FATAL:   no such image\nsrun: error: x\n", True, ["FATAL:   no such image", "srun: error: x"]),
        (b"srun: error: x", False, ["srun: error: x"]),
    ],
    ids=["slurmstepd", "the program", "labelled", "without its newline"],
)
def test_errors_are_kept_and_shown(data: bytes, label: bool, errors: list[str]) -> None:
    assert feed_all([data], label) == (data, [], errors)


PLAIN = st.text(string.ascii_letters + string.digits + " .:'äß", max_size=20)
EVENTS = {
    START: {
        "started": {"step": st.sampled_from([".", "12.0", "7.extern"])},
        "refused": {"text": PLAIN},
        "warning": {"text": PLAIN},
        "exit": {"status": st.integers(0, 255), "where": st.sampled_from(["", "train.py:12"])},
    },
    PROGRAM: {
        "exception": {
            "text": PLAIN,
            "where": st.just("train.py:12"),
            "consequence": st.booleans(),
            "hint": st.just("a layer"),
        },
        "alone": {},
        "end": {},
        "cache": {"requests": st.integers(0, 99), "saved": st.floats(0, 9), "hits": st.just(1), "written": st.just(2)},
    },
}


@st.composite
def reports_of_tasks(draw: st.DrawFn) -> tuple[str, Report]:
    """A nonce, and what a task may say with it."""
    nonce, event = draw(st.sampled_from([(nonce, event) for nonce, events in EVENTS.items() for event in events]))
    fields: dict[str, Any] = {name: draw(values) for name, values in EVENTS[nonce][event].items()}
    return nonce, Report(draw(st.integers(0, 99)), draw(st.sampled_from(["", "node1", "cn01-ib.x"])), event, **fields)


def line_of(nonce: str, report: Report) -> bytes:
    """The line that a task writes: the fields of the event."""
    names = ("task", "node", "event", *EVENTS[nonce][report.event])
    return report_line(nonce, **{name: getattr(report, name) for name in names})


TEXTS = st.binary(max_size=12).map(lambda data: data.replace(b"\x1e", b"")) | st.sampled_from(
    [b"\n", b"12: ", b"loss\r", marked("nonsense"), b"\x1e\n", b"srun: error: x\n", b"FATAL: y", b"jaxsif "]
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """`data` in pieces, none of them empty: an empty one is the end of the stream."""
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[begin:end] for begin, end in zip(ends, ends[1:])]


@given(st.lists(TEXTS | reports_of_tasks(), max_size=8), st.lists(st.integers(0), max_size=12))
def test_what_is_shown_is_the_input_without_reports(
    pieces: list[bytes | tuple[str, Report]], places: list[int]
) -> None:
    """But for warnings, which are shown in words."""
    data = b"".join(piece if isinstance(piece, bytes) else line_of(*piece) for piece in pieces)
    shown, reports, _ = feed_all(cut(data, places))
    assert reports == [piece[1] for piece in pieces if not isinstance(piece, bytes)]
    for report in reports:
        shown = shown.replace(f"jaxsif: warning: {report.text} ({report.place})\n".encode(), b"")
    assert shown == b"".join(piece for piece in pieces if isinstance(piece, bytes))


BEGUN = STARTED.rstrip()[:-1]
SNIPPETS = st.sampled_from(
    [STARTED, EXIT, BEGUN, b"\x1e", b"jaxsif ", b"3: ", b"\n", b"srun: error: x", b"FATAL: y", b"{}", b"x" * 5000]
)


@given(st.lists(SNIPPETS | st.binary(max_size=6), max_size=10), st.lists(st.integers(0), max_size=12), st.booleans())
def test_the_cut_changes_nothing(pieces: list[bytes], places: list[int], label: bool) -> None:
    data = b"".join(pieces)
    assert feed_all(cut(data, places), label) == feed_all([data] if data else [], label)


WARNING = report_line(event="warning", text="/dev/shm is small")
SHOWN_WARNING = b"jaxsif: warning: /dev/shm is small (task 0 on node1)\n"


@pytest.mark.parametrize(
    ("data", "label", "shown"),
    [
        (WARNING, False, SHOWN_WARNING),
        (b"loss 1\n" + WARNING + b"loss 2\n" + WARNING, False, b"loss 1\n" + SHOWN_WARNING + b"loss 2\n"),
        (WARNING + WARNING.replace(b"small", b"tiny"), False, SHOWN_WARNING + SHOWN_WARNING.replace(b"small", b"tiny")),
        (b"0: " + WARNING + b"1: loss\n", True, SHOWN_WARNING + b"1: loss\n"),
    ],
    ids=["one", "twice", "two", "label"],
)
def test_a_warning_of_a_task_is_shown_once(data: bytes, label: bool, shown: bytes) -> None:
    assert feed_all([data], label)[0] == shown


@pytest.mark.parametrize(
    ("step", "found"),
    [
        ("12.0", (0, "12.0", "node[1-2]")),
        ("12.", (0, "", "node[1-2]")),
        (".", (-1, "", "")),
        ("12.batch", (-1, "", "")),
    ],
    ids=["in a step", "in a job alone", "in neither", "no number"],
)
def test_the_first_start_is_found_with_its_step(step: str, found: tuple[int, str, str]) -> None:
    reports = feed_all([STARTED, report_line(event="started", step=step, nodes="node[1-2]")])[1]
    start = find_start(reports)
    assert (start.task, start.step, start.nodes) == found


ABORT = "Job step aborted: Waiting up to 32 seconds for job step to finish."
FAILED = "error: node2: task 2: Exited with exit code 1"


def feed_srun(lines: list[str]) -> tuple[list[str], list[str], list[str]]:
    """What is shown, the errors, and the events, with a srun that is called srun-1a2b."""
    one = ReportFilter(NONCES)
    one.name_srun("srun-1a2b")
    shown = b"".join([*(one.feed(line.encode()) for line in lines), one.feed(b"")])
    return shown.decode().splitlines(), one.errors, [report.event for report in one.reports]


def test_only_the_lines_of_the_runs_own_srun_count() -> None:
    """Whether the program prints those of another one before or after."""
    printed = [f"srun: {ABORT}\n", "srun: error: node9: task 7: Killed\n"]
    own = f"srun: {FAILED}"
    for lines in ([*printed, f"srun-1a2b: {FAILED}\n"], [f"srun-1a2b: {FAILED}\n", *printed]):
        shown, errors, events = feed_srun(lines)
        assert sorted(shown) == sorted([own, *map(str.strip, printed)])
        assert (errors, events) == ([own], [])
    assert feed_srun([f"srun-1a2b: {ABORT}\n"]) == ([f"srun: {ABORT}"], [], ["cancelled"])


@pytest.mark.parametrize("before", ["", "10 %", "2: 10 %", "x" * 9000])
def test_the_name_is_not_shown_where_a_read_splits_it(before: str) -> None:
    name = "srun-1a2b: "
    for size in range(2, len(name) + 1):
        shown, _, _ = feed_srun([f"{before}{name[:size]}", f"{name[size:]}{FAILED}\n"])
        assert shown == [f"{before}srun: {FAILED}"]


def test_an_unfinished_line_that_is_no_name_is_shown() -> None:
    one = ReportFilter(NONCES)
    one.name_srun("srun-1a2b")
    assert one.feed(b"took 3 s") == b"took 3 s"
    assert one.feed(b", of srun") == b", of "
    assert one.feed(b"-1 ") == b"srun-1 "
    assert one.feed(b"sr") == b""
    assert one.feed(b"") == b"sr"


def test_a_srun_that_does_not_say_its_name_is_believed() -> None:
    """One that is a script of the site, say."""
    assert feed_srun([f"srun: {ABORT}\n", f"srun: {FAILED}\n"])[1:] == ([f"srun: {FAILED}"], ["cancelled"])


@pytest.mark.parametrize("label", [False, True])
def test_barriers_are_read(label: bool) -> None:
    text = barrier_text("Shutdown", "1/4", 3, "1\n0")
    if label:
        text = b"".join(b"2: " + line for line in text.splitlines(True))
    one = ReportFilter(NONCES, label=label)
    assert one.feed(text) + one.feed(b"") == text
    assert one.barriers == [Barrier("Shutdown", 1, 4, 3, (1, 0))]


def test_a_barriers_name_is_without_its_numbers() -> None:
    one = ReportFilter()
    one.feed(barrier_text("a::b::x::12", "1/4", 3, "1"))
    assert [barrier.name for barrier in one.barriers] == ["a::b::x"]
