"""jaxsif module default: what jax/sif and plain jax stand for."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from jaxsif.commands.module import add_prefix
from jaxsif.modules.install import find_prefix, set_default

DESCRIPTION = """\
Choose the module that jax/sif and plain jax load.

examples:
  jaxsif module default jax/0.12.0.1-cuda12-sif
  jaxsif module default 0.12.0.1-cuda12-sif
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif module default`."""
    parser.add_argument(
        "name", metavar="NAME", help="a name from jaxsif module list, with or without jax/"
    )
    add_prefix(parser)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Move the default."""
    module = set_default(find_prefix(arguments.prefix), arguments.name)
    print(f"jax/{module.name}")
    return 0
