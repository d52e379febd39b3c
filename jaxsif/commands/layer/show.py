"""jaxsif layer show."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping

from jaxsif.commands.layer.list import find_status
from jaxsif.layers.store import layers_folder, read_layer
from jaxsif.screen import add_json, print_json, print_table

DESCRIPTION = """\
Show a layer: its requirements, packages and image.

example:
  jaxsif layer show my-layer
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif layer show`."""
    parser.add_argument("name", metavar="NAME", help="the layer's name")
    add_json(parser)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print it."""
    layer = read_layer(arguments.name, environ, "NAME")
    status, file = find_status(layer, environ), os.path.join(layers_folder(environ), layer.file)
    if arguments.json:
        print_json({**layer._asdict(), "status": status, "file": file})
        return 0
    rows = [
        ("status", status),
        ("image", layer.image),
        ("digest", layer.image_key),
        ("python", layer.python),
        ("created", layer.created),
        ("file", file),
        ("size", f"{layer.size / 1e6:.1f} MB"),
        ("requirements", "\n".join(layer.requirements)),
        ("may replace", "\n".join(layer.allow_replace)),
        ("packages", "\n".join(map(" ".join, sorted(layer.packages.items())))),
    ]
    lines = [
        ("" if index else name, line)
        for name, value in rows
        for index, line in enumerate(value.splitlines())
    ]
    print_table(lines, environ)
    return 0
