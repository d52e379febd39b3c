"""jaxsif image convert: a Dockerfile or definition file, made to build on an image with JAX."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from jaxsif.commands.run import note
from jaxsif.errors import printable
from jaxsif.images.find import find_image
from jaxsif.screen import add_json, print_json
from jaxsif.settings.config import resolve_image

DESCRIPTION = """\
Convert a Dockerfile or a definition file into a definition file on top of an image with JAX, \
which takes the place of
the image that it names. What would become something else is refused, each line with the reason.

examples:
  jaxsif image convert Dockerfile >lab.def
        then: apptainer build lab.sif lab.def
  jaxsif image convert --image jax.sif lab.def
"""

EPILOG = """\
exit status:
  0  converted     2  a line is refused, or a bad request     125  a file or an image cannot be read
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif image convert`."""
    parser.add_argument("file", metavar="FILE", help="a Dockerfile or a definition file")
    parser.add_argument(
        "--image", metavar="PATH", help="the image to build on (JAX_IMAGE, else ./jax.sif)"
    )
    add_json(parser)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the definition, or what is refused."""
    from jaxsif.builds.convert import convert_file, refuse  # spython takes 30 ms
    from jaxsif.builds.converted import converted_as_json

    image = find_image(resolve_image(arguments.image, environ, note))
    found = convert_file(arguments.file, image.path)
    if arguments.json:
        print_json(converted_as_json(*found))
    elif found.converted and found.definition:
        for line in found.converted.notes:
            print(printable(f"jaxsif: {line}"), file=sys.stderr)
        print(found.definition, end="")
    if found.refused:
        error = refuse(arguments.file, found.refused)
        if not arguments.json:
            raise error
        return error.exit_code
    return 0
