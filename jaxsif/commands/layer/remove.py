"""jaxsif layer remove."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from jaxsif.errors import JaxsifError
from jaxsif.layers.make import remove_files
from jaxsif.layers.store import check_name, layers_folder, list_names

DESCRIPTION = """\
Remove layers. Jobs that use a layer lose its files.

example:
  jaxsif layer remove my-layer
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif layer remove`."""
    parser.add_argument("names", nargs="+", metavar="NAME", help="a layer's name")


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Remove each of them."""
    folder, known = Path(layers_folder(environ)), list_names(environ)
    for name in arguments.names:
        if check_name(name, "NAME") not in known:
            raise JaxsifError(f"no layer {name}", f"NAME, {folder}", "jaxsif layer list")
    for name in dict.fromkeys(arguments.names):
        (folder / f"{name}.json").unlink()
        remove_files(name, folder)
    return 0
