"""jaxsif bench collectives: how fast the devices exchange data."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from jaxsif.bench.bandwidth import OPERATIONS, complete_record
from jaxsif.bench.links import find_links, find_slow_nodes, render_blame
from jaxsif.bench.runner import Bench, note, positive, run_bench
from jaxsif.bench.runner import add_options as add_bench_options
from jaxsif.bench.units import find_others, parse_bytes, parse_sizes
from jaxsif.errors import JaxsifError
from jaxsif.limits import shorten
from jaxsif.settings.options import count

# A node is called slow when it has less than this part of the median bandwidth.
_SLOW = 0.5

DESCRIPTION = """\
Measure JAX's collectives over all devices, and the links between neighbouring
nodes: time, algorithm and bus bandwidth as nccl-tests defines them. jaxsif
checks each result with NumPy.

examples:
  jaxsif bench collectives
        in a job: over all its nodes and GPUs
  jaxsif bench collectives --nodes=2 --gpus-per-node=4 --operations all-reduce --sizes 1MiB-1GiB
        from a login node
  jaxsif bench collectives --layer bench --against bench-collectives-20260102-030405
        draw with the matplotlib of a layer; compare with older results
"""


_OPTIONS: dict[str, dict[str, Any]] = {
    "--operations": {
        "metavar": "LIST",
        "default": ",".join(OPERATIONS),
        "help": "which, separated by commas",
    },
    "--sizes": {
        "metavar": "RANGE",
        "default": "1KiB-1GiB",
        "help": "from one to another, or a list",
    },
    "--iterations": {
        "metavar": "N",
        "type": count,
        "default": 0,
        "help": "of each; else as many as fit in --seconds",
    },
    "--seconds": {
        "metavar": "S",
        "type": positive,
        "default": 1.0,
        "help": "how long to measure each size",
    },
    "--link-size": {
        "metavar": "SIZE",
        "default": "4MiB",
        "help": "what a device sends over a link",
    },
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif bench collectives`."""
    add_bench_options(parser, _OPTIONS)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Measure; return the exit status."""
    unknown = find_others(arguments.operations.split(","), OPERATIONS)
    if unknown:
        raise JaxsifError(
            f"no operation {shorten(unknown[0])!r}", "--operations", ", ".join(OPERATIONS)
        )
    sizes = parse_sizes(arguments.sizes, "--sizes")
    program = (
        "collectives.py",
        arguments.operations,
        ",".join(map(str, sizes)),
        str(arguments.iterations),
        str(arguments.seconds),
        str(parse_bytes(arguments.link_size, "--link-size")),
    )

    def measure(bench: Bench) -> int:
        status = bench.run(
            *program, refine=lambda record: complete_record(record, bench.header["devices"])
        )
        for line in render_blame(find_slow_nodes(find_links(bench.records), _SLOW)):
            note(line)
        return status

    return run_bench("collectives", arguments, environ, measure)
