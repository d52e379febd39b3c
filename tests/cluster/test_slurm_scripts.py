"""The job scripts of slurm/, and ones written elsewhere: every process sees its own devices, and all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from harness import Cluster, program_lines

_REPOSITORY = Path(__file__).resolve().parents[2]


def _query(nodes: int, tasks_per_node: int, local: int) -> list[str]:
    """What query.py and query_all_gpus.py print, sorted; tasks are placed in blocks, as Slurm does by default."""
    tasks = nodes * tasks_per_node
    devices = f"{local} local device{'s' if local > 1 else ''}, {tasks * local} global devices"
    return [f"Process {task} of {tasks} on node{task // tasks_per_node + 1}: {devices}" for task in range(tasks)]


# Job script, without its ending -> what its processes print, sorted.
EXPECTED = {
    "query_1x4x1": _query(1, 4, 1),
    "query_2x1x2": _query(2, 1, 2),
    "query_2x2x1": _query(2, 2, 1),
    "allreduce_2x4x1": [f"Process {p} has y=[8.]" for p in range(8)],
    "count_devices_4x4x1": sorted(f"I am {p}, I see 1/16 devices" for p in range(16)),
}
ENDINGS = (".sbatch", ".srun.sbatch")

# What a user of another cluster may bring along: modules, an image variable and srun, nothing of ours.
ELSEWHERE = """#!/bin/bash
{options}
#SBATCH --output=job.log
#SBATCH --time=3

module load dl
module load jax/{version}-sif

IMAGE=$JAX_IMAGE

srun -u -n ${{SLURM_NTASKS}} -N ${{SLURM_NNODES}} singularity run --nv $IMAGE python query.py
"""


def _jax_version() -> str:
    lock = (_REPOSITORY / "containers/locks/cpu.txt").read_text()
    found = re.search(r"^jax==(\S+)", lock, re.MULTILINE)
    assert found
    return found[1]


def test_every_job_script_is_tested() -> None:
    scripts = {path.name for path in (_REPOSITORY / "slurm").glob("*.sbatch")}
    assert scripts == {name + ending for name in EXPECTED for ending in ENDINGS}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("name", EXPECTED)
def test_job_script(cluster: Cluster, folder: str, name: str, ending: str) -> None:
    cluster.check(f'module load jax/sif && cp -r "$JAXSIF_HOME/slurm" {folder}/slurm')
    # One glob that must match one file: the log is named after the job, in the folder it was submitted from.
    log = cluster.submit(f"{folder}/slurm", name + ending, f"{name}-*.out")
    assert program_lines(log) == EXPECTED[name]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param("--nodes=1 --ntasks=4 --gpus-per-node=4", _query(1, 4, 1), id="ntasks"),
        pytest.param("--nodes=2 --ntasks-per-node=2 --gpus-per-node=2", _query(2, 2, 1), id="gpus-per-node"),
        pytest.param("--nodes=2 --ntasks-per-node=1 --gres=gpu:2", _query(2, 1, 2), id="gres"),
        pytest.param("--nodes=2 --ntasks-per-node=2 --gpus-per-task=1", _query(2, 2, 1), id="gpus-per-task"),
    ],
)
def test_job_script_written_elsewhere(cluster: Cluster, folder: str, options: str, expected: list[str]) -> None:
    lines = "\n".join(f"#SBATCH {option}" for option in options.split())
    cluster.write(f"{folder}/job.sh", ELSEWHERE.format(options=lines, version=_jax_version()))
    cluster.check(f'module load jax/sif && cp "$JAXSIF_HOME/slurm/query.py" {folder}')
    assert program_lines(cluster.submit(folder, "job.sh", "job.log")) == expected
