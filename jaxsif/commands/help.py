"""jaxsif help: the help of a command."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

DESCRIPTION = """\
Tell what a command does, and its options, as COMMAND --help does.

examples:
  jaxsif help run
  jaxsif help image build
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Give a parser the options of `jaxsif help`."""
    parser.add_argument("words", nargs="*", metavar="COMMAND", help="all commands unless given")
    parser.set_defaults(format_help=None)  # by cli.py


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print it."""
    print(arguments.format_help(arguments.words), end="")
    return 0
