"""Texts for a person: printable, short, counted, aligned; and streams cut into lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jaxsif.limits import LONGEST_LINE

_LONGEST_LIST = 60  # characters of a list of tasks
_QUOTED = 120  # characters of a text that an error quotes


def printable(line: str) -> str:
    """Return any line with escapes in place of control characters and unpaired surrogates."""
    if line.isprintable():  # as most are
        return line
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)


def shorten_place(place: str) -> str:
    """Return FILE or FILE:LINE without the file's folder; with the last part of the folder for the
    names that every package has, such as `__main__.py`.
    """
    folder, _, file = place.rpartition("/")
    package = folder.rpartition("/")[2]
    return f"{package}/{file}" if package and file.startswith("__") else file


def enclose(before: str, text: str, after: str = "") -> str:
    """Return a text between two others, or '' if it is empty."""
    return f"{before}{text}{after}" if text else ""


def join_or(ways: Sequence[str]) -> str:
    """Return 'A', 'A or B', or 'A, B, or C'."""
    if len(ways) < 3:
        return " or ".join(ways)
    return f"{', '.join(ways[:-1])}, or {ways[-1]}"


def count_of(number: int | None, noun: str) -> str:
    """Return '1 task', '2 tasks', '2 processes', or '? tasks' for an unknown number."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{'?' if number is None else number} {noun}{ending}"


def name_tasks(tasks: Sequence[int]) -> str:
    """Return sorted numbers as 'task 3', 'tasks 0-8,10'."""
    return f"{'task' if len(tasks) == 1 else 'tasks'} {list_tasks(tasks)}"


def list_tasks(tasks: Sequence[int], most: int = _LONGEST_LIST) -> str:
    """Return sorted numbers as '0-8,10,12-15'; a long list is cut short."""
    spans: list[list[int]] = []
    for task in tasks:
        if spans and task == spans[-1][1] + 1:
            spans[-1][1] = task
        else:
            spans.append([task, task])
    text = ",".join(render_span(first, last) for first, last in spans)
    return text if len(text) <= most else text[: text.rfind(",", 0, most - 4)] + ",..."


def render_span(first: int, last: int) -> str:
    """Return '0-8', or '3' if both numbers are 3."""
    return f"{first}-{last}" if first != last else f"{first}"


def align(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, each printable."""
    texts = [list(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts)]
    for row in texts:
        yield "  ".join(map(str.ljust, row, widths)).rstrip()


def shorten(text: str) -> str:
    """Return a text for an error to quote; a long text loses its middle."""
    return text if len(text) <= _QUOTED else f"{text[: _QUOTED // 2]}…{text[-_QUOTED // 2 + 1 :]}"


class Lines:
    """Cuts a stream into lines; a line longer than `longest` bytes is split into pieces of that
    size.
    """

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._rest = b""  # of an unfinished line

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines and pieces that `data` completes, without newlines; b'' is the end."""
        *lines, rest = (self._rest + data).split(b"\n")
        *pieces, self._rest = self._cut(rest)
        if not data and self._rest:
            pieces.append(self._rest)
            self._rest = b""
        return [piece for line in lines for piece in self._cut(line)] + pieces

    def _cut(self, line: bytes) -> list[bytes]:
        begins = range(0, max(1, len(line)), self._longest)  # an empty line has one empty piece
        return [line[begin : begin + self._longest] for begin in begins]
