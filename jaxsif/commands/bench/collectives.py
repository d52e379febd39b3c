"""jaxsif bench collectives: how fast the devices exchange data."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from jaxsif.bench.bandwidth import OPERATIONS, add_bandwidths
from jaxsif.bench.links import find_slow_nodes, render_blame
from jaxsif.bench.results import Record
from jaxsif.bench.runner import Bench, note, positive, run_bench
from jaxsif.bench.runner import add_options as add_bench_options
from jaxsif.bench.units import parse_bytes, parse_sizes
from jaxsif.errors import JaxsifError
from jaxsif.settings.options import count

_SLOW = 0.5  # a node is called slow when it has less than this part of the median bandwidth

DESCRIPTION = """\
Measure JAX's collectives over all devices, and the links between neighbouring nodes: time, algorithm and bus bandwidth
as nccl-tests defines them. Each result is checked against NumPy.

examples:
  jaxsif bench collectives
        in a job: over all its nodes and GPUs
  jaxsif bench collectives --nodes=2 --gpus-per-node=4 --operations all-reduce --sizes 1MiB-1GiB
        from a login node
  jaxsif bench collectives --layer bench --against bench-collectives-20260102-030405
        drawn by the matplotlib of a layer; what is worse than in older results
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `jaxsif bench collectives`."""
    group = add_bench_options(parser)
    group.add_argument(
        "--operations",
        metavar="LIST",
        default=",".join(OPERATIONS),
        help="which, separated by commas",
    )
    group.add_argument(
        "--sizes", metavar="RANGE", default="1KiB-1GiB", help="from one to another, or a list"
    )
    group.add_argument(
        "--iterations",
        metavar="N",
        type=count,
        default=0,
        help="of each; else as many as fit in --seconds",
    )
    group.add_argument(
        "--seconds", metavar="S", type=positive, default=1.0, help="how long to measure each size"
    )
    group.add_argument(
        "--link-size", metavar="SIZE", default="4MiB", help="what a device sends over a link"
    )


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Measure."""
    operations = arguments.operations.split(",")
    unknown = [name for name in operations if name not in OPERATIONS]
    if unknown:
        raise JaxsifError(f"no operation {unknown[0]!r}", "--operations", ", ".join(OPERATIONS))
    sizes = parse_sizes(arguments.sizes, "--sizes")
    program = ["collectives.py", arguments.operations, ",".join(map(str, sizes))]
    program += [
        str(arguments.iterations),
        str(arguments.seconds),
        str(parse_bytes(arguments.link_size, "--link-size")),
    ]

    def measure(bench: Bench) -> int:
        def refine(record: Record) -> Record:
            return (
                add_bandwidths(record, bench.header["devices"])
                if record["record"] == "operation"
                else record
            )

        status = bench.run(*program, refine=refine)
        links = {
            (one["from"], one["to"]): one["bandwidth"]
            for one in bench.records
            if one["record"] == "link"
        }
        for line in render_blame(find_slow_nodes(links, _SLOW)):
            note(line)
        return status

    return run_bench("collectives", arguments, environ, measure)
