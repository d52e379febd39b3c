"""The variables that Slurm would give to a task to identify it, for tasks that Slurm does not
start.

Only these variables give JAX everything that it must know, and the task shim and jaxsif/node need
no other way to identify tasks.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxsif.task.contract import times, visible_gpus


def identify(rank: int, tasks_per_node: int, nodes: Sequence[str], job: str) -> dict[str, str]:
    """Return the variables of task `rank`; tasks are numbered node by node."""
    node, local = divmod(rank, tasks_per_node)
    count = len(nodes)
    first = node * tasks_per_node
    return {
        "SLURM_JOB_ID": job,
        "SLURM_STEP_NODELIST": ",".join(nodes),
        "SLURM_STEP_NUM_NODES": str(count),
        "SLURM_STEP_TASKS_PER_NODE": f"{tasks_per_node}{times(count)}",
        "SLURM_NTASKS": str(count * tasks_per_node),
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(local),
        "SLURM_GTIDS": ",".join(map(str, range(first, first + tasks_per_node))),
        "SLURM_NODEID": str(node),
        "SLURMD_NODENAME": nodes[node],
        # These two may come from a job that this process is in.
        "SLURM_DISTRIBUTION": "block",
        "SLURM_TASK_PID": "",
    }


def hand_out_gpus(visible: str | None, number: int | None, there: int) -> dict[str, str]:
    """Return the variables that show all tasks of a node its GPUs: `number` of them, or all.

    `visible` is CUDA_VISIBLE_DEVICES, and `there` the number of existing devices, which a rehearsal
    may exceed.
    """
    names = list(map(str, range(there))) if visible is None else visible_gpus(visible)
    if number is None:
        number = len(names)
    if number == 0:
        return {}
    if number > len(names):
        names = list(map(str, range(number)))
    gpus = ",".join(names[:number])
    return {
        "CUDA_VISIBLE_DEVICES": gpus,
        "SLURM_STEP_GPUS": gpus,
        "SLURM_GPUS_ON_NODE": str(number),
    }
