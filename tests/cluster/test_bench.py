"""jaxsif bench: results of real runs, what is kept of those that end early, and slow nodes; and tests/bench."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builds import REPOSITORY
from harness import HERE, Cluster
from test_image_look import TOOLS

OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "permute")
FEW = ("--iterations=3", "--link-size=64KiB")


def bench(*words: str) -> str:
    """The script of a command `jaxsif bench ...`."""
    return f"module load jax/sif && exec jaxsif bench {' '.join(words)}"


def read(cluster: Cluster, folder: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Header and records."""
    header, *records = map(json.loads, cluster.check(["cat", f"{folder}/results.jsonl"]).splitlines())
    return header, records


def of_kind(records: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [record for record in records if record["record"] == kind]


def test_collectives_on_two_nodes_are_measured_kept_drawn_and_compared(
    cluster: Cluster, folder: str, layer: str
) -> None:
    output = f"{folder}/results"
    shape = ("--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=2")
    run = bench("collectives", *shape, *FEW, "--sizes=1KiB,64KiB", f"--output={output}", f"--layer={layer}")
    done = cluster.run(f"cd {folder} && {run}")
    assert done.returncode == 0, done.stderr
    assert "Gloo" not in done.stdout + done.stderr
    header, records = read(cluster, output)
    assert header["complete"] is True
    assert (header["bench"], header["launcher"], header["platform"]) == ("collectives", "srun", "cpu")
    assert (header["nodes"], header["processes"], header["devices"]) == (2, 2, 4)
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", header["digest"])
    measured = [(record["operation"], record["size"]) for record in of_kind(records, "operation")]
    assert measured == [(name, size) for name in OPERATIONS for size in (1024, 65536)]
    first = records[0]
    assert first["bus_bandwidth"] == pytest.approx(1.5 * 1024 / first["time"])
    rows = [line.split()[:3] for line in done.stdout.splitlines()]
    assert ["all-reduce", "64", "KiB"] in rows
    assert {(record["from"], record["to"]) for record in of_kind(records, "link")} == {
        ("node1", "node2"),
        ("node2", "node1"),
    }
    assert sorted(cluster.check(["ls", output]).split()) == sorted(
        ["results.jsonl", "results.csv"]
        + [f"{name}.{ending}" for name in ("bandwidth", "links", "time") for ending in ("png", "svg")]
    )
    assert "bus bandwidth in GB/s" in cluster.check(["cat", f"{output}/bandwidth.svg"])
    figures = len(measured) + 2
    same = cluster.check(bench("compare", output, f"{output}/results.jsonl", "--fail"))
    assert same.splitlines()[-1] == f"none of the {figures} figures is worse than before by more than 10%"
    refused = cluster.run(bench("collectives", *shape, f"--output={output}"))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"the folder {output} already exists" in refused.stderr
    refused = cluster.run(bench("plot", output))
    assert refused.returncode == 125
    assert "no matplotlib in the image or its layers" in refused.stderr


def test_sixteen_processes_on_four_nodes(cluster: Cluster, folder: str) -> None:
    shape = ("--nodes=4", "--ntasks-per-node=4", "--gpus-per-node=4")
    run = bench("collectives", *shape, *FEW, "--sizes=1KiB,256KiB", "--output=results")
    cluster.check(f"cd {folder} && {run}", timeout=300)
    header, records = read(cluster, f"{folder}/results")
    assert (header["complete"], header["nodes"], header["processes"], header["devices"]) == (True, 4, 16, 16)
    assert len(of_kind(records, "operation")) == 2 * len(OPERATIONS)
    assert len(of_kind(records, "link")) == 8
    memory = of_kind(records, "memory")
    assert [(record["process"], record["node"]) for record in memory] == [(p, f"node{p // 4 + 1}") for p in range(16)]
    assert all(100e6 < record["host_memory"] < 2e9 for record in memory)


@pytest.fixture
def shaped(cluster: Cluster) -> Iterator[str]:
    """The script that slows down what node3 sends; undone in the end."""
    yield "tc qdisc add dev eth0 root tbf rate 1mbit burst 16kb latency 1s"
    cluster.run("tc qdisc del dev eth0 root", node="node3", user="root")


def test_a_node_that_got_slow_is_named(cluster: Cluster, folder: str, shaped: str) -> None:
    """Before and after traffic shaping of its link: 64 KiB take half a second, and else milliseconds."""
    shape = ("--nodes=4", "--ntasks-per-node=1", "--gpus-per-node=1", "--iterations=7", "--link-size=64KiB")
    run = bench("collectives", *shape, "--operations=permute", "--sizes=1KiB")
    cluster.check(f"cd {folder} && {run} --output=old")
    cluster.check(shaped, node="node3", user="root")
    done = cluster.run(f"cd {folder} && {run} --output=new --against=old --tolerance=97 --fail")
    assert done.returncode == 1, done.stderr
    named = [line for line in done.stdout.splitlines() if line.startswith("slow node")]
    assert [re.sub(r", [0-9.e-]+ of the median node.*", "", line) for line in named] == [
        "slow node: node3, on all its links: sending"
    ]
    assert "jaxsif: slow node: node3, on all its links: sending, " in done.stderr  # without older results, too
    worse = {tuple(line.split()[:2]) for line in done.stdout.splitlines() if line.endswith("worse")}
    assert {("node3", "node2"), ("node3", "node4")} <= worse


@pytest.mark.parametrize(("what", "status"), [("a signal", 130), ("a failure", 137)])
def test_what_there_was_is_kept(cluster: Cluster, folder: str, what: str, status: int) -> None:
    """After the first row: Ctrl-C, or the end of a process."""
    shape = ("--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=1", "--srun-args=--nodelist=node[1-2]")
    long = ("--operations=all-reduce", "--sizes=1KiB,64MiB", "--iterations=200", "--output=results")
    with cluster.start(f"cd {folder} && echo $$ >pid && " + bench("collectives", *shape, *long)) as process:
        assert process.stdout is not None
        while "all-reduce" not in process.stdout.readline():
            assert process.poll() is None
        if what == "a signal":
            cluster.check(f"kill -INT $(cat {folder}/pid)")
        else:
            cluster.check(["pkill", "-KILL", "-f", "^python /opt/jaxsif/bench/"], node="node2")
        _, errors = process.communicate(timeout=30)
    assert process.returncode == status, errors
    assert "not complete: 1 records in results" in errors
    assert cluster.steps() == []
    header, records = read(cluster, f"{folder}/results")
    assert header["complete"] is False
    assert [record["size"] for record in records] == [1024]
    if what == "a failure":
        assert "jaxsif: error: task 1 on node2 was killed by SIGKILL" in errors


def test_two_revisions_are_measured_side_by_side(cluster: Cluster) -> None:
    """The last commit and the working tree; a few pairs say little, so both verdicts are right."""
    argv = [sys.executable, "tests/bench/beside.py", "HEAD", "--only=launch", "--pairs=6"]
    done = subprocess.run(argv, cwd=HERE.parents[1], capture_output=True, text=True, check=False, timeout=120)
    first, line = done.stdout.splitlines()
    assert first == "first: HEAD   second: the working tree"
    found = re.fullmatch(r"launch    first .* ms   second .* ms   ratio .*, from (.*) to .*   6 pairs: (.*)", line)
    assert found, line
    slower = float(found[1]) > 1.03
    assert (done.returncode, found[2]) == (int(slower), "slower" if slower else "not slower")
    homes = cluster.check("cat /sw/beside/*/modulefiles/jax/*sif | grep '^set home'").splitlines()
    assert [home.split("/")[3] for home in homes] == ["first", "second"]


def test_the_launcher_is_measured(cluster: Cluster) -> None:
    script = (HERE.parent / "bench/launch.py").read_text()
    done = cluster.run("module load jax/sif && exec python3 - --pairs=2 --bound-ratio=1", stdin=script)
    _, ours, bare, last = done.stdout.splitlines()
    row = r" +(\d+\.\d\d) ms +(\d+\.\d\d) ms +(\d+\.\d\d) ms  2"
    for name, line in (("jaxsif run", ours), ("bare srun", bare)):
        found = re.fullmatch(name + row, line)
        assert found, line
        median, fastest, slowest = map(float, found.groups())
        assert 0 < fastest <= median <= slowest < 30_000
    ratio = re.fullmatch(r"difference of medians -?\d+ ms, ratio (\d\.\d\d)", last)
    assert ratio, last
    assert done.returncode == int(" is above --bound-ratio 1\n" in done.stderr), done.stderr
    assert float(ratio[1]) >= 1 if done.returncode else float(ratio[1]) <= 1


@pytest.mark.timeout(1800)
def test_builds_are_measured(work: Path) -> None:
    clone = work / "clone"
    subprocess.run(["git", "clone", "--quiet", REPOSITORY, clone], check=True)
    argv = [sys.executable, "tests/bench/image.py", "--flavour=cpu", "--pause=1"]
    environ = {**os.environ, "PATH": f"{TOOLS}{os.environ['PATH']}"}
    done = subprocess.run(argv, cwd=clone, env=environ, capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, done.stderr
    rows = [re.split(" {2,}", line)[:2] for line in done.stdout.splitlines()[1:4]]
    assert rows == [["cpu", "cold"], ["cpu", "plain"], ["cpu", "numpy changed"]]
    assert [line.partition(":")[0] for line in done.stdout.splitlines()[4:]] == ["cold", "numpy changed"]
    shutil.rmtree(clone)
