"""jaxsif image inspect: what an image is."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from jaxsif.commands.run import note
from jaxsif.images.find import find_image
from jaxsif.images.inspect import facts_as_json, inspect_image, render_fact
from jaxsif.screen import add_json, print_json, print_table
from jaxsif.settings.config import resolve_image

DESCRIPTION = """\
Show what an image is: versions, driver, digest, signers, origin. It may be a
SIF file or an unpacked image, of jaxsif or not. jaxsif names signatures, and
does not verify them.

examples:
  jaxsif image inspect
        the image of the loaded module
  jaxsif image inspect --json ngc-jax.sif
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif image inspect`."""
    parser.add_argument(
        "image", nargs="?", metavar="IMAGE", help="the image (JAX_IMAGE, else ./jax.sif)"
    )
    add_json(parser)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the facts."""
    facts = inspect_image(
        find_image(resolve_image(arguments.image, environ, note, "IMAGE")).path, environ
    )
    if arguments.json:
        print_json(facts_as_json(facts))
    else:
        print_table(list(map(render_fact, facts)), environ)
    return 0
