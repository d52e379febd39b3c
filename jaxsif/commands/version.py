"""jaxsif version: the version, and what else a bug report needs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from jaxsif import __version__
from jaxsif.commands.run import note
from jaxsif.errors import printable
from jaxsif.screen import add_json, print_json

DESCRIPTION = """\
Tell the version of jaxsif; with --verbose what else a bug report needs: Python, this machine,
Slurm, the container runtime, and the image that `jaxsif run` would take, with its JAX.

examples:
  jaxsif version --verbose
  jaxsif version --verbose --json
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Give a parser the options of `jaxsif version`."""
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="tell also what jaxsif works with"
    )
    add_json(parser)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print it."""
    versions = {"jaxsif": __version__}
    if arguments.verbose:
        from jaxsif.launch.versions import find_versions

        versions.update(find_versions(environ, note))
    if arguments.json:
        print_json(versions)
        return 0
    for name, text in versions.items():
        print(printable(f"{name} {text}" if name == "jaxsif" else f"  {name:8} {text}"))
    return 0
