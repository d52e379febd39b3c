"""jaxsif image inspect: what an image is."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping

from jaxsif.commands.run import note
from jaxsif.errors import printable
from jaxsif.images.find import find_image
from jaxsif.images.inspect import facts_as_json, inspect_image, render_facts
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
    parser.add_argument(
        "--json", action="store_true", help="print JSON: each fact or null, and notes"
    )


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the facts."""
    facts = inspect_image(
        find_image(resolve_image(arguments.image, environ, note, "IMAGE")).path, environ
    )
    if arguments.json:
        print(json.dumps(facts_as_json(facts), indent=1))
    else:
        for line in render_facts(facts):
            print(printable(line))
    return 0
