"""slurm/start, arrays, mistakes and first_steps; and each program of slurm/ has a test, here or beside."""

from __future__ import annotations

import ast
import re
import time
from pathlib import Path

import pytest
from examples import Layout, on_each_layout, run_program, run_script
from harness import HERE, Cluster, jaxsif_run, program_lines

SLURM = HERE.parents[1] / "slurm"
FOUR = Layout(2, 2, 1)
# Step -> loss, as docs/first-steps.md says.
LOSSES = {25: 0.23459, 50: 0.12932, 75: 0.11233, 100: 0.07305}
# Seconds for a run whose processes wait 3 seconds for each other at the end, where JAX's own default is 300.
BOUND = 60


def strings(path: Path) -> str:
    """The strings of a module, without those that only describe."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    described = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    constants = [node for node in nodes if isinstance(node, ast.Constant) and id(node) not in described]
    return "\n".join(node.value for node in constants if isinstance(node.value, str))


def named(path: Path, text: str) -> bool:
    """Whether a text has the name of this file, or imports it."""
    return bool(re.search(rf"(?<![\w.]){re.escape(path.name)}\b|^ *(import|from) {path.stem}\b", text, re.MULTILINE))


def test_every_program_and_job_script_is_tested() -> None:
    """A test names it and its folder, or a file of its folder that is tested does."""
    texts = [strings(path) for path in HERE.glob("test_*.py")]
    files = {path for ending in ("*.py", "*.sbatch") for path in SLURM.rglob(ending)}
    tested = {path for path in files if path.parent == SLURM and path.suffix == ".sbatch"}  # test_slurm_scripts.py
    topics = {path for path in files if path.parent != SLURM}
    tested |= {path for path in topics for text in texts if named(path, text) and re.search(path.parent.name, text)}
    for _ in files:
        users = {path.parent: "" for path in files}
        for path in tested:
            users[path.parent] += path.read_text()
        tested |= {path for path in files if named(path, users[path.parent])}
    assert {str(path.relative_to(SLURM)) for path in files - tested} == set()


def started(layout: Layout) -> list[str]:
    """What the programs of slurm/start print, sorted."""
    last = layout.processes * layout.devices - 1
    lines = []
    for process in range(layout.processes):
        local = " ".join(str(process * layout.devices + device) for device in range(layout.devices))
        where = f"Process {process} of {layout.processes} on node{process // layout.per_node + 1}"
        lines.append(f"{where}: local devices {local} of 0-{last}")
    return lines


@on_each_layout
def test_start(cluster: Cluster, programs: str, layout: Layout) -> None:
    assert run_program(cluster, programs, layout, ["start/automatic.py"]) == started(layout)
    lines = run_program(cluster, programs, layout, ["start/explicit.py"])
    assert re.fullmatch(r"The coordinator is node1:6\d{4}", lines.pop())
    assert lines == started(layout)


def test_start_script(cluster: Cluster, programs: str) -> None:
    """Also by plain srun, where the program itself computes the address and the devices."""
    lines = run_script(cluster, programs, "start/start.sbatch")
    assert [line for line in lines if line.startswith("Process")] == sorted(3 * started(FOUR))


def losses(lines: list[str]) -> dict[int, float]:
    """Step -> loss."""
    found = (re.fullmatch(r"step (\d+): loss (\S+)", line) for line in lines)
    return {int(one[1]): float(one[2]) for one in found if one}


@on_each_layout
def test_first_steps(cluster: Cluster, programs: str, layout: Layout) -> None:
    """The guide's two programs, in docs/first-steps.md, print the same losses."""
    lines = run_program(cluster, programs, layout, ["first_steps/two_nodes.py"])
    assert losses(lines) == pytest.approx(LOSSES, abs=2e-5)


def test_first_steps_script_and_one_device(cluster: Cluster, programs: str) -> None:
    assert losses(run_program(cluster, programs, Layout(1, 1, 1), ["first_steps/one_device.py"])) == LOSSES
    lines = run_script(cluster, programs, "first_steps/first_steps.sbatch")
    assert losses(lines) == pytest.approx(LOSSES, abs=2e-5)


@on_each_layout
def test_arrays(cluster: Cluster, programs: str, layout: Layout) -> None:
    """The programs compare all values themselves."""
    devices = layout.processes * layout.devices
    lines = run_program(cluster, programs, layout, ["arrays/three_ways.py"])
    assert lines[: layout.processes] == [f"Process {process}: all equal" for process in range(layout.processes)]
    rows = [int(found) for found in re.findall(r"^from_\w+: (\d+) of", "\n".join(lines), re.MULTILINE)]
    assert sorted(rows) == sorted([devices * 1024, *2 * [layout.devices * 1024]])

    lines = run_program(cluster, programs, layout, ["arrays/replication.py"])
    assert ("P(): fully addressable False, fully replicated True" in lines) == (layout.processes > 1)
    places = " ".join(f"[{place}]" if place < layout.devices else str(place) for place in range(devices))
    assert f"  | {places} |" in lines

    lines = run_program(cluster, programs, layout, ["arrays/values.py"])
    assert f"a result that is replicated: {devices - 0.5}" in lines
    assert any(line.startswith("np.asarray: Fetching value") for line in lines) == (layout.processes > 1)


def test_arrays_script(cluster: Cluster, programs: str) -> None:
    lines = run_script(cluster, programs, "arrays/arrays.sbatch")
    assert [line for line in lines if line.endswith("all equal")] == [f"Process {p}: all equal" for p in range(4)]
    assert "a number from each process: [0 1 2 3]" in lines


@on_each_layout
def test_cures(cluster: Cluster, programs: str, layout: Layout) -> None:
    devices, number = layout.processes * layout.devices, layout.processes
    rows = 2 * devices - layout.devices
    lines = run_program(cluster, programs, layout, ["mistakes/shapes.py", "--right"])
    assert lines == [f"Process {p}: mean {(rows - 1) / 2} of {rows} rows" for p in range(number)]
    lines = run_program(cluster, programs, layout, ["mistakes/leave_early.py", "--right"])
    assert lines == [f"Process {p}: 3 steps" for p in range(number)]
    lines = run_program(cluster, programs, layout, ["mistakes/skip.py", "--right"])
    assert lines == [
        *(f"Process {p}: sums 0 {devices} {2 * devices} {3 * devices}" for p in range(number)),
        *(f"step {step}: mean {float(step)}" for step in range(4)),
    ]


def mistake(cluster: Cluster, programs: str, *program: str) -> tuple[int, list[str], str]:
    """Run a mistake in 4 processes; return its exit status, the lines printed, and standard error."""
    options = ["--shutdown-timeout=3", "--srun-args=--nodelist=node[1-2]"]
    run = jaxsif_run(*FOUR.options, *options, "--", "python", *program)
    begin = time.monotonic()
    done = cluster.run(f"cd {programs}/slurm/mistakes && {run}")
    assert time.monotonic() - begin < BOUND
    assert cluster.steps() == []
    return done.returncode, program_lines(done.stdout), done.stderr


def test_shapes_differ_and_nothing_fails(cluster: Cluster, programs: str) -> None:
    status, lines, errors = mistake(cluster, programs, "shapes.py")
    wrong = ["2.625 of 8", "2.625 of 8", "2.625 of 8", "5.25 of 4"]
    place = rf"{programs}/slurm/mistakes/shapes\.py:53"
    few = rf"task 3 compiled jit_mean for \(tensor<4xf32>\) at {place}"
    many = rf"3 others for \(tensor<8xf32>\) at {place}"
    assert status == 0
    assert re.fullmatch(rf"jaxsif: warning: {few}, {many}: their results may be wrong\n", errors), errors
    assert lines == [f"Process {p}: mean {mean} rows" for p, mean in enumerate(wrong)]
    history = cluster.check(
        "module load jax/sif && jaxsif history --last 1 && jaxsif history show && jaxsif explain last"
    )
    assert " done* " in history
    assert re.search(rf"^  differs   {few}, {many}$", history, re.MULTILINE), history
    assert re.search(r"^cause or consequence: task 3 compiled jit_mean for ", history, re.MULTILINE), history


def test_shapes_differ_where_rows_travel(cluster: Cluster, programs: str) -> None:
    """Gloo ends the process that gets more than it expects: here the one that has less. In other programs it is
    another one: so the task whose program differs is named as well.
    """
    status, _, errors = mistake(cluster, programs, "shapes.py", "--gather")
    assert status == 134
    assert "Received data size doesn't match expected size" in errors
    what = "jaxsif: error: the processes took part in a collective with arrays of different sizes"
    what += rf": task 3 compiled \S+ for \(tensor<4xf32>\) at {programs}/\S+:52, 3 others for \S+ at \S+"
    place = rf"{programs}/slurm/mistakes/shapes\.py:\d+, where task 3 on node2 was(; the others were at .*)?"
    assert re.search(rf"^{what}\n  from: {place}$", errors, re.MULTILINE), errors
    assert "perhaps the cause" not in errors


def test_shapes_are_compared(cluster: Cluster, programs: str) -> None:
    """All processes raise; whichever is named, the text tells the one that differs."""
    status, _, errors = mistake(cluster, programs, "shapes.py", "--check")
    assert status == 1
    text = r"failed: AssertionError: the shapes of the batches differ\. Expected: \[2 2 2 1\]; got: \[[12]\]\.$"
    assert re.search(rf"^jaxsif: error: task \d on node[12] {text}", errors, re.MULTILINE), errors


def check_barrier(status: int, log: str, odd: str, line: str) -> None:
    """JAX has ended all after --shutdown-timeout; jaxsif names the odd one, and the line where one was stuck."""
    assert status == 134
    what = rf"^jaxsif: error: {odd} the end of the program, but 3 of 4 did(?: not)?\n"
    assert re.search(what, log, re.MULTILINE), log
    found = re.search(rf"{what}  from: \S*/(\S+), where task \d ", log, re.MULTILINE)
    if found:  # srun may drop what a task says at its end
        program, _, number = found[1].partition(":")
        source = (SLURM / "mistakes" / program).read_text().splitlines()
        assert line in source[int(number) - 1]


def test_one_process_computes_alone(cluster: Cluster, programs: str) -> None:
    status, lines, errors = mistake(cluster, programs, "skip.py")
    # The right sums are 0 4 8 12.
    assert [line for line in lines if "sums" in line] == [f"Process {p}: sums 0 3 7 10" for p in (1, 2, 3)]
    check_barrier(status, errors, "task 0 on node1 did not reach", "total(array)")


def test_one_process_leaves_early_and_the_cure(cluster: Cluster, programs: str) -> None:
    log = cluster.submit(f"{programs}/slurm/mistakes", "mistakes.sbatch leave_early.py", "mistakes-*.out")
    wrong, right = log.split("leave_early.py: exit status ")
    assert [line for line in program_lines(wrong) if line.startswith("Process")] == ["Process 3: 3 steps"]
    check_barrier(int(right.split()[0]), wrong, "task 3 on node2 reached", "total(array)")
    assert program_lines(right)[1:] == [f"Process {process}: 3 steps" for process in range(4)]
