"""Known messages of real failures: what each means, cause or consequence, remedy; nothing else is known."""

from __future__ import annotations

import re
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxsif.diagnose.explain import Explanation, Log, find_unnamed_cause, render_explanations
from jaxsif.diagnose.symptoms import CAUSE, CONSEQUENCE, EITHER, EXPLAINED, Symptom
from jaxsif.errors import RunError

# Real texts, each with its source, the role of its first explanation, and the beginning of the remedy.
TEXTS = sorted(Path(__file__).with_name("messages").glob("*.txt"))
GOLDEN = Path(__file__).parents[2] / "golden/explain"
PAGE = Path(__file__).parents[3] / "docs/explain.md"
BEGIN = "by examples.\n\n"  # ends the prose before the tables
SHOWN = 70  # characters of a message
HEADS = {"gpus": "GPUs", "slurm-and-the-container": "Slurm and the container"}
HEADER = re.compile(r"# from: (?P<source>.+)\n# role: (?P<role>.+)\n# try: (?P<remedy>.+)\n")
# No message of a failure that is known: what programs print on their way, and words without a meaning.
UNKNOWN = (
    "Killed",
    "Terminated",
    "[1]+  Killed                  python train.py",
    "2022-02-11 12:56:42.783555: W tensorflow/core/common_runtime/bfc_allocator.cc:239] Allocator (GPU_0_bfc) ran out"
    " of memory trying to allocate 45.53MiB with freed_by_count=0. The caller indicates that this is not a failure, but"
    " may mean that there could be performance gains if more memory were available.",
    "+ export JAX_PLATFORMS=cuda",
    "step 100: error 0.25, mismatch 3, relative error 1e-6",
    "an earlier run ended with ValueError: Array has been deleted with shape=float32[4].",
    "FATAL: role postgres does not exist",
    "3: jaxsif: error: cannot write a.toml: [Errno 28] No space left on device",  # in a task
    "a letter of *Xid* among others, no message of the driver",
    "jaxsif: warning: OSError: [Errno 122] Disk quota exceeded",
    "jaxsif: seen in the output, perhaps the cause: a disk is full; try: remove files",
    "E1123 19:35:24.904707     451 ssl_transport_security.cc:3050] No match found for server name: node3",
    "[Gloo] Rank 3 is connected to 3 peer ranks. Expected number of connected peer ranks is : 3",
    "srun: job 24 queued and waiting for resources",
    "OSError: libcurl.so.4: cannot open shared object file: No such file or directory",
    "FileNotFoundError: [Errno 2] No such file or directory: 'data/steps.csv'",
    "INFO:jax._src.xla_bridge:Unable to initialize backend 'cuda': ",
)
MISSING = "ModuleNotFoundError: No module named 'flax'"
# What others write before a line.
BEFORE = (
    "3: ",
    " 12: ",
    "[task 3] ",
    "[1,0]<stderr>:",
    "[ 1234.567890] ",
    "2026-11-24T10:00:00.123+01:00 ",
    "2026-11-24 10:00:00,123 ",
    "10:00:00.5 ",
    "Nov 24 10:00:00 node3 kernel: ",
    "  | ",
    "3: [2026-11-24 10:00:00] ",
    "\x1b[31m",
    "100%|##########| 10/10\r",
    "[rank0]: ",
)


def read(text: str, file: str = "train.log") -> list[Explanation]:
    log = Log()
    log.read(file, [text.encode(errors="surrogateescape")])
    return log.explanations


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_a_real_text_is_explained(path: Path, compare: Callable[[Path, str], None]) -> None:
    header = HEADER.match(path.read_text())
    assert header
    body = path.read_text()[header.end() :]
    found = read(body, "train.log")
    assert found[0].role == header["role"]
    assert found[0].remedy.startswith(header["remedy"])
    assert found[0].text.lstrip("… ") in re.sub(r"(\w+\.)+(?=\w*Error\b)", "", body)
    compare(GOLDEN / path.name, "\n".join(render_explanations(found)) + "\n")


def example(row: Symptom) -> Explanation:
    """What this row explains in a real text."""
    words = re.split(r"\{\w+\}", row.meaning or row.what)
    pattern = ".*".join(map(re.escape, words))
    found = (one for path in TEXTS for one in read(path.read_text()))
    alike = [one for one in found if re.fullmatch(pattern, one.meaning) and one.role == row.role]
    alike.sort(key=lambda one: not re.search(row.pattern, one.text))  # other rows may mean the same
    assert alike, f"no text in {TEXTS[0].parent} has a line for the symptom {row.pattern!r}: add one"
    return alike[0]


@pytest.mark.parametrize("row", EXPLAINED, ids=lambda row: row.pattern[:30])
def test_every_row_explains_a_real_text(row: Symptom) -> None:
    assert example(row)


@pytest.mark.parametrize("label", ["", "12: ", "[1,0]<stderr>:", "[1,0]<stderr>: "])
def test_source_code_in_a_traceback_is_no_message(label: str) -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/home/me/a.py", line 9, in save',
        "    raise_if(",
        '        assert "No space left on device" in str(e), "only a full disk"',
        "           ^^^^^",
        "AssertionError: only a full disk",
    ]
    text = "".join(f"{label}{line}\n" for line in lines)
    (raised,) = read(text)
    assert (raised.line, raised.text) == (6, "AssertionError: only a full disk")
    assert raised.remedy == "see /home/me/a.py:9, and the traceback above this line"
    assert [one.line for one in read(f"{text}{label}OSError: [Errno 28] No space left on device\n")] == [7]
    assert read(f"{label}    OSError: [Errno 28] No space left on device\n")


def test_the_page_lists_the_messages(compare: Callable[[Path, str], None]) -> None:
    """`make golden` writes the tables."""
    sections: dict[str, list[str]] = {}
    for row in EXPLAINED:
        page, _, anchor = row.page.rpartition("#")
        if page:
            one = example(row)
            text = one.text.replace("`", "'").replace("|", "\\|")
            shown = text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
            cells = (f"`{shown}`", one.meaning, one.role, one.remedy)
            sections.setdefault(anchor, []).append(f"| {' | '.join(cells)} |\n")
    heads = {anchor: HEADS.get(anchor) or anchor.replace("-", " ").capitalize() for anchor in sections}
    table = "| message | means | is | remedy |\n|---|---|---|---|\n"
    tables = [f"## {heads[anchor]}\n\n{table}{''.join(rows)}" for anchor, rows in sections.items()]
    before, begin, _ = PAGE.read_text().partition(BEGIN)
    assert begin
    compare(PAGE, before + begin + "\n".join(tables))


def test_many_texts_are_from_failures_here() -> None:
    sources = [HEADER.match(path.read_text()) for path in TEXTS]
    here = [one for one in sources if one and one["source"].startswith("the cluster in a box, ")]
    assert len(here) >= 90


@pytest.mark.parametrize("row", EXPLAINED, ids=lambda row: row.pattern[:30])
def test_a_row_is_whole(row: Symptom) -> None:
    """And plain: a remedy begins with a verb, or with a command."""
    assert row.role in (CAUSE, EITHER, CONSEQUENCE)
    assert row.texts
    assert re.match(r"[a-z]+ |`|Slurm starts it again$|JAX_", row.remedy)
    assert not re.search(r"\b(please|should|it seems|maybe)\b|[.!]$", f"{row.meaning or row.what}\n{row.remedy}", re.M)


@pytest.mark.parametrize("line", UNKNOWN)
def test_nothing_is_known_of_it(line: str) -> None:
    assert read(f"{line}\n") == []


@pytest.mark.parametrize(
    ("module", "name", "is_submodule"),
    [
        ("jax.experimental", "pallas", True),
        ("jax.scipy", "optimize", True),
        ("jax", "flatten_util", True),
        ("jax", "optimize", False),
        ("jax", "pjit", False),
        ("jax.experimental", "maps", False),  # removed
        ("jax.experimental.sparse", "layout", False),
    ],
)
def test_a_submodule_is_no_removed_name(module: str, name: str, is_submodule: bool) -> None:
    (one,) = read(f"AttributeError: module {module!r} has no attribute {name!r}")
    assert one.remedy.startswith(f"add `import {module}.{name}` " if is_submodule else "look for the new name")


@pytest.mark.parametrize("before", BEFORE)
def test_what_others_write_before_a_message(before: str) -> None:
    (one,) = read(f"loss 0.1\n{before}{MISSING}\n")
    assert (one.meaning, one.text, one.line) == ("Python cannot find the module flax", MISSING, 2)


def test_a_long_line_is_shown_from_about_where_the_message_is() -> None:
    message = "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"
    (one,) = read(f"E1120 10:59:55 {'stream executor ' * 20}{message}; {'and more ' * 20}")
    assert one.text.startswith("… ")
    assert 0 <= one.text.index(message) < 72 - len("CUDA_ERROR_ILLEGAL_ADDRESS")
    (one,) = read(f"FATAL:   {'no way ' * 20}")
    assert one.text.startswith("FATAL:   no way")


def test_causes_come_first_and_equal_lines_once() -> None:
    lines = ["srun: error: node1: task 0: Aborted", MISSING, "", MISSING, "srun: error: node1: task 1: Aborted"]
    log = Log()
    log.read("a", ["\n".join(lines).encode()])
    log.read("b", [MISSING.encode()])
    found = [(one.role, one.file, one.line, one.times) for one in log.explanations]
    assert found == [(CAUSE, "a", 2, 3), (CONSEQUENCE, "a", 1, 2)]


CANCELLED = "slurmstepd-n1: error: *** STEP 9.0 ON n1 CANCELLED AT 2026-11-29T20:10:14 ***"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("srun: error: node1: task 0: Aborted", "no known message gives the cause"),
        (CANCELLED, "if none of these is the cause"),
    ],
)
def test_consequences_alone_have_no_cause(line: str, said: str) -> None:
    """Nor may the end have that Slurm brings about because a task has failed."""
    text = list(render_explanations(read(line)))
    assert text[-1] == f"{said}: read what the first failed task printed"


OWN = """\
srun: error: node1: task 0: Exited with exit code 1
slurmstepd-node1: error: *** STEP 13.0 ON node1 CANCELLED AT 2026-11-24T14:17:40 ***
jaxsif: error: srun failed: No space left on device
    srun: error: Batch job submission failed: Invalid account
  from: train.py:12
  try:  free a disk
"""


def test_the_error_of_jaxsif_comes_first_and_alone() -> None:
    """It says how the run ended: no line of it is explained, nor what Slurm says of the end."""
    found = read(f"{OWN}{MISSING}\n")
    assert [(one.role, one.line) for one in found] == [("error", 3), (CAUSE, 7)]
    assert list(render_explanations(found))[:4] == [
        "jaxsif: error: srun failed: No space left on device",
        "  from: train.py:12",
        "  try:  free a disk",
        "cause: Python cannot find the module flax",
    ]
    assert list(render_explanations(read(OWN)))[3:] == []


def test_a_task_that_srun_has_ended_is_no_failure() -> None:
    """As after Ctrl-C."""
    lines = [f"srun: error: node1: task {status}: Exited with exit code {status}" for status in (143, 1)]
    assert [one.text for one in read("\n".join(lines))] == [lines[1]]


def test_the_failure_of_an_attempt() -> None:
    own = "jaxsif: attempt 1 failed: task 3 on node2 was killed by SIGKILL (it was at train.py:9)"
    assert [(one.role, one.meaning, one.line) for one in read(f"loss 0.1\n{own}\njaxsif: starting again in 5 s\n")] == [
        ("error", own.partition(": ")[2], 2)
    ]
    # It says nothing of the end, and only the last one is shown.
    cancelled = "slurmstepd-node1: error: *** STEP 13.0 ON node1 CANCELLED AT 2026-11-24T14:17:40 ***"
    text = "".join(f"jaxsif: attempt {number} failed: x\n" for number in range(1, 30))
    found = read(f"{text}jaxsif: error: task 0 failed: ValueError: real\n{cancelled}\n")
    assert [one.meaning for one in found] == ["attempt 29 failed: x", "task 0 failed: ValueError: real"]
    assert len(read(f"{text}{cancelled}\n")) == 2


@given(st.integers(1, 400))
def test_the_error_of_jaxsif_may_be_at_the_edge_of_a_block(size: int) -> None:
    data = f"{OWN}loss 0.1\n".encode()
    log = Log()
    log.read("a", [data[begin : begin + size] for begin in range(0, len(data), size)])
    assert [one[:6] for one in log.explanations] == [one[:6] for one in read(OWN, "a")]


def test_errors_of_jaxsif_are_bounded() -> None:
    text = "".join(f"jaxsif: error: task {task} failed\n" for task in range(100))
    assert len(read(text)) == 20


@given(st.lists(st.binary(max_size=40).filter(lambda piece: b"rror" not in piece), max_size=20), st.integers(1, 60))
def test_the_blocks_of_a_file_change_nothing(lines: list[bytes], size: int) -> None:
    data = b"\n".join([*lines, MISSING.encode(), b"\x00\xff\x1b[", *lines])
    logs = [Log(), Log()]
    logs[0].read("a", [data])
    logs[1].read("a", [data[begin : begin + size] for begin in range(0, len(data), size)])
    assert logs[0].explanations == logs[1].explanations
    assert [one.line for one in logs[0].explanations if one.text == MISSING] == [
        b"\n".join(lines).count(b"\n") + bool(lines) + 1
    ]


@given(st.text(), st.sampled_from(EXPLAINED))
def test_rubbish_is_harmless(text: str, row: Symptom) -> None:
    rubbish = f"{text}{row.texts[0]}{text}: error: \x1b]0;title\x07\x1b[2J{text}"
    lines = list(render_explanations(read(f"{rubbish}\n{rubbish}")))
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_lines_are_no_wider_than_a_terminal(path: Path) -> None:
    file = "/scratch/" + "x" * 200 + "/train.log"
    lines = list(render_explanations(read(path.read_text(), file)))
    places = [line for line in lines if line.startswith(f"  from: {file}:")]  # whole, to be copied
    assert places
    assert max(len(line) for line in lines if line not in places) <= 80


def endless(size: int) -> Iterator[bytes]:
    """A file of long lines and many messages, as blocks."""
    flood = b"".join(b"ModuleNotFoundError: No module named 'm%d'\n" % number for number in range(1000))
    for turn in range(size):
        yield b"x" * 100_000 + flood if turn % 2 else b"y" * (1 << 18)


def test_memory_and_explanations_are_bounded() -> None:
    tracemalloc.start()
    log = Log()
    log.read("a", endless(100))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20
    assert len(log.explanations) == 20


def test_a_line_without_an_end_takes_no_longer_than_others() -> None:
    begin = time.process_time()
    log = Log()
    log.read("a", [b"error: " * (1 << 17)] * 8)
    assert time.process_time() - begin < 5
    assert log.explanations == []


def test_a_run_names_a_cause_that_its_error_does_not() -> None:
    killed = RunError("task 0 on node1 was killed by SIGKILL", "", "if nobody killed it, ask for more memory", 137)
    output = b"slurmstepd-node1: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks\n"
    line = (
        "seen in the output, perhaps the cause: the tasks on a node used more memory than their step is allowed;"
        " try: ask for --mem=0 (all), or fewer tasks"
    )
    assert find_unnamed_cause(output, killed) == (line, "")
    assert find_unnamed_cause(b"srun: error: node1: task 0: Aborted\n", killed) == ("", "")
    # Gloo also says it of the connection to a task that has failed.
    gloo = b"Received data size doesn't match expected size. Is the input size correct?\n"
    assert find_unnamed_cause(gloo, RunError("task 2 failed: KeyboardInterrupt", "a.py:3", "", 1)) == ("", "")


def test_workers_that_run_the_script_again_are_cause_enough() -> None:
    for what in ("failed: a multiprocessing worker ran the script again", "called jax.distributed.initialize(x=8)"):
        error = RunError(f"task 0 on node1 {what}", "a.py:3", "", 134)
        assert find_unnamed_cause(b"OSError: [Errno 24] Too many open files\n", error) == ("", "")


def test_the_cause_in_the_last_line_is_the_likely_one() -> None:
    full, files = b"OSError: [Errno 28] No space left on device\n", b"OSError: [Errno 24] Too many open files\n"
    failed = RunError("task 0 on node1 ended with exit status 1", "", "", 1)
    for output, words in ((full + files, "open files"), (full + files + full, "disk")):
        assert words in find_unnamed_cause(output, failed)[0]


REMEDY = (
    "add the package to a layer: jaxsif layer create NAME PACKAGE; for a module of your own: --env PYTHONPATH=/FOLDER"
)


@pytest.mark.parametrize(
    ("what", "hint", "is_named", "remedy"),
    [
        (f"task 0 on node1 failed: {MISSING}", "jaxsif layer create NAME flax", True, ""),
        (f"task 0 on node1 failed: {MISSING}", "", True, REMEDY),
        ("Python cannot find the module flax", "", True, ""),
        ("task 0 on node1 ended with exit status 1", "", False, ""),
    ],
)
def test_a_cause_that_the_error_names_is_not_repeated(what: str, hint: str, is_named: bool, remedy: str) -> None:
    """An error without a remedy gets that of the cause."""
    line, found = find_unnamed_cause(f"3: {MISSING}\n".encode(), RunError(what, "", hint, 1))
    assert (line == "", found) == (is_named, remedy)


def test_each_task_may_print_another_name() -> None:
    text = "AssertionError: sync_global_devices name mismatch ('{}'). Expected: [1]; got: 2."
    error = RunError(f"task 0 on node1 failed: {text.format('b')}", "a.py:3", "", 1)
    line, remedy = find_unnamed_cause(f"{text.format('a')}\n".encode(), error)
    assert line == ""
    assert remedy.startswith("make all processes run the same code in the same order")


@pytest.mark.parametrize("name", ["read-only", "removed-name", "initialize-late"])
def test_an_exception_is_quoted_by_the_error(name: str) -> None:
    body = HEADER.sub("", next(path for path in TEXTS if path.stem == name).read_text())
    error = RunError(f"task 1 on node1 failed: {read(body)[0].text}", "train.py:3", "", 1)
    line, remedy = find_unnamed_cause(body.encode(), error)
    assert line == ""
    assert remedy == read(body)[0].remedy


def test_an_error_of_jaxsif_comes_before_a_message_that_means_the_same() -> None:
    slurm = "srun: error: Task launch for StepId=5.0 failed on node node2: Communication connection failure"
    own = "jaxsif: error: node2 cannot be reached\n  from: train.py:3\n  try:  leave it out"
    for text in (f"{slurm}\n{own}\n", f"{own}\n{slurm}\n"):
        (only,) = read(text)
        assert only[:5] == ("error", "node2 cannot be reached", "leave it out", "", "train.py:3")
