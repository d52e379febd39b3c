"""What it costs a task to be watched: with and without --hang-timeout and --check-programs, in turns.

    module load jax/sif && python3 tests/bench/watch.py [PAIRS]

`make bench-watch` runs it in the cluster in a box, by `jaxsif run` with one task. Each figure is processor time of the
task itself (getrusage), or its memory; of each pair, the difference counts, and of all pairs, the median. A start and a
compile are the median of 20 in the task; the starts are those of further Pythons, which are watched alike.

exit status: 0 all bounds hold, 1 one does not, 2 something failed
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

WATCHED = ("--hang-timeout=60", "--check-programs=warn")
UNWATCHED = ("--hang-timeout=off", "--check-programs=off")

PROGRAM = """
import json, resource, statistics, subprocess, sys, time

def spent(whose=resource.RUSAGE_SELF):
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime

def start_one():
    begin = spent(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", ""], check=True)
    return spent(resource.RUSAGE_CHILDREN) - begin

start = statistics.median(start_one() for _ in range(20))
import jax, jax.numpy as jnp

def compile_one():
    begin = spent()
    jax.jit(lambda x: jnp.sum(jnp.sin(x) * 2 + x))(jnp.ones((64, 64))).block_until_ready()
    return spent() - begin

compile_one()
compiled = statistics.median(compile_one() for _ in range(20))
begin, steps = spent(), 5000
for _ in range(steps):
    end = time.thread_time() + 0.001
    while time.thread_time() < end:
        pass
step = (spent() - begin) / steps
with open("/proc/self/status") as file:
    memory = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
print(json.dumps({"start": start, "compile": compiled, "step": step, "memory": memory / 1024}))
"""


class Bound(NamedTuple):
    """What the watched may cost more than the unwatched."""

    words: str
    unit: float  # of the figure, in the unit that is printed
    most: float
    relative: bool = False


BOUNDS = {
    "start": Bound("start of a task, ms", 1e3, 5),
    "compile": Bound("a compile, ms", 1e3, 1),
    "step": Bound("a loop of 1 ms steps, %", 100, 0.5, relative=True),
    "memory": Bound("memory, MB", 1, 2),
}


def main(pairs: int) -> int:
    """Measure, print a line for each figure, and return the exit status."""
    with tempfile.NamedTemporaryFile("w", suffix=".py", dir=os.path.expanduser("~")) as file:
        file.write(PROGRAM)
        file.flush()
        turns = [_take_turn(file.name, number) for number in range(pairs)]
    return max([_judge(name, bound, turns) for name, bound in BOUNDS.items()])


def _take_turn(program: str, number: int) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Return the figures of the unwatched and of the watched; each begins every second time."""
    ways = (UNWATCHED, WATCHED)
    order = ways if number % 2 == 0 else ways[::-1]
    figures = {way: _run((*way, "--nodes=1", "--ntasks=1", "--", "python", program)) for way in order}
    return figures[UNWATCHED], figures[WATCHED]


def _run(words: Sequence[str]) -> Mapping[str, float]:
    done = subprocess.run(["jaxsif", "run", *words], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(2)
    figures: Mapping[str, float] = json.loads(done.stdout)
    return figures


def _judge(name: str, bound: Bound, turns: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> int:
    """Print the median of the differences, and return 1 where it is more than it may be."""
    differences = [(after[name] - before[name]) / (before[name] if bound.relative else 1) for before, after in turns]
    found = statistics.median(differences) * bound.unit
    low, _, high = statistics.quantiles(differences, n=4)
    quartiles = f"{low * bound.unit:+.2f} to {high * bound.unit:+.2f}"
    verdict = "holds" if found <= bound.most else "does NOT hold"
    print(f"{bound.words:26} {found:+7.2f} (quartiles {quartiles}, bound {bound.most})  {verdict}", flush=True)
    return int(found > bound.most)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
