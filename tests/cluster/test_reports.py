"""What a program passes off as reports of its task: it can lie about itself, and breaks nothing."""

from __future__ import annotations

import re

from harness import Cluster, jaxsif_run

ONE = ("--nodes=1", "--ntasks-per-node=1", "--srun-args=--nodelist=node1")


def run_each(cluster: Cluster, folder: str, runs: list[tuple[str, int]]) -> None:
    """Each run, of what it writes and how it ends, starts its program once and ends with the program's status."""
    for what, status in runs:
        argv = (*ONE, "--", "python", "forge.py", what, str(status))
        done = cluster.run(f"cd {folder} && {jaxsif_run(*argv)} </dev/null")
        told = f"forge.py {what} {status}\n{done.stderr[-3000:]}"
        assert (done.returncode, done.stdout) == (status, "begins\n"), told
        assert all(line.lstrip("\x1e").isprintable() for line in done.stderr.split("\n")), told
        assert "FORGED" not in re.sub("(?m)^jaxsif: warning: .*", "", done.stderr), told
        errors = re.findall("(?m)^jaxsif: error: .*", done.stderr)
        assert bool(errors) == bool(status), told
        assert all(error.startswith("jaxsif: error: task 0 on node1 ") for error in errors), told


def test_known_attacks(cluster: Cluster, folder: str) -> None:
    """125 is the status of a task that refuses to start its program."""
    run_each(cluster, folder, [("attacks", status) for status in (0, 3, 125)])


def test_generated_reports(cluster: Cluster, folder: str) -> None:
    run_each(cluster, folder, [(f"seed {seed}", (0, 3)[seed % 2]) for seed in range(10)])


def test_on_a_terminal_nothing_is_reported(cluster: Cluster) -> None:
    """srun makes one stream of both, which nobody reads."""
    run = jaxsif_run("--nodes=1", "--srun-args=--pty", "--", "sh", "-c", "echo here; exit 3")
    done = cluster.run(["script", "-qec", f"bash -lc '{run}'", "/dev/null"])
    assert "here" in done.stdout
    assert "\x1e" not in done.stdout
    assert done.returncode == 3


def test_a_long_report_of_a_labelled_run(cluster: Cluster) -> None:
    """srun --label makes several lines of one that is longer than 1024 bytes."""
    program = "raise ValueError('x' + 400 * '\\U0001f600')"
    done = cluster.run(jaxsif_run(*ONE, "--label", "--", "python", "-c", program))
    assert done.returncode == 1
    assert "\x1e" not in done.stderr
    assert "jaxsif: error: task 0 on node1 failed: ValueError: x\U0001f600" in done.stderr
