"""jaxsif image list: the images of a folder."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from jaxsif.commands.run import note
from jaxsif.images.store import HEADING, find_shelf, list_images, render_item
from jaxsif.screen import add_json, print_json, print_table

DESCRIPTION = """\
List the images of a folder: flavour, JAX, size, date, digest if known, and the
module of each.

examples:
  jaxsif image list
  jaxsif image list --folder /sw/jaxsif/images
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif image list`."""
    parser.add_argument(
        "--folder", metavar="FOLDER", help="the folder of images (JAXSIF_IMAGES, else build/images)"
    )
    add_json(parser)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the table."""
    items = list_images(find_shelf(arguments.folder, environ), environ)
    for item in items:
        if item.problem:
            note(item.problem)
    if arguments.json:
        print_json([item._asdict() for item in items])
    else:
        print_table(list(map(render_item, items)), environ, HEADING)
    return 0
