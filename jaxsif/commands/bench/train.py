"""jaxsif bench train: training steps in three modes, and on more and more processes."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from jaxsif.bench import train
from jaxsif.bench.runner import Bench, run_bench
from jaxsif.bench.runner import add_options as add_bench_options
from jaxsif.bench.units import find_others
from jaxsif.errors import JaxsifError
from jaxsif.limits import shorten
from jaxsif.settings.options import count

DESCRIPTION = """\
Train a model of slurm/train on one device (single), over a mesh of all devices
by jit (sharded) and by pmap. Print the time of a step, examples and
floating-point operations per second, and memory, and compare the losses. The
image needs flax and optax.

examples:
  jaxsif layer create ml flax optax orbax-checkpoint
        once
  jaxsif bench train --layer ml --scaling
        in a job: all modes on all its GPUs, and sharded on 1, 2, 4, ... processes, with the same \
work for each
  jaxsif bench train --layer ml --modes sharded --model transformer --precision bfloat16 \\
      --width 2048 --depth 16 --length 1024 --batch 64
        a share of the GPUs' peak
"""
_OPTIONS: dict[str, dict[str, Any]] = {
    "--modes": {
        "metavar": "LIST",
        "default": ",".join(train.MODES),
        "help": "which, separated by commas",
    },
    "--scaling": {
        "choices": (train.WEAK, train.STRONG),
        "nargs": "?",
        "const": train.WEAK,
        "help": "mode sharded on 1, 2, 4, ... processes, too (weak)",
    },
    "--model": {"choices": ("mlp", "transformer"), "default": "mlp"},
    "--precision": {
        "choices": ("float32", "bfloat16"),
        "default": "float32",
        "help": "of what is computed",
    },
}
# Options of slurm/train/train.py -> their defaults, and what they are.
_NUMBERS = {
    "width": (256, "features of the model; of the transformer, a multiple of 32"),
    "depth": (4, "its blocks or layers"),
    "length": (64, "tokens in an example of the transformer"),
    "batch": (256, "examples in a step, of all devices together"),
    "steps": (20, "how many; 2 or more"),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif bench train`."""
    numbers = {
        f"--{name}": {
            "metavar": "N",
            "type": count,
            "default": default,
            "help": f"{what} ({default})",
        }
        for name, (default, what) in _NUMBERS.items()
    }
    add_bench_options(parser, {**_OPTIONS, **numbers})


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Measure; return the exit status."""
    said = vars(arguments)
    names, scaling, batch = said["modes"].split(","), said["scaling"], said["batch"]
    unknown = find_others(names, train.MODES)
    if unknown:
        raise JaxsifError(f"no mode {shorten(unknown[0])!r}", "--modes", ", ".join(train.MODES))
    if scaling:
        names.append(train.SHARDED)
    modes = [mode for mode in train.MODES if mode in names]
    own = {name: said[name] for name in ("model", "precision", *_NUMBERS)}
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
