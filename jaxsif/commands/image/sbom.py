"""jaxsif image sbom: the bill of materials of an image."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from jaxsif.commands.run import note
from jaxsif.images.execute import read_sbom
from jaxsif.images.find import find_image
from jaxsif.runtime import require_runtime
from jaxsif.settings.config import resolve_image

DESCRIPTION = """\
Print the bill of materials of an image (a SIF file, or an unpacked one) as
CycloneDX 1.6: Debian packages, Python, and Python's packages, with versions
and licences. The image's own Python, 3.8 or later, makes the list.

examples:
  jaxsif image sbom >sbom.cdx.json
        of the image of the loaded module
  jaxsif image sbom build/images/jax-0.12.0.1-cuda12.sif >sbom.cdx.json
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif image sbom`."""
    parser.add_argument(
        "image", nargs="?", metavar="IMAGE", help="the image (JAX_IMAGE, else ./jax.sif)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, as without it")


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print it."""
    image = find_image(resolve_image(arguments.image, environ, note, "IMAGE"))
    sys.stdout.write(read_sbom(require_runtime(environ), image.path))
    return 0
