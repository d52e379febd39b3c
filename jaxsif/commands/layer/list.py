"""jaxsif layer list."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping

from jaxsif.layers import Layer, find_inner_damage, is_made_for, list_names, read_layer

DESCRIPTION = """\
List the layers, and whether each can be used: it is 'stale' when the image that it was made for is gone or changed,
and 'damaged' when its file is gone or not as it was made.

example:
  jaxsif layer list
"""
_HEADINGS = ("NAME", "STATUS", "PACKAGES", "MB", "IMAGE")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `jaxsif layer list`."""
    parser.add_argument("--json", action="store_true", help="print a JSON list")


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the table."""
    layers = [read_layer(name, environ, "jaxsif layer list") for name in list_names(environ)]
    if arguments.json:
        print(json.dumps([{**layer._asdict(), "status": find_status(layer, environ)} for layer in layers], indent=1))
        return 0
    rows = [_HEADINGS] + [
        (layer.name, find_status(layer, environ), str(len(layer.packages)), f"{layer.size / 1e6:.1f}", layer.image)
        for layer in layers
    ]
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    return 0


def find_status(layer: Layer, environ: Mapping[str, str]) -> str:
    """'ok', 'stale' or 'damaged'."""
    if find_inner_damage(layer, environ):
        return "damaged"
    images = [image for image in (layer.image, environ.get("JAX_IMAGE")) if image and os.path.exists(image)]
    return "ok" if any(is_made_for(layer, image, environ) for image in images) else "stale"
