"""jaxsif bench plot: draw results."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from jaxsif.bench.plots import draw
from jaxsif.bench.results import read_results
from jaxsif.bench.runner import note
from jaxsif.errors import JaxsifError
from jaxsif.launch.pipeline import prepare
from jaxsif.plan.launcher import LOCAL
from jaxsif.settings.options import OPTIONS, add_arguments

DESCRIPTION = """\
Draw results on this machine, as PNG and SVG beside them, with the matplotlib
of the image or of a layer.

examples:
  jaxsif layer create bench matplotlib
        once
  jaxsif bench plot --layer bench bench-collectives-20260102-030405
"""
_USED = ("image", "layers")
_UNUSED = {option.key for option in OPTIONS if option.key not in _USED}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif bench plot`."""
    add_arguments(parser, leave_out=_UNUSED)
    parser.add_argument("results", metavar="FOLDER", help="a folder of jaxsif bench")


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Draw them, and print the names of the files; return the exit status."""
    said = vars(arguments)
    results = read_results(said.pop("results"), "FOLDER")
    container = prepare(
        {**said, "launcher": LOCAL, "compile_cache": False},
        ("python",),
        None,
        environ,
        note,
        _UNUSED,
    ).container
    names = draw(results.file.parent, container, environ)
    if not names:
        name = results.header["bench"]
        raise JaxsifError(
            f"there are no plots of jaxsif bench {name}", "FOLDER", "see its results.csv"
        )
    for name in names:
        print(results.file.parent / name)
    return 0
