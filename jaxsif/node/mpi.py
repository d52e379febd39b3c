"""Set Slurm's variables for a task that Open MPI starts, and execute its program.

    mpi.py NODE,NODE... TASKS_PER_NODE GPUS PROGRAM [ARGUMENT...]

GPUS is the number of GPUs that the tasks of each node share, or '-' for all of them.
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../.."))

from jaxsif.job.task_env import hand_out_gpus, identify
from jaxsif.node.share import forget_python
from jaxsif.task.contract import count_gpus

# From these, JAX infers that Open MPI started the process, and needs mpi4py, or the address of an
# older Open MPI; see jax/_src/clusters/ompi_cluster.py. MPI programs themselves need only others.
HIDDEN = (
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "OMPI_MCA_orte_hnp_uri",
)


def main(nodes: str, tasks: str, gpus: str, *program: str) -> None:
    """Run the command line."""
    environ = os.environ
    rank = int(environ["OMPI_COMM_WORLD_RANK"])
    environ.update(identify(rank, int(tasks), nodes.split(","), environ.get("SLURM_JOB_ID") or "1"))
    number = None if gpus == "-" else int(gpus)
    environ.update(hand_out_gpus(environ.get("CUDA_VISIBLE_DEVICES"), number, count_gpus()))
    for name in HIDDEN:
        environ.pop(name, None)
    forget_python()
    os.execvp(program[0], program)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except OSError as error:
        sys.exit(f"FATAL: cannot start the task: {error.strerror}: {sys.argv[4]}")
