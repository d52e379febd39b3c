"""jaxsif module list: the modules of images, as installed."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping

from jaxsif.commands.module import add_prefix
from jaxsif.errors import printable
from jaxsif.modules.install import find_default, find_prefix, list_modules
from jaxsif.modules.modulefile import Module

DESCRIPTION = """\
List the modules of images below PREFIX: name, launcher, image. A star marks the default.

examples:
  jaxsif module list
  jaxsif module list --json
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif module list`."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_prefix(parser)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the modules."""
    prefix = find_prefix(arguments.prefix)
    default = find_default(prefix)
    rows = [_row(module, default) for module in list_modules(prefix)]
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return 0
    width = max((len(str(row["name"])) for row in rows), default=0)
    for row in rows:
        mark, missing = "*" if row["default"] else " ", "" if row["exists"] else "  (missing)"
        print(
            printable(
                f"{mark} {row['name']:{width}}  jaxsif {row['launcher']}  {row['image']}{missing}"
            )
        )
    return 0


def _row(module: Module, default: str | None) -> dict[str, object]:
    return {
        "name": f"jax/{module.name}",
        "default": module.name == default,
        "image": module.image,
        "digest": module.digest,
        "exists": os.path.isfile(module.image),
        "launcher": os.path.basename(module.home),
    }
