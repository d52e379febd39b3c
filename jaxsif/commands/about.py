"""jaxsif home, completion, help and version: commands about jaxsif itself."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from operator import methodcaller

from jaxsif import __version__, process
from jaxsif.commands import JSON, CommandGroup, argument
from jaxsif.errors import JaxsifError, Notify
from jaxsif.help.completion import render_bash, render_zsh
from jaxsif.images.file import find_image
from jaxsif.images.labels import describe_image
from jaxsif.installation import PACKAGE, find_share
from jaxsif.plan.launcher import SRUN
from jaxsif.process import find_executable
from jaxsif.runtime import find_runtime
from jaxsif.screen import note, print_json
from jaxsif.settings.config import resolve_image
from jaxsif.text import printable, shorten

VERBS = CommandGroup()


@VERBS.verb(
    "home",
    """\
Print the path of the folder with slurm/ (example job scripts and programs),
docs/ (the pages) and containers/ (the sources of images).
If the site's module is loaded, $JAXSIF_HOME names it, too.

examples:
  jaxsif home
        cp -r "$(jaxsif home)/slurm" . copies the programs
""",
)
def _home(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    print(find_share())


RENDER = {"bash": render_bash, "zsh": render_zsh}


@VERBS.verb(
    "completion",
    """\
Print a script that lets a shell complete commands, options, files and layers.
It does not run jaxsif.

examples:
  source <(jaxsif completion bash)
        in this shell; an installed jaxsif has it under $JAXSIF_HOME/share
  source <(jaxsif completion zsh)
        after compinit
""",
    argument("shell", choices=tuple(RENDER), help="the shell"),
    methodcaller("set_defaults", program=None),  # cli.py sets it
)
def _completion(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    print(RENDER[arguments.shell](arguments.program), end="")


@VERBS.verb(
    "help",
    """\
Show what a command does, and its options, as COMMAND --help does.

examples:
  jaxsif help run
  jaxsif help image build
""",
    argument("words", nargs="*", metavar="COMMAND", help="a command (default: all)"),
    methodcaller("set_defaults", format_help=None),  # cli.py sets it
)
def _help(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    print(arguments.format_help(arguments.words), end="")


@VERBS.verb(
    "version",
    """\
Show the version of jaxsif; with --verbose, all versions for a bug report:
Python, this machine, Slurm, the container runtime, and the image that
`jaxsif run` would use, with its JAX.

examples:
  jaxsif version --verbose
  jaxsif version --verbose --json
""",
    argument(
        "-v",
        "--verbose",
        action="store_true",
        help="also show the versions of Python, Slurm, the runtime and the image",
    ),
    JSON,
)
def _version(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    versions = {"jaxsif": __version__}
    if arguments.verbose:
        versions.update(find_versions(environ, note))
    if arguments.json:
        print_json(versions)
        return
    for name, text in versions.items():
        print(printable(f"{name} {text}" if name == "jaxsif" else f"  {name:8} {text}"))


_NONE = "none"


def find_versions(environ: Mapping[str, str], show: Notify) -> dict[str, str]:
    """Return part -> version and location, or for a missing part, 'none' or the error.

    `show` prints notes on settings files that do not count.
    """
    system = platform.uname()
    return {
        "folder": PACKAGE,
        "python": f"{platform.python_version()}, {sys.executable}",
        "system": f"{system.system} {system.release} {system.machine}",
        "slurm": _read_version((SRUN, "--version"), environ),
        "runtime": _or_error(lambda: _find_runtime(environ)),
        "image": _or_error(lambda: _find_image(environ, show)),
    }


def _or_error(find: Callable[[], str]) -> str:
    """Call `find`, and return the error if it fails: a bug report needs the error, too."""
    try:
        return find()
    except JaxsifError as error:
        return error.what


def _find_runtime(environ: Mapping[str, str]) -> str:
    """Return the version and the command of the container runtime."""
    runtime = find_runtime(environ)
    if runtime is None:
        return _NONE
    return f"{_read_version((runtime.command, '--version'), environ)}, {runtime.command}"


def _find_image(environ: Mapping[str, str], show: Notify) -> str:
    """Describe the image: its labels, its path, and the setting that names it."""
    image = find_image(resolve_image(None, environ, show))
    return f"{describe_image(image.path)}, {image.path} (from {image.source})"


def _read_version(argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the first line that a program on this host prints."""
    if not find_executable(argv[0], environ):
        return _NONE
    try:
        done = process.captured(argv, environ)
    except OSError as error:
        return f"{os.path.basename(argv[0])}: {error.strerror}"
    return shorten((done.stdout or done.stderr).strip().partition("\n")[0])
