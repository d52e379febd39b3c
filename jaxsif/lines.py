"""Output of programs in lines of bounded length."""

from __future__ import annotations

LONGEST_LINE = 1 << 14  # bytes


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
