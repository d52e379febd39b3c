"""What Open MPI's mpirun says."""

from __future__ import annotations

import re

from jaxsif.lines import LONGEST_LINE

# What mpirun 5 says when it gave a child its own process group after that had done so itself:
# nothing is wrong.
_NOISE = rb"(?m)^\[[^\]\n]*\] plm:ssh: Warning: setpgid\([^\n]*\n"
_TAG = rb"(?m)^\[[^\]\n]*,(\d+)\]<std(?:out|err)>: ?"
_BLOCK = r"(?ms)^-{60,}\n(.+?)\n\s*\n"  # its errors stand between two such lines
_SSH = r"(?m)^(ssh: .+|.+: Permission denied \(.+|Host key verification failed\.|.*prted: .*not found)$"
_KEPT = 16384  # bytes


class Output:
    """A stream of mpirun's: labels as srun's, without its noise; and its own complaint."""

    def __init__(self, label: bool) -> None:
        self._label = label
        self._pending = b""  # an unfinished line that may begin with a tag
        self._seen = b""

    def feed(self, data: bytes) -> bytes:
        """What to show of `data`; b'' means the end of the stream."""
        self._seen = (self._seen + data)[-_KEPT:]
        if self._label:
            data, self._pending = self._whole_lines(data)
            data = re.sub(_TAG, rb"\1: ", data)
        return re.sub(_NOISE, b"", data)

    def _whole_lines(self, data: bytes) -> tuple[bytes, bytes]:
        """The lines that are whole, and the rest; a long line comes in pieces."""
        whole = self._pending + data
        end = whole.rfind(b"\n") + 1
        if not data or len(whole) - end > LONGEST_LINE:
            end = len(whole)
        return whole[:end], whole[end:]

    @property
    def complaint(self) -> str:
        """Why mpirun could not do it, in its own words: ssh's, or the first sentence of a message;
        '' for nothing.
        """
        text = self._seen.decode(errors="replace")
        found = re.search(_SSH, text) or re.search(_BLOCK, text)
        return " ".join(found[1].split()) if found else ""
