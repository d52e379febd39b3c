"""slurm/train: the losses of all modes are those of one device; what a second run has not to compile again."""

from __future__ import annotations

import json
import re

import pytest
from examples import Layout, on_each_layout, run_program, run_script
from harness import Cluster, jaxsif_run, program_lines

# Compiling is most of what these tests do.
FAST = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
SMALL = ("--width=32", "--depth=1", "--batch=32", "--steps=8")
MODES = ("jit + sharding", "jit, FSDP, 2 parts", "jit, a message each", "jit, mesh {}x2, FSDP", "pmap", "single")


def state_of(lines: list[str]) -> dict[str, float]:
    """Mode -> MB of parameters and moments on each device, from the table of compare.py."""
    rows = re.findall(r"^(\S.*?) {2,}[\d.]+ +\d+ +([\d.]+) +[\d.]+e[-+]\d+$", "\n".join(lines), re.MULTILINE)
    return {mode: float(state) for mode, state in rows}


def check_table(lines: list[str], layout: Layout) -> None:
    devices = layout.processes * layout.devices
    states = state_of(lines)
    assert list(states) == [mode.format(devices // 2) for mode in MODES], lines
    assert states["single"] == states["pmap"] == states["jit + sharding"]
    # Vectors are not split.
    assert states["jit, FSDP, 2 parts"] < states["single"] * (0.2 + 1 / devices)
    assert any(line.endswith("the same in all") for line in lines), lines


@on_each_layout
def test_modes_agree(cluster: Cluster, programs: str, layer: str, layout: Layout) -> None:
    """compare.py holds the losses against those of one device, and fails where they differ."""
    check_table(run_program(cluster, programs, layout, ["train/compare.py", *SMALL], [layer], **FAST), layout)


def test_modes_of_a_transformer_agree(cluster: Cluster, programs: str, layer: str) -> None:
    layout = Layout(2, 1, 2)
    program = ["train/compare.py", "--model=transformer", "--length=16", *SMALL]
    check_table(run_program(cluster, programs, layout, program, [layer], **FAST), layout)


def test_losses_that_differ_are_an_error(cluster: Cluster, programs: str, layer: str) -> None:
    """Those of bfloat16 do, when they are to be as near as those of float32."""
    options = "--precision=bfloat16 --tolerance=1e-12"
    run = jaxsif_run("--gpus-per-node=2", "--ntasks-per-node=1", f"--layer={layer}", "--", "python", "compare.py")
    done = cluster.run(f"cd {programs}/slurm/train && {run} {options} {' '.join(SMALL)}")
    assert done.returncode == 1
    assert re.search(r"failed: AssertionError: the losses differ by \S+, and not by 1e-12", done.stderr), done.stderr


@pytest.mark.parametrize("script", ["train/mlp.sbatch", "train/transformer.sbatch"])
def test_job_script(cluster: Cluster, programs: str, layer: str, script: str) -> None:
    lines = run_script(cluster, programs, script)
    if script == "train/mlp.sbatch":
        check_table(lines, Layout(2, 2, 1))
    else:
        losses = dict(re.findall(r"step (\d+): loss (\S+)", "\n".join(lines)))
        assert len(losses) == 20
        assert float(losses["19"]) < float(losses["0"]) - 0.2


def test_the_second_run_of_a_transformer_compiles_nothing(cluster: Cluster, programs: str, layer: str) -> None:
    """Not a measurement: both runs share the machine with whatever runs beside them."""
    options = ("--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=1", f"--layer={layer}", "--verbose")
    sizes = ("--width=32", "--depth=4", "--length=16", "--batch=8", "--steps=3")
    program = ("python", "train.py", "--model=transformer", "--json", *sizes)
    launch = jaxsif_run(*options, f"--compile-cache-folder={programs}/cache", "--", *program)
    run = f"cd {programs}/slurm/train && {launch}"
    first, second = (cluster.run(run) for _ in range(2))
    assert second.returncode == 0, second.stderr
    assert re.search(r"compile cache: \d+ of \d+ programs reused, in 2 of 2 tasks", second.stderr), second.stderr
    for done in (first, second):
        assert len(json.loads(program_lines(done.stdout)[-1])["compile_seconds"]) == 2
