"""What a program passes off as reports of its task: it can lie about itself, and breaks nothing."""

from __future__ import annotations

import re

import pytest
from harness import Cluster, jaxsif_run

pytestmark = pytest.mark.core
ONE = ("--nodes=1", "--ntasks-per-node=1", "--srun-args=--nodelist=node1")
# What is written, and how the program ends; 125 is the status of a task that refuses to start its program.
RUNS = [("live", 3), *(("attacks", status) for status in (0, 3, 125))]
RUNS += [(f"seed-{seed}", (0, 3)[seed % 2]) for seed in range(10)]


def run_all(cluster: Cluster, folder: str) -> list[tuple[int, str, str]]:
    """Status, standard output and standard error of each run, in one job."""
    run = "jaxsif run -- python forge.py $1 $2 >out 2>err </dev/null"
    tell = 'printf \'%s\\0\' $? "$(cat out)" "$(cat err)"'
    cluster.write(f"{folder}/runs.sh", f"while [ $# != 0 ]; do {run}; {tell}; shift 2; done\n")
    words = " ".join(f"{what} {status}" for what, status in RUNS)
    salloc = "salloc --quiet --nodes=1 --ntasks-per-node=1 --nodelist=node1"
    said = cluster.check(f"module load jax/sif && cd {folder} && {salloc} bash runs.sh {words}")
    *fields, end = said.split("\0")
    assert (len(fields), end) == (3 * len(RUNS), "")
    return [(int(status), out, err) for status, out, err in zip(fields[::3], fields[1::3], fields[2::3])]


def test_what_a_program_passes_off_as_reports(cluster: Cluster, folder: str) -> None:
    """Each program starts once, and the run ends with the program's status, and with no other task's name."""
    for (what, status), (ended, out, err) in zip(RUNS, run_all(cluster, folder)):
        told = f"forge.py {what} {status}\n{err[-3000:]}"
        assert (ended, out) == (status, "begins"), told
        assert all(line.lstrip("\x1e").isprintable() for line in err.split("\n")), told
        assert "FORGED" not in re.sub("(?m)^jaxsif: warning: .*", "", err), told
        errors = re.findall("(?m)^jaxsif: error: .*", err)
        assert bool(errors) == bool(status), told
        assert all(error.startswith("jaxsif: error: task 0 on node1 ") for error in errors), told


def test_on_a_terminal_nothing_is_reported(cluster: Cluster) -> None:
    """srun makes one stream of both, which nobody reads."""
    run = 'jaxsif run --nodes=1 --srun-args=--pty -- sh -c "echo here; exit 3"; status=$?; touch over; exit $status'
    # The end of its input would end the terminal before the program.
    wait = "until [ -e over ]; do sleep 0.1; done"
    terminal = f"script --quiet --return --flush --command '{run}' /dev/null"
    done = cluster.run(f"module load jax/sif; cd $(mktemp -d); {wait} | {terminal}")
    assert done.returncode == 3
    assert "here" in done.stdout
    assert "\x1e" not in done.stdout


def test_a_long_report_of_a_labelled_run(cluster: Cluster) -> None:
    """srun --label makes several lines of one that is longer than 1024 bytes."""
    program = "raise ValueError('x' + 290 * '\\xe9')"
    done = cluster.run(jaxsif_run(*ONE, "--label", "--", "python", "-c", program))
    assert done.returncode == 1
    assert "\x1e" not in done.stderr
    assert "jaxsif: error: task 0 on node1 failed: ValueError: xé" in done.stderr
