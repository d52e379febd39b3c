"""What is drawn on terminals of any width, and what stands in a log."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time

import pytest

from jaxsif import screen
from jaxsif.screen import paint_error, print_json, print_table, render_progress, show_progress

ROWS = [("jax-0.12.0.1-cuda12.sif", "stale", "/a/very/long/path/" + "x" * 80), ("b\x1b[2J", "ok", "")]
HEADING = ("NAME", "STATUS", "IMAGE")
COLOURS = {"FORCE_COLOR": "1"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


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
def test_progress_as_text(numbers: tuple[int, int | None, float], text: str) -> None:
    assert render_progress(*numbers) == text


def test_bytes_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar goes before a line is written and at the end; standard output, which may be a file, is left alone."""
    terminal = open_terminal(monkeypatch)
    monkeypatch.setattr(sys, "stdout", sys.__stdout__)
    stdout = sys.stdout
    with show_progress("pull\x1b[2J", {}) as update:
        update(1_000_000_000, 2_000_000_000)
        deadline = time.monotonic() + 30
        while "1.0/2.0 GB" not in terminal.getvalue() and time.monotonic() < deadline:
            time.sleep(0.05)  # until the bar is drawn again
        assert "pull\\x1b[2J" in terminal.getvalue()
        assert "1.0/2.0 GB" in terminal.getvalue()
        sys.stderr.write("jaxsif: the connection ended\n")
        drawn, _, _ = terminal.getvalue().partition("jaxsif: the connection ended\n")
        assert drawn.endswith("\x1b[2K")
        assert sys.stdout is stdout
    assert sys.stderr is terminal
    assert terminal.getvalue().endswith("\x1b[2K")
    # The cursor is there, also after Ctrl-Z.
    hidden = [text.partition("\x1b[?25h")[0] for text in terminal.getvalue().split("\x1b[?25l")[1:]]
    assert ["pull" in text for text in hidden] == [False]


def test_progress_without_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    with show_progress("pull", {"NO_COLOR": "1"}) as update:
        update(1_000_000_000, 2_000_000_000)
    assert "1.0/2.0 GB" in terminal.getvalue()
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", terminal.getvalue())


@pytest.mark.parametrize("environ", [{}, {"TERM": "dumb"}], ids=["log", "dumb terminal"])
def test_a_log_has_lines_of_what_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], environ: dict[str, str]
) -> None:
    if environ:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    times = iter((100.0, 101.0, 104.0, 110.0, 111.0))
    monkeypatch.setattr(screen.time, "monotonic", lambda: next(times))
    with show_progress("pull", environ) as update:
        for done in (50_000_000, 60_000_000, 70_000_000, 71_000_000):
            update(done, 90_000_000)
    assert capsys.readouterr().err == "pull: 77 %, 70 of 90 MB, 2.0 MB/s, 10 s left\n"


@pytest.mark.starts_processes
def test_a_log_needs_no_rich() -> None:
    code = "import sys; from jaxsif import screen as s; s.print_table([['a']], {}); print('rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, text=True)
    assert done.stdout == "a\nFalse\n"
