"""jaxsif layer list."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from jaxsif.commands.run import note
from jaxsif.errors import JaxsifError, printable
from jaxsif.layers.store import Layer, find_damage, is_made_for, list_names, read_layer
from jaxsif.screen import add_json, print_json, print_table

DESCRIPTION = """\
List the layers with their status: 'ok'; 'stale', if the layer's image is
missing or has changed; 'damaged', if the layer's file is missing or has
changed.

example:
  jaxsif layer list
"""
_DAMAGED = "damaged"
_HEADING = ("NAME", "STATUS", "PACKAGES", "MB", "IMAGE")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif layer list`."""
    add_json(parser)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the table."""
    found = [_describe(name, environ) for name in list_names(environ)]
    if arguments.json:
        print_json([entry for entry, _ in found])
    else:
        print_table([row for _, row in found], environ, _HEADING)
    return 0


def _describe(name: str, environ: Mapping[str, str]) -> tuple[dict[str, object], tuple[str, ...]]:
    """Return a layer as JSON and as a row of the table. One whose JSON is damaged has a name and a
    status, so that the others are listed.
    """
    try:
        layer = read_layer(name, environ, "jaxsif layer list")
    except JaxsifError as error:
        note(f"warning: {printable(error.what)}")
        return {"name": name, "status": _DAMAGED}, (name, _DAMAGED, "-", "-", "-")
    status, size = find_status(layer, environ), f"{layer.size / 1e6:.1f}"
    row = (name, status, str(len(layer.packages)), size, layer.image)
    return {**layer._asdict(), "status": status}, row


def find_status(layer: Layer, environ: Mapping[str, str]) -> str:
    """Return 'ok', 'stale' or 'damaged'."""
    if find_damage(layer, environ):
        return _DAMAGED
    images = (layer.image, environ.get("JAX_IMAGE", ""))
    return "ok" if any(_fits(layer, image, environ) for image in images) else "stale"


def _fits(layer: Layer, image: str, environ: Mapping[str, str]) -> bool:
    try:
        return is_made_for(layer, image, environ)
    except (JaxsifError, OSError):
        return False  # what is there now is no image, or cannot be read
