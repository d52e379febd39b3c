"""jaxsif module remove: take a module away."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from jaxsif.commands.module import add_prefix
from jaxsif.modules.install import find_prefix, remove_module

DESCRIPTION = """\
Remove the modulefiles of an image; the image and the launcher stay. Before you
remove the default, name another one.

examples:
  jaxsif module remove jax/0.12.0.1-cuda12-sif
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif module remove`."""
    parser.add_argument(
        "name", metavar="NAME", help="a name from jaxsif module list, with or without jax/"
    )
    add_prefix(parser)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Remove the modulefiles."""
    module = remove_module(find_prefix(arguments.prefix), arguments.name)
    print(f"removed jax/{module.name}; its image stays: {module.image}", file=sys.stderr)
    return 0
