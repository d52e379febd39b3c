"""Files and texts that jaxsif did not write, read without waiting and in bounded memory."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from jaxsif.errors import HostError

MOST_TEXT = 1 << 20  # bytes of a text that is read as a whole
# In a JSON number: more than any float has. Python takes quadratic time for long ones.
_MOST_DIGITS = 300
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# A descriptor that this process inherits from a shell: the FIFO behind it has a writer.
_FROM_SHELL = re.compile("/dev/stdin|(/dev|/proc/self)/fd/[0-9]{1,9}")


Check = Callable[[object], bool]  # checks the type and the range of a JSON value


def check_number(most: float, *types: type, least: float = 0) -> Check:
    """Return the check for a number from `least` to `most`, of one of `types`, but not NaN."""
    return lambda value: type(value) in types and least <= value <= most  # type: ignore[operator]


def is_flag(value: object) -> bool:
    """Return whether a value is true or false; a Check."""
    return type(value) is bool


def check_text(longest: int) -> Check:
    """Return the check for a text of at most `longest` characters."""
    return lambda value: type(value) is str and len(value) <= longest


def check_list(most: int, check: Check, least: int = 0) -> Check:
    """Return the check for a list of `least` to `most` values that all pass `check`."""
    return lambda value: (
        type(value) is list and least <= len(value) <= most and all(map(check, value))
    )


def check_row(*checks: Check) -> Check:
    """Return the check for a list with one value for each of these checks."""
    return lambda value: (
        type(value) is list
        and len(value) == len(checks)
        and all(check(part) for check, part in zip(checks, value))
    )


def check_object(checks: Mapping[str, Check]) -> Check:
    """Return the check for an object with these fields, and perhaps further fields of a later
    version.
    """
    return lambda value: (
        type(value) is dict
        and value.keys() >= checks.keys()
        and all(check(value[name]) for name, check in checks.items())
    )


def or_none(check: Check) -> Check:
    """Return the check for a value that may be null."""
    return lambda value: value is None or check(value)


def is_node(value: object) -> bool:
    """Return whether a value is the name of a node, or '' for an unknown one; a Check."""
    return type(value) is str and bool(re.fullmatch(r"[A-Za-z0-9_.-]{0,255}", value))


def open_file(path: str, what: str, source: str = "") -> BinaryIO:
    """Open a file for reading, without waiting. Raise OSError, and HostError for a FIFO, a device,
    a socket or a folder.

    `what` is for the error, such as 'image'.
    """
    # Before opening, which changes the state of some devices.
    _check_kind(os.stat(path).st_mode, path, what, source)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        # The file may have been replaced in the meantime.
        _check_kind(os.fstat(descriptor).st_mode, path, what, source)
    except HostError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def _check_kind(mode: int, path: str, what: str, source: str) -> None:
    kind = _KINDS.get(stat.S_IFMT(mode))
    if kind:
        raise HostError(f"{what} is {kind}, not a file: {path}", source, "give the path of a file")


def open_given(path: str, what: str, source: str) -> BinaryIO:
    """Open a file that the user names, which may be a pipe from the user's shell, as in
    <(COMMAND). Raise the errors of `open_file`.
    """
    from_shell = _FROM_SHELL.fullmatch(path) and stat.S_ISFIFO(os.stat(path).st_mode)
    return open(path, "rb") if from_shell else open_file(path, what, source)


def read_text(path: str, what: str, source: str = "", most: int = MOST_TEXT) -> str:
    """Read the text of a small file. Raise OSError, and HostError for a large file, a FIFO, a
    device, a socket or a folder.
    """
    with open_file(path, what, source) as file:
        return _read_all(file, path, what, source, most).decode(errors="replace")


def read_given(path: str, what: str, source: str, most: int = MOST_TEXT) -> str:
    """Return the text of a file that the user names, which may be a pipe from the user's shell.
    Raise the errors of `read_text`, and UnicodeDecodeError.
    """
    with open_given(path, what, source) as file:
        return _read_all(file, path, what, source, most).decode()


def _read_all(file: BinaryIO, path: str, what: str, source: str, most: int) -> bytes:
    data = file.read(most + 1)
    if len(data) > most:
        raise HostError(
            f"{what} has more than {most} bytes: {path}", source, "look at it, or remove it"
        )
    return data


def parse_json(text: str) -> Any:
    """Parse a JSON text; raise ValueError if it is not JSON, or has absurdly long numbers or deeply
    nested brackets.
    """
    import json

    try:
        return json.loads(text, parse_int=_parse_integer)
    except RecursionError:
        raise ValueError("brackets are nested too deeply") from None


def find(value: Any, *keys: str | int) -> Any:
    """Find the value under these keys and indexes in parsed JSON, or None."""
    try:
        for key in keys:
            value = None if isinstance(value, str) else value[key]
    except (LookupError, TypeError):
        return None
    return value


def _parse_integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits")
    return int(digits)


class Pieces:
    """Joins lines that `cut` of jaxsif/task/contract.py has cut into pieces."""

    def __init__(self, longest: int, most: int) -> None:
        """Keep the first `longest` bytes of a line, and `most` lines that are incomplete."""
        self._longest = longest
        self._most = most
        self._parts: dict[tuple[int, bytes], bytes] = {}  # by stream and origin

    def join(self, piece: bytes, stream: int = 0) -> tuple[str, bytes] | None:
        """Return the origin of the line that this piece completes, and the line; None for any other
        piece.
        """
        found = re.fullmatch(rb"(?s)([a-z]?\d{1,8}) ([+.])(.*)", piece)
        if found is None or len(self._parts) > self._most:
            return None
        origin, more, text = found.groups()
        whole = self._parts.pop((stream, origin), b"") + text
        if more == b".":
            return origin.decode(), whole
        self._parts[stream, origin] = whole[: self._longest]
        return None
