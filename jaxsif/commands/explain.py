"""jaxsif explain: known messages in the output of a program, and what to do."""

from __future__ import annotations

import argparse
import os
import select
import stat
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import BinaryIO, NamedTuple

from jaxsif.commands import JSON, all_of, argument
from jaxsif.commands.history import Reader
from jaxsif.diagnose.explain import Explanation, Log, render_explanations
from jaxsif.errors import HostError, JaxsifError, raise_as
from jaxsif.foreign import open_given
from jaxsif.history.folder import ENDING, LAST, STDERR, find_folder, find_run, read_names
from jaxsif.history.render import Listed, describe_end
from jaxsif.history.run import Complaint
from jaxsif.installation import find_data
from jaxsif.launch.logs import STREAMS
from jaxsif.screen import note, print_json
from jaxsif.text import count_of, printable, shorten

DESCRIPTION = """\
Find known messages in a program's output, even from runs without jaxsif: what
each means, whether it is a cause or a consequence, and what to do.

A match explains a line. It does not establish why the program failed.

examples:
  jaxsif explain                   the last run in jaxsif history
  jaxsif explain < slurm-4711.out  standard input
  jaxsif explain 0a1b              the run whose name ends with 0a1b
  jaxsif explain slurm-4711.out    a log file
  jaxsif explain logs              the files in a folder written by --log-dir
  srun ... 2>&1 | jaxsif explain   a pipe
"""
EPILOG = """\
exit status: 0 if there is a known message or an error from jaxsif; 1 if there
is neither; 2 if there is no such file, or no such run with output; 125 if
jaxsif cannot read it
"""
_SOURCE = "FILE|RUN"
_HINT = "correct its permissions"
_NOT_TEXT = "it is not text"
_TEXT_HINT = "name a log; for a log with null bytes in it: tr -d '\\0' <FILE | jaxsif explain -"
_STDIN = "-"
_BLOCK = 1 << 18  # bytes
_PATIENCE = 2.0  # seconds without input before the user hears of it
_FILES = (*STREAMS, STDERR)  # the ends of names in a folder of --log-dir, or of a run

add_options = all_of(
    argument(
        "target",
        nargs="*",
        default=[],
        metavar=_SOURCE,
        help="a log file, a folder written by --log-dir, - for standard input, or a run in jaxsif"
        " history: its name, a unique suffix of it, or last; default: standard input if it is a"
        " file or a pipe, else the last run",
    ),
    JSON,
    usage="jaxsif explain [FILE|RUN]... [--json]",
)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the known messages; return 0, or 1 if there are none."""
    log = Log()
    words = arguments.target or [_choose_target()]
    targets = [target for word in words for target in _find_targets(word, environ)]
    for target in targets:
        if target.end:
            log.tells_end = True
        if target.error:
            log.add_error(*target.error, target.name)
        _read(log, target)
    found = log.explanations
    if arguments.json:
        print_json([one._asdict() for one in found])
    else:
        lines = _render(found) if found else [f"no known message in {_list(targets)}"]
        print(*filter(None, [target.end for target in targets]), *lines, sep="\n")
    return 0 if found else 1


def _render(found: Sequence[Explanation]) -> Iterator[str]:
    """Yield the lines of all explanations, and where the pages are that these name."""
    yield from render_explanations(found)
    if any(one.page for one in found):
        yield f"docs: {find_data('docs')}"


class _Target(NamedTuple):
    """A file to search."""

    path: str
    end: str = ""  # how the run of the history ended whose output this is
    error: Complaint | None = None  # of that run

    @property
    def name(self) -> str:
        """The file in words."""
        return "standard input" if self.path == _STDIN else printable(self.path)


def _read(log: Log, target: _Target) -> None:
    """Search a file, which is the output of a run or has to look like text."""
    error = HostError(f"cannot read {target.path}", _SOURCE, _HINT)
    with raise_as(error, OSError), _open(target.path) as file:
        first = file.read(_BLOCK)
        if b"\0" in first and not target.end:
            raise HostError(f"cannot read {target.path}: {_NOT_TEXT}", _SOURCE, _TEXT_HINT)
        log.read(target.name, chain([first], iter(partial(file.read, _BLOCK), b"")))


def _list(targets: Sequence[_Target]) -> str:
    more = count_of(len(targets) - 1, "more file")
    return targets[0].name if len(targets) == 1 else f"{targets[0].name} and {more}"


def _choose_target() -> str:
    """Return standard input if it is a file or a pipe, else the last run."""
    mode = os.fstat(0).st_mode
    if stat.S_ISFIFO(mode) and not select.select([0], [], [], _PATIENCE)[0]:
        # The pipe of a service, or of ssh, may have a writer that never writes.
        note("waiting for standard input; for the last run: jaxsif explain last")
    return _STDIN if stat.S_ISREG(mode) or stat.S_ISFIFO(mode) else LAST


def _find_targets(word: str, environ: Mapping[str, str]) -> Sequence[_Target]:
    """Return the files that a word on the command line stands for; raise JaxsifError for none."""
    if os.path.isdir(word):
        names = sorted(name for name in os.listdir(word) if name.endswith(_FILES))
        if not names:
            what = f"no such file: {os.path.join(word, 'task-*.err')}"
            raise JaxsifError(what, _SOURCE, "name a folder written by --log-dir, or the files")
        return [_Target(os.path.join(word, name)) for name in names]
    if word != _STDIN and not _exists(word):
        if not ENDING.fullmatch(word):
            hint = "name a log file, or a run that jaxsif history lists"
            raise JaxsifError(f"no such file: {shorten(word)}", _SOURCE, hint)
        folder = find_folder(environ)
        name = find_run(read_names(folder), word)
        path, reader = os.path.join(folder, name, STDERR), Reader(folder, environ)
        end = reader.render(name, _end)
        if not os.path.lexists(path):
            what = f"cannot read the run {name}: {reader.render(name, describe_end)}"
            hint = (
                "name another run of jaxsif history, or the log of its job, such as slurm-4711.out"
            )
            raise JaxsifError(what, _SOURCE, hint)
        return [_Target(path, *end)]
    return [_Target(word)]


def _exists(path: str) -> bool:
    """Return whether there is such a file, perhaps in a folder that this user may not read."""
    try:
        os.lstat(path)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def _end(listed: Listed) -> tuple[str, Complaint | None]:
    return f"run {listed.run.name}: {describe_end(listed)}", listed.run.error


def _open(path: str) -> BinaryIO:
    return open(0, "rb", closefd=False) if path == _STDIN else open_given(path, "log", _SOURCE)
