"""Healthy programs that go on for a minute and more, watched each few seconds: nobody speaks of a hang.

The programs of slurm/ that end by themselves are watched in test_examples*.py.
"""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from drills import HANG, OVER, PATIENCE, SAID, SHAPE, Line, Told
from harness import Cluster

SECONDS = 65
ENDED = 124  # by `timeout`
AT_ONCE = 3  # runs; with more, the tests' machine is what is slow
WATCHED = " ".join([*SHAPE, f"--hang-timeout={PATIENCE}", "--layer=ml"])
RUN = f"exec timeout --foreground {SECONDS} jaxsif run {WATCHED} -- python"
BENCH = f"exec timeout --foreground {SECONDS} jaxsif bench"
SMALL = "--width=32 --depth=1 --batch=32 --steps=100000000"
DATA = "jaxsif run --nodes=1 -- python make_data.py rows --rows=60000 >made"
# Name -> folder of slurm/, and the script that is run there.
LONGS = {
    "mlp": ("train", f"{RUN} train.py {SMALL}"),
    "transformer": ("train", f"{RUN} train.py --model=transformer --length=16 {SMALL}"),
    "checkpoint": ("checkpoint", f"{RUN} train_and_resume.py new --steps=100000000 --every=100"),
    "data": ("data", f"{DATA} && {RUN} four_ways.py rows --batch-size=4"),
    "profile": ("profile", f"{RUN} trace_steps.py traces --steps=100000000"),
    "bench-collectives": ("", f"{BENCH} collectives {WATCHED} --sizes=1MiB --iterations=1000000"),
    "bench-train": ("", f"{BENCH} train {WATCHED} --modes=sharded {SMALL}"),
}


@pytest.fixture(scope="module")
def done(cluster: Cluster, layer: str) -> dict[str, subprocess.CompletedProcess[str]]:
    """All runs, a few at once."""
    assert layer == "ml"
    load = "module load jax/sif && folder=$(mktemp -d ~/long.XXXXXX) && trap 'rm -rf $folder' EXIT"
    copy = 'cp -r "$JAXSIF_HOME/slurm" $folder && cd $folder/slurm'

    def run(name: str) -> subprocess.CompletedProcess[str]:
        where, script = LONGS[name]
        return cluster.run(f"{load} && {copy}/{where} && ({script})", timeout=4 * SECONDS)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(LONGS, pool.map(run, LONGS)))


@pytest.mark.parametrize("name", LONGS)
def test_nobody_speaks_of_a_hang(done: dict[str, subprocess.CompletedProcess[str]], name: str) -> None:
    """Where a wait is told, so is its end; `timeout` may come before that."""
    one = done[name]
    assert one.returncode == ENDED, one.stdout + one.stderr
    told = Told("", {}, tuple(Line(0.0, line) for line in one.stderr.splitlines()))
    assert told.find(HANG) == [], told.text
    assert told.find(r"^jaxsif: tasks were at \S+/(slurm|jaxsif)/\S+:\d+ \(task"), told.text  # so they ran
    assert len(told.find(SAID)) - len(told.find(OVER)) in (0, 1), told.text
