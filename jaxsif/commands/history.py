"""jaxsif history: what became of the runs of the last days."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from jaxsif.errors import HostError, JaxsifError, printable, told_as
from jaxsif.history.folder import LAST, find_folder, find_run, is_running, list_runs, read_run
from jaxsif.history.run import describe_run
from jaxsif.history.words import Listed, render_run, render_table
from jaxsif.limits import read_number, shorten
from jaxsif.screen import add_json, print_json

DESCRIPTION = """\
List the last runs of this user, or show one: its command, how it and its tasks
ended, the error with its remedy, and the reports of tasks that waited.

jaxsif run, jupyter and bench keep this for 30 days and the last 200 runs, in a
private folder for each run, with the last MB of standard error.

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


def add_options(parser: argparse.ArgumentParser) -> None:
    """Give a parser the options of `jaxsif history`."""
    parser.usage = "jaxsif history [show [RUN]] [OPTIONS]"
    parser.add_argument("verb", nargs="?", choices=[_SHOW], help="show one run")
    parser.add_argument(
        "run",
        nargs="?",
        default=LAST,
        metavar="RUN",
        help="its name, an end that no other name has, or last (the default)",
    )
    parser.add_argument("--last", metavar="N", help=f"list N runs; default: {_LISTED}")
    add_json(parser)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the table, or one run."""
    folder = find_folder(environ)
    names = _list_names(folder)
    if arguments.verb == _SHOW:
        _show(folder, find_run(names, arguments.run), arguments.json)
        return 0
    last = _LISTED if arguments.last is None else read_number(arguments.last)
    if not last:
        what = f"not a number of runs: {shorten(arguments.last)!r}"
        raise JaxsifError(what, "--last", "give a number from 1")
    listed = list(_read_runs(folder, names[-last:]))
    if arguments.json:
        print_json([_summarize(one) for one in listed])
        return 0
    if not listed:
        print(f"no runs in {printable(folder)}")
        return 0
    for line in render_table(listed):
        print(line)
    return 0


def _list_names(folder: str) -> list[str]:
    unreadable = HostError("cannot read the history", folder, "correct its permissions")
    with told_as(unreadable):
        return list_runs(folder)


def _read_runs(folder: str, names: list[str]) -> Iterator[Listed]:
    """Yield the runs that can be read: one that another start removes meanwhile cannot."""
    for name in names:
        with suppress(HostError):
            yield _read(folder, name)


def _read(folder: str, name: str) -> Listed:
    run = read_run(folder, name)
    return Listed(run, is_running(run, os.uname().nodename))


def _show(folder: str, name: str, as_json: bool) -> None:
    one = _read(folder, name)
    path = os.path.join(folder, name)
    if as_json:
        print_json({**describe_run(one.run), "state": one.state, "folder": path})
        return
    for line in render_run(one, path, sorted(os.listdir(path))):
        print(line)


def _summarize(one: Listed) -> dict[str, Any]:
    """Return what the table has of a run, as values of JSON."""
    fields = ("name", "begin", "end", "status", "step", "tasks", "launcher", "host", "command")
    found = {field: getattr(one.run, field) for field in fields}
    return {**found, "state": one.state, "error": one.run.error and one.run.error.what}
