"""jaxsif image remove: images, with what the build left beside them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from jaxsif.errors import printable
from jaxsif.images.store import find_shelf, remove_image

DESCRIPTION = """\
Remove images from a folder, with their logs. An image that a module points to
stays, unless --force.

examples:
  jaxsif image remove jax-0.11.0-cpu
  jaxsif image remove --folder /sw/jaxsif/images jax-0.11.0-cuda12.sif
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif image remove`."""
    parser.add_argument(
        "names", nargs="+", metavar="NAME", help="an image's name, with or without .sif"
    )
    parser.add_argument(
        "--folder", metavar="FOLDER", help="the folder of images (JAXSIF_IMAGES, else build/images)"
    )
    parser.add_argument("--force", action="store_true", help="even if a module points to the image")


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Remove each of them, or say that it is not there."""
    shelf = find_shelf(arguments.folder, environ)
    for name in arguments.names:
        removed = remove_image(shelf, name, arguments.force)
        for path in removed:
            print(printable(f"removed {path}"))
        if not removed:
            print(printable(f"no {name} in {shelf.folder}: nothing to remove"))
    return 0
