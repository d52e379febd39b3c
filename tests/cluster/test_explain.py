"""`jaxsif explain`: silent about healthy runs of all programs of slurm/; a failed run names a cause that was seen."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from examples import Layout
from harness import HERE, Cluster, jaxsif_run

SLURM = HERE.parents[1] / "slurm"
SCRIPTS = sorted(path for path in SLURM.rglob("*.sbatch") if path.parent.name != "mistakes")  # whose programs fail
# Programs that no other job script has, and that succeed so.
PROGRAMS = ("first_steps/one_device.py", *(f"mistakes/{name}.py --right" for name in ("shapes", "leave_early", "skip")))
MEMORY = "  try:  request more memory for the step (--mem), "


def explain(cluster: Cluster, *words: str, stdin: str = "") -> tuple[int, str]:
    """The exit status of `jaxsif explain`, and what it prints."""
    done = cluster.run(f"module load jax/sif && exec jaxsif explain {shlex.join(words)}", stdin=stdin)
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.usefixtures("layer")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_nothing_is_known_of_a_healthy_job(cluster: Cluster, programs: str, script: Path) -> None:
    folder = f"{programs}/slurm/{script.parent.relative_to(SLURM)}"
    assert cluster.submit(folder, f"--output=job.log {script.name}", "job.log")
    assert explain(cluster, f"{folder}/job.log") == (1, f"no known message in {folder}/job.log\n")


@pytest.mark.parametrize("program", PROGRAMS)
def test_nothing_is_known_of_a_healthy_run(cluster: Cluster, programs: str, program: str) -> None:
    options = ("--log-dir", f"{programs}/logs", "--label")
    layout = Layout(1, 1, 1) if "one_device" in program else Layout(2, 2, 1)
    where, _, name = program.rpartition("/")
    run = jaxsif_run(*layout.options, *options, "--", "python", *name.split())
    cluster.check(f"cd {programs}/slurm/{where} && ({run}) >{programs}/run.log 2>&1")
    status, text = explain(cluster, f"{programs}/logs", f"{programs}/run.log", "last")
    head, line = text.splitlines()
    assert status == 1
    assert head.endswith(": it ended with exit status 0")
    assert line.startswith(f"no known message in {programs}/logs/task-0.err and ")


def test_a_cause_that_was_seen(cluster: Cluster, folder: str) -> None:
    """The error quotes it, and has its remedy; `jaxsif explain` has the line, the remedy and the page."""
    program = "import os\nif os.environ['SLURM_PROCID'] == '1': bytearray(1 << 60)\n"
    cluster.write(f"{folder}/memory.py", program)
    run = jaxsif_run("--nodes=2", "--ntasks-per-node=1", f"--log-dir={folder}/logs", "--", "python", "memory.py")
    done = cluster.run(f"cd {folder} && {run}")
    assert done.returncode == 1
    *_, error, _, remedy = done.stderr.splitlines()
    assert "perhaps the cause" not in done.stderr
    assert remedy.startswith(MEMORY), done.stderr
    assert error == "jaxsif: error: task 1 on node2 failed: MemoryError"
    for target in ("last", f"{folder}/logs"):
        status, text = explain(cluster, target)
        assert status == 0
        assert "\ncause: Python or NumPy found too little memory on the node\n  line: MemoryError\n" in f"\n{text}"
    (found,) = json.loads(explain(cluster, f"{folder}/logs/task-1.err", "--json")[1])
    assert (found["role"], found["text"], found["times"]) == ("cause", "MemoryError", 1)


def test_a_cause_that_the_error_names_is_not_repeated(cluster: Cluster, folder: str) -> None:
    cluster.write(f"{folder}/train.py", "import flax")
    done = cluster.run(f"cd {folder} && {jaxsif_run('--nodes=1', '--', 'python', 'train.py')}")
    assert "failed: ModuleNotFoundError: No module named 'flax'" in done.stderr
    assert "perhaps the cause" not in done.stderr


def test_a_neighbour_that_died_is_no_cause(cluster: Cluster, folder: str) -> None:
    """By plain srun: all that others print follows from the SIGKILL of task 2."""
    image = "$JAX_IMAGE python fail.py kill 2"
    run = f"srun --nodes=2 --ntasks-per-node=2 --label --kill-on-bad-exit apptainer run {image}"
    done = cluster.run(f"module load jax/sif && cd {folder} && {run}")
    assert done.returncode
    status, text = explain(cluster, "-", stdin=done.stdout + done.stderr)
    roles = re.findall(r"^(cause|cause or consequence|consequence): ", text, re.MULTILINE)
    assert status == 0, done.stderr
    assert roles[0] == "cause or consequence", text
    assert "cause" not in roles, text
