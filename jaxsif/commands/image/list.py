"""jaxsif image list: the images of a folder."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping

from jaxsif.errors import printable
from jaxsif.images.store import find_shelf, list_images, render_items

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
    parser.add_argument("--json", action="store_true", help="print JSON")


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the table."""
    items = list_images(find_shelf(arguments.folder, environ), environ)
    for item in items:
        if item.problem:
            print(printable(f"jaxsif: {item.problem}"), file=sys.stderr)
    if arguments.json:
        print(json.dumps([item._asdict() for item in items], indent=1))
    else:
        for line in render_items(items):
            print(printable(line))
    return 0
