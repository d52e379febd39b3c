"""What it costs a task to be watched: with and without --hang-timeout and --check-programs, in turns.

    module load jax/sif && python3 tests/bench/watch.py [PAIRS]

`make bench-watch` runs it in the cluster in a box, by `jaxsif run` with one task, and with two tasks that compile for
the devices of both: only such a program is reported, and the longer its text, the longer its digest takes. Each figure
is processor time of the first task itself (getrusage), or its memory; of each pair, the difference counts, and of all
pairs, the median. A start and a compile are medians in the task; the starts are those of further Pythons, which are
watched alike.

XLA takes up to 100 times as long for a program as the digest, and its times vary by more than a digest takes. So JAX
has each program in its compile cache, from a run before the pairs.

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
from pathlib import Path
from typing import NamedTuple

WATCHED = ("--hang-timeout=60", "--check-programs=warn")
UNWATCHED = ("--hang-timeout=off", "--check-programs=off")

COMMON = """
import json, os, resource, statistics, subprocess, sys, time

def spent(whose=resource.RUSAGE_SELF):
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime

def read_memory():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024

def use_cache():
    jax.config.update("jax_compilation_cache_dir", os.path.dirname(__file__) + "/cache")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
"""
ALONE = """
def start_one():
    begin = spent(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", ""], check=True)
    return spent(resource.RUSAGE_CHILDREN) - begin

start = statistics.median(start_one() for _ in range(20))
import jax, jax.numpy as jnp

use_cache()

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
print(json.dumps({"start": start, "compile": compiled, "step": step, "memory": read_memory()}))
"""

SPANNING = """
import jax, jax.numpy as jnp

def lower(terms):
    def program(x):
        for number in range(terms):
            x = x * (1.5 + number) + x
        return jnp.sum(x)
    return jax.jit(program).lower(argument)

def compile_one(lowered):
    begin = spent()
    lowered.compile()
    return spent() - begin

use_cache()
jax.distributed.initialize()
assert jax.process_count() == 2
mesh = jax.make_mesh((jax.device_count(),), ("x",))
sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
argument = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=sharding)
figures = {}
for name, terms in (("short", 2), ("long", 284)):
    first = lower(terms)
    first.compile()
    figures[name] = statistics.median(compile_one(lower(terms)) for _ in range(10))
    figures[f"{name} lines"] = len(first.as_text().splitlines())
figures["memory of two"] = read_memory()
if jax.process_index() == 0:
    print(json.dumps(figures))
"""
PROGRAMS = {1: ALONE, 2: SPANNING}  # by the number of tasks


class Bound(NamedTuple):
    """What the watched may cost more than the unwatched."""

    words: str
    unit: float  # of the figure, in the unit that is printed
    most: float
    relative: bool = False
    each_line: float = 0  # more than `most`, for each line of the program's text


BOUNDS = {
    "start": Bound("start of a task, ms", 1e3, 5),
    "compile": Bound("a compile, ms", 1e3, 1),
    "short": Bound("a compile of {} lines for two tasks, ms", 1e3, 1, each_line=0.0025),
    "long": Bound("a compile of {} lines for two tasks, ms", 1e3, 1, each_line=0.0025),
    "step": Bound("a loop of 1 ms steps, %", 100, 0.5, relative=True),
    "memory": Bound("memory, MB", 1, 2),
    "memory of two": Bound("memory of one of two tasks, MB", 1, 2),
}


def main(pairs: int) -> int:
    """Measure, print a line for each figure, and return the exit status."""
    with tempfile.TemporaryDirectory(dir=os.path.expanduser("~")) as folder:
        for tasks, program in PROGRAMS.items():
            Path(folder, f"{tasks}.py").write_text(COMMON + program)
        _measure(folder, UNWATCHED)  # fills the compile cache
        turns = [_take_turn(folder, number) for number in range(pairs)]
    return max([_judge(name, bound, turns) for name, bound in BOUNDS.items()])


def _take_turn(folder: str, number: int) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Return the figures of the unwatched and of the watched; each begins every second time."""
    ways = (UNWATCHED, WATCHED)
    order = ways if number % 2 == 0 else ways[::-1]
    figures = {way: _measure(folder, way) for way in order}
    return figures[UNWATCHED], figures[WATCHED]


def _measure(folder: str, way: Sequence[str]) -> Mapping[str, float]:
    """Return the figures of all programs."""
    figures: dict[str, float] = {}
    for tasks in PROGRAMS:
        figures.update(_run((*way, "--nodes=1", f"--ntasks={tasks}", "--", "python", f"{folder}/{tasks}.py")))
    return figures


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
    lines = int(turns[0][0].get(f"{name} lines", 0))
    most = bound.most + bound.each_line * lines
    verdict = "holds" if found <= most else "does NOT hold"
    words = bound.words.format(lines)
    print(f"{words:44} {found:+7.2f} (quartiles {quartiles}, bound {most:.4g})  {verdict}", flush=True)
    return int(found > most)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
