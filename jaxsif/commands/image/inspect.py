"""jaxsif image inspect: what an image is."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from jaxsif.commands.run import note
from jaxsif.errors import HostError, printable
from jaxsif.images.find import find_image
from jaxsif.images.inspect import facts_as_json, inspect_image, inspect_metadata, render_fact
from jaxsif.runtime import require_runtime
from jaxsif.screen import add_json, print_json, print_table
from jaxsif.settings.config import resolve_image

DESCRIPTION = """\
Show what an image is: versions, driver, digest, signers, origin. It may be a
SIF file or an unpacked image, of jaxsif or not. jaxsif names signatures, and
does not verify them.

With --definition, print the definition file that it was built from instead.

examples:
  jaxsif image inspect
        the image of the loaded module
  jaxsif image inspect --json ngc-jax.sif
  jaxsif image inspect --definition ngc-jax.sif >ngc-jax.def
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif image inspect`."""
    parser.add_argument(
        "image", nargs="?", metavar="IMAGE", help="the image (JAX_IMAGE, else ./jax.sif)"
    )
    form = parser.add_mutually_exclusive_group()
    add_json(form)
    form.add_argument(
        "--definition", action="store_true", help="print the definition file that it was built from"
    )


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the facts, or the definition."""
    image = find_image(resolve_image(arguments.image, environ, note, "IMAGE")).path
    if arguments.definition:
        _print_definition(image, environ)
        return 0
    facts = inspect_image(image, environ)
    if arguments.json:
        facts += inspect_metadata(image, environ)
        print_json(facts_as_json(facts))
    else:
        print_table(list(map(render_fact, facts)), environ)
    return 0


def _print_definition(image: str, environ: Mapping[str, str]) -> None:
    """Print the definition with its tabs; raise HostError for an image that has none."""
    from jaxsif.images.client import read_metadata  # spython takes 30 ms

    definition = read_metadata(require_runtime(environ), image).definition
    if not definition:
        raise HostError(f"image has no definition: {image}", hint="jaxsif image inspect --json")
    for line in definition.splitlines():
        print("\t".join(map(printable, line.split("\t"))))
