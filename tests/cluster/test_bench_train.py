"""jaxsif bench train and startup: what they record of real runs."""

from __future__ import annotations

import pytest
from harness import Cluster
from test_bench import bench, read

TWO = ("--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=1")
TINY = ("--width=16", "--depth=1", "--batch=16", "--steps=4")


def test_training_in_all_modes_and_on_more_processes(cluster: Cluster, folder: str, layer: str) -> None:
    run = bench("train", *TWO, *TINY, "--scaling", f"--layer={layer}", f"--output={folder}/results")
    done = cluster.run(f"cd {folder} && {run}")
    assert done.returncode == 0, done.stderr
    header, records = read(cluster, f"{folder}/results")
    assert header["complete"] is True
    assert (header["nodes"], header["processes"], header["devices"]) == (2, 2, 2)
    shapes = [(one["mode"], one["processes"], one["devices"], one["batch"]) for one in records]
    assert shapes == [("single", 1, 1, 16), ("sharded", 1, 1, 8), ("sharded", 2, 2, 16), ("pmap", 2, 2, 16)]
    single, first, sharded, pmap = records
    for one in (sharded, pmap):
        assert one["losses"] == pytest.approx(single["losses"], rel=1e-5)
    assert sharded["efficiency"] == pytest.approx(first["step_time"] / sharded["step_time"])
    assert first["flops"] == pytest.approx(first["examples_per_second"] * single["flops"] * single["step_time"] / 16)
    assert "the losses of 3 runs with the same batch size differ by at most " in done.stdout.splitlines()[-1]
    drawn = cluster.check(["ls", f"{folder}/results"]).split()
    assert {"scaling.png", "scaling.svg", "steps.png", "steps.svg"} <= set(drawn)


def test_training_without_flax_says_how_to_get_it(cluster: Cluster, folder: str) -> None:
    done = cluster.run(f"cd {folder} && {bench('train', *TWO)}")
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("jaxsif: error: no flax in the image "), done.stderr
    assert done.stderr.endswith("  try:  pass --layer ml after jaxsif layer create ml flax optax\n")
    assert cluster.check(["sh", "-c", f"ls -A {folder} | grep -c bench || true"]) == "0\n"


def test_where_the_seconds_of_a_start_go(cluster: Cluster, folder: str) -> None:
    words = (
        "--nodes=2",
        "--ntasks-per-node=2",
        "--gpus-per-node=2",
        "--rounds=1",
        "--depth=8",
        "--variants=stage,cache",
    )
    done = cluster.run(f"cd {folder} && {bench('startup', *words, '--output=results')}")
    assert done.returncode == 0, done.stderr
    assert "variant stage is left out" in done.stderr
    assert done.stderr.count("last to reach initialize: task ") == 2
    header, records = read(cluster, f"{folder}/results")
    assert (header["nodes"], header["processes"]) == (2, 4)
    tasks = [record for record in records if record["record"] == "task"]
    variants = ("cache, run 1", "cache, run 2")
    assert [(one["variant"], one["task"]) for one in tasks] == [(name, task) for name in variants for task in range(4)]
    nodes = [one["node"] for one in tasks]
    assert nodes[::2] == nodes[1::2]
    assert all(len(set(some)) == 2 for some in (nodes[:4], nodes[4:]))
    phases = [name for name, _ in zip(list(tasks[0])[5:], range(8))]
    assert phases == ["launch", "container", "python", "import", "initialize", "devices", "compile", "collective"]
    for one in tasks:
        times = [one[phase] for phase in phases]
        assert all(-0.02 < time < one["total"] for time in times), one  # processes' beginnings are known to 10 ms
        assert sum(times) == pytest.approx(one["total"], abs=1e-3)
        assert one["clock_ahead"] == 0  # all nodes have one clock
    cold, warm = (record for record in records if record["record"] == "start")
    assert warm["compile"] < cold["compile"]
    assert cluster.check(["ls", "-A", folder]).count("cache-") == 0
