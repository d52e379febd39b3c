"""What a person sees of commands: tables, colour, how far a long piece of work is; and what a
program reads, JSON.

On a terminal it is drawn by rich, which takes 60 ms to import: for a table, and for work that has
been silent for two seconds. A log gets plain text.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from jaxsif.errors import align, printable

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

_PATIENCE = 2.0  # seconds of silence on a terminal
_FRAME = 0.1  # seconds between two pictures
_LOG_PERIOD = 5.0  # seconds between two lines of a log
_MEGABYTE = 1e6
_WIDEST = 10_000  # columns of a table that is for no terminal
# Cells of tables that a colour marks.
_STYLES = {
    **dict.fromkeys(("damaged", "missing"), "red"),
    **dict.fromkeys(("stale", "worse"), "yellow"),
    **dict.fromkeys(("not set", "-"), "dim"),
}
_ERROR, _PLAIN = "\x1b[1;31m", "\x1b[0m"
Update = Callable[[int, "int | None"], None]


def add_json(parser: argparse._ActionsContainer) -> None:
    """Add --json, whose keys docs/json.md describes."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def print_json(value: object) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=1))


def wants_colour(stream: TextIO | None, environ: Mapping[str, str]) -> bool:
    """Return whether to colour a stream: a terminal, unless NO_COLOR or FORCE_COLOR is set."""
    if environ.get("NO_COLOR"):
        return False
    return bool(environ.get("FORCE_COLOR")) or _is_terminal(stream, environ)


def _is_terminal(stream: TextIO | None, environ: Mapping[str, str]) -> bool:
    return stream is not None and stream.isatty() and environ.get("TERM") != "dumb"


def paint_error(text: str, environ: Mapping[str, str]) -> str:
    """Return the text of an error as standard error shows it."""
    head, colon, rest = text.partition(" error:")
    if not (colon and wants_colour(sys.stderr, environ)):
        return text
    return f"{_ERROR}{head}{colon}{_PLAIN}{rest}"


def find_width() -> int:
    """Return the columns of standard output; 0 where it is no terminal."""
    try:
        return os.get_terminal_size(1).columns
    except OSError:
        return 0


def print_table(
    rows: Sequence[Sequence[str]], environ: Mapping[str, str], heading: Sequence[str] = ()
) -> None:
    """Print a table. On a terminal it is as wide as that at most: long cells have several lines."""
    if not (rows or heading):
        return
    if environ.get("FORCE_COLOR") or _is_terminal(sys.stdout, environ):
        _print_rich(rows, heading, environ)
        return
    for line in align([heading, *rows] if heading else rows):
        print(line)


def _print_rich(
    rows: Sequence[Sequence[str]], heading: Sequence[str], environ: Mapping[str, str]
) -> None:
    """Print a table by rich."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=bool(heading), pad_edge=False, padding=(0, 2, 0, 0))
    for title in heading or rows[0]:
        table.add_column(Text(title if heading else ""), overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell), _STYLES.get(cell, "")) for cell in row))
    # What is no terminal has no width to keep to.
    width = None if _is_terminal(sys.stdout, environ) else _WIDEST
    Console(highlight=False, width=width).print(table)


class Progress(NamedTuple):
    """How far a piece of work is."""

    what: str
    done: int | None = None  # bytes, where it counts them
    total: int | None = None  # of them
    speed: float = 0.0  # bytes per second

    def render(self) -> str:
        """Return '42 %, 1176 of 2799 MB, 85.0 MB/s, 19 s left'."""
        assert self.done is not None
        rate = f"{self.speed / _MEGABYTE:.1f} MB/s"
        if not self.total:
            return f"{self.done / _MEGABYTE:.0f} MB, {rate}"
        left = f", {(self.total - self.done) / self.speed:.0f} s left" if self.speed > 0 else ""
        size = f"{self.done / _MEGABYTE:.0f} of {self.total / _MEGABYTE:.0f} MB"
        return f"{100 * self.done // self.total} %, {size}, {rate}{left}"


class _Bar:
    """A line of rich, redrawn in its place."""

    def __init__(self, stream: TextIO, counts: bool) -> None:
        from rich import progress
        from rich.console import Console

        plain: tuple[ProgressColumn, ...] = (progress.TimeElapsedColumn(),)
        counted: tuple[ProgressColumn, ...] = (
            progress.BarColumn(20),
            progress.DownloadColumn(),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(),
        )
        title = progress.TextColumn("{task.description}", markup=False)
        self._progress = progress.Progress(
            progress.SpinnerColumn("line"),
            title,
            *(counted if counts else plain),
            console=Console(file=stream),
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._progress.add_task("", total=None)
        self._progress.start()
        # rich hides it, and nobody would show it again after Ctrl-Z or SIGKILL.
        self._progress.console.show_cursor(True)

    def draw(self, state: Progress) -> None:
        self._progress.update(
            self._task,
            description=printable(state.what),
            completed=state.done or 0,
            total=state.total,
            refresh=True,
        )

    def close(self) -> None:
        self._progress.stop()


class _Curtain:
    """A stream that takes the line of progress away before anything is written to it."""

    def __init__(self, stream: TextIO, hide: Callable[[], None]) -> None:
        self._stream, self._hide = stream, hide

    def __getattr__(self, name: str) -> Any:
        self._hide()
        return getattr(self._stream, name)


class Work:
    """A piece of work, and a thread that tells of it on standard error."""

    def __init__(self, what: str, environ: Mapping[str, str]) -> None:
        self._what = what
        self._streams = sys.stdout, sys.stderr
        self._terminal = _is_terminal(sys.stderr, environ)
        self._heard = time.monotonic()
        self._state = Progress(what)
        self._first: tuple[float, int] | None = None  # when the count began, and where
        self._display: _Bar | None = None
        self._shown_counts = False  # whether that shows bytes
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def update(self, done: int, total: int | None) -> None:
        """Take note that `done` of `total` bytes are there; None where nobody knows the total."""
        now = time.monotonic()
        begin, start = self._first = self._first or (now, done)
        speed = (done - start) / (now - begin) if now > begin else 0.0
        self._state = Progress(self._what, done, total, speed)

    def forget(self) -> None:
        """No longer show bytes: their part of the work is done."""
        self._state, self._first = Progress(self._what), None

    def start(self) -> None:
        """Begin to tell."""
        self._thread.start()

    def end(self) -> None:
        """Take away what is on the screen."""
        self._over.set()
        self._thread.join()
        self.hide()

    def hide(self) -> None:
        """Leave the screen to others, for two seconds at least."""
        with self._lock:
            self._heard = time.monotonic()
            self._close()

    def _close(self) -> None:
        if self._display:
            sys.stdout, sys.stderr = self._streams
            with suppress(OSError):  # the terminal is closed, and the work goes on
                self._display.close()
            self._display = None

    def _watch(self) -> None:
        period = _FRAME if self._terminal else _LOG_PERIOD
        while not self._over.wait(period):
            state = self._state
            with suppress(OSError):
                if self._terminal:
                    self._draw(state)
                elif state.done is not None:
                    line = printable(f"{state.what}: {state.render()}")
                    print(line, file=self._streams[1], flush=True)

    def _draw(self, state: Progress) -> None:
        """Draw on a terminal that has been silent for long."""
        with self._lock:
            if time.monotonic() < self._heard + _PATIENCE or _is_in_background(self._streams[1]):
                return
            if self._display and self._shown_counts != (state.done is not None):
                self._close()
            if not self._display:
                self._shown_counts = state.done is not None
                self._display = _Bar(self._streams[1], self._shown_counts)
                out, err = self._streams
                sys.stdout, sys.stderr = _Curtain(out, self.hide), _Curtain(err, self.hide)
            self._display.draw(state)


_active: list[Work] = []  # one at most: there is one screen


def make_way(data: bytes) -> bytes:
    """Return what is to be written beside `sys.stdout` and `sys.stderr`, after the line of progress
    is taken away.
    """
    if data:
        for work in _active:
            work.hide()
    return data


def _is_in_background(terminal: TextIO) -> bool:
    """Return whether another job of the shell has the terminal."""
    try:
        return os.tcgetpgrp(terminal.fileno()) != os.getpgrp()
    except OSError:  # nobody's, or none
        return False


@contextmanager
def working(what: str, environ: Mapping[str, str]) -> Iterator[Update]:
    """Tell on standard error that the body of the `with` goes on: on a terminal, from two seconds
    of silence on. What it yields takes how many bytes are done, and of how many. Work within other
    work is a part of that.
    """
    if _active:
        yield _active[-1].update
        _active[-1].forget()
        return
    work = Work(what, environ)
    _active.append(work)
    work.start()
    try:
        yield work.update
    finally:
        work.end()
        _active.remove(work)
