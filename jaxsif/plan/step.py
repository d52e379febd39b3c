"""A layout -> the options of srun that make Slurm start just that."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, repeat

from jaxsif.errors import JaxsifError
from jaxsif.job.allocation import BINDING_VARIABLES, Allocation
from jaxsif.job.nodelist import expand
from jaxsif.layout.layout import JOB, NOBODY, Layout
from jaxsif.settings.request import RunOptions

_LONGEST_WORD = 128 * 1024 - 1  # MAX_ARG_STRLEN of Linux


def binding_variables(
    layout: Layout, allocation: Allocation | None, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the variables of a job that srun must not see, so that each task sees all GPUs of its
    node, as NCCL and JAX want.
    """
    if allocation is None or layout.gpu_bind:
        return ()
    return tuple(name for name in BINDING_VARIABLES if name in environ)


def layout_options(
    asked: RunOptions, layout: Layout, allocation: Allocation | None
) -> tuple[str, ...]:
    """Return --nodes, --ntasks-per-node, --gpus-per-node and their like."""
    if allocation is None:
        return _outside(asked, layout)
    if layout.placed:
        return (*_placed(asked, layout, allocation), *_gpu_options(asked, layout))
    return (*_inside(asked, layout, allocation), *_cpu_options(asked, layout, allocation))


def component_options(
    asked: RunOptions, layout: Layout, component: Allocation, index: int
) -> tuple[str, ...]:
    """Return `layout_options` for one component of a heterogeneous job; raise JaxsifError for nodes
    with different numbers of tasks.
    """
    groups = tuple(group for group in layout.groups if group.component == index)
    # By SLURM_NTASKS srun would know the tasks of the whole job only, so that all must be said.
    part = layout._replace(groups=groups, counted_by="ntasks")
    if part.ntasks_per_node is None:
        raise JaxsifError(
            f"the nodes of component {index} would have different numbers of tasks",
            "the heterogeneous job",
            "ask for --ntasks-per-node in each of its components",
        )
    inside = _inside(asked, part, component)
    return (f"--het-group={index}", *inside, *_cpu_options(asked, part, component))


def _write(options: Mapping[str, object]) -> tuple[str, ...]:
    """Return the options as NAME=VALUE, those with True as NAME, and none with None, False or 0."""
    given = {name: value for name, value in options.items() if value not in (None, False)}
    return tuple(name if value is True else f"{name}={value}" for name, value in given.items())


def _outside(asked: RunOptions, layout: Layout) -> tuple[str, ...]:
    shape = {
        "--nodes": layout.nodes if asked.nodes or asked.ntasks else None,
        "--ntasks-per-node": layout.ntasks_per_node,
        "--ntasks": asked.ntasks,
    }
    cpus = {"--cpus-per-task": asked.cpus_per_task}
    return (*_write(shape), *_gpu_options(asked, layout), *_write(cpus))


def _inside(asked: RunOptions, layout: Layout, allocation: Allocation) -> tuple[str, ...]:
    told = layout.counted_by not in (JOB, NOBODY)
    # All of them, also when fewer tasks than nodes would do.
    nodes = {
        "--nodes": layout.nodes,
        # What the job itself asked for, srun inherits.
        "--ntasks-per-node": None if layout.counted_by == JOB else layout.ntasks_per_node,
    }
    # The job's own number, which srun would inherit, is for all of its nodes and not for this step.
    part = told or asked.nodes or allocation.in_step
    tasks = {
        "--ntasks": layout.ntasks if part else None,
        "--overlap": allocation.in_step,  # the step that we are in holds what we would wait for
    }
    counted = allocation.gpus_per_task is not None and not layout.gpu_bind
    return (*_write(nodes), *_gpu_options(asked, layout, counted), *_write(tasks))


def _gpu_options(asked: RunOptions, layout: Layout, counted: bool = False) -> tuple[str, ...]:
    """Return --gpus-per-node or --gpus-per-task, and --gpu-bind.

    `counted`: the job asked for GPUs per task, and the controller counts a step's GPUs so, unless
    told otherwise.
    """
    per_node: object = asked.gpus_per_node
    if per_node is None and layout.ntasks_per_node and (counted or asked.gpus_per_task):
        per_node = layout.gpus_per_node
    per_task = None if per_node else asked.gpus_per_task
    bind = asked.gpu_bind
    if per_task and bind is None:
        bind = "none"  # Slurm would bind them one by one
    return _write({"--gpus-per-node": per_node, "--gpus-per-task": per_task, "--gpu-bind": bind})


def _placed(asked: RunOptions, layout: Layout, allocation: Allocation) -> tuple[str, ...]:
    """Return options that name the node of each task: srun would spread tasks as the CPUs are, and
    never as the GPUs are.
    """
    counts = [group.counts for group in layout.groups]
    most = max(tasks for _, tasks, _, _ in counts)
    fair = min(cpus // tasks for _, tasks, _, cpus in counts)
    each = asked.cpus_per_task or min(fair, allocation.cpus_per_task or 0)
    return _write(
        {
            "--distribution": "arbitrary",
            "--nodelist": _name_nodes(layout, allocation),
            "--ntasks": layout.ntasks,
            "--ntasks-per-node": most if 0 < (allocation.ntasks_per_node or 0) < most else None,
            "--cpus-per-task": each,
            "--overcommit": fair < max(each, 1),
            "--overlap": allocation.in_step,
        }
    )


def _name_nodes(layout: Layout, allocation: Allocation) -> str:
    """Return the name of each task's node; raise JaxsifError for too many tasks."""
    hosts = expand(allocation.nodelist)
    counts = [group.counts for group in layout.groups]
    each = [tasks for nodes, tasks, _, _ in counts for _ in range(nodes)]
    if len(hosts) < len(each):
        raise JaxsifError(
            f"a list of {len(hosts)} nodes, and the job has {layout.nodes}",
            "SLURM_JOB_NODELIST (environment)",
            "unset SLURM_JOB_ID when this is not inside of a job",
        )
    length = sum((len(host) + 1) * tasks for host, tasks in zip(hosts, each)) - 1
    if not 0 < length <= _LONGEST_WORD:
        raise JaxsifError(
            f"{layout.ntasks} tasks are too many to be placed one by one",
            layout.why,
            "allocate the same number of GPUs and CPUs on each node",
        )
    return ",".join(chain.from_iterable(map(repeat, hosts, each)))


def _cpu_options(asked: RunOptions, layout: Layout, allocation: Allocation) -> tuple[str, ...]:
    """Return what srun must be told of CPUs for a step in a job, where its defaults stand in the
    way.
    """
    tasks, cpus = layout.ntasks_per_node, allocation.cpus_per_node
    each = asked.cpus_per_task or 0
    if not tasks or not cpus:
        return _write({"--cpus-per-task": each})
    fitting = cpus // tasks
    if each > fitting:
        raise _too_few_cpus(asked, tasks, cpus)
    gpus, whole = layout.gpus_per_node or 0, allocation.gpus_per_node or 0
    # Left to itself a step takes all CPUs of its nodes, and a second one, on the other GPUs, waits
    # until it is over.
    part = cpus * gpus // whole if gpus < whole else 0
    if part >= tasks:
        memory = (allocation.mem_per_node or 0) * gpus // whole
        exact = {"--exact": True, "--cpus-per-task": each or part // tasks, "--mem": memory}
        return _write(exact)
    # srun inherits it no more, and would confine a process to one core; less where there are more
    # tasks.
    own = min(allocation.cpus_per_task or 0, fitting)
    # A job that asked for GPUs alone often has one CPU a node; one task per GPU is right all the
    # same.
    return _write({"--overcommit": fitting == 0, "--cpus-per-task": each or own})


def _too_few_cpus(asked: RunOptions, tasks: int, cpus: int) -> JaxsifError:
    each, fitting = asked.cpus_per_task, cpus // tasks
    return JaxsifError(
        f"{tasks} tasks with {each} CPUs each on a node, but the job has {cpus} CPU(s) there",
        asked.source("cpus-per-task"),
        f"--cpus-per-task={fitting}, or a job with more" if fitting else "a job with more CPUs",
    )
