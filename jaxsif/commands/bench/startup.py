"""jaxsif bench startup: where the seconds of a start go."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from jaxsif.bench import startup
from jaxsif.bench.runner import Bench, note, run_bench
from jaxsif.bench.runner import add_options as add_bench_options
from jaxsif.container.environment import CACHE
from jaxsif.job.allocation import Allocation
from jaxsif.settings.options import count

DESCRIPTION = """\
Start a small JAX program in different ways, and show the time of each phase in
every task, from the command to the first all-reduce: launcher, container,
Python, import, initialize, devices, first compile, first collective.

examples:
  jaxsif bench startup --nodes=2 --gpus-per-node=4
  jaxsif bench startup --variants=node,stage --rounds=3
        in a job: with the image on the nodes' own disks, too
"""


_NAMES = ",".join(startup.VARIANTS)
_OPTIONS: dict[str, dict[str, Any]] = {
    "--variants": {
        "metavar": "LIST",
        "default": _NAMES,
        "help": f"some of {_NAMES} (all that can be here)",
    },
    "--rounds": {
        "metavar": "N",
        "type": count,
        "default": 2,
        "help": "how often each has its turn (2)",
    },
    "--depth": {
        "metavar": "N",
        "type": count,
        "default": 8,
        "help": "layers of the program that is compiled (8)",
    },
}
_SET_BY_VARIANTS = ("containers", "stage", "compile-cache", "compile-cache-folder")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif bench startup`."""
    add_bench_options(parser, _OPTIONS, _SET_BY_VARIANTS)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Measure; return the exit status."""
    said = vars(arguments)
    text, rounds, depth = said.pop("variants"), said.pop("rounds"), said.pop("depth")
    variants, missing = startup.parse_variants(text, Allocation.from_environ(environ) is not None)
    for name in missing:
        note(f"variant {name} is left out: it needs a job, such as one of salloc")
    environ = dict(environ)
    environ.pop(CACHE, None)  # the user's own, which is warm already

    def measure(bench: Bench) -> int:
        return startup.measure(bench, variants, rounds, depth)

    return run_bench("startup", arguments, environ, measure)
