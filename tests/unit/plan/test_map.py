"""The map of a step, as text."""

from __future__ import annotations

import pytest
from kit.hosts import LOGIN_NODE, plan_for, srun_words

from jaxsif.job.allocation import Allocation
from jaxsif.layout.layout import Group, Layout
from jaxsif.layout.topology import Near
from jaxsif.plan.command import describe_plan, render_summary
from jaxsif.plan.map import render_map
from jaxsif.plan.plan import Plan
from jaxsif.settings.options import RunOptions

JOB = Allocation("4711", 3, None, None, 4, nodelist="gpu[07-09]")


def plan(layout: Layout, *options: str) -> Plan:
    asked = RunOptions(("x",), srun_args=srun_words(*options))
    return plan_for(asked, LOGIN_NODE._replace(allocation=JOB))._replace(layout=layout)


def test_whole_map_on_a_node_of_the_step() -> None:
    layout = Layout((Group(2, 2, 4, 16), Group(1, 1, 2, 8)), "--ntasks-per-node", uneven=True)
    near = (Near(0, ("mlx5_0",)), Near(0, ("mlx5_0",)), Near(1, ("mlx5_1",)), Near(1, ("mlx5_1",)))
    assert (
        render_map(plan(layout), near)
        == """\
5 processes on 3 nodes

node          task  process  GPUs  CPUs       NIC
gpu07, gpu08  0     0, 2     0,1   16 shared  mlx5_0
              1     1, 3     2,3   16 shared  mlx5_1
gpu09         0     4        0,1   8          mlx5_0

tasks: --ntasks-per-node
GPUs: a task sees all GPUs of its node; JAX_LOCAL_DEVICE_IDS names those it uses
CPUs: all that the job has on the node, shared by its tasks
NIC: the nearest on this node; NUMA nodes: GPU 0: 0, GPU 1: 0, GPU 2: 1, GPU 3: 1"""
    )


def test_tasks_that_slurm_spreads_over_nodes() -> None:
    asked = RunOptions(("x",), ntasks=4, gpus_per_task=1, cpus_per_task=2)
    spread = plan_for(asked, LOGIN_NODE)
    assert (
        render_map(spread, None)
        == """\
4 processes on ? nodes

node  task  process   GPUs  CPUs
?     ?     0, 1 … 3  ?     2

tasks: --ntasks
GPUs: Slurm decides
CPUs: --cpus-per-task=2
NIC: not known: this host is not a node of the step"""
    )
    assert render_summary(spread).startswith("jaxsif: 4 tasks by srun (--ntasks); ")
    assert describe_plan(spread)["tasks"] == 4


@pytest.mark.parametrize(
    ("layout", "options", "row"),
    [
        (Layout((Group(3, 1, 4, 16),), ""), (), "gpu07 … gpu09  0     0, 1 … 2  0-3   16"),
        (Layout((Group(1, 1, 4, 16),), ""), ("--cpus-per-task=3",), "1 of gpu07 … gpu09  0     0        0-3   3"),
        (Layout((Group(3, 2, 2, 4),), ""), ("--distribution=cyclic",), "               1     3, 4 … 5  1     4 shared"),
        (Layout((Group(3, 2, None),), ""), (), "               1     1, 3 … 5  ?     ?"),
        (Layout((Group(3, 1, 0, 2),), ""), (), "gpu07 … gpu09  0     0, 1 … 2  -     2"),
        (Layout((Group(3, 2, 4),), "", None, "map_gpu:3,1"), (), "               1     1, 3 … 5  1     ?"),
        (Layout((Group(3, 4, 2),), "", sharers=2), (), "               3     3, 7 … 11  1     ?"),
    ],
    ids=["one each", "some nodes", "cyclic", "GPUs unknown", "no GPUs", "bound", "shared"],
)
def test_rows(layout: Layout, options: tuple[str, ...], row: str) -> None:
    assert row in render_map(plan(layout, *options), None).splitlines()
