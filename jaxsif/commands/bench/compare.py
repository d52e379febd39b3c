"""jaxsif bench compare: two results of one benchmark."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from jaxsif.bench.compare import comparison_as_json
from jaxsif.bench.results import read_results
from jaxsif.bench.runner import add_comparison, show_comparison
from jaxsif.screen import add_json, print_json

DESCRIPTION = """\
Print the figures of two results with their ratios, and name what got worse,
such as a node with slow links.

example:
  jaxsif bench compare bench-collectives-20260102-030405 bench-collectives-20260203-040506
"""

EPILOG = """\
exit status:
  0  compared; 1 with --fail, if a figure got worse
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif bench compare`."""
    parser.add_argument(
        "old", metavar="A", help="older results: their folder, or its results.jsonl"
    )
    parser.add_argument("new", metavar="B", help="newer results")
    add_comparison(parser)
    add_json(parser)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Compare them; return the exit status."""
    old, new = read_results(arguments.old, "A"), read_results(arguments.new, "B")
    if not arguments.json:
        return show_comparison(old, new, arguments.tolerance, arguments.fail)
    found = comparison_as_json(old, new, arguments.tolerance / 100)
    print_json(found)
    return int(found["worse"] and arguments.fail)
