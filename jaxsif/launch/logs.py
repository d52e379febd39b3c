"""The files of --log-dir: task-N.out and task-N.err, with the output of each task.

Each task writes its own files through pipes (jaxsif/task/start.sh). A single task that is shown
live needs the terminal itself: its files are written here.
"""

from __future__ import annotations

import os
from itertools import count

from jaxsif.errors import HostError, JaxsifError, Notify, raise_as
from jaxsif.launch.children import Child
from jaxsif.settings.config import tell_staff
from jaxsif.text import shorten

TASK = "%t"  # in a path: the number of the task, as for srun's --output
STREAMS = (".out", ".err")


def name_files(folder: str, source: str) -> str:
    """Return the path of the files of a new attempt, for any task and without the stream:
    DIR/task-%t, or DIR/task-%t.2 where the files of an earlier run exist.
    """
    if set(folder) & set(":,%"):  # of a bind, and of the pattern
        what = f"not a folder for log files: {shorten(folder)!r}"
        raise JaxsifError(what, source, "a path without a colon, comma or percent sign")
    path = os.path.join(os.path.abspath(folder), f"task-{TASK}")
    for attempt in count(1):
        pattern = path if attempt == 1 else f"{path}.{attempt}"
        if not any(map(os.path.lexists, _files_of_first(pattern))):
            break
    return pattern


def reserve_files(pattern: str, source: str) -> None:
    """Make the folder, which `source` has set, and the first task's files in it: another run then
    finds these files and takes other names. Raise HostError.
    """
    folder = os.path.dirname(pattern)
    hint = "pass --log-dir with another folder"
    if os.path.lexists(folder) and not os.path.isdir(folder):
        what = f"not a folder for log files: {shorten(folder)!r}"
        raise HostError(what, source, tell_staff(f"{hint}, which may be new", source))
    cannot = HostError(
        f"cannot write log files to {shorten(folder)}", source, tell_staff(hint, source)
    )
    with raise_as(cannot):
        os.makedirs(folder, exist_ok=True)
        for path in _files_of_first(pattern):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))


def copy_output(child: Child, pattern: str, notify: Notify) -> Child:
    """Return the child with its output also copied into the files of task 0."""
    out, err = (_Log(path, notify).copy for path in _files_of_first(pattern))
    shown, reported = child.stdout, child.stderr
    return child._replace(
        stdout=lambda data: out(shown(data) if shown else data),
        stderr=lambda data: err(reported(data)),
    )


def _files_of_first(pattern: str) -> list[str]:
    """Return the paths of the files of task 0."""
    return [pattern.replace(TASK, "0") + stream for stream in STREAMS]


class _Log:
    """A copy of a stream; if the file cannot be written, a warning is all that happens."""

    def __init__(self, path: str, notify: Notify) -> None:
        self._path = path
        self._notify = notify
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_APPEND)

    def copy(self, data: bytes) -> bytes:
        """Append printed data to the file, and return it."""
        left = data
        try:
            while left and self._file is not None:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            self._notify(f"warning: {self._path} is incomplete: {error.strerror}")
            self._file = None
        return data
