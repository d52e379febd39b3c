"""How much is read of a text that jaxsif did not write: the length of a number, of a list of nodes,
of a quotation, of a line.
"""

from __future__ import annotations

# Numbers of nodes, tasks, CPUs and seconds are 32-bit integers in Slurm and JAX.
MOST_COUNT = 2**31 - 1
# The most nodes that a cluster of Slurm has, and names that a range of its node lists may have.
MOST_NODES = 65_536
# Of one node: Slurm's own bound for tasks, and far more GPUs than any node has.
MOST_TASKS = 65_535
MOST_GPUS = 1_024
MOST_TASKS_OF_A_STEP = 1 << 24
_MOST_DIGITS = 18  # those of any number that Slurm holds, with 64 bits
_QUOTED = 120  # characters of a text that an error quotes
LONGEST_LINE = 1 << 14  # bytes


def read_number(text: str) -> int | None:
    """Return the number that decimal digits make; None for another text, and for more digits than a
    number has.

    Python needs quadratic time for long numbers, or raises a ValueError from some version on.
    """
    return int(text) if len(text) <= _MOST_DIGITS and is_decimal(text) else None


def is_decimal(text: str) -> bool:
    """Return whether a text is all digits from 0 to 9, and not those of another script."""
    return text.isascii() and text.isdecimal()


def shorten(text: str) -> str:
    """Return a text as an error quotes it: a long one without its middle."""
    return text if len(text) <= _QUOTED else f"{text[: _QUOTED // 2]}…{text[-_QUOTED // 2 + 1 :]}"


class Lines:
    """Cuts a stream into lines; a longer line than `longest` bytes comes in pieces of that many."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._rest = b""  # of an unfinished line

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines and pieces that `data` completes, without newlines; b'' is the end of
        the stream.
        """
        *lines, rest = (self._rest + data).split(b"\n")
        *pieces, self._rest = self._cut(rest)
        if not data and self._rest:
            pieces.append(self._rest)
            self._rest = b""
        return [piece for line in lines for piece in self._cut(line)] + pieces

    def _cut(self, line: bytes) -> list[bytes]:
        begins = range(0, max(1, len(line)), self._longest)  # of an empty line, one empty piece
        return [line[begin : begin + self._longest] for begin in begins]
