"""jaxsif layer update: make a layer again, of its requirements."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from jaxsif.commands.layer.create import show
from jaxsif.commands.run import note
from jaxsif.images.find import find_image
from jaxsif.layers.make import Wanted, make_layer
from jaxsif.layers.store import read_layer
from jaxsif.runtime import require_runtime
from jaxsif.settings.config import resolve_image

DESCRIPTION = """\
Rebuild a layer from its saved requirements for the current image, in the
newest versions that fit. After an error, the layer is unchanged.

examples:
  jaxsif layer update my-layer
  jaxsif layer update --image /sw/jaxsif/images/jax-0.12.0.1-cuda12.sif my-layer
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif layer update`."""
    parser.add_argument("name", metavar="NAME", help="the layer's name")
    parser.add_argument("--image", metavar="PATH", help="the image, as for jaxsif run")


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Make the layer again; return the exit status."""
    old = read_layer(arguments.name, environ, "NAME")
    image = find_image(resolve_image(arguments.image, environ, note)).path
    wanted = Wanted(old.name, old.requirements, old.allow_replace)
    make_layer(wanted, image, require_runtime(environ), environ, show)
    return 0
