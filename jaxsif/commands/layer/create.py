"""jaxsif layer create: packages to add to an image, in one file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from jaxsif.commands.run import note
from jaxsif.errors import JaxsifError
from jaxsif.images.find import find_image
from jaxsif.layers.inside import normalize
from jaxsif.layers.make import Wanted, make_layer
from jaxsif.layers.requirements import read_requirements
from jaxsif.layers.store import Layer, check_name, find_damage, is_made_for, list_names, read_layer
from jaxsif.runtime import require_runtime
from jaxsif.settings.config import resolve_image

DESCRIPTION = """\
Make a layer: one file with packages that the image lacks. `jaxsif run --layer
NAME` mounts it over the image.

The image's packages keep their versions: uv finds versions that fit them.

examples:
  jaxsif layer create my-layer flax optax orbax-checkpoint
  jaxsif layer create -r requirements.txt my-layer
  jaxsif layer create --allow-replace numpy my-layer 'numpy<2.5'
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif layer create`."""
    parser.usage = "jaxsif layer create [OPTIONS] NAME [PACKAGE...]"
    parser.add_argument("name", metavar="NAME", help="the layer's name")
    parser.add_argument(
        "packages",
        nargs="*",
        metavar="PACKAGE",
        help="as pip takes it, such as 'optax>=0.2'; a wheel",
    )
    parser.add_argument(
        *("-r", "--requirements"),
        action="append",
        default=[],
        metavar="FILE",
        help="packages, one on each line",
    )
    parser.add_argument("--image", metavar="PATH", help="the image, as for jaxsif run")
    parser.add_argument(
        "--allow-replace",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="the layer may have another version of this package of the image",
    )


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Make the layer, unless it is there."""
    name = check_name(arguments.name, "NAME")
    requirements = read_requirements(arguments.requirements, arguments.packages)
    wanted = Wanted(name, requirements, tuple(map(normalize, arguments.allow_replace)))
    runtime = require_runtime(environ)
    image = find_image(resolve_image(arguments.image, environ, note)).path
    if name in list_names(environ):
        old = read_layer(name, environ, "NAME")
        if (
            not _is_same(old, wanted)
            or find_damage(old, environ)
            or not is_made_for(old, image, environ)
        ):
            raise JaxsifError(
                f"there is a layer {name} already",
                "NAME",
                f"jaxsif layer update {name}, or first layer remove {name}",
            )
        show(f"layer {name} is there already")
        return 0
    make_layer(wanted, image, runtime, environ, show)
    return 0


def _is_same(old: Layer, wanted: Wanted) -> bool:
    return (old.requirements, old.allow_replace) == (wanted.requirements, wanted.allow_replace)


def show(line: str) -> None:
    """Print a line of progress."""
    print(f"jaxsif: {line}" if line.startswith("note:") else line, file=sys.stderr, flush=True)
