"""A file that is being downloaded: hidden beside its place, for one download at a time, with a note
of what it is a part of.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

from jaxsif.errors import HostError
from jaxsif.foreign import find, parse_json, read_text

_VERSION = re.compile(r"[!-~][ -~]{0,998}")  # what may be sent back in a header


def is_version(text: object) -> bool:
    """Return whether `text` can name a version of a file, as a server's ETag or date does."""
    return isinstance(text, str) and bool(_VERSION.fullmatch(text))


class Partial(NamedTuple):
    """A file that is not whole yet; beside it, what it is a part of."""

    path: str

    @property
    def origin(self) -> str:
        """The file that says of which version of which address these bytes are."""
        return f"{self.path}.json"

    @property
    def size(self) -> int:
        """Bytes that are there."""
        return os.path.getsize(self.path)

    def recall(self, address: str) -> tuple[int, str]:
        """Return the bytes of `address` that are there, and what names the version that they are
        of; or 0 and ''.
        """
        try:
            origin = parse_json(read_text(self.origin, "note of a download"))
        except (FileNotFoundError, ValueError, HostError):
            return 0, ""  # the first time, or cut short by a full disk
        version = find(origin, "version")
        if find(origin, "url") != address or not is_version(version):
            return 0, ""
        return self.size, version

    def begin(self, address: str, version: str) -> None:
        """Forget the bytes of another version, before the note says that they are of this one."""
        import json

        os.truncate(self.path, 0)
        with open_own(self.origin, "w") as file:
            json.dump({"url": address, "version": version}, file)

    def remove(self) -> None:
        """Remove it and its note."""
        for path in (self.path, self.origin):
            if os.path.lexists(path):
                os.unlink(path)


def open_own(path: str, mode: str) -> IO[Any]:
    """Open a file to write; raise HostError for what somebody else may have put there to be written
    or changed.
    """
    if os.path.lexists(path):
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
            raise HostError(
                f"not a file of this user: {path}", "", "remove it, or choose another folder"
            )
    return open(path, mode, opener=_open_no_link)


def _open_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


@contextmanager
def only_one(partial: Partial) -> Iterator[None]:
    """Lock a file against other downloads, and remove it in the end if it is empty; raise HostError
    when another download has the lock.
    """
    with open_own(partial.path, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HostError(
                f"another download writes {partial.path}", "", "wait for it, or end it"
            ) from error
        try:
            yield
        finally:
            if os.path.exists(partial.path) and partial.size == 0:
                partial.remove()
