"""What `jaxsif run` adds to a bare srun of the container.

    python3 launch.py [--nodes N] [--ntasks-per-node N] [--pairs N] [--bound-ratio RATIO] [-- COMMAND [ARGUMENT...]]

Runs on the login node of the cluster in a box, where the module jax/sif is loaded: see `make bench-launch` and
`make bench-output`. `jaxsif run -- true` and the `srun ... apptainer run --nv IMAGE true` that it stands for take
turns; or, instead of `true`, another command, whose output is read from a pipe.

exit status: 0; 1 when a command fails, or when the ratio of the medians is above --bound-ratio
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

OURS, BARE = "jaxsif run", "bare srun"


def main() -> int:
    """Measure, and print the times of both ways."""
    options = parse_options(sys.argv[1:])
    ways = find_ways(options, os.environ["JAX_IMAGE"])
    times = take_turns(ways, options.pairs)
    print("\n".join(render_table(times)))
    return judge(times, options.bound_ratio)


def parse_options(argv: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", metavar="N", type=int, default=1, help="number of nodes (1)")
    parser.add_argument("--ntasks-per-node", metavar="N", type=int, default=1, help="tasks on each node (1)")
    parser.add_argument("--pairs", metavar="N", type=int, default=20, help="how often each way is measured (20)")
    parser.add_argument("--bound-ratio", metavar="RATIO", type=float, default=float("inf"), help="what ratio may be")
    parser.add_argument("command", nargs="*", default=["true"], help="what each task executes (true)")
    return parser.parse_args(argv)


def find_ways(options: argparse.Namespace, image: str) -> dict[str, tuple[str, ...]]:
    """Return the two commands, by their names."""
    layout = (f"--nodes={options.nodes}", f"--ntasks-per-node={options.ntasks_per_node}")
    tasks = f"--ntasks={options.nodes * options.ntasks_per_node}"
    return {
        OURS: ("jaxsif", "run", f"--image={image}", *layout, "--", *options.command),
        BARE: ("srun", *layout, tasks, "apptainer", "run", "--nv", image, *options.command),
    }


def take_turns(ways: Mapping[str, Sequence[str]], pairs: int) -> dict[str, list[float]]:
    """Return the times of each way in seconds; who is first changes, so that a drift of the machine favours neither."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(pairs + 1):
        for name in list(ways)[:: -1 if number % 2 else 1]:
            took = run(ways[name])
            if number:  # the first pair fills caches
                times[name].append(took)
    return times


def run(argv: Sequence[str]) -> float:
    """Return the seconds that a command takes, which must succeed."""
    begin = time.perf_counter()
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    took = time.perf_counter() - begin
    if done.returncode:
        sys.exit(f"{' '.join(argv)}: exit status {done.returncode}\n{done.stderr[-2000:]}")
    return took


def render_table(times: Mapping[str, Sequence[float]]) -> list[str]:
    """Return a heading, and a line for each way."""
    rows = [
        (name, *(f"{1e3 * figure:.2f} ms" for figure in (statistics.median(some), min(some), max(some))), len(some))
        for name, some in times.items()
    ]
    table = [("way", "median", "fastest", "slowest", "starts"), *rows]
    return ["{:12}  {:>11}  {:>11}  {:>11}  {}".format(*row) for row in table]


def judge(times: Mapping[str, Sequence[float]], bound: float) -> int:
    """Print how far the medians are from each other; return 1 when their ratio is above the bound."""
    ours, bare = statistics.median(times[OURS]), statistics.median(times[BARE])
    ratio = ours / bare
    print(f"difference of medians {(ours - bare) * 1e3:.0f} ms, ratio {ratio:.2f}")
    if ratio > bound:
        print(f"the ratio {ratio:.3f} is above --bound-ratio {bound:g}", file=sys.stderr)
    return int(ratio > bound)


if __name__ == "__main__":
    sys.exit(main())
