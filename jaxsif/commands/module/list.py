"""jaxsif module list: the modules of images, as installed."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping

from jaxsif.commands.module import add_prefix
from jaxsif.modules.install import find_default, find_prefix, list_modules
from jaxsif.modules.modulefile import Module
from jaxsif.screen import add_json, print_json, print_table

DESCRIPTION = """\
List the modules of images below PREFIX: name, launcher, image. A star marks the default.

examples:
  jaxsif module list
  jaxsif module list --json
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif module list`."""
    add_json(parser)
    add_prefix(parser)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the modules."""
    prefix = find_prefix(arguments.prefix)
    default = find_default(prefix)
    rows = [_row(module, default) for module in list_modules(prefix)]
    if arguments.json:
        print_json(rows)
    else:
        print_table(list(map(_render, rows)), environ)
    return 0


def _render(row: Mapping[str, object]) -> tuple[str, ...]:
    mark, state = "*" if row["default"] else " ", "" if row["exists"] else "missing"
    return mark, str(row["name"]), f"jaxsif {row['launcher']}", str(row["image"]), state


def _row(module: Module, default: str | None) -> dict[str, object]:
    return {
        "name": f"jax/{module.name}",
        "default": module.name == default,
        "image": module.image,
        "digest": module.digest,
        "exists": os.path.isfile(module.image),
        "launcher": os.path.basename(module.home),
    }
