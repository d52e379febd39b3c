"""The folder of the runs: one private folder for each, named after its start time."""

from __future__ import annotations

import os
import re
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from jaxsif.errors import HostError, JaxsifError, raise_as
from jaxsif.files import make_private, user_folder, write_files
from jaxsif.foreign import read_text
from jaxsif.history.run import MOST_BYTES, NAME, RunRecord, parse_run
from jaxsif.process import read_stat
from jaxsif.text import shorten

RUN, STDERR = "run.json", "stderr"
LAST = "last"  # stands for the newest run
ENDING = re.compile(rf"{LAST}|[0-9a-fT-]+")  # what may be the end of a run's name
# Begins each name, so that names sort by it; the fraction of the second follows, in ticks.
_TIME = "%Y-%m-%dT%H-%M-%S"
_TICK = 1 / 65536  # seconds
MOST_RUNS = 200
OLDEST = 30 * 86400.0  # seconds
_MOST_REMOVED = 50  # at the start of a run
HINT = "jaxsif history lists the runs"


def find_folder(environ: Mapping[str, str]) -> str:
    """Return the folder of this user's runs, which may not exist."""
    return os.path.join(user_folder(environ, "XDG_STATE_HOME"), "jaxsif/runs")


def make_run(folder: str, now: float) -> str:
    """Make the folder of a run that starts `now`, in seconds since 1970; return its path.

    Raise OSError if the folder cannot be made, or if others may read the folder above it.
    """
    os.makedirs(os.path.dirname(folder), 0o700, exist_ok=True)
    require_private(folder)
    while True:
        path = os.path.join(folder, name_run(now))
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:  # of another run, on another host
            now += _TICK
        else:
            return path


def name_run(begin: float) -> str:
    """Return the name of a run: names sort by start time, and the last four digits are the fraction
    of the second.
    """
    fraction = int(begin % 1 / _TICK)
    return f"{time.strftime(_TIME, time.localtime(begin))}-{fraction:04x}"


def require_private(folder: str) -> None:
    """Make a private folder, unless it exists; raise OSError if it is not private to this user."""
    if not make_private(folder):
        raise PermissionError(1, f"others may read or write its folder: chmod 700 {folder}")


def write(path: str, name: str, content: bytes) -> None:
    """Write a file in a run's folder, `path`, completely or not at all. Raise OSError.

    The folder is made again if another run has pruned it. Nothing waits for the disk: a crash of
    the host may lose the file.
    """
    require_private(path)
    write_files({os.path.join(path, name): content}, 0o600, sync=False)


def list_runs(folder: str) -> list[str]:
    """Return the names of all runs, the newest last, or [] if there is no folder.

    Raise OSError if the folder cannot be read.
    """
    try:
        return sorted(filter(NAME.fullmatch, os.listdir(folder)))
    except FileNotFoundError:
        return []


def read_names(folder: str) -> list[str]:
    """Return the names of all runs as `list_runs` does; raise HostError."""
    with raise_as(HostError("cannot read the history", folder, "correct its permissions")):
        return list_runs(folder)


def prune(folder: str, now: float) -> None:
    """Remove runs that are older than 30 days, and all but the newest 200.

    Runs that cannot be removed stay. Raise OSError if the folder cannot be read.
    """
    names = list_runs(folder)
    limit = time.strftime(_TIME, time.localtime(now - OLDEST))
    old = max(len(names) - MOST_RUNS, bisect_left(names, limit))
    if old > 0:
        import shutil  # here: most starts remove nothing

        for name in names[: min(old, _MOST_REMOVED)]:
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def find_run(names: Sequence[str], word: str) -> str:
    """Return the name that equals `word`, or the only name that ends with it; the newest name for
    'last'. Raise JaxsifError if there is no such name, or more than one.
    """
    if word == LAST:
        if not names:
            raise JaxsifError("the history has no runs", "RUN", "jaxsif run -- PROGRAM records one")
        return names[-1]
    matches = [name for name in names if name.endswith(word)]
    if not matches:
        raise JaxsifError(f"no run {shorten(word)!r} in the history", "RUN", HINT)
    if len(matches) > 1 and word not in matches:
        what = f"the names of {len(matches)} runs end with {shorten(word)!r}"
        raise JaxsifError(what, "RUN", f"give more of its name, such as {matches[-1]}")
    return word if word in matches else matches[0]


def read_run(folder: str, name: str) -> RunRecord:
    """Read the record of a run; raise OSError if the record cannot be read, HostError if it is not
    a file, and the errors of `parse_run` for a file that jaxsif did not write.
    """
    path = os.path.join(folder, name, RUN)
    return parse_run(read_text(path, "history of a run", most=MOST_BYTES))._replace(name=name)


def read_start(pid: int) -> int:
    """Return when a process on this host started, in clock ticks since boot; raise OSError if
    there is none. A later process may get the same process ID, but not the same start.
    """
    return int(read_stat(pid)[19])


def is_running(run: RunRecord, host: str) -> bool:
    """Return whether the launcher of a run is still running on this host, whose name is `host`."""
    try:
        return run.host == host and read_start(run.pid) == run.started
    except OSError:
        return False
