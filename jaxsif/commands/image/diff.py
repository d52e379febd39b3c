"""jaxsif image diff: what differs between two images."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from jaxsif.errors import printable
from jaxsif.images.diff import compare_images, comparison_as_json, render_comparison
from jaxsif.images.find import find_image
from jaxsif.runtime import require_runtime
from jaxsif.screen import add_json, print_json
from jaxsif.settings.config import Setting

DESCRIPTION = """\
Print the differences of two images: packages, labels, lines of the definition.
Each may be a SIF file or an unpacked image. '-' marks what only A has, '+'
what only B has, '~' names with different values.

examples:
  jaxsif image diff old.sif new.sif
  jaxsif image diff --json old.sif sandbox/
"""

EPILOG = """\
exit status:
  0  no difference     1  a difference
  2  a bad request   125  an image cannot be read
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif image diff`."""
    parser.add_argument("a", metavar="A", help="an image")
    parser.add_argument("b", metavar="B", help="another one")
    add_json(parser)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Compare and print."""
    a = find_image(Setting(arguments.a, "A")).path
    b = find_image(Setting(arguments.b, "B")).path
    comparison = compare_images(a, b, require_runtime(environ), environ)
    if arguments.json:
        print_json(comparison_as_json(comparison))
    else:
        for line in render_comparison(comparison):
            print(printable(line))
    return int(not comparison.equal)
