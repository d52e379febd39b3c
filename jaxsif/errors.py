"""What a person sees when jaxsif cannot do what was asked: what is wrong, where it came from, what
to try.

JaxsifError            2    a bad request: options, layout
├── SignatureError     1    an image is not signed as was asked
├── HostError        125    this host, image or cluster cannot run it
├── ProgramError     127    the program to run does not exist
└── RunError         the program's, or of what ended it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

Show = Callable[[str], None]  # tells the user a line

_LONGEST_LIST = 60  # letters of a list of tasks


def printable(line: str) -> str:
    """Return a line that may hold anything, with escapes in place of control characters and
    unpaired surrogates.
    """
    if line.isprintable():  # as most are
        return line
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)


def enclose(before: str, text: str, after: str = "") -> str:
    """Return a text between two others; '' where it is empty."""
    return f"{before}{text}{after}" if text else ""


def count_of(number: int, noun: str) -> str:
    """Return '1 task', '2 tasks'."""
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def name_tasks(tasks: Sequence[int]) -> str:
    """Return sorted numbers as 'task 3', 'tasks 0-8,10'."""
    return f"{'task' if len(tasks) == 1 else 'tasks'} {list_tasks(tasks)}"


def list_tasks(tasks: Sequence[int], most: int = _LONGEST_LIST) -> str:
    """Return sorted numbers as '0-8,10,12-15'; of a long list, its beginning."""
    spans: list[list[int]] = []
    for task in tasks:
        if spans and task == spans[-1][1] + 1:
            spans[-1][1] = task
        else:
            spans.append([task, task])
    text = ",".join(render_span(first, last) for first, last in spans)
    return text if len(text) <= most else text[: text.rfind(",", 0, most - 4)] + ",..."


def render_span(first: int, last: int) -> str:
    """Return '0-8', and '3' where both numbers are 3."""
    return f"{first}-{last}" if first != last else f"{first}"


def align(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, each printable."""
    texts = [list(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts)]
    for row in texts:
        yield "  ".join(map(str.ljust, row, widths)).rstrip()


class JaxsifError(Exception):
    """A failure with its origin and its remedy; caught once, in `cli.main`."""

    exit_code = 2

    def __init__(self, what: str, where: str = "", hint: str = "", said: str = "") -> None:
        super().__init__(what)
        self.what = what  # one line, names the thing at fault
        self.where = where  # the option, variable, file or process that it came from
        self.hint = hint  # what to do next
        self.said = said  # the message of another program, in any number of lines

    def render(self) -> str:
        """Return the message, up to three lines; a name or a foreign text in it moves no cursor and
        adds no line.

        The message of another program comes after the first line, indented: so none of its lines
        passes for ours.
        """
        lines = [f"jaxsif: error: {self.what}", *(f"    {line}" for line in self.said.splitlines())]
        if self.where:
            lines.append(f"  from: {self.where}")
        if self.hint:
            lines.append(f"  try:  {self.hint}")
        return "\n".join(map(printable, lines))


class SignatureError(JaxsifError):
    """An image is not signed, not by that key, or was changed since."""

    exit_code = 1


class HostError(JaxsifError):
    """This host, its image or its Slurm cannot run the request."""

    exit_code = 125


class PortTakenError(HostError):
    """The port for JAX's coordinator is taken on the first task's node; another one will do."""


class FolderTakenError(HostError):
    """The folder for this user's staged images is open to others, or somebody else's; a run can do
    without.
    """


class ProgramError(JaxsifError):
    """The program to run does not exist."""

    exit_code = 127


class RunError(JaxsifError):
    """A run has failed; jaxsif ends with its exit status."""

    def __init__(self, what: str, where: str, hint: str, exit_code: int) -> None:
        super().__init__(what, where, hint)
        self.exit_code = exit_code


@contextmanager
def told_as(error: JaxsifError) -> Iterator[None]:
    """Raise `error` in the place of an OSError, with the system's reason after its first line; or
    in the place of a UnicodeDecodeError.
    """
    try:
        yield
    except (OSError, UnicodeDecodeError) as cause:
        reason = getattr(cause, "strerror", "it is no text")
        raise type(error)(f"{error.what}: {reason}", error.where, error.hint) from cause
