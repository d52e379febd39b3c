"""jaxsif manual: the man pages."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping

from jaxsif import __version__
from jaxsif.files import write_file
from jaxsif.help.manual import render_manual

DESCRIPTION = """\
Write the man pages of all commands into FOLDER. An installed jaxsif has them: `man jaxsif-run`.

example:
  jaxsif manual ~/.local/share/man/man1
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Give a parser the options of `jaxsif manual`."""
    parser.add_argument(
        "folder", metavar="FOLDER", help="where to write them; such a folder is called man1"
    )
    parser.set_defaults(program=None)  # by cli.py


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Write them."""
    for name, text in render_manual(arguments.program, __version__).items():
        write_file(os.path.join(arguments.folder, name), text.encode())
    return 0
