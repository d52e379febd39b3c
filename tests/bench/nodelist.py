"""Slurm's node lists: jaxsif's reader beside `scontrol show hostnames`, on the same lists of 10,000 names.

Runs on the login node of the cluster in a box, see `make bench-nodes`; argument: the number of repeats (15).
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

sys.path.insert(0, os.path.join(os.environ["JAXSIF_HOME"], "lib"))
from jaxsif.job.nodelist import expand

NAMES = random.Random(7).sample(range(100_000), 10_000)
LISTS = {
    "n[00001-10000]": "n[00001-10000]",
    "rack[001-100]n[001-100]": "rack[001-100]n[001-100]",
    "10,000 numbers in one bracket": f"n[{','.join(f'{name:05}' for name in NAMES)}]",
    "10,000 names": ",".join(f"n{name:05}" for name in NAMES),
}


def show_hostnames(nodelist: str) -> tuple[str, ...]:
    """The names, by Slurm."""
    command = ["scontrol", "show", "hostnames", nodelist]
    return tuple(subprocess.run(command, capture_output=True, check=True, text=True).stdout.split())


def measure(function: Callable[[str], tuple[str, ...]], nodelist: str, repeats: int) -> float:
    """The median time of a call, in milliseconds."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        names = function(nodelist)
        times.append(time.perf_counter() - begin)
        assert len(names) == 10_000
    return statistics.median(times) * 1e3


def main() -> int:
    repeats = int(sys.argv[1]) if sys.argv[1:] else 15
    slower = 0
    for title, nodelist in LISTS.items():
        assert expand(nodelist) == show_hostnames(nodelist)
        ours, slurms = measure(expand, nodelist, repeats), measure(show_hostnames, nodelist, repeats)
        print(f"{title:30} jaxsif {ours:5.1f} ms   scontrol show hostnames {slurms:5.1f} ms   ({repeats} repeats)")
        slower += ours >= slurms
    return min(slower, 1)


if __name__ == "__main__":
    sys.exit(main())
