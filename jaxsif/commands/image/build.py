"""jaxsif image build: an image from a flavour's lock."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from jaxsif.builds.build import BuildOptions, build_image
from jaxsif.builds.recipe import choose_source, read_recipe
from jaxsif.runtime import require_runtime

DESCRIPTION = """\
Build an image, unless it exists with the same inputs.

examples:
  jaxsif image build
  jaxsif image build --flavour cpu --base docker://python:3.13-slim
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif image build`."""
    parser.add_argument(
        "--flavour", default="cuda12", help="a file of containers/flavours, without .args (cuda12)"
    )
    parser.add_argument(
        "--source",
        metavar="FOLDER",
        help="the checkout with containers/ (this folder, else what comes with this launcher)",
    )
    parser.add_argument(
        "--output",
        default="build/images",
        metavar="FOLDER",
        help="the folder of finished images (build/images)",
    )
    parser.add_argument(
        "--cache",
        default="build/cache",
        metavar="FOLDER",
        help="the folder of base systems and wheels (build/cache)",
    )
    parser.add_argument(
        "--base", metavar="ADDRESS", help="build on docker://… or on a local image, with apt"
    )
    parser.add_argument("--force", action="store_true", help="build even if no input has changed")


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Build the image unless it is there."""
    recipe = read_recipe(choose_source(arguments.source), arguments.flavour)
    options = BuildOptions(
        runtime=require_runtime(environ),
        output=Path(arguments.output).resolve(),
        cache=Path(arguments.cache).resolve(),
        base=arguments.base,
        force=arguments.force,
    )
    build_image(recipe, options, environ, _show)
    return 0


def _show(line: str) -> None:
    print(line, flush=True)
