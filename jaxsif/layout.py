"""Nodes x tasks x GPUs: what was asked for, what the allocation has, and whether they fit."""

from __future__ import annotations

from typing import NamedTuple

from jaxsif.errors import JaxsifError
from jaxsif.slurm import Allocation, parse_gpu_count


class Layout(NamedTuple):
    """One step's shape; None where Slurm decides."""

    nodes: int | None  # nodes of the step
    ntasks_per_node: int | None  # tasks, and so JAX processes, on each node
    gpus_per_node: int | None  # GPUs that the step has on each node
    why: str  # where the number of tasks comes from, for people


def plan_layout(
    nodes: int | None,
    ntasks_per_node: int | None,
    gpus_per_node: str | None,
    allocation: Allocation | None,
    job_gpus: tuple[int, ...] | None,
) -> Layout:
    """The layout for the options given and the allocation, one task per GPU unless told otherwise.

    `job_gpus` is the number of GPUs on each node of the job, where it had to be asked for. Raises JaxsifError for a
    layout that cannot work.
    """
    asked = parse_gpu_count(gpus_per_node) if gpus_per_node is not None else None
    available = allocation.gpus_per_node if allocation else None
    if available is None and job_gpus and len(set(job_gpus)) == 1:
        available = job_gpus[0]
    gpus = asked if asked is not None else available
    tasks, why = ntasks_per_node, "--ntasks-per-node" if ntasks_per_node else ""
    if tasks is None and allocation:
        tasks, why = _tasks_of_job(allocation)
        if tasks is None and not why:
            _refuse_uneven(job_gpus if asked is None else None)
    if tasks is None and gpus and not why.startswith("SLURM"):
        tasks, why = gpus, "one task per GPU"
    _check_gpus(tasks, gpus, why, asked, allocation)
    return Layout(nodes or (allocation.nodes if allocation else None), tasks, gpus, why or "Slurm's default")


def _tasks_of_job(allocation: Allocation) -> tuple[int | None, str]:
    """Tasks per node as the job itself asked for them, and the variable that says so; (None, '') if it did not."""
    if allocation.ntasks_per_node:
        return allocation.ntasks_per_node, "SLURM_NTASKS_PER_NODE"
    if allocation.ntasks:
        # A number that the nodes cannot share evenly is Slurm's to place.
        even = allocation.ntasks % allocation.nodes == 0
        return (allocation.ntasks // allocation.nodes if even else None), "SLURM_NTASKS"
    return None, ""


def _refuse_uneven(job_gpus: tuple[int, ...] | None) -> None:
    if job_gpus and len(set(job_gpus)) > 1:
        raise JaxsifError(
            f"the job's GPUs are spread unevenly over its nodes: {' + '.join(map(str, job_gpus))}",
            "the allocation (--gpus gives a total; Slurm chooses where)",
            "allocate with --gpus-per-node=N, or pass --ntasks-per-node",
        )


def _check_gpus(
    tasks: int | None, gpus: int | None, why: str, asked: int | None, allocation: Allocation | None
) -> None:
    if tasks and gpus and tasks > gpus:
        raise JaxsifError(
            f"{tasks} tasks on a node with {gpus} GPU(s): JAX needs at least one GPU for each process",
            why,
            f"--ntasks-per-node={gpus}, or --gpus-per-node={tasks}",
        )
    if allocation and asked and allocation.gpus_per_node is not None and asked > allocation.gpus_per_node:
        raise JaxsifError(
            f"{asked} GPUs on a node, but the job has {allocation.gpus_per_node} on each",
            "--gpus-per-node",
            f"--gpus-per-node={allocation.gpus_per_node}, or a job with more",
        )
