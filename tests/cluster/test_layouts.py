"""What each process of a layout gets from real Slurm equals the plan; docs/slurm-layouts.md has the table of them.

`pytest --rewrite-golden` writes that table anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from harness import Cluster, jaxsif_run

PAGE = Path(__file__).resolve().parents[2] / "docs/slurm-layouts.md"

# Options of salloc ('' where srun makes the job) -> options of `jaxsif run` in it.
LAYOUTS = {
    "": [
        "--nodes=2 --gpus-per-node=4",
        "--nodes=2 --gpus-per-node=a100:2 --per-node",
        "--nodes=2 --ntasks-per-node=2 --gpus-per-task=2 --cpus-per-task=2",
        "--ntasks=6 --gpus-per-node=2",
        "--nodes=1 --ntasks=2 --gpus-per-node=4",
        "--nodes=2 --ntasks-per-node=3",
        "--nodes=1 --gpus-per-node=2 --gpu-bind=single:1",
        "--nodes=1 --ntasks-per-node=4 --gpus-per-node=2 --share-gpus",
        "--nodes=1 --ntasks-per-node=3 --gpus-per-node=4 --allow-uneven",
        "--nodes=1 --ntasks-per-node=2 --srun-args=--gres=gpu:2",
    ],
    "--nodes=2 --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=2": [
        "",
        "--per-node",
        "--ntasks-per-node=2",
        "--nodes=1",
        "--nodes=1 --ntasks-per-node=2",
        "--gpus-per-node=2 --per-gpu",
        "--ntasks-per-node=2 --gpus-per-task=1",
        "--gpus-per-task=2",
        "--gpu-bind=none",
        "--gpu-bind=single:1",
        "--gpu-bind=per_task:1",
        "--gpu-bind=map_gpu:3,2,1,0",
        "--gpu-bind=mask_gpu:0x1,0x2,0x4,0x8",
        "--ntasks-per-node=2 --gpu-bind=mask_gpu:0x3,0xc",
        "--ntasks-per-node=2 --gpu-bind=per_task:2",
        "--gpu-bind=closest",
        "--ntasks=1",
        "--ntasks-per-node=4 --gpu-bind=single:2 --share-gpus",
        "--cpus-per-task=1",
    ],
    "--nodes=2 --gpus-per-node=4": ["", "--per-node", "--ntasks=4"],
    "--nodes=2 --gpus-per-node=4 --cpus-per-gpu=2": ["", "--per-node", "--cpus-per-task=2"],
    "--nodes=2 --gres=gpu:2": ["", "--ntasks-per-node=1"],
    "--nodes=1 --gpus=3": ["", "--per-node"],
    "--nodes=2 --gpus=4": ["--allow-uneven", "--per-node --allow-uneven"],
    "--nodes=2 --ntasks-per-node=2 --gpus=4 --cpus-per-task=2": ["--per-gpu --allow-uneven"],
    "--nodes=2 --ntasks=4 --gpus-per-node=2": [""],
    "--nodes=2 --ntasks=4 --gpus-per-task=1": ["", "--gpu-bind=single:1"],
    "--nodes=2 --ntasks-per-node=2 --gpus-per-task=2 --cpus-per-task=2": [
        "",
        "--per-node",
        "--per-gpu",
        "--gpu-bind=per_task:2",
    ],
    "--gpus=8 --ntasks-per-gpu=1": ["", "--per-node"],
    "--nodes=2 --ntasks-per-node=2 --gpus-per-node=2 --gpu-bind=single:1": ["", "--gpu-bind=none"],
    "--nodes=2 --ntasks-per-node=2 --gpus-per-node=2 --distribution=cyclic": [""],
    "--nodes=2 --exclusive --gpus-per-node=4": ["", "--per-node"],
    "--nodes=3 --ntasks=5": [""],
    "--nodes=2 --ntasks-per-node=2 --cpus-per-task=3": [""],
    "--nodelist=node3 --gpus-per-node=1 : --nodelist=node[1-2] --nodes=2 --gpus-per-node=2": [
        "--allow-uneven",
        "--per-node --allow-uneven",
    ],
}
# What must not run: options of salloc, of `jaxsif run`, the reason, the flag that mends it.
MISFITS = (
    ("", "--nodes=2 --ntasks-per-node=4 --gpus-per-node=2", "4 tasks on a node with 2 GPUs", "--share-gpus"),
    ("", "--nodes=1 --ntasks-per-node=3 --gpus-per-node=4", "different numbers of GPUs: 2, 1, 1", "--allow-uneven"),
    ("", "--gpus-per-node=3 --gpus-per-task=2", "3 GPUs on a node cannot be divided", "--gpus-per-task=2"),
    ("", "--per-gpu", "the number of GPUs per node is not known", "--gpus-per-node=N"),
    ("", "--per-gpu --per-node", "--per-node and --per-gpu contradict each other", "leave out --per-gpu"),
    ("", "--nodes=2 --ntasks=3 --gpus-per-node=2", "2 nodes cannot share 3 tasks evenly", "--ntasks=2"),
    ("", "--gpus-per-node=4 --gpu-bind=single:2", "gives one GPU to several of 4 tasks", "--gpu-bind=none"),
    ("", "--gpus-per-node=2 --gpu-bind=map_gpu:0,2", "gives GPU 2 of a node with 2", "--gpu-bind=none"),
    ("", "--gpus-per-node=2 --gpu-bind=mask_gpu:xyz", "cannot read --gpu-bind=mask_gpu:xyz", "srun(1)"),
    ("--nodes=2 --gpus=4", "", "spread unevenly across its nodes: 3 + 1", "--allow-uneven"),
    ("--nodes=2 --gpus=4", "--per-node", "different numbers of GPUs: 3 + 1", "--allow-uneven"),
    ("--nodes=2 --gpus=4", "--nodes=3", "3 nodes requested, but the job has 2", "--nodes=2"),
    ("--nodes=1 --gpus-per-node=2", "--gpus-per-node=4", "4 GPUs on a node, but the job has 2", "--gpus-per-node=2"),
    ("--nodes=1 --gpus-per-node=2", "--cpus-per-task=9", "2 tasks with 9 CPUs each on a node", "more CPUs"),
)
MARK = "@@"
NODES = ("node1", "node2", "node3", "node4")
Where = tuple[Any, ...]  # node, task, GPUs, CPUs of a process


class Ran(NamedTuple):
    """One layout: what was planned, and what happened."""

    job: str
    options: str
    plan: str  # what --explain drew
    processes: list[dict[str, Any]]
    errors: str


def run_all(cluster: Cluster, folder: str) -> Iterator[Ran]:
    for job, options in LAYOUTS.items():
        for one, (plan, output) in zip(options, run_in(cluster, folder, job, options, "python where.py", maps=True)):
            lines = output.splitlines()
            found = sorted((json.loads(line) for line in lines if line[0] == "{"), key=lambda line: line["process"])
            yield Ran(job, one, plan, found, "\n".join(line for line in lines if line[0] != "{"))


def run_in(
    cluster: Cluster, folder: str, job: str, options: Sequence[str], program: str, maps: bool = False
) -> list[list[str]]:
    """For each of the options, in one job, what --explain and the run print."""
    lines = ["exec 2>&1 </dev/null"]
    for one in options:
        lines += [f"echo '{MARK}'", f"jaxsif run {one} --explain -- true" if maps else "", f"echo '{MARK}'"]
        lines += [f"jaxsif run {one} -- {program}", "echo exit status $?" if not maps else ""]
    cluster.write(f"{folder}/steps.sh", "\n".join(lines))
    salloc = f"salloc --quiet {job} " if job else ""
    blocks = cluster.run(f"module load jax/sif && cd {folder} && {salloc}bash steps.sh").stdout.split(f"{MARK}\n")[1:]
    return [blocks[index : index + 2] for index in range(0, len(blocks), 2)]


def planned(text: str) -> dict[int, Where]:
    """What the map says of each process; None where it does not know."""
    lines = text.splitlines()
    head = next(line for line in lines if line.startswith("node "))
    begins = [match.start() for match in re.finditer(r"\S+", head)]
    found: dict[int, Where] = {}
    names: list[str | None] = []
    for line in lines[lines.index(head) + 1 :]:
        if not line:
            break
        cells = [line[begin:end].strip() for begin, end in zip(begins, [*begins[1:], None])]
        processes = numbers(cells[2])
        if cells[0]:
            names = hosts(cells[0], len(processes))
        gpus = None if cells[3] == "?" else [] if cells[3] == "-" else spans(cells[3])
        for name, process in zip(names, processes):
            found[process] = (name, int(cells[1]), gpus, None if cells[4] == "?" else cells[4])
    return found


def numbers(cell: str) -> list[int]:
    """'0', '0, 4', '0, 2 … 6'."""
    first, *rest = map(int, re.findall(r"\d+", cell))
    return [first, *rest] if "…" not in cell else list(range(first, rest[1] + 1, rest[0] - first))


def hosts(cell: str, count: int) -> list[str | None]:
    """'node1, node2', 'node1 … node3'; None for each where Slurm chooses."""
    if not cell.startswith("node"):
        return [None] * count
    names = cell.replace(" … ", ", ").split(", ")
    begin = NODES.index(names[0])
    return [*NODES[begin : begin + count]] if "…" in cell else [*names]


def spans(cell: str) -> list[int]:
    """'0,1', '0-3'."""
    first, dash, last = cell.partition("-")
    return list(range(int(first), int(last) + 1)) if dash else [int(gpu) for gpu in cell.split(",")]


def check(ran: Ran) -> None:
    """The processes have what the map said, and each GPU of the step is one process's."""
    plan = planned(ran.plan)
    told = f"{ran.job} | {ran.options}\n{ran.plan}\n{ran.errors}"
    assert [one["process"] for one in ran.processes] == list(range(len(plan))), told
    for one in ran.processes:
        node, task, gpus, cpus = plan[one["process"]]
        assert (one["ntasks"], one["task"]) == (len(plan), task), told
        assert node in (None, one["node"]), told
        assert gpus in (None, one["gpus"]), told
        assert cpus in (None, one["cpus"], one["cpus"].split()[0]), told
        assert one["devices"] == (str(len(one["gpus"])) if one["gpus"] else None)
        assert (one["memory"] is not None) == ("--share-gpus" in ran.options), told
    used = [(one["node"], gpu) for one in ran.processes for gpu in one["gpus"]]
    there = {one["node"]: one["on_node"] for one in ran.processes}
    if "--share-gpus" not in ran.options:
        assert len(used) == len(set(used)) == sum(there.values()), told


def release_of(cluster: Cluster) -> str:
    """The release of Slurm, such as 24.11."""
    found = re.search(r"\d\d\.\d\d", cluster.check("sinfo --version"))
    assert found
    return found[0]


def name_release(head: str, release: str) -> str:
    """The text above the table, which names the releases of Slurm that gave it: this one, too."""
    named = re.search(r"real Slurm ((?:[\d.]+)(?: and [\d.]+)*)", head)
    assert named
    releases = sorted({release, *named[1].split(" and ")})
    return head.replace(named[0], f"real Slurm {' and '.join(releases)}")


def row(ran: Ran) -> str:
    """A row of the table: nodes with equal GPUs as one."""
    nodes: dict[str, list[str]] = {}
    for one in ran.processes:
        nodes.setdefault(one["node"], []).append(",".join(map(str, one["gpus"])) or "-")
    # Which of the job's nodes Slurm takes differs from time to time.
    shown = " + ".join(f"{' / '.join(gpus)}" for gpus in nodes.values())
    cpus = ran.processes[0]["cpus"]
    cells = (f"`{ran.job}`" if ran.job else "", f"`{ran.options}`" if ran.options else "", shown, cpus)
    return f"| {' | '.join(cells)} |"


@pytest.mark.timeout(1800)
def test_each_process_has_what_the_map_says(
    cluster: Cluster, folder: str, compare: Callable[[Path, str], None]
) -> None:
    rows = []
    for ran in run_all(cluster, folder):
        check(ran)
        rows.append(row(ran))
    assert len(rows) >= 40
    text = PAGE.read_text()
    head = text[: text.index(TABLE) + len(TABLE)]
    compare(PAGE, name_release(head, release_of(cluster)) + "\n".join(rows) + "\n")


TABLE = "|---|---|---|---|\n"


def test_misfits_are_refused_before_the_step(cluster: Cluster, folder: str) -> None:
    for job in dict.fromkeys(job for job, *_ in MISFITS):
        cases = [case for case in MISFITS if case[0] == job]
        blocks = run_in(cluster, folder, job, [options for _, options, *_ in cases], "sh -c 'echo it ran'")
        for (_, options, reason, remedy), (_, output) in zip(cases, blocks):
            error, _, hint, status = output.splitlines()
            assert error.startswith("jaxsif: error: "), output
            assert reason in error, (options, output)
            assert re.match(rf"  try:  .*{re.escape(remedy)}", hint), (options, output)
            assert status == "exit status 2", (options, output)


def test_a_task_that_sees_other_gpus_stops_the_step_with_one_message(cluster: Cluster, folder: str) -> None:
    options = "--nodes=2 --gpus-per-node=4 --env=CUDA_VISIBLE_DEVICES="
    ((_, output),) = run_in(cluster, folder, "", [options], "python -c 'print(1)'")
    lines = output.splitlines()
    assert lines[-1] == "exit status 125"
    assert lines[-4] == "jaxsif: error: this task sees 0 of 4 planned GPUs"
    assert re.fullmatch(r"  from: task \d on node\d", lines[-3])
    assert lines[-2].startswith("  try:  request GPUs with --gpus-per-node=N")
    assert output.count("jaxsif: error: ") == 1
    assert "1" not in lines


def test_jax_counts_the_devices_of_uneven_processes(cluster: Cluster, folder: str) -> None:
    """On CPUs: as many devices as GPUs; also over the components of a job, of which the first has the last node."""
    program = (
        "import jax; jax.distributed.initialize(); "
        "print(jax.process_index(), jax.local_device_count(), jax.device_count())"
    )
    cluster.write(f"{folder}/count.py", program)
    het = "--nodelist=node3 --gpus-per-node=1 : --nodelist=node[1-2] --nodes=2 --gpus-per-node=2"
    for job, options, expected in (
        ("--nodes=2 --gpus=4", "--per-node --allow-uneven", ["0 3 4", "1 1 4"]),
        (het, "--per-node --allow-uneven", ["0 1 5", "1 2 5", "2 2 5"]),
    ):
        ((_, output),) = run_in(cluster, folder, job, [options], "python count.py")
        assert sorted(line for line in output.splitlines() if re.fullmatch(r"\d \d \d", line)) == expected, output


def test_gres_beside_gpus_per_node(cluster: Cluster) -> None:
    """From 26.05 on, Slurm refuses what it took before, also where a variable says the one of them."""
    run = jaxsif_run("--nodes=1", "--gpus-per-node=2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    done = cluster.run(f"export SLURM_GRES=gpu:2; {run}")
    if release_of(cluster) < "26.05":
        assert done.stdout.split() == ["0,1", "0,1"]
    else:
        assert done.returncode == 125
        assert "error: Slurm refused the request: --gpus-per-node and --gres=gpu are mutually exclusive" in done.stderr
