"""The job scripts of slurm/, and ones written elsewhere: every process sees its own devices, and all of them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).resolve().parents[2]
_TIMEOUT = 200  # the 2 minutes a job gets, Slurm's patience with killed ones, and the pauses of `sbatch --wait`


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


def _own_lines(log: str) -> list[str]:
    """The lines that processes printed, sorted, out of a log that also holds the runtime's and Gloo's messages.

    Under `srun -u` each task writes to a terminal, so lines may end in CR LF.
    """
    noise = ("INFO: ", "[Gloo] ")
    lines = [line.rstrip("\r") for line in log.split("\n")]
    return sorted(line for line in lines if line and not line.startswith(noise))


def _submit(cluster, folder, script, log):
    """Submit `script`, wait for the job's end, assert that it succeeded, and return what is in the file `log`."""
    where = shlex.quote(folder)
    # On the command line, so that a job that hangs ends before this test gives up on it.
    job = cluster.run(f"cd {where} && sbatch --wait --time=2 {script}", timeout=_TIMEOUT)
    output = cluster.run(f"cd {where} && cat {log}", timeout=30)
    assert job.returncode == 0, job.stderr + output.stdout
    assert output.returncode == 0, output.stderr
    return output.stdout


def test_every_job_script_is_tested():
    scripts = {path.name for path in (_REPOSITORY / "slurm").glob("*.sbatch")}
    assert scripts == {name + ending for name in EXPECTED for ending in ENDINGS}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("name", EXPECTED)
def test_job_script(cluster, folder, name, ending):
    copy = cluster.run(f'module load jax/sif && cp -r "$JAXSIF_HOME/slurm" {folder}/slurm', timeout=30)
    assert copy.returncode == 0, copy.stderr
    # One glob that must match one file: the log is named after the job, in the folder it was submitted from.
    log = _submit(cluster, f"{folder}/slurm", name + ending, f"{name}-*.out")
    assert _own_lines(log) == EXPECTED[name]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param("--nodes=1 --ntasks=4 --gpus-per-node=4", _query(1, 4, 1), id="ntasks"),
        pytest.param("--nodes=2 --ntasks-per-node=2 --gpus-per-node=2", _query(2, 2, 1), id="gpus-per-node"),
        pytest.param("--nodes=2 --ntasks-per-node=1 --gres=gpu:2", _query(2, 1, 2), id="gres"),
        pytest.param("--nodes=2 --ntasks-per-node=2 --gpus-per-task=1", _query(2, 2, 1), id="gpus-per-task"),
    ],
)
def test_job_script_written_elsewhere(cluster, folder, options, expected):
    lines = "\n".join(f"#SBATCH {option}" for option in options.split())
    script = ELSEWHERE.format(options=lines, version=_jax_version())
    made = cluster.run(
        f'module load jax/sif && cd {folder} && cp "$JAXSIF_HOME/slurm/query.py" . && cat >job.sh',
        input=script,
        timeout=30,
    )
    assert made.returncode == 0, made.stderr
    assert _own_lines(_submit(cluster, folder, "job.sh", "job.log")) == expected
