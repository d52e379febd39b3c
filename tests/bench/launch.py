"""The launcher's own cost: `jaxsif run -- true` beside the bare srun that it stands for, in alternation.

Runs on the login node of the cluster in a box, see `make bench-launch`; argument: the number of pairs (20).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

IMAGE = os.environ["JAX_IMAGE"]
COMMANDS = {
    "jaxsif run": ["jaxsif", "run", "--nodes=1", "--ntasks-per-node=1", "--", "true"],
    "bare srun": ["srun", "-N1", "-n1", "singularity", "run", "--nv", IMAGE, "true"],
}
BOUND = 0.060  # seconds


def measure(argv: list[str]) -> float:
    """Wall time of one run, in seconds."""
    begin = time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def main() -> int:
    pairs = int(sys.argv[1]) if sys.argv[1:] else 20
    for argv in COMMANDS.values():
        measure(argv)  # once to warm caches
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(pairs):
        for name, argv in COMMANDS.items():
            times[name].append(measure(argv))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, values in times.items():
        extremes = f"fastest {min(values) * 1e3:5.0f}   slowest {max(values) * 1e3:5.0f}"
        print(f"{name:12} median {medians[name] * 1e3:5.0f} ms   {extremes}")
    difference = medians["jaxsif run"] - medians["bare srun"]
    ratio = medians["jaxsif run"] / medians["bare srun"]
    print(
        f"difference of medians {difference * 1e3:.0f} ms (bound: {BOUND * 1e3:.0f}), ratio {ratio:.2f}, {pairs} pairs"
    )
    return difference > BOUND


if __name__ == "__main__":
    sys.exit(main())
