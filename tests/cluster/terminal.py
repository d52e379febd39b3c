"""A terminal of a given size, in which a command of the cluster runs."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import time

from harness import MINICLUSTER


class Terminal:
    """A bash script of the user on the login node, and what came to its terminal at which second."""

    def __init__(self, script: str, columns: int = 100, lines: int = 30) -> None:
        self._file, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        # setsid --ctty: the terminal is the session's own.
        command = ["setsid", "--ctty", "--wait", MINICLUSTER, "exec", "--", "bash", "-lc", script]
        self.process = subprocess.Popen(command, stdin=side, stdout=side, stderr=side)
        os.close(side)
        self.pieces: list[tuple[float, bytes]] = []

    def read(self) -> bool:
        """Wait for more; False at the end, which a terminal tells by an error."""
        try:
            data = os.read(self._file, 1 << 16)
        except OSError:
            return False
        self.pieces.append((time.monotonic(), data))
        return True

    @property
    def text(self) -> str:
        """All that came."""
        return b"".join(data for _, data in self.pieces).decode(errors="replace")

    def expect(self, pattern: str) -> None:
        """Read until the pattern comes."""
        while not re.search(pattern, self.text):
            assert self.read(), self.text

    def type(self, text: str) -> None:
        """Type it."""
        os.write(self._file, text.encode())

    def end(self) -> int:
        """Read to the end; return the exit status."""
        while self.read():
            pass
        os.close(self._file)
        return self.process.wait(timeout=20)
