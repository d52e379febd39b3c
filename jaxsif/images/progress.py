"""How far a long transfer is: one line rewritten on a terminal, a line every few seconds in a log
file.
"""

from __future__ import annotations

import time
from typing import TextIO

from jaxsif.errors import printable

_TERMINAL_SECONDS, _LOG_SECONDS = 0.2, 5.0  # between two reports
_MEGABYTE = 1e6


class Progress:
    """Reports on `stream`; `update` is called as often as one likes."""

    def __init__(self, stream: TextIO, what: str) -> None:
        self._stream, self._what = stream, what
        self._terminal = stream.isatty()
        self._begin = self._last = time.monotonic()
        self._from = -1  # the bytes that were there when it began
        self._open = False  # whether a line of the terminal is not ended

    def update(self, done: int, total: int | None) -> None:
        """Report that `done` of `total` bytes are there; None where nobody knows the total."""
        now = time.monotonic()
        if self._from < 0:
            self._from = done
        if now - self._last < (_TERMINAL_SECONDS if self._terminal else _LOG_SECONDS):
            return
        self._last = now
        line = f"{self._what}: {render(done, total, (done - self._from) / (now - self._begin))}"
        text = f"\r{line}\x1b[K" if self._terminal else f"{line}\n"
        print(text, end="", file=self._stream, flush=True)
        self._open = self._terminal

    def note(self, text: str) -> None:
        """Write a line of text, beside what is reported."""
        self.close()
        print(printable(f"{self._what}: {text}"), file=self._stream, flush=True)

    def close(self) -> None:
        """Leave the line that is rewritten, for what is said next."""
        if self._open:
            print(file=self._stream, flush=True)
            self._open = False


def render(done: int, total: int | None, speed: float) -> str:
    """Return '42 %, 1176 of 2799 MB, 85.0 MB/s, 19 s left'; `speed` is in bytes per second."""
    rate = f"{speed / _MEGABYTE:.1f} MB/s"
    if not total:
        return f"{done / _MEGABYTE:.0f} MB, {rate}"
    left = f", {(total - done) / speed:.0f} s left" if speed > 0 else ""
    size = f"{done / _MEGABYTE:.0f} of {total / _MEGABYTE:.0f} MB"
    return f"{100 * done // total} %, {size}, {rate}{left}"
