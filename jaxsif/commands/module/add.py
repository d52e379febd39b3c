"""jaxsif module add: the module of an image, for Lmod and Environment Modules."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from jaxsif.commands.module import add_prefix
from jaxsif.modules.install import add_module, find_prefix

DESCRIPTION = """\
Write the modulefiles of an image below PREFIX/modulefiles, for Lmod and for
Environment Modules, and print the module's name. The first module is the
default.

examples:
  jaxsif module add /sw/jaxsif/images/jax-0.12.0.1-cuda12.sif
  jaxsif module add --name 0.13.0-ours-sif /scratch/our.sif
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif module add`."""
    parser.add_argument(
        "image", metavar="IMAGE", help="the image, a .sif file that all nodes see at this path"
    )
    parser.add_argument(
        "--name", help="the module's name after jax/; needed for an image without jaxsif's labels"
    )
    parser.add_argument("--default", action="store_true", help="make it the default")
    add_prefix(parser)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Write the modulefiles."""
    prefix = find_prefix(arguments.prefix)
    module = add_module(prefix, arguments.image, arguments.name, arguments.default, _show)
    print(f"jax/{module.name}")
    return 0


def _show(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
