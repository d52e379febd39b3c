"""Slurm's variables, node lists and numbers of GPUs, in all the forms that Slurm writes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.bounds import read_bounded
from kit.caught import catch

from jaxsif.errors import JaxsifError
from jaxsif.job.allocation import Allocation, parse_gpu_count, parse_job_gpus
from jaxsif.job.counts import Counts
from jaxsif.launch.launchers.srun import layout_options
from jaxsif.layout.planner import plan_layout
from jaxsif.settings.options import RunOptions

SBATCH = {
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_JOB_NODELIST": "node[1-2]",
    "SLURM_NTASKS": "8",
    "SLURM_NTASKS_PER_NODE": "4",
    "SLURM_GPUS_PER_NODE": "a100:4",
    "SLURM_GPUS_ON_NODE": "4",
    "SLURM_JOB_CPUS_PER_NODE": "32(x2)",
}


def read_job(environ: dict[str, str]) -> Allocation:
    allocation = Allocation.from_environ(environ)
    assert allocation is not None
    return allocation


def test_no_allocation() -> None:
    assert Allocation.from_environ({"SLURM_CONF": "/etc/slurm/slurm.conf"}) is None
    assert Allocation.from_environ({"SLURM_JOB_ID": ""}) is None


def test_whole_allocation() -> None:
    assert Allocation.from_environ(SBATCH) == Allocation(
        job_id="4711", nodes=2, ntasks=8, ntasks_per_node=4, gpus_per_node=4, cpus=((32, 2),), nodelist="node[1-2]"
    )


@pytest.mark.parametrize(
    ("environ", "allocation"),
    [
        ({"SLURM_JOB_ID": "1"}, Allocation("1", 1, None, None, None)),
        ({"SLURM_JOB_ID": "1", "SLURM_GPUS_ON_NODE": "3"}, Allocation("1", 1, None, None, 3)),
        (
            {"SLURM_JOB_ID": "1", "SLURM_JOB_NUM_NODES": "2", "SLURM_GPUS_ON_NODE": "3"},
            Allocation("1", 2, None, None, None),
        ),
        ({"SLURM_JOB_ID": "1", "SLURM_NTASKS": ""}, Allocation("1", 1, None, None, None)),
        ({"SLURM_JOB_ID": "1", "SLURM_JOB_NUM_NODES": ""}, Allocation("1", 1, None, None, None)),
    ],
    ids=["bare", "GPUs of one node", "GPUs of one node say nothing about two", "empty tasks", "empty nodes"],
)
def test_partial_allocation(environ: dict[str, str], allocation: Allocation) -> None:
    assert Allocation.from_environ(environ) == allocation


@pytest.mark.parametrize(
    ("value", "cpus"),
    [("16", 16), ("16(x3)", 16), ("16(x3),8", 8), ("8,16(x3)", 8), ("72(x2),36(x12)", 36), ("", None), (None, None)],
    ids=["one", "equal nodes", "fewest last", "fewest first", "two groups", "empty", "absent"],
)
def test_cpus_of_the_node_that_has_fewest(value: str | None, cpus: int | None) -> None:
    environ = {"SLURM_JOB_ID": "1", **({} if value is None else {"SLURM_JOB_CPUS_PER_NODE": value})}
    allocation = read_job(environ)
    assert allocation.cpus_per_node == cpus


@pytest.mark.parametrize("value", ["two", "0", "-1", "2.0"])
def test_odd_number_of_nodes(value: str) -> None:
    assert catch(JaxsifError, Allocation.from_environ, {**SBATCH, "SLURM_JOB_NUM_NODES": value}).render() == (
        f"jaxsif: error: not a number of nodes: '{value}'\n"
        "  from: SLURM_JOB_NUM_NODES (environment)\n"
        "  try:  unset SLURM_JOB_ID if this is not inside a job"
    )


@pytest.mark.parametrize(
    ("text", "count"), [("4", 4), ("0", 0), ("a100:4", 4), ("a100:2,v100:1", 3), ("gpu:a100:2", 2)]
)
def test_gpu_count(text: str, count: int) -> None:
    assert parse_gpu_count(text) == count


@pytest.mark.parametrize("text", ["", "a100", "4:", "-1", "1.5", "2,", "a100:two", " 4"])
def test_gpu_count_refused(text: str) -> None:
    assert catch(JaxsifError, parse_gpu_count, text).render() == (
        f"jaxsif: error: not a number of GPUs: {text!r}\n  from: --gpus-per-node\n  try:  give N or TYPE:N, as in srun"
    )


GPU_TYPES = st.from_regex(r"[a-z][a-z0-9_.-]{0,6}", fullmatch=True)


@given(st.lists(st.tuples(st.none() | GPU_TYPES, st.integers(0, 999)), min_size=1, max_size=4))
def test_gpu_count_is_the_sum_over_types(parts: list[tuple[str | None, int]]) -> None:
    text = ",".join(f"{kind}:{count}" if kind else str(count) for kind, count in parts)
    assert parse_gpu_count(text) == sum(count for _, count in parts)


@given(st.text())
def test_gpu_count_of_any_text_is_a_number_or_an_error(text: str) -> None:
    with contextlib.suppress(JaxsifError):
        assert parse_gpu_count(text) >= 0


# As `scontrol --details show job` of Slurm 22.05 writes it, shortened.
JOB_DETAILS = """\
JobId=7 JobName=interactive
   JobState=RUNNING Reason=None Dependency=(null)
   NodeList=node[1-3]
   NumNodes=3 NumCPUs=8 NumTasks=3 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   TRES=cpu=8,mem=12G,node=3,billing=8,gres/gpu=5
   JOB_GRES=gpu:a100:5
     Nodes=node[1-2] CPU_IDs=0-1 Mem=4096 GRES=gpu:a100:2(IDX:0-1)
     Nodes=node3 CPU_IDs=0-3 Mem=4096 GRES=gpu:a100:1(IDX:0)
   MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0
"""


@pytest.mark.parametrize(
    ("details", "gpus"),
    [
        (JOB_DETAILS, ((2, 2), (1, 1))),
        ("     Nodes=n1 CPU_IDs=0 Mem=0 GRES=\n", ((0, 1),)),
        ("     Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:2(IDX:0-1)\n", ((2, 1),)),
        ("     Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:a100:2(IDX:0-1),gpu:v100:1(IDX:2),nic:4\n", ((3, 1),)),
        ("     Nodes=n1 CPU_IDs=0 Mem=0 GRES=shard:8(0/8)\n", ((0, 1),)),
        ("slurm_load_jobs error: Invalid job id specified\n", ()),
    ],
    ids=["groups of nodes", "none", "untyped", "two types and others", "no gpu", "not a job"],
)
def test_job_gpus(details: str, gpus: Counts) -> None:
    assert parse_job_gpus(details) == gpus


def test_variables_of_a_step_are_not_those_of_its_job() -> None:
    """`srun --pty bash` has one task; the batch script and salloc's interactive step are beside the job's steps."""
    for step, in_step, ntasks in (
        ("0", True, None),
        ("4294967291", False, 8),
        ("4294967290", False, 8),
        ("", False, 8),
    ):
        allocation = read_job({**SBATCH, "SLURM_STEP_ID": step})
        assert (allocation.in_step, allocation.ntasks) == (in_step, ntasks)


def test_cpus_per_task_and_memory() -> None:
    environ = {**SBATCH, "SLURM_CPUS_PER_TASK": "8", "SLURM_MEM_PER_NODE": "64000"}
    allocation = read_job(environ)
    assert (allocation.cpus_per_task, allocation.mem_per_node) == (8, 64000)
    answered = read_job({**environ, "SRUN_CPUS_PER_TASK": "4"})
    assert answered.cpus_per_task is None


HET = {
    "SLURM_JOB_ID": "17",
    "SLURM_HET_SIZE": "2",
    "SLURM_NTASKS": "5",
    "SLURM_JOB_NUM_NODES_HET_GROUP_0": "1",
    "SLURM_JOB_NUM_NODES_HET_GROUP_1": "2",
    "SLURM_NTASKS_HET_GROUP_0": "1",
    "SLURM_NTASKS_HET_GROUP_1": "4",
    "SLURM_TASKS_PER_NODE_HET_GROUP_1": "3,1",
    "SLURM_GPUS_PER_NODE_HET_GROUP_0": "1",
    "SLURM_JOB_NODELIST_HET_GROUP_0": "node3",
    "SLURM_JOB_NODELIST_HET_GROUP_1": "node[1-2]",
}


def test_components_of_a_heterogeneous_job() -> None:
    job = read_job(HET)
    assert (job.nodes, job.ntasks) == (3, None)
    first, second = job.components
    assert (first.nodes, first.ntasks, first.gpus_per_node, first.nodelist) == (1, 1, 1, "node3")
    assert (second.nodes, second.ntasks, second.tasks, second.nodelist) == (2, 4, ((3, 1), (1, 1)), "node[1-2]")


@pytest.mark.parametrize(
    ("variables", "gpus_per_task", "gpu_bind"),
    [
        ({"SLURM_TRES_PER_TASK": "cpu=4,gres/gpu=2", "SLURM_TRES_BIND": "gres/gpu:per_task:2"}, 2, "per_task:2"),
        ({"SLURM_TRES_PER_TASK": "gres/gpu:a100=1"}, 1, ""),
        ({"SLURM_TRES_PER_TASK": "cpu=4"}, None, ""),
        ({"SLURM_GPUS_PER_TASK": "a100:3", "SLURM_GPU_BIND": "closest"}, 3, "closest"),
    ],
)
def test_gpus_of_tasks(variables: dict[str, str], gpus_per_task: int | None, gpu_bind: str) -> None:
    job = read_job({**SBATCH, **variables})
    assert (job.gpus_per_task, job.gpu_bind) == (gpus_per_task, gpu_bind)


LONG = "9" * 5000
NUMBERS = ("SLURM_HET_SIZE", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_CPUS_PER_TASK", "SLURM_MEM_PER_NODE")
NUMBERS += ("SLURM_STEP_ID", "SLURM_GPUS_ON_NODE")
GPUS = ("SLURM_GPUS_PER_NODE", "SLURM_GPUS", "SLURM_GPUS_PER_TASK")


@pytest.mark.parametrize("name", [*NUMBERS, *GPUS, "SLURM_JOB_NUM_NODES"])
def test_a_number_that_is_too_long_is_refused_with_its_variable(name: str) -> None:
    error = read_bounded(lambda: Allocation.from_environ({"SLURM_JOB_ID": "1", name: LONG}))
    assert error.where == f"{name} (environment)"
    assert len(error.what) < 200


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("SLURM_JOB_NUM_NODES", "65537", "not a number of nodes: '65537'"),
        ("SLURM_HET_SIZE", "129", "a heterogeneous job of 129 components, more than 128"),
        ("SLURM_TRES_PER_TASK", f"cpu=4,gres/gpu:a100={LONG}", "not a number of GPUs: '9999"),
    ],
)
def test_more_than_slurm_has(name: str, value: str, what: str) -> None:
    error = read_bounded(lambda: Allocation.from_environ({"SLURM_JOB_ID": "1", name: value}))
    assert error.what.startswith(what)
    assert error.where == f"{name} (environment)"


NODES = ("node[1-2]", "node[1-99999999999]")
COUNTS = ("1(x99999999999)", "2(x2)", "2,1", "1(x4294967295)", "a100:4", f"a:{LONG}", "gres/gpu=2")
BINDINGS = ("single:0", "single:1", "map_gpu:0*99999999999", f"mask_gpu:{'f' * 5000}", "per_task:99999999999")
PLAIN = ("", "0", "1", "2", "4", "65535", "65536", "4294967295", "9" * 18, "9" * 19, LONG, "-1", "x")
TEXTS = st.sampled_from((*PLAIN, *NODES, *COUNTS, *BINDINGS))
VARIABLES = (*NUMBERS, *GPUS, "SLURM_JOB_NUM_NODES", "SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE")
VARIABLES += ("SLURM_JOB_NODELIST", "SLURM_TRES_PER_TASK", "SLURM_GPU_BIND", "SLURM_TRES_BIND", "SLURM_DISTRIBUTION")
ASKED = st.fixed_dictionaries({}, optional={"share_gpus": st.booleans(), "per_gpu": st.booleans(), "nodes": st.just(1)})


@given(st.dictionaries(st.sampled_from(VARIABLES), TEXTS, max_size=6), ASKED)
def test_any_variables_are_planned_for_or_refused_in_bounds(environ: dict[str, str], asked: dict[str, bool]) -> None:
    def read() -> None:
        allocation = Allocation.from_environ({"SLURM_JOB_ID": "1", **environ})
        options = RunOptions(("true",), **asked)
        layout_options(options, plan_layout(options, allocation, None), allocation)

    read_bounded(read)
