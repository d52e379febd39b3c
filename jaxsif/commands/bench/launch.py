"""jaxsif bench launch: what jaxsif run adds to a bare srun."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence

from jaxsif import process
from jaxsif.bench.runner import Bench, note, positive, run_bench
from jaxsif.bench.runner import add_options as add_bench_options
from jaxsif.errors import HostError
from jaxsif.job.allocation import Allocation
from jaxsif.launch.pipeline import make_plan, prepare
from jaxsif.plan.launcher import SRUN
from jaxsif.runtime import require_runtime
from jaxsif.settings.options import OPTIONS, count

DESCRIPTION = """\
Start `jaxsif run -- true` and the srun that it stands for, in turn, and compare the times.

examples:
  jaxsif bench launch
        one task on one node
  jaxsif bench launch --nodes=2 --ntasks-per-node=4 --pairs 50 --bound-ratio 1.45
        with exit status 1 when jaxsif run takes more than 1.45 times as long, by the medians
"""
# srun has the same ones, but for the image.
_USED = ("image", "nodes", "ntasks-per-node", "time", "partition", "account", "constraint")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `jaxsif bench launch`."""
    group = add_bench_options(
        parser, tuple(option.key for option in OPTIONS if option.key not in _USED)
    )
    group.add_argument(
        "--pairs", metavar="N", type=count, default=20, help="how often each of both is started"
    )
    group.add_argument(
        "--bound-ratio",
        metavar="RATIO",
        type=positive,
        help="fail when jaxsif run takes so many times as long",
    )


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Measure."""
    said = vars(arguments)
    pairs, bound = said.pop("pairs"), said.pop("bound_ratio")
    medians: dict[str, float] = {}

    def measure(bench: Bench) -> int:
        for name, times in _measure(_find_ways(bench), pairs, environ).items():
            medians[name] = statistics.median(times)
            figures = {
                "median": medians[name],
                "fastest": min(times),
                "slowest": max(times),
                "starts": pairs,
            }
            bench.add({"record": "way", "way": name, **figures})
        return 0

    status = run_bench("launch", arguments, environ, measure)
    ours, bare = medians.values()
    ratio = ours / bare
    print(f"difference of medians {(ours - bare) * 1e3:.0f} ms, ratio {ratio:.2f}")
    if bound is not None and ratio > bound:
        note(f"the ratio {ratio:.3f} is above --bound-ratio {bound:g}")
        return 1
    return status


def _find_ways(bench: Bench) -> dict[str, tuple[str, ...]]:
    """The two commands."""
    said = {
        **bench.said,
        "nodes": bench.said["nodes"] or 1,
        "ntasks_per_node": bench.said["ntasks_per_node"] or 1,
    }
    allocation = Allocation.from_environ(bench.environ)
    prepared = prepare({**said, "launcher": SRUN}, ("true",), allocation, bench.environ, bench.note)
    settings, container = (
        prepared.settings.values,
        prepared.require_container(),
    )  # also those of a jaxsif.toml
    bench.use(make_plan(prepared))
    bench.header.update(nodes=said["nodes"], processes=said["nodes"] * said["ntasks_per_node"])
    words = [f"--{key}={settings[key].value}" for key in _USED[1:] if key in settings]
    tasks, image = f"--ntasks={said['nodes'] * said['ntasks_per_node']}", container.image
    return {
        "jaxsif run": (*_ourselves(), "run", f"--image={image}", *words, "--", "true"),
        "bare srun": (
            SRUN,
            *words,
            tasks,
            require_runtime(bench.environ).command,
            "run",
            "--nv",
            image,
            "true",
        ),
    }


def _ourselves() -> tuple[str, ...]:
    """The command that we are."""
    return (sys.argv[0],) if os.access(sys.argv[0], os.X_OK) else (sys.executable, "-m", "jaxsif")


def _measure(
    ways: Mapping[str, Sequence[str]], pairs: int, environ: Mapping[str, str]
) -> dict[str, list[float]]:
    """The times of each way; they take turns, and who is first changes, so that a drift of the
    machine favours none.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(pairs + 1):
        for name in list(ways)[:: -1 if number % 2 else 1]:
            took = _seconds(ways[name], environ)
            if number:  # the first ones fill caches
                times[name].append(took)
    return times


def _seconds(argv: Sequence[str], environ: Mapping[str, str]) -> float:
    """Wall time of a command that must succeed."""
    begin = time.perf_counter()
    done = process.captured(argv, environ)
    took = time.perf_counter() - begin
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise HostError(f"cannot measure {argv[0]}: {last}", " ".join(argv), "run it by hand")
    return took
