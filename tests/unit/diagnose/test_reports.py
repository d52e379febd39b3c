"""Reports taken out of standard error, however it is cut; and the first cause of a failure, in words."""

from __future__ import annotations

import json
import re
import string
import time
from typing import Any

import pytest
from bounds import read_bounded
from hosts import SRUN
from hypothesis import given
from hypothesis import strategies as st

from jaxsif.diagnose.barriers import Barrier
from jaxsif.diagnose.culprit import find_failure, signal_name
from jaxsif.diagnose.facts import End
from jaxsif.diagnose.places import describe_places
from jaxsif.diagnose.remarks import describe_alone, describe_cache
from jaxsif.diagnose.reports import Report, ReportFilter, find_step

NONCES = START, PROGRAM = "2c3d", "4e5f"
TASKS = 10_000


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


@pytest.mark.parametrize(
    ("data", "shown", "reports"),
    [
        (b"loss 0.1\nloss 0.2\n", b"loss 0.1\nloss 0.2\n", []),
        (STARTED + b"loss\n" + EXIT, b"loss\n", [STARTED_REPORT, EXIT_REPORT]),
        (b"no newline" + EXIT + b"more\n", b"no newlinemore\n", [EXIT_REPORT]),
        (b"12: " + EXIT, b"12: ", [EXIT_REPORT]),
        (EXIT.rstrip(), b"", [EXIT_REPORT]),
        (EXIT.replace(b"2c3d", b"0000"), EXIT.replace(b"2c3d", b"0000"), []),
        (EXIT.replace(b" 2c3d", b""), EXIT.replace(b" 2c3d", b""), []),
        (EXIT.rstrip() + b" " + EXIT, EXIT.rstrip() + b" ", [EXIT_REPORT]),
        (b"\x1e[1mbold\n", b"\x1e[1mbold\n", []),
        (b"\xff\xfe\x00\r\n\n", b"\xff\xfe\x00\r\n\n", []),
    ],
    ids=[
        "none",
        "between lines",
        "behind an unfinished line",
        "behind a number that is no label",
        "without its newline",
        "of another run",
        "without a nonce",
        "behind half of one",
        "another use of the separator",
        "no text",
    ],
)
def test_filter(data: bytes, shown: bytes, reports: list[Report]) -> None:
    assert feed_all([data]) == (shown, reports, [])


def test_filter_takes_labelled_reports_out() -> None:
    data = b" 0: " + STARTED + b" 0: loss\n12: " + EXIT + b"10: half" + EXIT
    assert feed_all([data], label=True) == (b" 0: loss\n10: half", [STARTED_REPORT, EXIT_REPORT, EXIT_REPORT], [])


def test_unfinished_line_is_shown_at_once() -> None:
    one = ReportFilter(NONCES)
    assert one.feed(b"epoch 1\r 10 %") == b"epoch 1\r 10 %"
    assert one.feed(b"\r 20 %") == b"\r 20 %"


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
        (b"srun: error: Unable to allocate\n", False, ["srun: error: Unable to allocate"]),
        (b"srun: job 7 queued\nslurmstepd: error: a\nb\n", False, ["slurmstepd: error: a"]),
        (b"FATAL:   no such image\n", False, ["FATAL:   no such image"]),
        (b"my FATAL: x\n1: FATAL: y\n", False, []),
        (b"1: FATAL:   no such image\nsrun: error: x\n", True, ["FATAL:   no such image", "srun: error: x"]),
        (b"srun: error: x", False, ["srun: error: x"]),
    ],
    ids=["srun", "slurmstepd", "the runtime", "the program", "labelled", "without its newline"],
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


def started(task: int = 0) -> Report:
    return Report(task, f"node{task}", "started")


def ended(task: int, status: int) -> Report:
    return Report(task, f"node{task}", "exit", status)


def raised(task: int, text: str, consequence: bool = False) -> Report:
    return Report(task, f"node{task}", "exception", text=text, where=f"train.py:{task}0", consequence=consequence)


GONE = "XlaRuntimeError: INTERNAL: Connection closed by peer"
NO_GPU = "RuntimeError: Unable to initialize backend 'cuda': no device"


@pytest.mark.parametrize(
    ("status", "reports", "errors", "code", "text"),
    [
        (
            1,
            [started(), raised(1, "ValueError: shapes"), ended(1, 1)],
            [],
            1,
            "task 1 on node1 failed: ValueError: shapes\n  from: train.py:10",
        ),
        (
            1,
            [started(), raised(0, GONE, True), ended(0, 1), raised(1, "ValueError: shapes"), ended(1, 1)],
            [],
            1,
            "task 1 on node1 failed: ValueError: shapes\n  from: train.py:10",
        ),
        (
            134,
            [started(), ended(0, 134), ended(1, 137)],
            [],
            137,
            "task 1 on node1 was killed by SIGKILL\n"
            "  try:  if nobody killed it, the node ran out of memory: see the kernel's log there, and --mem of the job",
        ),
        *(
            (
                134,
                [started(), ended(0, 134), *srun_ends],
                [],
                134,
                "task 0 on node0 was killed by SIGABRT\n  try:  JAX ended it, and says why above; DEADLINE_EXCEEDED: "
                "a process did not come, or cannot reach task 0",
            )
            for srun_ends in ([], [ended(1, 143)])
        ),
        (
            1,
            [started(), raised(0, GONE, True), ended(0, 1)],
            [],
            1,
            f"task 0 on node0 failed: {GONE}\n  from: train.py:00",
        ),
        (
            139,
            [started(), raised(1, "ValueError: caught and shown"), ended(1, 139)],
            [],
            139,
            "task 1 on node1 was killed by SIGSEGV\n  from: train.py:10",
        ),
        (3, [started(), ended(1, 3)], [], 3, "task 1 on node1 ended with exit status 3"),
        (
            3,
            [started(), raised(1, "sys.exit(3)"), ended(1, 3)],
            [],
            3,
            "task 1 on node1 failed: sys.exit(3)\n  from: train.py:10",
        ),
        (
            200,
            [started(), raised(1, "sys.exit(200)"), ended(1, 200)],
            [],
            200,
            "task 1 on node1 failed: sys.exit(200)\n  from: train.py:10",
        ),
        (255, [started(), ended(1, 255)], [], 255, "task 1 on node1 ended with exit status 255"),
        (
            128,
            [started(), raised(1, "sys.exit(128)"), ended(1, 128)],
            [],
            128,
            "task 1 on node1 failed: sys.exit(128)\n  from: train.py:10",
        ),
        (
            127,
            [started(), ended(0, 127)],
            [],
            127,
            "task 0 on node0 ended with exit status 127",
        ),
        (
            1,
            [started(), raised(0, NO_GPU), ended(0, 1)],
            [],
            1,
            f"task 0 on node0 failed: {NO_GPU}\n"
            "  from: train.py:00\n"
            "  try:  the task was given GPUs, but JAX cannot use them: see nvidia-smi on the node, or set --env"
            " JAX_PLATFORMS=cpu to run on the CPU",
        ),
        (
            1,
            [started(), ended(1, 1), Report(0, "node0", "refused", text="port 61234 is taken")],
            [],
            125,
            "port 61234 is taken\n  from: task 0 on node0",
        ),
        (
            125,
            [Report(0, "node0", "port-taken", text="port 61234 is taken")],
            [],
            125,
            "port 61234 is taken\n  from: task 0 on node0\n"
            "  try:  run it again for another port, or --coordinator-ports",
        ),
        (
            1,
            [],
            ["srun: error: x", "srun: error: Unable to allocate resources: Invalid qos"],
            125,
            "Slurm refused the request: Unable to allocate resources: Invalid qos\n"
            "  from: srun\n"
            "  try:  sinfo and sacctmgr show what there is",
        ),
        (
            255,
            [],
            ["FATAL:   could not open image", "srun: error: node1: task 0: Exited with exit code 255"],
            125,
            "the container did not start: could not open image\n"
            "  from: the runtime, on a node\n"
            "  try:  run it there by hand",
        ),
        (1, [], [], 125, "no task started (exit status 1)\n  from: srun"),
        (
            143,
            [started()],
            ["slurmstepd: error: *** STEP 7.0 CANCELLED DUE TO TIME LIMIT ***"],
            143,
            "the step ended with exit status 143, and no task said why\n"
            "  from: slurmstepd: error: *** STEP 7.0 CANCELLED DUE TO TIME LIMIT ***\n"
            "  try:  squeue and scontrol show job tell of time limits, cancelled jobs and lost nodes",
        ),
        (
            1,
            [Report(0, "", "started"), Report(2, "", "exit", 1)],
            [],
            1,
            "process 2 ended with exit status 1",
        ),
    ],
    ids=[
        "an exception",
        "a neighbour's exception first",
        "JAX's SIGABRT first",
        "SIGABRT alone",
        "SIGABRT, then srun's SIGTERM",
        "a consequence alone",
        "a signal behind an exception",
        "an exit status",
        "sys.exit",
        "sys.exit with a status beyond all signals",
        "a status beyond all signals",
        "sys.exit(128)",
        "no program",
        "no usable GPU",
        "refused",
        "a taken port",
        "refused by Slurm",
        "refused by the runtime",
        "nothing known",
        "ended by Slurm",
        "without Slurm",
    ],
)
def test_first_cause(status: int, reports: list[Report], errors: list[str], code: int, text: str) -> None:
    failure = find_failure(End(status, SRUN), reports, errors)
    assert failure is not None
    assert failure.render() == f"jaxsif: error: {text}"
    assert failure.exit_code == code


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


@pytest.mark.parametrize("label", [False, True])
def test_barriers_are_read(label: bool) -> None:
    text = barrier_text("Shutdown", "1/4", 3, "1\n0")
    if label:
        text = b"".join(b"2: " + line for line in text.splitlines(True))
    one = ReportFilter(NONCES, label=label)
    assert one.feed(text) + one.feed(b"") == text
    assert one.barriers == [Barrier("Shutdown", 1, 4, 3, (1, 0))]


ALL_ABORTED = [started(), *(Report(task, f"node{task}", "exit", 134, where=f"train.py:{task}0") for task in range(4))]
HINT = "\n  try:  all processes must compute the same, equally often: see slurm/mistakes"
INIT_HINT = (
    "\n  try:  see what it does before, and whether it can reach task 0; --init-timeout says how long the others wait"
)


@pytest.mark.parametrize(
    ("barrier", "reports", "text"),
    [
        (
            Barrier("Shutdown", 1, 4, 3, (1, 0)),
            ALL_ABORTED,
            "task 3 on node3 came to the end of the program, and 3 of 4 did not\n"
            "  from: train.py:10, where task 1 on node1 was" + HINT,
        ),
        (
            Barrier("Shutdown", 2, 8, 3, (1, 0)),
            ALL_ABORTED,
            "task 3 on node3 came to the end of the program, and 6 of 8 did not; it was the first of 2\n"
            "  from: train.py:10, where task 1 on node1 was" + HINT,
        ),
        (
            Barrier("Shutdown", 3, 4, 1, (0,)),
            ALL_ABORTED,
            "task 0 on node0 did not come to the end of the program, and 3 of 4 did\n"
            "  from: train.py:00, where task 0 on node0 was" + HINT,
        ),
        (
            Barrier("[Init]Wait_for_all_tasks_to_register", 6, 8, 1, (5, 7)),
            [started(), raised(1, "JaxRuntimeError: DEADLINE_EXCEEDED: Barrier timed out"), ended(1, 1)],
            "task 5, task 7 did not come to jax.distributed.initialize, and 6 of 8 did" + INIT_HINT,
        ),
        (
            Barrier("Shutdown", 3, 4, 1, (0,)),
            [started(), ended(1, 134), raised(0, GONE, True), ended(0, 1)],
            "task 0 on node0 did not come to the end of the program, and 3 of 4 did\n"
            "  from: train.py:00, where task 0 on node0 was" + HINT,
        ),
        (
            Barrier("save", 3, 4, 1, (2,)),
            [started(), raised(0, "JaxRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: save::0."), ended(0, 1)],
            "task 2 did not come to the barrier save, and 3 of 4 did" + HINT,
        ),
        (
            Barrier("Shutdown", 60, 64, 1, (1, 2)),
            ALL_ABORTED,
            "task 1 on node1, task 2 on node2 and 2 more did not come to the end of the program, and 60 of 64 did\n"
            "  from: train.py:10, where task 1 on node1 was" + HINT,
        ),
    ],
    ids=[
        "one came",
        "two came",
        "one is missing",
        "initialize",
        "its neighbours were faster",
        "another barrier",
        "many are missing",
    ],
)
def test_the_odd_one_at_a_barrier(barrier: Barrier, reports: list[Report], text: str) -> None:
    failure = find_failure(End(134, SRUN), reports, [], [barrier])
    assert failure is not None
    assert failure.render() == f"jaxsif: error: {text}"


def test_a_barrier_that_the_program_went_on_from_is_no_cause() -> None:
    failure = find_failure(End(134, SRUN), ALL_ABORTED, [], [Barrier("save", 3, 4, 1, (2,))])
    assert failure is not None
    assert failure.what == "task 0 on node0 was killed by SIGABRT"


def test_a_barrier_is_no_cause_where_a_task_failed_by_itself() -> None:
    reports = [*ALL_ABORTED, raised(2, "ValueError: shapes"), ended(2, 1)]
    failure = find_failure(End(134, SRUN), reports, [], [Barrier("Shutdown", 3, 4, 1, (2,))])
    assert failure is not None
    assert failure.what == "task 2 on node2 failed: ValueError: shapes"


def aborted(task: int, where: str) -> Report:
    return Report(task, f"node{task}", "exit", 134, where=where)


def terminated(task: int, where: str) -> Report:
    return Report(task, f"node{task}", "exit", 143, where=where)


GAVE_UP = "F1121 client.h:86] Terminating process because the JAX distributed service detected fatal errors. \
absl::Status: DEADLINE_EXCEEDED: Deadline Exceeded"
TIMED_OUT = raised(0, "JaxRuntimeError: Gloo: Timed out waiting 30000ms")


@pytest.mark.parametrize(
    ("reports", "errors", "text"),
    [
        (
            [aborted(1, "a.py:7"), aborted(3, "a.py:7"), terminated(0, "a.py:7"), terminated(2, "a.py:3")],
            [GAVE_UP],
            "task 2 on node2 did not come, and task 1 on node1 has waited in vain at a.py:7\n"
            "  from: a.py:3, where task 2 on node2 was\n",
        ),
        (
            [TIMED_OUT, ended(0, 1), terminated(1, "b.py:4")],
            [],
            "task 1 on node1 did not come, and task 0 on node0 has waited in vain at train.py:00\n"
            "  from: b.py:4, where task 1 on node1 was\n"
            "  try:  see what keeps it there; what the other one said: "
            "JaxRuntimeError: Gloo: Timed out waiting 30000ms\n",
        ),
        (
            [TIMED_OUT, ended(0, 1), terminated(1, "b.py:4"), terminated(2, "b.py:4"), terminated(3, "load.py:3")],
            [],
            "task 3 on node3 did not come, and task 0 on node0 has waited in vain at train.py:00\n",
        ),
        (
            [TIMED_OUT, ended(0, 1), terminated(1, "b.py:4"), terminated(3, "load.py:3")],
            [],
            "task 0 on node0 failed: JaxRuntimeError: Gloo: Timed out waiting 30000ms\n",
        ),
        (
            [raised(0, "RpcError: DEADLINE_EXCEEDED: of the data"), ended(0, 1), terminated(1, "b.py:4")],
            [],
            "task 0 on node0 failed: RpcError: DEADLINE_EXCEEDED: of the data\n",
        ),
        (
            [aborted(1, "a.py:7"), terminated(2, "a.py:7")],
            [GAVE_UP],
            "task 1 on node1 was killed by SIGABRT\n  from: a.py:7\n",
        ),
        (
            [aborted(1, "a.py:7"), terminated(2, "a.py:3")],
            [],
            "task 1 on node1 was killed by SIGABRT\n  from: a.py:7\n",
        ),
        (
            [raised(0, "ValueError: x"), ended(0, 1), terminated(1, "a.py:3")],
            [],
            "task 0 on node0 failed: ValueError: x\n",
        ),
    ],
    ids=[
        "JAX's coordinator",
        "Gloo",
        "others further on",
        "nobody knows which",
        "not JAX's timeout",
        "all at one line",
        "an abort of another kind",
        "another failure",
    ],
)
def test_the_one_that_others_waited_for(reports: list[Report], errors: list[str], text: str) -> None:
    failure = find_failure(End(134, SRUN), [started(), *reports], errors)
    assert failure is not None
    assert f"{failure.render()}\n".startswith(f"jaxsif: error: {text}")


def test_places_of_tasks() -> None:
    reports = [Report(task, "", "exit", 143, where="a.py:9") for task in range(12) if task != 5]
    assert describe_places(reports) == "tasks were at a.py:9 (task 0, 1, 2, 3, 4, 6, 7, 8 and 3 more)"
    assert describe_places([ended(5, 137)]) == ""
    interrupted = Report(5, "", "exception", text="KeyboardInterrupt", where="a.py:2")
    text = "tasks were at a.py:2 (task 5), a.py:9 (task 0, 1, 2, 3, 4, 6, 7, 8 and 3 more)"
    assert describe_places([*reports, interrupted, ended(5, 130)]) == text
    many = [Report(task, "", "exit", 143, where=f"a.py:{task}") for task in range(9)]
    assert describe_places(many).endswith("a.py:3 (task 3) and 5 other places")


def test_a_line_where_a_signal_came() -> None:
    failure = find_failure(End(139, SRUN), [started(), Report(1, "node1", "exit", 139, where="train.py:7")], [])
    assert failure is not None
    assert failure.render() == "jaxsif: error: task 1 on node1 was killed by SIGSEGV\n  from: train.py:7"


def test_sigkill_of_a_whole_task_is_the_cause_of_the_others_sigterm() -> None:
    """The parent of the program, which would report, is killed too; Slurm says which one was."""
    killed, cancelled = "srun: error: node2: task 3: Killed", "slurmstepd-node1: error: *** STEP 7.0 CANCELLED AT ***"
    failure = find_failure(End(137, SRUN), [started(), ended(0, 143)], [killed, cancelled])
    assert failure is not None
    assert failure.render().startswith("jaxsif: error: task 3 on node2 was killed by SIGKILL\n")
    for reports in ([ended(0, 134)], [raised(0, GONE, True), ended(0, 1)]):
        failure = find_failure(End(137, SRUN), [started(), *reports], [killed, cancelled])
        assert failure is not None
        assert failure.what == "task 3 on node2 was killed by SIGKILL"
    ended_by_slurm = find_failure(End(137, SRUN), [started(), ended(0, 143)], [cancelled, killed])
    assert ended_by_slurm is not None
    assert ended_by_slurm.what == "task 0 on node0 was killed by SIGTERM"


def test_success_has_no_cause_whatever_was_said() -> None:
    assert find_failure(End(0, SRUN), [started(), ended(1, 3)], ["srun: error: x"]) is None


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (15, "SIGTERM"), (33, "signal 33"), (70, "signal 70")])
def test_signal_name(number: int, name: str) -> None:
    assert signal_name(number) == name


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
    ("line", "flags"),
    [
        ("Unknown flag in XLA_FLAGS: --xla_foo=1", "--xla_foo=1"),
        ("Unknown flags in XLA_FLAGS: --xla_foo --xla_bar=2", "--xla_foo --xla_bar=2"),
    ],
)
@pytest.mark.parametrize("label", [False, True])
def test_an_unknown_flag_of_xla_is_named(line: str, flags: str, label: bool) -> None:
    said = f"{'1: ' if label else ''}F1120 17:02:42.966399    1537 parse_flags_from_env.cc:234] {line}\n".encode()
    ended = report_line(event="exit", status=1)
    shown, reports, errors = feed_all([STARTED, said, b"0: " * label + ended], label)
    assert said in shown
    error = find_failure(End(1, SRUN), reports, errors)
    assert error is not None
    assert (error.what, error.where) == (f"XLA does not know {flags}", "XLA_FLAGS, in task 0 on node1")
    assert error.exit_code == 1


def test_what_the_compile_cache_was_good_for() -> None:
    reports = [
        STARTED_REPORT,
        Report(0, "node1", "cache", requests=10, hits=3, written=1, saved=4.4),
        Report(1, "node1", "cache", requests=10, saved=0.0),
        Report(2, "node2", "cache", requests=10, hits=2, saved=1.3),
    ]
    text = "compile cache: 5 of 30 programs from it, in 2 of 3 task(s), 6 s of compiling saved; 1 new"
    assert describe_cache(reports) == text
    assert describe_cache([STARTED_REPORT, EXIT_REPORT]) == ""


@pytest.mark.parametrize(
    ("events", "tasks"),
    [
        ([(0, "alone"), (1, "alone"), (1, "alone")], 2),
        ([(task, "alone") for task in range(8)], 8),
        ([(0, "alone")], 0),
        ([(0, "alone"), (1, "alone"), (2, "end")], 0),
        ([(0, "started")], 0),
    ],
    ids=["two", "eight", "one", "others were connected", "no JAX"],
)
def test_tasks_that_computed_alone(events: list[tuple[int, str]], tasks: int) -> None:
    warning = describe_alone([Report(task, "node1", event) for task, event in events])
    assert warning.startswith(f"warning: {tasks} tasks ran JAX, and none called ") == bool(tasks)
    assert bool(warning) == bool(tasks)


def test_a_task_says_that_it_computed_alone_and_what_to_try() -> None:
    """As task/alone.py and task/failure.py do."""
    seen = ReportFilter(NONCES)
    seen.feed(report_line(PROGRAM, event="alone"))
    seen.feed(report_line(PROGRAM, event="exception", text="E", where="a.py:1", consequence=False, hint="try this"))
    assert [(report.event, report.hint) for report in seen.reports] == [("alone", ""), ("exception", "try this")]


def test_a_barriers_name_is_without_its_numbers() -> None:
    one = ReportFilter()
    one.feed(barrier_text("a::b::x::12", "1/4", 3, "1"))
    assert [barrier.name for barrier in one.barriers] == ["a::b::x"]


# What a program may do that knows the nonces. Before, each of these lines ended the launcher with a traceback, or was
# believed, or reached the terminal.
FORGED = {
    "an exit of a task that is not there": marked('{"task": 99, "node": "x", "event": "exit", "status": 7}', START),
    "an exit": marked('{"task": 0, "node": "x", "event": "exit", "status": 7}'),
    "a thousand brackets": marked("[" * 8000),
    "brackets without an end": b"\x1ejaxsif 4e5f " + b"[" * 200_000 + b"\n",
    "a cache that counts letters": marked('{"task": 0, "node": "x", "event": "cache", "requests": "x"}'),
    "a cache that counts truths": marked('{"task": 0, "node": "x", "event": "cache", "hits": true}'),
    "a cache that saves for ever": marked('{"task": 0, "node": "x", "event": "cache", "saved": 1e400}'),
    "a cache that saves no number": marked('{"task": 0, "node": "x", "event": "cache", "saved": NaN}'),
    "a task that is an object": marked('{"task": {}, "node": "x", "event": "exit", "status": 7}', START),
    "a task below 0": marked('{"task": -5, "node": "x", "event": "exit", "status": 7}', START),
    "a task of 5,000 digits": marked('{"task": %s, "node": "x", "event": "started"}' % ("9" * 5000), START),
    "a status that is a text": marked('{"task": 0, "node": "x", "event": "exit", "status": "x"}', START),
    "a status without end": marked('{"task": 0, "node": "x", "event": "exit", "status": 1e400}', START),
    "a status below 0": marked('{"task": 0, "node": "x", "event": "exit", "status": -3}', START),
    "a status above 255": marked('{"task": 0, "node": "x", "event": "exit", "status": 256}', START),
    "an exception that is a number": marked('{"task": 0, "node": "x", "event": "exception", "text": 5}'),
    "a node that is a sentence": marked('{"task": 0, "node": "x\\u001b[2J", "event": "started"}', START),
    "no node": marked('{"task": 0, "event": "started"}', START),
    "no event": marked('{"task": 0, "node": "x"}', START),
    "an unknown event": marked('{"task": 0, "node": "x", "event": "ended"}', START),
    "an event that is a list": marked('{"task": 0, "node": "x", "event": []}', START),
    "a step that is an option": marked('{"task": 0, "node": "x", "event": "started", "step": "--me 7.0"}', START),
    "a step of the program": marked('{"task": 0, "node": "x", "event": "started", "step": "7.0"}'),
    "an unknown field": marked('{"task": 0, "node": "x", "event": "started", "place": "x"}', START),
    "a field of another event": marked('{"task": 0, "node": "x", "event": "started", "status": 1}', START),
    "a list": marked("[1]"),
    "null": marked("null"),
    "half": marked('{"task": 0'),
    "no text": marked(b"\xff\x00"),
}


@pytest.mark.parametrize("line", FORGED.values(), ids=FORGED)
def test_what_is_no_report_is_shown_and_changes_nothing(line: bytes) -> None:
    """The run succeeds, or fails as it failed."""
    shown, reports, _ = feed_all([STARTED, line, EXIT], tasks=4)
    assert shown == line
    assert reports == [STARTED_REPORT, EXIT_REPORT]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\ud800", b"\\ud800"),
        ("\x1b]0;owned\x07\x1b[2J\r\njaxsif: error: forged", rb"\x1b]0;owned\x07\x1b[2J\r\njaxsif: error: forged"),
        ("é" * 1000, "é".encode() * 300),
    ],
    ids=["half a letter", "escape sequences", "long"],
)
def test_a_warning_is_one_line_of_printable_text(text: str, shown: bytes) -> None:
    line = report_line(PROGRAM, event="warning", text=text)
    assert feed_all([line])[0] == b"jaxsif: warning: " + shown + b" (task 0 on node1)\n"


HELD = report_line(PROGRAM, event="port-held")
TAKEN = report_line(PROGRAM, event="port-taken", text="port 61234 is taken")
REFUSED = report_line(PROGRAM, event="refused", text="a GPU short", hint="--share-gpus")


@pytest.mark.parametrize(
    ("lines", "status", "what"),
    [
        ([STARTED, TAKEN], 125, "port 61234 is taken"),
        ([STARTED, HELD, TAKEN], 3, "task 0 on node1 ended with exit status 3"),
        ([STARTED, HELD, TAKEN], 125, "task 0 on node1 ended with exit status 125"),
        ([STARTED, TAKEN], 3, "task 0 on node1 ended with exit status 3"),
        ([STARTED, REFUSED], 125, "a GPU short"),
        ([STARTED, HELD, REFUSED], 125, "task 0 on node1 ended with exit status 125"),
        ([STARTED, REFUSED], 3, "task 0 on node1 ended with exit status 3"),
        ([report_line(START, event="refused", text="no /dev/nvidiactl")], None, "no /dev/nvidiactl"),
    ],
    ids=[
        "the port is taken",
        "said by the program",
        "with the status of a refusal",
        "with another status",
        "refused",
        "refused by the program",
        "refused with another status",
        "refused by start.sh",
    ],
)
def test_a_refusal_counts_before_the_programs_first_line(lines: list[bytes], status: int | None, what: str) -> None:
    ends = [] if status is None else [report_line(event="exit", status=status)]
    shown, reports, errors = feed_all([*lines, *ends])
    assert b"\x1e" not in shown
    failure = find_failure(End(status or 125, SRUN), reports, errors)
    assert failure is not None
    assert (failure.what, failure.exit_code) == (what, status or 125)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-1, 256),
    st.floats(),
    st.text(),
    st.sampled_from(["\x1b[2J", "\ud800", "a" * 9000, "node1", 10**400, [], [[[]]], {}, {"a": 1}]),
)
NAMES = st.sampled_from(sorted(Report._fields)) | st.text(max_size=5)
NAMED = st.sampled_from(
    ["started", "refused", "warning", "exit", "port-held", "port-taken", "exception", "end", "alone", "cache"]
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=6)
LIKELY = st.fixed_dictionaries({"task": st.integers(0, 5) | VALUES, "node": st.just("n1") | VALUES, "event": NAMED})
RECORDS = st.builds(lambda likely, fields: {**likely, **fields}, LIKELY, OBJECTS) | OBJECTS


@given(
    st.lists(st.tuples(st.sampled_from(NONCES), RECORDS), min_size=1, max_size=4),
    st.sampled_from([1, 3, 125, 134, 137, 143]),
    st.booleans(),
)
def test_whatever_a_program_reports_the_end_is_told_as_it_was(
    forged: list[tuple[str, dict[str, Any]]], status: int, label: bool
) -> None:
    """With the nonces of the run: success is success, and nothing but printable text is shown of a report."""
    one = ReportFilter(NONCES, 6, label)
    prefix = b"3: " if label else b""
    lines = [prefix + marked(json.dumps(record), nonce) for nonce, record in forged]

    def tell() -> None:
        shown = b"".join(map(one.feed, [prefix + STARTED, *lines, prefix + EXIT, b""]))
        for line in shown.splitlines(True):
            assert line in lines or line[:-1].decode().isprintable()
        for text in (describe_places(one.reports), describe_cache(one.reports), describe_alone(one.reports)):
            assert text.isprintable()
        assert re.fullmatch(r"(\d+\.\d+)?", find_step(one.reports))
        assert find_failure(End(0, SRUN), one.reports, one.errors, one.barriers) is None
        for end in (End(status, SRUN, 6), End(143, SRUN, 6, interrupted=15), End(137, SRUN, killed=True)):
            failure = find_failure(end, one.reports, one.errors, one.barriers)
            assert failure or end.interrupted
            if failure:
                assert 0 < failure.exit_code <= 255
                assert all(line.isprintable() for line in failure.render().split("\n"))

    assert read_bounded(tell) is None


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


def test_a_hundred_megabytes_behind_one_separator() -> None:
    short, long = (feed_endless(b"\x1e", b"x", size << 20, label=False) for size in (25, 100))
    assert long < 6 * short + 0.02
