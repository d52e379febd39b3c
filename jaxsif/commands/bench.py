"""jaxsif bench …: measure, compare and plot."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial

from jaxsif.bench import startup, train
from jaxsif.bench.collectives import (
    OPERATIONS,
    add_bandwidths,
    find_links,
    find_slow_nodes,
    parse_bytes,
    parse_sizes,
    render_blame,
)
from jaxsif.bench.compare import comparison_as_json
from jaxsif.bench.kinds import find_others
from jaxsif.bench.plots import draw
from jaxsif.bench.results import read_results
from jaxsif.bench.runner import Bench, run_bench, show_comparison
from jaxsif.commands import JSON, CommandGroup, Options, all_of, argument, titled
from jaxsif.container.environment import CACHE
from jaxsif.errors import JaxsifError
from jaxsif.job.allocation import Allocation
from jaxsif.job.srun_options import add_srun_options
from jaxsif.launch.pipeline import prepare
from jaxsif.plan.launcher import LOCAL
from jaxsif.screen import note, print_json
from jaxsif.settings.options import OF_RESTARTS, OPTIONS, add_arguments, count
from jaxsif.text import shorten

VERBS = CommandGroup()


def positive(text: str) -> float:
    """Return a number above 0, for argparse."""
    try:
        number = float(text) if text.isascii() and "_" not in text else 0.0
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"not a number above 0: {shorten(text)!r}")
    return number


_COMPARISON = all_of(
    argument(
        "--tolerance",
        metavar="PERCENT",
        type=positive,
        default=10.0,
        help="report a figure as worse if it is worse by more than this (10)",
    ),
    argument("--fail", action="store_true", help="exit with status 1 if anything got worse"),
)


def _measuring(*own: Options, leave_out: tuple[str, ...] = ()) -> Options:
    """Combine the options of `jaxsif run`, except `leave_out`, with a benchmark's own and those for
    its results.
    """
    # The lines of a benchmark's records have no labels, and no benchmark starts again.
    left_out = ("label", *OF_RESTARTS, *leave_out)
    return all_of(
        partial(add_arguments, leave_out=left_out),
        titled("what to measure", *own),
        titled(
            "the results",
            argument("--output", metavar="FOLDER", help="a new folder for the results"),
            argument("--against", metavar="FILE", help="compare with older results"),
            _COMPARISON,
        ),
        add_srun_options,
    )


# A node is slow if it has less than this fraction of the median bandwidth.
_SLOW = 0.5


@VERBS.verb(
    "collectives",
    """\
Measure JAX's collectives across all devices, and the links between neighbouring
nodes: time, algorithm bandwidth and bus bandwidth, as nccl-tests defines them.
jaxsif checks each result with NumPy.

examples:
  jaxsif bench collectives
        in a job: across all its nodes and GPUs
  jaxsif bench collectives -N 2 --gpus-per-node=4 --operations all-reduce
        from a login node
  jaxsif bench collectives --layer bench --against bench-collectives-20260102
        plot with matplotlib from a layer; compare with older results
""",
    _measuring(
        argument(
            "--operations",
            metavar="LIST",
            default=",".join(OPERATIONS),
            help="the operations to measure, separated by commas",
        ),
        argument(
            "--sizes",
            metavar="RANGE",
            default="1KiB-1GiB",
            help="the sizes to measure: 1KiB-1MiB, or a list; 1KiB-1GiB unless given",
        ),
        argument(
            "--iterations",
            metavar="N",
            type=count,
            default=0,
            help="iterations for each size (default: as many as fit in --seconds)",
        ),
        argument(
            "--seconds",
            metavar="S",
            type=positive,
            default=1.0,
            help="how long to measure each size",
        ),
        argument(
            "--link-size",
            metavar="SIZE",
            default="4MiB",
            help="how much data a device sends over a link",
        ),
    ),
)
def _collectives(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    unknown = find_others(arguments.operations.split(","), OPERATIONS)
    if unknown:
        raise JaxsifError(
            f"unknown operation {shorten(unknown[0])!r}", "--operations", ", ".join(OPERATIONS)
        )
    program = (
        "collectives.py",
        arguments.operations,
        ",".join(map(str, parse_sizes(arguments.sizes, "--sizes"))),
        str(arguments.iterations),
        str(arguments.seconds),
        str(parse_bytes(arguments.link_size, "--link-size")),
    )

    def measure(bench: Bench) -> int:
        status = bench.run(
            *program, refine=lambda record: add_bandwidths(record, bench.header["devices"])
        )
        note(*render_blame(find_slow_nodes(find_links(bench.records), _SLOW)))
        return status

    return run_bench("collectives", arguments, environ, measure)


# Options of slurm/train/train.py -> their defaults and help.
_TRAIN_NUMBERS = {
    "width": (256, "width of the model (features); for the transformer, a multiple of 32"),
    "depth": (4, "number of blocks or layers in the model"),
    "length": (64, "tokens per example, for the transformer"),
    "batch": (256, "examples per step, on all devices together"),
    "steps": (20, "training steps; at least 2"),
}


@VERBS.verb(
    "train",
    """\
Train a model from slurm/train on one device (single), across a mesh of all
devices with jit (sharded), and with pmap. Print the time per step, examples and
floating-point operations per second, and memory use, and compare the losses.
The image needs flax and optax.

examples:
  jaxsif layer create ml flax optax orbax-checkpoint
        once
  jaxsif bench train --layer ml --scaling
        in a job: all modes on all its GPUs, and sharded on 1, 2, 4, ...
        processes, with the same work for each
  jaxsif bench train --layer ml --modes sharded --model transformer \\
      --precision bfloat16 --width 2048 --depth 16 --length 1024 --batch 64
        also shows the share of the GPUs' peak performance
""",
    _measuring(
        argument(
            "--modes",
            metavar="LIST",
            default=",".join(train.MODES),
            help="the modes to measure, separated by commas",
        ),
        argument(
            "--scaling",
            choices=(train.WEAK, train.STRONG),
            nargs="?",
            const=train.WEAK,
            help="also measure the sharded mode on 1, 2, 4, ... processes (weak scaling)",
        ),
        argument("--model", choices=("mlp", "transformer"), default="mlp"),
        argument(
            "--precision",
            choices=("float32", "bfloat16"),
            default="float32",
            help="the precision of the computation",
        ),
        *(
            argument(
                f"--{name}", metavar="N", type=count, default=default, help=f"{what} ({default})"
            )
            for name, (default, what) in _TRAIN_NUMBERS.items()
        ),
    ),
)
def _train(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    options = vars(arguments)
    names, scaling, batch = options["modes"].split(","), options["scaling"], options["batch"]
    unknown = find_others(names, train.MODES)
    if unknown:
        what = f"unknown mode {shorten(unknown[0])!r}"
        raise JaxsifError(what, "--modes", ", ".join(train.MODES))
    if scaling:
        names.append(train.SHARDED)
    modes = [mode for mode in train.MODES if mode in names]
    own = {name: options[name] for name in ("model", "precision", *_TRAIN_NUMBERS)}
    words = [f"--{name}={own[name]}" for name in find_others(own, ("batch",))]

    def measure(bench: Bench) -> int:
        bench.header["model"] = ", ".join(f"{name} {value}" for name, value in own.items())
        most = train.find_processes(bench)
        train.check_batch(most, batch)
        status = train.measure(bench, train.plan_runs(most, modes, scaling, batch), words)
        if status == 0:
            print(train.compare_losses(bench.records))
        return status

    return run_bench("train", arguments, environ, measure)


_VARIANTS = ",".join(startup.VARIANTS)


@VERBS.verb(
    "startup",
    """\
Start a small JAX program in different ways, and show the time of each phase in
every task, from the command to the first all-reduce: launcher, container,
Python, import, initialize, devices, first compile, first collective.

examples:
  jaxsif bench startup --nodes=2 --gpus-per-node=4
  jaxsif bench startup --variants=node,stage --rounds=3
        in a job: also with the image on the nodes' own disks
""",
    _measuring(
        argument(
            "--variants",
            metavar="LIST",
            default=_VARIANTS,
            help=f"one or more of {_VARIANTS} (all that can run here)",
        ),
        argument(
            "--rounds",
            metavar="N",
            type=count,
            default=2,
            help="how many times to run each (2)",
        ),
        argument(
            "--depth",
            metavar="N",
            type=count,
            default=8,
            help="number of layers in the compiled program (8)",
        ),
        # The variants set them.
        leave_out=("containers", "stage", "compile-cache", "compile-cache-folder"),
    ),
)
def _startup(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    options = vars(arguments)
    text, rounds, depth = options.pop("variants"), options.pop("rounds"), options.pop("depth")
    variants, missing = startup.parse_variants(text, Allocation.from_environ(environ) is not None)
    for name in missing:
        note(f"variant {name} is left out: it needs a job, such as one from salloc")
    environ = dict(environ)
    environ.pop(CACHE, None)  # the user's own, which is already warm

    def measure(bench: Bench) -> int:
        return startup.measure(bench, variants, rounds, depth)

    return run_bench("startup", arguments, environ, measure)


@VERBS.verb(
    "compare",
    """\
Print the figures of two sets of results with their ratios, and list the worse
ones and the nodes with slow links.

example:
  jaxsif bench compare bench-collectives-20260102 bench-collectives-20260203
""",
    argument("old", metavar="A", help="older results: their folder, or its results.jsonl"),
    argument("new", metavar="B", help="newer results"),
    _COMPARISON,
    JSON,
    epilog="""\
exit status:
  0  compared; 1 with --fail, if a figure got worse
""",
)
def _compare(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    old, new = read_results(arguments.old, "A"), read_results(arguments.new, "B")
    if not arguments.json:
        return show_comparison(old, new, arguments.tolerance, arguments.fail)
    comparison = comparison_as_json(old, new, arguments.tolerance / 100)
    print_json(comparison)
    return int(comparison["worse"] and arguments.fail)


_USED = ("image", "layers")
_UNUSED = {option.key for option in OPTIONS if option.key not in _USED}


@VERBS.verb(
    "plot",
    """\
Plot results on this machine, as PNG and SVG files next to them, with matplotlib
from the image or a layer.

examples:
  jaxsif layer create bench matplotlib
        once
  jaxsif bench plot --layer bench bench-collectives-20260102
""",
    partial(add_arguments, leave_out=_UNUSED),
    argument("results", metavar="FOLDER", help="a results folder of jaxsif bench"),
)
def _plot(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """Plot the results, and print the names of the files."""
    options = vars(arguments)
    results = read_results(options.pop("results"), "FOLDER")
    container = prepare(
        {**options, "launcher": LOCAL, "compile_cache": False},
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
            f"there are no plots for jaxsif bench {name}", "FOLDER", "see its results.csv"
        )
    for name in names:
        print(results.file.parent / name)
