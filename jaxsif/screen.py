"""Output for a person: tables, colour, the progress of long work; and for a program: JSON.

rich draws on a terminal. Importing it takes 60 ms, so it is not imported for a log, which gets
plain text.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from typing import TextIO

from jaxsif.errors import UNWRITABLE
from jaxsif.task.contract import ellipsize
from jaxsif.text import align, printable

_LOG_PERIOD = 5.0  # seconds between two lines of a log
_MEGABYTE = 1e6
_WIDEST = 10_000  # columns of a table that does not go to a terminal
_BAR = 40  # columns of a progress bar with its figures
# Table cells with a colour.
_STYLES = {
    **dict.fromkeys(("damaged", "missing", "failure"), "red"),
    **dict.fromkeys(("stale", "worse", "warning"), "yellow"),
    **dict.fromkeys(("not set", "-"), "dim"),
}
_ERROR, _PLAIN = "\x1b[1;31m", "\x1b[0m"
Update = Callable[[int, "int | None"], None]  # bytes done, and in total, if known


def note(*lines: str) -> None:
    """Print lines for the user, on standard error; drop them on a full disk or a lost terminal."""
    try:
        for line in lines:
            print(printable(f"jaxsif: {line}"), file=sys.stderr, flush=True)
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise


def print_bytes(line: str) -> None:
    """Print a line as the bytes that it was decoded from: some values may not be UTF-8."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding=sys.getfilesystemencoding(), errors="surrogateescape")
    print(line)


def print_json(value: object) -> None:
    """Print a value as JSON."""
    import json  # here: most runs print none

    print(json.dumps(value, indent=1))


def _is_terminal(stream: TextIO | None, environ: Mapping[str, str]) -> bool:
    return stream is not None and stream.isatty() and environ.get("TERM") != "dumb"


def paint_error(text: str, environ: Mapping[str, str]) -> str:
    """Return the text of an error with its first word in red, if standard error has colours."""
    colours = environ.get("FORCE_COLOR") or _is_terminal(sys.stderr, environ)
    head, colon, rest = text.partition(" error:")
    if environ.get("NO_COLOR") or not (colon and colours):
        return text
    return f"{_ERROR}{head}{colon}{_PLAIN}{rest}"


def find_width() -> int:
    """Return the width of standard output in columns, or 0 if it is not a terminal."""
    try:
        return os.get_terminal_size(1).columns
    except OSError:
        return 0


def print_table(
    rows: Sequence[Sequence[str]], environ: Mapping[str, str], heading: Sequence[str] = ()
) -> None:
    """Print a table. On a terminal, it is no wider than the terminal: long cells have several
    lines.
    """
    if not (rows or heading):
        return
    on_terminal = _is_terminal(sys.stdout, environ)
    if not (on_terminal or environ.get("FORCE_COLOR")):
        for line in align([heading, *rows] if heading else rows):
            print(line)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=bool(heading), pad_edge=False, padding=(0, 2, 0, 0))
    for title in heading or rows[0]:
        table.add_column(Text(title if heading else ""), overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell), _STYLES.get(cell, "")) for cell in row))
    Console(highlight=False, width=None if on_terminal else _WIDEST).print(table)


@contextmanager
def show_progress(title: str, environ: Mapping[str, str]) -> Iterator[Update]:
    """Show the progress of the body of the `with` on standard error: as a bar on a terminal, as a
    line every five seconds in a log. The body calls the yielded function with the number of bytes
    done, and in all.
    """
    if not _is_terminal(sys.stderr, environ):
        yield _log_progress(title)
        return
    from rich import progress
    from rich.console import Console

    with progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(10),
        progress.DownloadColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,  # rich would send output meant for a file to standard error
    ) as bar:
        bar.console.show_cursor(True)  # Ctrl-Z or SIGKILL would leave it hidden
        room = max(bar.console.width - _BAR, 1)
        task = bar.add_task(ellipsize(printable(title), room), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _log_progress(title: str) -> Update:
    begin = last = time.monotonic()
    start: int | None = None  # the bytes of an earlier download do not count towards the speed

    def update(done: int, total: int | None) -> None:
        nonlocal last, start
        now = time.monotonic()
        start = done if start is None else start
        if now >= last + _LOG_PERIOD:
            last, speed = now, (done - start) / (now - begin)
            line = f"{title}: {render_progress(done, total, speed)}"
            print(printable(line), file=sys.stderr, flush=True)

    return update


def render_progress(done: int, total: int | None, speed: float) -> str:
    """Render bytes and bytes per second as '42 %, 1176 of 2799 MB, 85.0 MB/s, 19 s left'."""
    rate = f"{speed / _MEGABYTE:.1f} MB/s"
    if not total:
        return f"{done / _MEGABYTE:.0f} MB, {rate}"
    left = f", {(total - done) / speed:.0f} s left" if speed > 0 else ""
    size = f"{done / _MEGABYTE:.0f} of {total / _MEGABYTE:.0f} MB"
    return f"{100 * done // total} %, {size}, {rate}{left}"
