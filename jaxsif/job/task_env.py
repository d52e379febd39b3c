"""The variables by which Slurm would tell a task who it is, for tasks that Slurm does not start.

JAX has no others for all that it must know, and the task shim and jaxsif/node need no second way
either.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxsif.task.contract import visible_gpus


def identify(rank: int, tasks_per_node: int, nodes: Sequence[str], job: str) -> dict[str, str]:
    """The variables of task `rank`; tasks are numbered node by node."""
    node, local = divmod(rank, tasks_per_node)
    count = len(nodes)
    first = node * tasks_per_node
    return {
        "SLURM_JOB_ID": job,
        "SLURM_STEP_NODELIST": ",".join(nodes),
        "SLURM_STEP_NUM_NODES": str(count),
        "SLURM_STEP_TASKS_PER_NODE": f"{tasks_per_node}(x{count})"
        if count > 1
        else str(tasks_per_node),
        "SLURM_NTASKS": str(count * tasks_per_node),
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(local),
        "SLURM_GTIDS": ",".join(map(str, range(first, first + tasks_per_node))),
        "SLURM_NODEID": str(node),
        "SLURMD_NODENAME": nodes[node],
        # And not that of a job that this is in, no more than its batch script's process.
        "SLURM_DISTRIBUTION": "block",
        "SLURM_TASK_PID": "",
    }


def hand_out_gpus(visible: str | None, number: int | None, there: int) -> dict[str, str]:
    """The variables by which all tasks of a node see its GPUs: `number` of them, or all.

    `visible` is CUDA_VISIBLE_DEVICES, and `there` the number of devices. A rehearsal may ask for
    more than there are.
    """
    names = visible_gpus(visible or "")
    if number is None:
        number = there if visible is None else len(names)
    gpus = ",".join(names[:number] if len(names) >= number else map(str, range(number)))
    if not gpus:
        return {}
    return {
        "CUDA_VISIBLE_DEVICES": gpus,
        "SLURM_STEP_GPUS": gpus,
        "SLURM_GPUS_ON_NODE": str(number),
    }
