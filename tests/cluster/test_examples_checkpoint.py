"""slurm/checkpoint: training goes on from a checkpoint, on any number of processes, as if it had never stopped."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator

import pytest
from examples import Layout, on_each_layout, run_program
from harness import Cluster, jaxsif_run, program_lines

PROGRAM = "checkpoint/train_and_resume.py"
OPTIONS = ("--steps=6", "--every=2")
WHOLE = Layout(2, 1, 2)  # of the run that is not interrupted


def losses(lines: list[str]) -> dict[int, float]:
    """Step -> loss."""
    return {int(step): float(loss) for step, loss in re.findall(r"^step (\d+): loss (\S+)$", "\n".join(lines), re.M)}


def check(lines: list[str], layout: Layout, first: int, last: int) -> None:
    """A run from step `first` to `last` on `layout`, whose processes all have compared their state at the end."""
    devices = layout.processes * layout.devices
    assert f"{layout.processes} process(es), {devices} device(s), from step {first}" in lines
    ends = [f"Process {p} has the state of an uninterrupted run after step {last}" for p in range(layout.processes)]
    assert [line for line in lines if line.startswith("Process")] == ends


@pytest.fixture(scope="module")
def whole(cluster: Cluster, layer: str) -> Iterator[tuple[str, dict[int, float]]]:
    """A folder with the checkpoints of a run without a stop, and its losses."""
    path = cluster.check('module load jax/sif; d=$(mktemp -d ~/whole.XXXXXX); cp -r "$JAXSIF_HOME/slurm" $d; echo $d')
    path = path.strip()
    lines = run_program(cluster, path, WHOLE, [PROGRAM, f"{path}/checkpoints", *OPTIONS], [layer])
    check(lines, WHOLE, 0, 6)
    yield f"{path}/checkpoints", losses(lines)
    cluster.check(f"rm -r {path}")


@on_each_layout
def test_resumed(
    cluster: Cluster, programs: str, layer: str, whole: tuple[str, dict[int, float]], layout: Layout
) -> None:
    """A run that was killed after step 2 goes on, on any layout."""
    checkpoints, expected = whole
    cluster.check(f"cp -r {checkpoints} {programs}/checkpoints && rm -r {programs}/checkpoints/[46]")
    lines = run_program(cluster, programs, layout, [PROGRAM, f"{programs}/checkpoints", *OPTIONS], [layer])
    check(lines, layout, 2, 6)
    found = losses(lines)
    assert found.keys() == {4, 6}
    # The same sums in another order, on another number of devices.
    tolerance = 0 if layout == WHOLE else 1e-6
    assert found == pytest.approx({step: expected[step] for step in found}, rel=tolerance, abs=0)


def test_stopped_by_a_signal(cluster: Cluster, programs: str, layer: str) -> None:
    """SIGURG, as Slurm sends it before the time limit: the last checkpoint is whole, and one process goes on."""
    command = ("python", "train_and_resume.py", "new", "--steps=1000000", "--every=10")
    run = jaxsif_run(*Layout(2, 2, 1).options, f"--layer={layer}", "--", *command)
    with cluster.start(f"cd {programs}/slurm/checkpoint && echo $$ >pid && {run}") as process:
        output = read_until("step 10: ", process)
        cluster.check(f"kill -URG $(cat {programs}/slurm/checkpoint/pid)")
        rest, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    lines = program_lines(output + rest)
    (step,) = (int(found) for found in re.findall(r"^stopped after step (\d+)$", "\n".join(lines), re.M))
    check(lines, Layout(2, 2, 1), 0, step)
    one = Layout(1, 1, 2)
    lines = run_program(cluster, programs, one, [PROGRAM, "new", f"--steps={step + 5}"], [layer])
    check(lines, one, step, step + 5)


def read_until(text: str, process: subprocess.Popen[str]) -> str:
    """What a run prints, up to the line with `text`."""
    assert process.stdout is not None
    output = ""
    while text not in output:
        line = process.stdout.readline()
        assert line, process.stderr and process.stderr.read()
        output += line
    return output


def test_a_folder_that_nodes_do_not_share_is_refused(cluster: Cluster, programs: str, layer: str) -> None:
    """Orbax would wait for ten minutes."""
    run = jaxsif_run(*WHOLE.options, f"--layer={layer}", "--", "python", PROGRAM, "/tmp/checkpoints")
    done = cluster.run(f"cd {programs}/slurm && {run}")
    assert done.returncode == 1, done.stderr
    assert "SystemExit: the nodes do not share the folder /tmp/checkpoints" in done.stderr


MANAGED = """
import pathlib, sys, jax, numpy
jax.distributed.initialize()
import orbax.checkpoint as ocp
options = ocp.CheckpointManagerOptions(save_interval_steps=2)
with ocp.CheckpointManager(pathlib.Path(sys.argv[1]), options=options) as manager:
    for step in range(3):
        manager.save(step, args=ocp.args.StandardSave({"a": numpy.arange(4)}))
        manager.reached_preemption(step)
"""


def test_orbax_that_gets_no_notice_of_preemption_is_warned_of(cluster: Cluster, folder: str, layer: str) -> None:
    """By itself Orbax takes JAX's error for "no preemption", and saves nothing."""
    options = ("--nodes=1", "--ntasks-per-node=2", f"--layer={layer}")
    done = cluster.run(jaxsif_run(*options, "--", "python", "-c", MANAGED, f"{folder}/new"))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("jaxsif: warning: the program asks JAX for preemption notices but gets none: ") == 1


def test_job_script(cluster: Cluster, programs: str, layer: str) -> None:
    script = f"--time=5 train_and_resume.sbatch {shlex.join(OPTIONS)}"
    lines = program_lines(cluster.submit(f"{programs}/slurm/checkpoint", script, "train_and_resume-*.out"))
    check(lines, Layout(2, 4, 1), 0, 6)
    assert losses(lines).keys() == {2, 4, 6}
