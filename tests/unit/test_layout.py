"""Nodes x tasks x GPUs for what was asked for and what the job has; what cannot work is refused."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from jaxsif.errors import JaxsifError
from jaxsif.layout import Layout, plan_layout
from jaxsif.slurm import Allocation


class Asked(NamedTuple):
    """The options."""

    nodes: int | None = None
    ntasks_per_node: int | None = None
    gpus_per_node: str | None = None


def job(
    nodes: int = 2, ntasks: int | None = None, ntasks_per_node: int | None = None, gpus_per_node: int | None = None
) -> Allocation:
    return Allocation("4711", nodes, ntasks, ntasks_per_node, gpus_per_node)


@pytest.mark.parametrize(
    ("asked", "layout"),
    [
        (Asked(), Layout(None, None, None, "Slurm's default")),
        (Asked(nodes=2), Layout(2, None, None, "Slurm's default")),
        (Asked(gpus_per_node="4"), Layout(None, 4, 4, "one task per GPU")),
        (Asked(2, None, "a100:2,v100:2"), Layout(2, 4, 4, "one task per GPU")),
        (Asked(2, 1, "4"), Layout(2, 1, 4, "--ntasks-per-node")),
        (Asked(gpus_per_node="0"), Layout(None, None, 0, "Slurm's default")),
        (Asked(ntasks_per_node=8, gpus_per_node="0"), Layout(None, 8, 0, "--ntasks-per-node")),
    ],
    ids=["nothing", "nodes", "GPUs", "GPUs of two types", "fewer tasks than GPUs", "no GPUs", "tasks on CPUs"],
)
def test_outside_a_job(asked: Asked, layout: Layout) -> None:
    assert plan_layout(*asked, None, None) == layout


@pytest.mark.parametrize(
    ("asked", "allocation", "layout"),
    [
        (Asked(), job(gpus_per_node=4), Layout(2, 4, 4, "one task per GPU")),
        (Asked(), job(), Layout(2, None, None, "Slurm's default")),
        (Asked(), job(gpus_per_node=0), Layout(2, None, 0, "Slurm's default")),
        (Asked(), job(ntasks_per_node=2, gpus_per_node=4), Layout(2, 2, 4, "SLURM_NTASKS_PER_NODE")),
        (Asked(), job(ntasks=8, gpus_per_node=4), Layout(2, 4, 4, "SLURM_NTASKS")),
        (Asked(), job(nodes=3, ntasks=8, gpus_per_node=4), Layout(3, None, 4, "SLURM_NTASKS")),
        (Asked(nodes=1), job(gpus_per_node=4), Layout(1, 4, 4, "one task per GPU")),
        (Asked(ntasks_per_node=1), job(ntasks_per_node=4, gpus_per_node=4), Layout(2, 1, 4, "--ntasks-per-node")),
        (Asked(gpus_per_node="2"), job(gpus_per_node=4), Layout(2, 2, 2, "one task per GPU")),
        (Asked(gpus_per_node="4"), job(gpus_per_node=4), Layout(2, 4, 4, "one task per GPU")),
    ],
    ids=[
        "one task per GPU of the job",
        "a job that tells nothing",
        "a job without GPUs",
        "tasks per node of the job",
        "tasks of the job",
        "tasks that the nodes cannot share evenly",
        "some of its nodes",
        "the option before the job",
        "some of its GPUs",
        "all of its GPUs",
    ],
)
def test_in_a_job(asked: Asked, allocation: Allocation, layout: Layout) -> None:
    assert plan_layout(*asked, allocation, None) == layout


@pytest.mark.parametrize(
    ("asked", "job_gpus", "layout"),
    [
        (Asked(nodes=1), (2,), Layout(1, 2, 2, "one task per GPU")),
        (Asked(), (2, 2), Layout(2, 2, 2, "one task per GPU")),
        (Asked(), (0, 0), Layout(2, None, 0, "Slurm's default")),
        (Asked(), (), Layout(2, None, None, "Slurm's default")),
        (Asked(gpus_per_node="1"), (2, 1), Layout(2, 1, 1, "one task per GPU")),
        (Asked(ntasks_per_node=1), (2, 1), Layout(2, 1, None, "--ntasks-per-node")),
    ],
    ids=["one node", "even", "none", "unknown", "uneven, but GPUs given", "uneven, but tasks given"],
)
def test_in_a_job_whose_gpus_had_to_be_asked_for(asked: Asked, job_gpus: tuple[int, ...], layout: Layout) -> None:
    assert plan_layout(*asked, job(), job_gpus) == layout


def test_uneven_gpus_are_slurms_affair_where_the_job_has_its_own_tasks() -> None:
    assert plan_layout(*Asked(), job(nodes=3, ntasks=8), (2, 1, 1)) == Layout(3, None, None, "SLURM_NTASKS")


UNEVEN = """\
jaxsif: error: the job's GPUs are spread unevenly over its nodes: 2 + 1
  from: the allocation (--gpus gives a total; Slurm chooses where)
  try:  allocate with --gpus-per-node=N, or pass --ntasks-per-node"""
TOO_MANY_TASKS = """\
jaxsif: error: 4 tasks on a node with 2 GPU(s): JAX needs at least one GPU for each process
  from: {}
  try:  --ntasks-per-node=2, or --gpus-per-node=4"""
TOO_MANY_GPUS = """\
jaxsif: error: 8 GPUs on a node, but the job has 4 on each
  from: --gpus-per-node
  try:  --gpus-per-node=4, or a job with more"""
NO_NUMBER = """\
jaxsif: error: not a number of GPUs: ''
  from: --gpus-per-node
  try:  give N or TYPE:N, as for srun"""


@pytest.mark.parametrize(
    ("asked", "allocation", "job_gpus", "text"),
    [
        (Asked(), job(), (2, 1), UNEVEN),
        (Asked(None, 4, "2"), None, None, TOO_MANY_TASKS.format("--ntasks-per-node")),
        (Asked(), job(ntasks_per_node=4, gpus_per_node=2), None, TOO_MANY_TASKS.format("SLURM_NTASKS_PER_NODE")),
        (Asked(), job(ntasks=8, gpus_per_node=2), None, TOO_MANY_TASKS.format("SLURM_NTASKS")),
        (Asked(None, 4), job(), (2, 2), TOO_MANY_TASKS.format("--ntasks-per-node")),
        (Asked(None, None, "8"), job(gpus_per_node=4), None, TOO_MANY_GPUS),
        (Asked(None, None, ""), None, None, NO_NUMBER),
    ],
    ids=[
        "uneven GPUs",
        "more tasks than GPUs",
        "more tasks per node of the job than GPUs",
        "more tasks of the job than GPUs",
        "more tasks than GPUs that had to be asked for",
        "more GPUs than the job has",
        "an empty number of GPUs",
    ],
)
def test_refused(asked: Asked, allocation: Allocation | None, job_gpus: tuple[int, ...] | None, text: str) -> None:
    with pytest.raises(JaxsifError) as caught:
        plan_layout(*asked, allocation, job_gpus)
    assert caught.value.render() == text
    assert caught.value.exit_code == 2
