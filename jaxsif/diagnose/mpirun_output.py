"""What mpirun shows of its tasks and says itself -> labels as srun's, and its own complaint."""

from __future__ import annotations

import re

from jaxsif.diagnose.symptoms import MPIRUN_ERROR, MPIRUN_NOISE, SSH
from jaxsif.limits import LONGEST_LINE

_TAG = rb"(?m)^\[[^\]\n]*,(\d+)\]<std(?:out|err)>: ?"
_KEPT = 16384  # bytes, to find the complaint in


class Output:
    """One stream of mpirun, standard output or error."""

    def __init__(self, label: bool) -> None:
        self._label = label
        self._pending = b""  # an unfinished line that may begin with a tag
        self._seen = b""

    def feed(self, data: bytes) -> bytes:
        """Return what to show of `data`; b'' means the end of the stream."""
        self._seen = (self._seen + data)[-_KEPT:]
        if self._label:
            data = re.sub(_TAG, rb"\1: ", self._take_whole_lines(data))
        return re.sub(MPIRUN_NOISE.pattern.encode(), b"", data)

    def _take_whole_lines(self, data: bytes) -> bytes:
        """Return the lines that are whole; a long line comes in pieces."""
        text = self._pending + data
        end = text.rfind(b"\n") + 1
        if not data or len(text) - end > LONGEST_LINE:
            end = len(text)
        self._pending = text[end:]
        return text[:end]

    @property
    def complaint(self) -> str:
        """Why mpirun could not do it, in its own words: ssh's, or the first sentence of a message;
        '' for nothing.
        """
        text = self._seen.decode(errors="replace")
        found = re.search(SSH.pattern, text) or re.search(MPIRUN_ERROR.pattern, text)
        return " ".join(found[1].split()) if found else ""
