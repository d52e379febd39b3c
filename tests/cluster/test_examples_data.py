"""slurm/data: four ways of loading give the same batches, and each process reads what it should."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from examples import Layout, on_each_layout, run_program
from harness import Cluster, program_lines

ROWS, STEPS, BATCH = 10_003, 10, 1024
MEAN = "0.50018"  # of the features, which NumPy draws alike everywhere


@pytest.fixture(scope="module")
def dataset(cluster: Cluster) -> Iterator[str]:
    """The files that make_data.py writes by itself."""
    path = cluster.check("mktemp -d ~/dataset.XXXXXX").strip()
    make = f'cd "$JAXSIF_HOME/slurm/data" && jaxsif run --nodes=1 -- python make_data.py {path}/rows'
    assert cluster.check(f"module load jax/sif && {make}") == f"{ROWS} rows in {path}/rows: 10.3 MB\n"
    yield f"{path}/rows"
    cluster.check(f"rm -r {path}")


@on_each_layout
def test_four_ways(cluster: Cluster, programs: str, dataset: str, layout: Layout) -> None:
    lines = run_program(cluster, programs, layout, ["data/four_ways.py", dataset])
    check(lines, layout.processes)


def test_job_script(cluster: Cluster, programs: str) -> None:
    log = cluster.submit(f"{programs}/slurm/data", "four_ways.sbatch", "four_ways-*.out")
    lines = program_lines(log)
    assert lines.pop(0) == f"{ROWS} rows in dataset: 10.3 MB"
    check(lines, processes=8)


def check(lines: list[str], processes: int) -> None:
    """The whole batch is read where it must be, else a process's part; the program holds the numbers against NumPy."""
    means = [f"Process {p} saw {ROWS} rows in each way, their mean is {MEAN}" for p in range(processes)]
    assert [line for line in lines if line.startswith("Process")] == means
    ways = [line for line in lines if line not in means]
    pattern = rf"(\w+): an epoch of {STEPS} batches in \d+\.\d+ s, process 0 read (\d+) rows"
    read = dict(re.fullmatch(pattern, line).groups() for line in ways)  # type: ignore[union-attr]
    part = str(STEPS * BATCH // processes)
    assert read == {
        "global_data": str(STEPS * BATCH),
        "per_device": part,
        "per_process": part,
        "load_and_reshard": part,
    }
