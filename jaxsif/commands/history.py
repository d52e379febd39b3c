"""jaxsif history: recent runs, and how they ended."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

from jaxsif.commands import JSON, all_of, argument
from jaxsif.errors import HostError, JaxsifError, raise_as
from jaxsif.history.folder import (
    ENDING,
    HINT,
    LAST,
    RUN,
    find_folder,
    find_run,
    is_running,
    read_names,
    read_run,
)
from jaxsif.history.render import Listed, render_row, render_run, render_table
from jaxsif.history.run import describe_run
from jaxsif.limits import read_number
from jaxsif.screen import find_width, print_json
from jaxsif.text import printable, shorten

DESCRIPTION = """\
List this user's recent runs, or show one: its command, how it and its tasks
ended, the error and its remedy, and reports of waiting tasks.

jaxsif run, jupyter and bench keep the last 200 runs for up to 30 days, each in
a private folder with the last MB of its standard error.

examples:
  jaxsif history                the last 20 runs
  jaxsif history show           the last run
  jaxsif history show 0a1b      the run whose name ends with 0a1b
  jaxsif history show last --json
        all its fields, as JSON
"""

EPILOG = """\
exit status: 0; 2 if there is no such run; 125 if jaxsif cannot read it
"""
_SHOW = "show"
_LISTED = 20  # runs


def _parse_verb(word: str) -> str:
    """Return the word; raise JaxsifError if it is not the verb, perhaps the name of a run."""
    if word == _SHOW:
        return word
    hint = f"jaxsif history {_SHOW} {word}"
    if not ENDING.fullmatch(word) or word.isdecimal():  # perhaps of a job, or a number of runs
        hint = f"jaxsif history --last=N; jaxsif history {_SHOW} RUN"
    what = f"unknown command {shorten(f'history {word}')!r}"
    raise JaxsifError(what, "jaxsif history", hint)


add_options = all_of(
    argument("verb", nargs="?", type=_parse_verb, choices=[_SHOW], help="show one run"),
    argument(
        "run",
        nargs="?",
        default=LAST,
        metavar="RUN",
        help="the run's name, a unique suffix of it, or last (the default)",
    ),
    argument("--last", metavar="N", help=f"list N runs; default: {_LISTED}"),
    JSON,
    usage="jaxsif history [show [RUN]] [OPTIONS]",
)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """Print the table, or one run."""
    folder = find_folder(environ)
    names = read_names(folder)
    read = Reader(folder, environ)
    if arguments.verb == _SHOW:
        _show(read, find_run(names, arguments.run), arguments.json)
        return
    last = _LISTED if arguments.last is None else read_number(arguments.last)
    if not last:
        what = f"not a number of runs: {shorten(arguments.last)!r}"
        raise JaxsifError(what, "--last", "give a number of at least 1")
    render = _summarize if arguments.json else render_row
    rows = list(_render_readable(read, names[-last:], render))
    if arguments.json:
        print_json(rows)
    elif not rows:
        print(f"no runs in {printable(folder)}")
    else:
        print(*render_table(rows, find_width()), sep="\n")


class Reader:
    """Reads and renders runs; asks Slurm once, if a run has recorded no end on another host."""

    def __init__(self, folder: str, environ: Mapping[str, str]) -> None:
        self.folder = folder
        self._environ = environ
        self._host = os.uname().nodename

    def render(self, name: str, render: Callable[[Listed], Any]) -> Any:
        """Read and render a run; raise HostError if jaxsif cannot read the file or did not write
        it.
        """
        path = os.path.join(self.folder, name, RUN)
        try:
            with raise_as(HostError(f"cannot read the run {name}", path, HINT), OSError):
                run = read_run(self.folder, name)
                may_run = run.status is None and run.host != self._host
                in_job = may_run and run.job in self._running_jobs
                return render(Listed(run, is_running(run, self._host), in_job))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            what = f"not the history of a run: {path}"
            raise HostError(what, path, "remove the folder") from error

    @cached_property
    def _running_jobs(self) -> frozenset[str]:
        from jaxsif.watch.squeue import list_running

        return list_running(self._environ)


def _render_readable(
    read: Reader, names: Sequence[str], render: Callable[[Listed], Any]
) -> Iterator[Any]:
    """Render the runs that can be read, except those that another jaxsif has just removed."""
    for name in names:
        with suppress(HostError):
            yield read.render(name, render)


def _show(read: Reader, name: str, as_json: bool) -> None:
    path = os.path.join(read.folder, name)

    def describe(listed: Listed) -> dict[str, Any]:
        return {**describe_run(listed.run), "state": listed.state, "folder": path}

    def render(listed: Listed) -> str:
        return "\n".join(render_run(listed, path, sorted(os.listdir(path))))

    if as_json:
        print_json(read.render(name, describe))
    else:
        print(read.render(name, render))


def _summarize(listed: Listed) -> dict[str, Any]:
    """Summarize a run for the table, as JSON values."""
    fields = ("name", "begin", "end", "status", "step", "tasks", "launcher", "host", "command")
    values = {field: getattr(listed.run, field) for field in fields}
    return {**values, "state": listed.state, "error": listed.run.error and listed.run.error.what}
