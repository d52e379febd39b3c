"""The destination of a Python's reports: the standard error of start.sh.

Usually, this process has the same standard error. If a script has redirected it, as `2>log` does,
or the program has closed it, start.sh's is reopened through /proc for each report: a process that
kept it open would keep srun waiting.

A Python whose standard error another Python has redirected reports nothing: the program may read
it there.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress

_THEIRS = 3  # start.sh's number for it
_OWN = 2
# What a Python passes on to those that it starts: start.sh's process ID, if it is known, and the
# destination, DEVICE:INODE.
_NAME = re.compile(r"(\d*):(\d+:\d+)")
_LOST = "jaxsif: warning: reports from this process do not reach 'jaxsif run': {}\n"


class Outlet:
    """The destination of reports."""

    def __init__(self, starter: str, nonce: str) -> None:
        """`starter` is start.sh's process ID, '' if that is not known, or the `name` of the Outlet
        of the Python that has started this one.
        """
        passed = _NAME.fullmatch(starter)
        pid = passed[1] if passed else starter
        is_known = pid.isdecimal() and _has_nonce(pid, nonce)
        self._pid = pid if is_known else ""
        self._path = f"/proc/{pid}/fd/{_THEIRS}"
        self._identity = identify(self._path) if is_known else None
        self._is_mute = passed is not None and passed[2] != _render(identify(_OWN))
        self._is_lost = False

    @property
    def name(self) -> str:
        """The destination, for Pythons that this one starts."""
        return f"{self._pid}:{_render(self._identity or identify(_OWN))}"

    def write(self, report: bytes) -> None:
        """Write a report; if that fails, warn once and drop the report."""
        if self._is_mute:
            return
        if self._identity is None or identify(_OWN) == self._identity:
            with suppress(OSError):  # there is no way to report that standard error is closed
                os.write(_OWN, report)
            return
        try:
            self._write_there(report)
        except OSError as error:
            self._say_lost(error)

    def _write_there(self, report: bytes) -> None:
        # Without O_NONBLOCK, this would wait for a reader.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # a file has no reader
                os.set_blocking(descriptor, True)
                os.write(descriptor, report)
        finally:
            os.close(descriptor)

    def _say_lost(self, error: OSError) -> None:
        if not self._is_lost:
            self._is_lost = True
            with suppress(OSError):
                os.write(_OWN, _LOST.format(error.strerror).encode())


def _render(identity: tuple[int, int] | None) -> str:
    """Return 'DEVICE:INODE'."""
    return "{}:{}".format(*identity or (0, 0))


def _has_nonce(pid: str, nonce: str) -> bool:
    """Return whether a process was started with this nonce as its second one, as start.sh is: in a
    separate PID namespace, the process ID may belong to another process.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f":{nonce}\0".encode() in file.read()
    except OSError:
        return False


def identify(file: str | int) -> tuple[int, int] | None:
    """Return the device and inode of a file or descriptor, or None if it does not exist."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino
