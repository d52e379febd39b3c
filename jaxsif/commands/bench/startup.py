"""jaxsif bench startup: where the seconds of a start go."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from jaxsif.bench import startup
from jaxsif.bench.runner import add_options as add_bench_options
from jaxsif.bench.runner import note, run_bench
from jaxsif.container.environment import CACHE
from jaxsif.job.allocation import Allocation
from jaxsif.settings.options import count

DESCRIPTION = """\
Start a small JAX program in different ways, and tell where the seconds go, from the command to the first all-reduce,
in every task: launcher, container, Python, import, initialize, devices, first compile, first collective.

examples:
  jaxsif bench startup --nodes=2 --gpus-per-node=4
  jaxsif bench startup --variants=node,stage --rounds=3
        in a job: with the image on the nodes' own disks, too
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `jaxsif bench startup`."""
    # What the variants set.
    leave_out = ("containers", "stage", "compile-cache", "compile-cache-folder")
    what = add_bench_options(parser, leave_out)
    names = ",".join(startup.VARIANTS)
    what.add_argument(
        "--variants", default=names, metavar="LIST", help=f"some of {names} (all that can be here)"
    )
    what.add_argument(
        "--rounds", type=count, default=2, metavar="N", help="how often each has its turn (2)"
    )
    what.add_argument(
        "--depth",
        type=count,
        default=8,
        metavar="N",
        help="layers of the program that is compiled (8)",
    )


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Measure."""
    said = vars(arguments)
    text, rounds, depth = said.pop("variants"), said.pop("rounds"), said.pop("depth")
    variants, missing = startup.parse_variants(text, Allocation.from_environ(environ) is not None)
    for name in missing:
        note(f"variant {name} is left out: it needs a job, such as one of salloc")
    # Of one's own: it is warm already.
    environ = {name: value for name, value in environ.items() if name != CACHE}
    return run_bench(
        "startup", arguments, environ, lambda bench: startup.measure(bench, variants, rounds, depth)
    )
