"""What is drawn on terminals of any width, and what stands in a log."""

from __future__ import annotations

import errno
import io
import json
import sys
import time

import pytest

from jaxsif import screen
from jaxsif.bench import execute
from jaxsif.launch import pipeline
from jaxsif.launch.children import Readers
from jaxsif.screen import Progress, paint_error, print_json, print_table, working

ROWS = [("jax-0.12.0.1-cuda12.sif", "stale", "/a/very/long/path/" + "x" * 80), ("b\x1b[2J", "ok", "")]
HEADING = ("NAME", "STATUS", "IMAGE")
COLOURS = {"FORCE_COLOR": "1"}


class Terminal(io.StringIO):
    gone = False  # whether somebody has closed it

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.gone:
            raise OSError(errno.EIO, "Input/output error")
        return super().write(text)


@pytest.fixture(autouse=True)
def _variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """What rich looks at."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make both streams one; in a test and not in a fixture, behind which pytest puts its own."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_a_table_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(ROWS, {}, HEADING)
    assert capsys.readouterr().out.splitlines() == [
        "NAME                     STATUS  IMAGE",
        f"jax-0.12.0.1-cuda12.sif  stale   {ROWS[0][2]}",
        "b\\x1b[2J                 ok",
    ]


def test_a_table_on_a_terminal_fits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    print_table(ROWS, {}, HEADING)
    lines = terminal.getvalue().splitlines()
    plain = [line.replace("\x1b[1m", "").replace("\x1b[33m", "").replace("\x1b[0m", "") for line in lines]
    assert max(map(len, plain)) <= 80
    assert lines[0].startswith("\x1b[1mNAME")
    assert "\x1b[33mstale" in terminal.getvalue()
    assert "".join(line[33:].strip() for line in plain) == f"IMAGE{ROWS[0][2]}"
    assert plain[-1].split() == ["b\\x1b[2J", "ok"]


def test_colour_in_a_pipe_that_wants_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_table(ROWS, COLOURS, HEADING)
    assert "\x1b[33m" in capsys.readouterr().out


def test_a_table_that_is_for_no_terminal_is_not_folded(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([("a" * 200, "b")], {"FORCE_COLOR": "1"})
    assert capsys.readouterr().out.count("\n") == 1


def test_a_table_without_rows(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([], {"FORCE_COLOR": "1"})
    assert capsys.readouterr().out == ""


def test_no_colour_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    print_table(ROWS, {"NO_COLOR": "1"}, HEADING)
    assert "\x1b[33m" not in terminal.getvalue()
    assert paint_error("jaxsif: error: x", {"NO_COLOR": "1"}) == "jaxsif: error: x"


@pytest.mark.parametrize(
    ("environ", "painted"),
    [({}, True), ({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": "1", **COLOURS}, False)],
)
def test_an_error_on_a_terminal(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], painted: bool) -> None:
    open_terminal(monkeypatch)
    text = "jaxsif: error: no image\n  try:  make image"
    red = "\x1b[1;31mjaxsif: error:\x1b[0m no image\n  try:  make image"
    assert paint_error(text, environ) == (red if painted else text)


def test_an_error_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert paint_error("jaxsif: error: x", {}) == "jaxsif: error: x"
    assert paint_error("jaxsif: error: x", COLOURS) == "\x1b[1;31mjaxsif: error:\x1b[0m x"


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [1, None, "\x1b"]})
    out = capsys.readouterr().out
    assert json.loads(out) == {"a": [1, None, "\x1b"]}
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((1_176_000_000, 2_799_000_000, 85e6), "42 %, 1176 of 2799 MB, 85.0 MB/s, 19 s left"),
        ((0, 2_799_000_000, 0.0), "0 %, 0 of 2799 MB, 0.0 MB/s"),
        ((5_000_000, None, 1e6), "5 MB, 1.0 MB/s"),
    ],
)
def test_state(numbers: tuple[int, int | None, float], text: str) -> None:
    assert Progress("pull", *numbers).render() == text


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has patience."""
    pytest.importorskip("rich.progress")  # now, and not within the time that a test measures
    monkeypatch.setattr(screen, "_PATIENCE", 0.2)
    monkeypatch.setattr(screen, "_LOG_PERIOD", 0.2)
    monkeypatch.setattr(screen, "_FRAME", 0.02)


@pytest.mark.usefixtures("hasty")
def test_silence_on_a_terminal_is_filled_and_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    before = sys.stdout
    with working("verify", {}):
        time.sleep(0.1)
        assert terminal.getvalue() == ""
        time.sleep(0.3)
        assert "verify" in terminal.getvalue()
        sys.stdout.write("the answer\n")
        assert sys.stdout is before
        drawn, _, after = terminal.getvalue().rpartition("the answer\n")
        assert drawn.endswith("\x1b[2K")  # an empty line, where the progress was
        assert after == ""
        time.sleep(0.4)
    assert sys.stdout is before
    assert terminal.getvalue().endswith("\x1b[2K")
    # The cursor is there, also after Ctrl-Z.
    hidden = [text.partition("\x1b[?25h")[0] for text in terminal.getvalue().split("\x1b[?25l")[1:]]
    assert ["verify" in text for text in hidden] == [False, False]


@pytest.mark.usefixtures("hasty")
def test_bytes_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with working("pull", {}) as update:
        update(0, 2_000_000_000)
        update(1_000_000_000, 2_000_000_000)
        time.sleep(0.4)
    assert "1.0/2.0 GB" in terminal.getvalue()


@pytest.mark.usefixtures("hasty")
def test_work_within_work(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with working("inspect", {}):
        time.sleep(0.4)
        with working("digest", {}) as update:
            assert "GB" not in terminal.getvalue()
            update(1_000_000_000, 2_000_000_000)
            time.sleep(0.4)
        assert "1.0/2.0 GB" in terminal.getvalue()
        time.sleep(0.1)
        size = len(terminal.getvalue())
        time.sleep(0.3)
        assert "inspect" in terminal.getvalue()[size:]
        assert "GB" not in terminal.getvalue()[size:]
    assert "digest" not in terminal.getvalue()
    assert screen._active == []


@pytest.mark.usefixtures("hasty")
def test_a_command_that_is_fast_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with working("verify", {}):
        sys.stdout.write("done\n")
    assert terminal.getvalue() == "done\n"


@pytest.mark.usefixtures("hasty")
def test_a_log_has_lines_of_what_counts(capsys: pytest.CaptureFixture[str]) -> None:
    with working("verify", {}):
        time.sleep(0.3)
    assert capsys.readouterr().err == ""
    with working("pull", {}) as update:
        update(1_000_000, 10_000_000)
        time.sleep(0.5)
    assert set(capsys.readouterr().err.splitlines()) == {"pull: 10 %, 1 of 10 MB, 0.0 MB/s"}


@pytest.mark.usefixtures("hasty")
def test_a_terminal_that_is_closed_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with working("bench", {}):
        time.sleep(0.4)
        assert "bench" in terminal.getvalue()
        terminal.gone = True
        time.sleep(0.1)
    assert screen._active == []


@pytest.mark.usefixtures("hasty")
def test_a_job_in_the_background_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    monkeypatch.setattr(screen, "_is_in_background", lambda stream: stream is terminal)
    with working("bench", {}):
        time.sleep(0.4)
    assert terminal.getvalue() == ""


@pytest.mark.usefixtures("hasty")
def test_what_is_written_beside_takes_the_progress_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """As srun's own lines are, which `jaxsif bench` passes on."""
    terminal = open_terminal(monkeypatch)
    passes: list[bytes] = []

    def run(_plan: object, _note: object, readers: Readers) -> int:
        time.sleep(0.4)
        assert "bench" in terminal.getvalue()
        passes.append(readers.stderr(b"srun: a line\n"))
        return 0

    monkeypatch.setattr(pipeline, "run_plan", run)
    with working("bench", {}):
        assert execute.run_program(None, print, print) == 0  # type: ignore[arg-type]
        assert terminal.getvalue().endswith("\x1b[2K")
    assert passes == [b"srun: a line\n"]
