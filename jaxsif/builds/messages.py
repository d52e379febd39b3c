"""Messages of a build: the seconds of each stage, the end of a log, a full disk."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jaxsif.errors import DISK_FULL, HostError, Notify


def timed(notify: Notify) -> Notify:
    """Return a `show` that prefixes each line with the seconds elapsed from now on."""
    begin = time.monotonic()
    return lambda line: notify(f"{time.monotonic() - begin:6.1f} s  {line}")


def end_of(log: Path, lines: int = 8) -> str:
    """Return the last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


@contextmanager
def when_full(error: HostError) -> Iterator[None]:
    """Raise `error` in place of the OSError from a full disk or an exhausted quota."""
    try:
        yield
    except OSError as cause:
        if cause.errno in DISK_FULL:
            raise error from cause
        raise
