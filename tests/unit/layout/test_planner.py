"""Nodes x tasks x GPUs for what was asked for and what the job has; tests/cluster/test_layouts.py asks real Slurm."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.bounds import least_seconds
from kit.caught import catch

from jaxsif.errors import JaxsifError
from jaxsif.job.allocation import NO_JOB, Allocation
from jaxsif.job.counts import Counts
from jaxsif.launch.launchers.srun import layout_options
from jaxsif.layout import layout as binding
from jaxsif.layout.layout import JOB, NOBODY, Group, Layout
from jaxsif.layout.planner import (
    RULES,
    Case,
    as_the_gpus,
    as_the_job,
    evenly,
    find_basis,
    left_to_slurm,
    on_each_node,
    on_first_nodes,
    on_new_nodes,
    one_per_gpu,
    plan_layout,
    refuse_unknown_gpus,
    resolve_totals,
)
from jaxsif.settings.options import Rank, RunOptions, Setting
from jaxsif.task.contract import share

Shape = tuple[object, ...]  # of a layout whose nodes are equal: nodes, tasks, GPUs, why


def asking(*counts: int, **options: object) -> RunOptions:
    """A request; `counts` are nodes, tasks, tasks per node."""
    return RunOptions(("true",), None, *counts, **options)  # type: ignore[arg-type]


def job(
    nodes: int = 2, ntasks: int | None = None, ntasks_per_node: int | None = None, gpus_per_node: int | None = None
) -> Allocation:
    return Allocation("4711", nodes, ntasks, ntasks_per_node, gpus_per_node)


def shape(layout: Layout) -> Shape:
    return layout.nodes, layout.ntasks_per_node, layout.gpus_per_node, layout.why


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (asking(), (None, None, None, "Slurm's default")),
        (asking(nodes=2), (2, None, None, "Slurm's default")),
        (asking(gpus_per_node="4"), (None, 4, 4, "one task per GPU")),
        (asking(2, gpus_per_node="a100:2,v100:2"), (2, 4, 4, "one task per GPU")),
        (asking(gpus_per_node="0"), (None, None, 0, "Slurm's default")),
        (asking(ntasks=8, gpus_per_node="4"), (2, 4, 4, "--ntasks")),
        (asking(2, ntasks_per_node=2, gpus_per_task=2), (2, 2, 4, "--ntasks-per-node")),
        (asking(gpus_per_node="4", gpus_per_task=2), (None, 2, 4, "one task per 2 GPUs")),
    ],
)
def test_outside_a_job(asked: RunOptions, expected: Shape) -> None:
    assert shape(plan_layout(asked, None, None)) == expected


@pytest.mark.parametrize(
    ("asked", "allocation", "expected"),
    [
        (asking(), job(gpus_per_node=4), (2, 4, 4, "one task per GPU")),
        (asking(), job(), (2, None, None, "Slurm's default")),
        (asking(), job(gpus_per_node=0), (2, None, 0, "Slurm's default")),
        (asking(), job(ntasks_per_node=2, gpus_per_node=4), (2, 2, 4, "SLURM_NTASKS_PER_NODE")),
        (asking(), job(ntasks=8, gpus_per_node=4), (2, 4, 4, "SLURM_NTASKS")),
        (asking(), job(nodes=3, ntasks=8, gpus_per_node=4), (3, None, 4, "SLURM_NTASKS")),
        (asking(per_gpu=True), job(ntasks_per_node=1, gpus_per_node=4), (2, 4, 4, "one task per GPU")),
        (asking(gpus_per_node="2"), job(gpus_per_node=4), (2, 2, 2, "one task per GPU")),
        (asking(gpus_per_node="4"), job(gpus_per_node=4), (2, 4, 4, "one task per GPU")),
    ],
)
def test_in_a_job(asked: RunOptions, allocation: Allocation, expected: Shape) -> None:
    assert shape(plan_layout(asked, allocation, None)) == expected


@pytest.mark.parametrize(
    ("asked", "job_gpus", "expected"),
    [
        (asking(nodes=1), ((2, 2),), (1, 2, 2, "one task per GPU")),
        (asking(), ((2, 2),), (2, 2, 2, "one task per GPU")),
        (asking(), ((0, 2),), (2, None, 0, "Slurm's default")),
        (asking(), (), (2, None, None, "Slurm's default")),
        (asking(gpus_per_node="1"), ((2, 1), (1, 1)), (2, 1, 1, "one task per GPU")),
    ],
    ids=["one node", "even", "none", "unknown", "uneven, but GPUs given"],
)
def test_in_a_job_whose_gpus_had_to_be_asked_for(asked: RunOptions, job_gpus: Counts, expected: Shape) -> None:
    assert shape(plan_layout(asked, job(), job_gpus)) == expected


UNKNOWN = [Group(2, None, None)]  # nodes of a job that tells nothing of them
OUTSIDE = [Group(None, None, None)]
UNKNOWN_GPUS = "the number of GPUs per node is not known"
COMPONENTS = [Group(1, 1, 1), Group(2, 1, 2, component=1)]
ONE_AND_THREE = [Group(1, 3, 1), Group(1, 1, 3)]  # tasks of the job, GPUs

Choose = Callable[[Case], Layout]
# Every rule: who gives the number of tasks, the rule, what is known of the nodes -> nodes x tasks, None where the rule
# does not apply, or the error; and what the reason is.
CASES: list[tuple[RunOptions, Choose, list[Group], list[tuple[int | None, int | None]] | str | None, str]] = [
    (asking(per_node=True), on_each_node, UNKNOWN, [(2, 1)], "--per-node"),
    (asking(ntasks_per_node=3), on_each_node, OUTSIDE, [(None, 3)], "--ntasks-per-node"),
    (asking(2, 4, 2), on_each_node, OUTSIDE, [(None, 2)], "--ntasks-per-node"),
    (asking(ntasks=8, gpus_per_node="4"), on_new_nodes, OUTSIDE, [(2, 4)], "--ntasks"),
    (asking(ntasks=6, gpus_per_node="4"), on_new_nodes, OUTSIDE, [(None, None)], "--ntasks"),
    (asking(ntasks=6), on_new_nodes, OUTSIDE, [(None, None)], "--ntasks"),
    (asking(ntasks=6), on_new_nodes, UNKNOWN, None, ""),
    (asking(ntasks=1), on_first_nodes, UNKNOWN, [(1, 1)], "--ntasks"),
    (asking(ntasks=2), on_first_nodes, UNKNOWN, None, ""),
    (asking(2, 1), on_first_nodes, UNKNOWN, None, ""),
    (asking(ntasks=4), as_the_gpus, ONE_AND_THREE, [(1, 1), (1, 3)], "--ntasks"),
    (asking(ntasks=1, gpus_per_task=2), as_the_gpus, ONE_AND_THREE, [(1, 0), (1, 1)], "--ntasks"),
    (asking(ntasks=6), as_the_gpus, ONE_AND_THREE, None, ""),
    (asking(ntasks=4, gpus_per_node="2"), as_the_gpus, ONE_AND_THREE, None, ""),
    (asking(ntasks=6), evenly, ONE_AND_THREE, [(1, 3), (1, 3)], "--ntasks"),
    (asking(ntasks=5), evenly, UNKNOWN, "2 nodes cannot share 5 tasks evenly", "--ntasks"),
    (asking(), as_the_job, [Group(1, 3, 2), Group(1, 1, 2)], [(1, 2), (1, 2)], "SLURM_NTASKS"),
    (asking(), as_the_job, [Group(2, None, 2)], [(2, None)], "SLURM_NTASKS"),
    (asking(), as_the_job, ONE_AND_THREE, [(1, 3), (1, 1)], "SLURM_NTASKS"),
    (asking(), as_the_job, [Group(1, 3, 2), Group(1, 2, 2)], [(1, 3), (1, 2)], "SLURM_NTASKS"),
    (asking(allow_uneven=True), as_the_job, [Group(1, 3, 2), Group(1, 1, 2)], [(1, 3), (1, 1)], "SLURM_NTASKS"),
    (asking(), one_per_gpu, UNKNOWN, None, ""),
    (asking(), one_per_gpu, [Group(1, None, 2), Group(1, None, None)], None, ""),
    (asking(), left_to_slurm, UNKNOWN, [(2, None)], "Slurm's default"),
    (asking(), one_per_gpu, [Group(2, None, 0)], None, ""),
    (asking(), left_to_slurm, [Group(2, None, 0)], [(2, None)], "Slurm's default"),
    (asking(gpus_per_node="2"), one_per_gpu, UNKNOWN, [(2, 2)], "one task per GPU"),
    (asking(per_gpu=True), refuse_unknown_gpus, UNKNOWN, UNKNOWN_GPUS, "--per-gpu"),
    (asking(gpus_per_task=2), refuse_unknown_gpus, UNKNOWN, UNKNOWN_GPUS, "--gpus-per-task"),
    (asking(), one_per_gpu, [Group(3, None, 4)], [(3, 4)], "one task per GPU"),
    (asking(gpus_per_node="2"), one_per_gpu, ONE_AND_THREE, [(1, 2), (1, 2)], "one task per GPU"),
    (asking(allow_uneven=True), one_per_gpu, ONE_AND_THREE, [(1, 1), (1, 3)], "one task per GPU"),
    (asking(per_gpu=True, gpus_per_task=1), one_per_gpu, [Group(3, 1, 4)], [(3, 4)], "one task per GPU"),
    (asking(gpus_per_task=2), one_per_gpu, [Group(3, None, 4)], [(3, 2)], "one task per 2 GPUs"),
    (asking(gpus_per_task=3), one_per_gpu, [Group(3, None, 4)], "4 GPUs on a node cannot be", "--gpus-per-task"),
    (asking(), one_per_gpu, ONE_AND_THREE, "the job's GPUs are spread unevenly", "the allocation (--gpus gives"),
    (asking(), one_per_gpu, COMPONENTS, "the job's GPUs are spread unevenly", "the components of the job"),
]


@pytest.mark.parametrize(("asked", "choose", "groups", "expected", "why"), CASES)
def test_rule(asked: RunOptions, choose: Choose, groups: list[Group], expected: object, why: str) -> None:
    asker = find_basis(asked, job(ntasks=4) if choose is as_the_job else NO_JOB)
    wanted = asked.gpus_per_node and int(asked.gpus_per_node)
    there = Layout(tuple(groups), "")
    case = Case(asker, asked, there, there, wanted)
    (rule,) = [rule for rule in RULES[asker.name] if rule.choose is choose]
    assert rule.applies(case) == (expected is not None)
    if isinstance(expected, str):
        with pytest.raises(JaxsifError, match=re.escape(expected)) as caught:
            choose(case)
        assert caught.value.where.startswith(why)
    elif expected is not None:
        chosen = choose(case)
        assert ([group[:2] for group in chosen.groups], chosen.why) == (expected, why)


def test_every_rule_has_a_case() -> None:
    assert {rule.choose for rules in RULES.values() for rule in rules} == {choose for _, choose, *_ in CASES}


@pytest.mark.parametrize(
    ("asked", "allocation", "name", "source"),
    [
        (asking(per_node=True), job(ntasks=4), "per-node", "--per-node"),
        (asking(per_gpu=True, gpus_per_task=1), NO_JOB, "per-gpu", "--per-gpu"),
        (asking(2, 4, 2, per_node=False), NO_JOB, "ntasks-per-node", "--ntasks-per-node"),
        (asking(ntasks=2, gpus_per_task=2), job(ntasks=4), "ntasks", "--ntasks"),
        (asking(gpus_per_task=2), job(ntasks=4), "gpus-per-task", "--gpus-per-task"),
        (asking(), job(ntasks=4, ntasks_per_node=2), JOB, "SLURM_NTASKS_PER_NODE"),
        (asking(gpus_per_node="4"), job(ntasks=4), JOB, "SLURM_NTASKS"),
        (asking(nodes=2), job(), NOBODY, "Slurm's default"),
        (asking(), NO_JOB, NOBODY, "Slurm's default"),
    ],
)
def test_who_gives_the_number_of_tasks(asked: RunOptions, allocation: Allocation, name: str, source: str) -> None:
    assert find_basis(asked, allocation)[:2] == (name, source)


def test_what_the_job_asked_for_srun_inherits() -> None:
    """By who gave the number of tasks, and not by how that is said."""
    allocation = job(ntasks_per_node=4, gpus_per_node=4)
    layout = plan_layout(asking(), allocation, None)._replace(why="what the job wants")
    assert layout_options(asking(), layout, allocation).words == ("--nodes=2",)
    named = plan_layout(asking(ntasks_per_node=4), allocation, None)._replace(why="SLURM_NTASKS_PER_NODE")
    assert "--ntasks-per-node=4" in layout_options(asking(ntasks_per_node=4), named, allocation).words


UNEVEN = ((3, 1), (1, 1))  # GPUs, as --gpus=4 gives them


def test_what_slurm_would_place_by_cpus_is_placed_by_gpus() -> None:
    """--nodes=2 --ntasks=4 --gpus-per-node=2 gives 3 and 1 CPUs, and so 3 and 1 tasks."""
    uneven = ((3, 1), (1, 1))
    allocation = job(ntasks=4, gpus_per_node=2)._replace(cpus=uneven, tasks=uneven, nodelist="a,b")
    layout = plan_layout(asking(), allocation, None)
    assert [group.tasks for group in layout.groups] == [2, 2]
    assert layout.placed
    part = plan_layout(asking(nodes=1), allocation, None)
    assert [group.tasks for group in part.groups] == [2]  # as of the whole job


def test_a_jobs_own_uneven_tasks_stay_where_their_gpus_are() -> None:
    uneven = ((3, 1), (1, 1))
    allocation = job(ntasks=4)._replace(cpus=uneven, tasks=uneven, gpus_per_task=1, gpu_bind="per_task:1")
    layout = plan_layout(asking(), allocation, None)
    assert [(group.tasks, group.gpus) for group in layout.groups] == [(3, 3), (1, 1)]
    assert (layout.placed, layout.gpu_bind) == (False, "")


def test_components_have_groups_of_their_own() -> None:
    parts = (job(1, gpus_per_node=1), job(2, gpus_per_node=4))
    layout = plan_layout(asking(allow_uneven=True), parts[0]._replace(nodes=3, components=parts), None)
    assert layout.groups == (Group(1, 1, 1, None, 0), Group(2, 4, 4, None, 1))
    assert (layout.nodes, layout.ntasks) == (3, 9)
    assert layout.expectation == "1:1,4:4(x2) uneven"


REFUSED = [
    (asking(), job(), UNEVEN, "the job's GPUs are spread unevenly across its nodes: 3 + 1", "--allow-uneven"),
    (asking(per_node=True), job(), UNEVEN, "processes would have different numbers of GPUs: 3 + 1", "--allow-uneven"),
    (asking(ntasks_per_node=2), job(), UNEVEN, "2 tasks on a node with 1 GPU", "enough GPUs"),
    (asking(ntasks_per_node=3, gpus_per_node="4"), None, None, "different numbers of GPUs: 2, 1, 1", "1 or 2 or 4"),
    (asking(ntasks_per_node=4, gpus_per_node="2"), None, None, "4 tasks on a node with 2 GPUs", "--gpus-per-node=4"),
    (
        asking(ntasks_per_node=2, gpus_per_node="2", gpus_per_task=2, nodes=2),
        *(None, None),
        "2 tasks with 2 GPUs each on a node with 2 GPUs",
        "--gpus-per-task=1, --ntasks-per-node=1, or --gpus-per-node=4",
    ),
    (asking(), job(ntasks_per_node=4, gpus_per_node=2), None, "4 tasks on a node with 2 GPUs", "--share-gpus"),
    (asking(), job(ntasks=8, gpus_per_node=2), None, "4 tasks on a node with 2 GPUs", "--ntasks-per-node=2"),
    (asking(gpus_per_node="8"), job(gpus_per_node=4), None, "8 GPUs on a node, but the job has 4", "--gpus-per-node=4"),
    (asking(2, None, 65_536), None, None, "65536 tasks on one node; the maximum is 65535", "request fewer tasks"),
    (asking(gpus_per_node="1025"), None, None, "1025 GPUs on one node; the maximum is 1024", "request fewer GPUs"),
    (asking(nodes=3), job(), None, "3 nodes requested, but the job has 2", "--nodes=2"),
    (asking(gpus_per_node=""), None, None, "not a number of GPUs: ''", "TYPE:N"),
    (asking(per_gpu=True), None, None, UNKNOWN_GPUS, "--gpus-per-node=N"),
    (asking(per_gpu=True, per_node=True), None, None, "--per-node and --per-gpu contradict each other", "--per-gpu"),
    (asking(2, 5, 2), None, None, "--ntasks-per-node and --ntasks contradict each other", "--ntasks"),
    (asking(2, 3), None, None, "2 nodes cannot share 3 tasks evenly", "--ntasks=2"),
    (asking(3, 2), None, None, "3 nodes cannot share 2 tasks evenly", "--ntasks=3"),
    (
        asking(2, 1)._replace(sources={"nodes": Setting(2, "run.nodes in FILE", Rank.SITE)}),
        None,
        None,
        "2 nodes cannot share 1 task evenly",
        "--ntasks=2 or --nodes=1",
    ),
    (asking(gpus_per_node="3", gpus_per_task=2), None, None, "3 GPUs on a node cannot be divided", "divisor"),
    (
        asking(gpus_per_node="1", gpus_per_task=2),
        None,
        None,
        "1 GPU on a node cannot be",
        "--gpus-per-task=1, or a job",
    ),
    (asking(gpus_per_node="2", gpu_bind="single:2"), None, None, "gives one GPU to several of 2", "--gpu-bind=none"),
    (asking(gpus_per_node="2", gpu_bind="map_gpu:7,8"), None, None, "gives GPU 7 of a node with 2", "--gpu-bind=none"),
    (asking(gpus_per_node="2", gpu_bind="map_gpu:-1,0"), None, None, "gives GPU -1 of a", "--gpu-bind=none"),
    (asking(gpus_per_node="2", gpu_bind="map_gpu:a"), None, None, "cannot read --gpu-bind=map_gpu:a", "srun(1)"),
]


@pytest.mark.parametrize(("asked", "allocation", "job_gpus", "reason", "remedy"), REFUSED)
def test_refused(
    asked: RunOptions, allocation: Allocation | None, job_gpus: Counts | None, reason: str, remedy: str
) -> None:
    error = catch(JaxsifError, plan_layout, asked, allocation, job_gpus)
    what, _, hint = error.render().splitlines()
    assert reason in what
    assert remedy in hint
    assert error.exit_code == 2


@pytest.mark.parametrize(
    ("asked", "allocation", "job_gpus", "hint"),
    [
        (asking(), job(ntasks=8, gpus_per_node=2), None, "--ntasks-per-node=2 or --share-gpus"),
        (asking(ntasks=4), job(gpus_per_node=1), None, "--ntasks=2 or --share-gpus"),
        (asking(2, 4, gpus_per_node="1"), None, None, "--ntasks=2, --gpus-per-node=2, or --share-gpus"),
        (asking(2, None, 2, gpus_per_node="1", gpus="2"), None, None, "--ntasks-per-node=1 or --share-gpus"),
        (asking(ntasks_per_node=1), job(), ((2, 1), (1, 1)), "--gpus-per-task=1 or --allow-uneven"),
        (asking(per_node=True), job(), ((2, 1), (1, 1)), "--gpus-per-task=1 or --allow-uneven"),
        (
            asking(nodes=1, ntasks=3),
            job(gpus_per_node=4),
            None,
            "--ntasks=1 or 2 or 4, --gpus-per-task=1, or --allow-uneven",
        ),
        (asking(gpus_per_node="8"), job(gpus_per_node=4), None, "--gpus-per-node=4 or a job with more"),
        (
            asking(ntasks_per_node=2, gpus_per_task=2),
            job(gpus_per_node=2),
            None,
            "--gpus-per-task=1 or a job with more",
        ),
        (asking(ntasks_per_node=2, gpus_per_task=2), job(gpus_per_node=0), None, "a job with more"),
        (asking(2, 3, gpus_per_node="2"), None, None, "--ntasks=2 or 4"),
        (asking(2, 3, gpus_per_node="1"), None, None, "--ntasks=2"),
        (asking(3, 2), None, None, "--ntasks=3"),
        (asking(per_gpu=True), None, None, "--gpus-per-node=N"),
        (asking(gpus_per_task=2), None, None, "--gpus-per-node=N, or --ntasks=N"),
    ],
)
def test_remedies_work_with_the_options_and_the_job(
    asked: RunOptions, allocation: Allocation | None, job_gpus: Counts | None, hint: str
) -> None:
    assert catch(JaxsifError, plan_layout, asked, allocation, job_gpus).hint == hint


@pytest.mark.parametrize(
    ("asked", "key"),
    [
        (asking(nodes=3), "nodes"),
        (asking(nodes=2, ntasks=3), "ntasks"),
        (asking(gpus_per_task=3), "gpus-per-task"),
        (asking(gpus_per_node="5"), "gpus-per-node"),
        (asking(gpus_per_node="x"), "gpus-per-node"),
        (asking(ntasks_per_node=1, gpus_per_task=5), "gpus-per-task"),
    ],
)
def test_a_refusal_names_what_set_the_option(asked: RunOptions, key: str) -> None:
    job = Allocation("1", 2, None, None, 4)
    asked = asked._replace(sources={key: Setting(None, f"run.{key} in FILE")})
    assert catch(JaxsifError, plan_layout, asked, job, None).where == f"run.{key} in FILE"


@pytest.mark.parametrize(
    ("bind", "tasks", "found"),
    [
        ("single:1", 4, ((0,), (1,), (2,), (3,))),
        ("single:2", 4, ((0,), (0,), (1,), (1,))),
        ("single:1", 1, ((0, 1, 2, 3),)),
        ("per_task:2", 2, ((0, 1), (2, 3))),
        ("map_gpu:3,2*2", 4, ((3,), (2,), (2,), (3,))),
        ("verbose,mask_gpu:0x3,c", 2, ((0, 1), (2, 3))),
        ("closest", 2, ()),
    ],
)
def test_bound_by_slurm(bind: str, tasks: int, found: object) -> None:
    """As measured with real Slurm."""
    assert binding.predict_binding(bind, tasks, 4) == found


@given(st.integers(1, 20), st.integers(1, 20))
def test_each_gpu_is_one_tasks(tasks: int, gpus: int) -> None:
    used = [gpu for local_id in range(tasks) for gpu in share(local_id, tasks, gpus)]
    assert sorted(set(used)) == list(range(min(tasks, gpus) if tasks > gpus else gpus))
    assert len(used) == max(tasks, gpus)


def test_ten_thousand_nodes_are_planned_in_no_time() -> None:
    nodes = 10_000
    allocation = job(nodes, gpus_per_node=8)._replace(cpus=((64, nodes - 1), (32, 1)), nodelist="n[00001-10000]")

    def plan() -> tuple[int | None, str]:
        layout = plan_layout(asking(), allocation, None)
        return layout.ntasks, layout_options(asking(), layout, allocation).words[0]

    assert plan() == (80_000, "--nodes=10000")
    assert least_seconds(plan) < 0.1


@pytest.mark.parametrize(
    ("options", "there", "nodes", "gpus_per_node"),
    [
        ({"gpus": "8", "nodes": 2}, None, 2, "4"),
        ({"gpus": "a100:8", "nodes": 2}, None, 2, "a100:4"),
        ({"gpus": "1"}, None, 1, "1"),
        ({"gpus": "8"}, 2, None, "4"),
        ({"gpus": "8", "nodes": 1}, 2, 1, "8"),
        ({"gpus": "8", "gpus_per_node": "4"}, None, 2, "4"),
        ({"gpus": "8", "gpus_per_node": "a100:4", "nodes": 2}, None, 2, "a100:4"),
        ({"gpus": "8", "ntasks": 4, "ntasks_per_node": 2}, None, 2, "4"),
        ({"node_range": (2, 4)}, None, 2, None),
        ({"node_range": (2, 4)}, 3, 3, None),
        ({"node_range": (2, 4)}, 9, 4, None),
        ({"node_range": (2, 4)}, 1, 2, None),  # which the planner refuses
        ({"node_range": (2, 5), "ntasks": 9}, None, 3, None),
        ({"node_range": (2, 5), "ntasks": 12, "gpus": "9"}, None, 3, "3"),
        ({"node_range": (2, 3), "gpus_per_node": "4"}, None, 2, "4"),
        ({"gpus": "0"}, None, 1, "0"),
        ({"gpus": "0", "ntasks": 8, "ntasks_per_node": 4}, None, 2, "0"),
        ({"gpus": "0"}, 2, None, "0"),
    ],
)
def test_totals(options: dict[str, Any], there: int | None, nodes: int | None, gpus_per_node: str | None) -> None:
    settled = resolve_totals(RunOptions(("x",), **options), there)
    assert (settled.nodes, settled.node_range, settled.gpus_per_node) == (nodes, None, gpus_per_node)


@pytest.mark.parametrize(
    ("options", "there", "what", "hint"),
    [
        ({"gpus": "7", "nodes": 2}, None, "2 nodes cannot share 7 GPUs evenly", "--gpus=6"),
        ({"gpus": "3", "nodes": 2, "ntasks": 3}, None, "2 nodes cannot share 3 GPUs evenly", "--gpus=2 --ntasks=2"),
        ({"gpus": "1"}, 2, "2 nodes cannot share 1 GPU evenly", "--nodes=1"),
        ({"gpus": "8"}, None, "8 GPUs on an unknown number of nodes", "add --nodes=N"),
        (
            {"gpus": "8", "gpus_per_node": "2", "nodes": 2},
            None,
            "--gpus=8 and --gpus-per-node=2 contradict each other",
            "leave out --gpus: 2 nodes",
        ),
        ({"node_range": (4, 2)}, None, "not a range of nodes: '4-2'", "2-4"),
        (
            {"node_range": (2, 3), "ntasks": 7},
            None,
            "2 to 3 nodes cannot share 7 tasks or GPUs evenly",
            "another range, or another number of tasks or GPUs",
        ),
    ],
)
def test_what_cannot_be_shared(options: dict[str, Any], there: int | None, what: str, hint: str) -> None:
    error = catch(JaxsifError, resolve_totals, RunOptions(("x",), **options), there)
    assert (error.what, error.hint) == (what, hint)
