"""jaxsif layer list."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping

from jaxsif.commands.run import note
from jaxsif.errors import JaxsifError, printable
from jaxsif.layers.store import Layer, find_damage, is_made_for, list_names, read_layer

DESCRIPTION = """\
List the layers, and whether each can be used: it is 'stale' when the image that it was made for is gone or changed,
and 'damaged' when its file is gone or not as it was made.

example:
  jaxsif layer list
"""
_DAMAGED = "damaged"
_HEADINGS = ("NAME", "STATUS", "PACKAGES", "MB", "IMAGE")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `jaxsif layer list`."""
    parser.add_argument("--json", action="store_true", help="print a JSON list")


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the table."""
    layers = [_read(name, environ) for name in list_names(environ)]
    if arguments.json:
        print(json.dumps([_as_json(layer, environ) for layer in layers], indent=1))
        return 0
    rows = [_HEADINGS, *(_as_row(layer, environ) for layer in layers)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    return 0


def _read(name: str, environ: Mapping[str, str]) -> Layer | str:
    """The layer, or only its name where its JSON is damaged: the other layers are listed all the
    same.
    """
    try:
        return read_layer(name, environ, "jaxsif layer list")
    except JaxsifError as error:
        note(f"warning: {printable(error.what)}")
        return name


def _as_json(layer: Layer | str, environ: Mapping[str, str]) -> dict[str, object]:
    if isinstance(layer, str):
        return {"name": layer, "status": _DAMAGED}
    return {**layer._asdict(), "status": find_status(layer, environ)}


def _as_row(layer: Layer | str, environ: Mapping[str, str]) -> tuple[str, ...]:
    if isinstance(layer, str):
        return layer, _DAMAGED, "-", "-", "-"
    status, size = find_status(layer, environ), f"{layer.size / 1e6:.1f}"
    return layer.name, status, str(len(layer.packages)), size, printable(layer.image)


def find_status(layer: Layer, environ: Mapping[str, str]) -> str:
    """'ok', 'stale' or 'damaged'."""
    if find_damage(layer, environ):
        return _DAMAGED
    images = [
        image
        for image in (layer.image, environ.get("JAX_IMAGE"))
        if image and os.path.exists(image)
    ]
    return "ok" if any(_fits(layer, image, environ) for image in images) else "stale"


def _fits(layer: Layer, image: str, environ: Mapping[str, str]) -> bool:
    try:
        return is_made_for(layer, image, environ)
    except (JaxsifError, OSError):
        return False  # what is there now is no image, or cannot be read
