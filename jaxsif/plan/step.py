"""A layout -> the options of srun that make Slurm start just that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jaxsif.errors import JaxsifError
from jaxsif.job.allocation import Allocation
from jaxsif.job.nodelist import expand
from jaxsif.layout.layout import Layout
from jaxsif.settings.request import RunOptions

# What a job with --gpus-per-task or --ntasks-per-gpu hands on to srun, which then binds a part of
# the GPUs to each task; NCCL and JAX want to see all of the node.
_BINDING_VARIABLES = (
    *("SLURM_TRES_PER_TASK", "SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU"),
    *("SLURM_TRES_BIND", "SLURM_GPU_BIND"),
)
_LONGEST_WORD = 128 * 1024 - 1  # MAX_ARG_STRLEN of Linux


def binding_variables(
    layout: Layout, allocation: Allocation | None, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """The variables that srun must not see, so that each task sees all GPUs of its node."""
    if allocation is None or layout.gpu_bind:
        return ()
    return tuple(name for name in _BINDING_VARIABLES if name in environ)


def layout_options(
    asked: RunOptions, layout: Layout, allocation: Allocation | None
) -> tuple[str, ...]:
    """--nodes, --ntasks-per-node, --gpus-per-node and their like."""
    if allocation is None:
        return tuple(_outside(asked, layout))
    if layout.placed:
        return (*_placed(asked, layout, allocation), *_gpu_options(asked, layout))
    return (*_inside(asked, layout, allocation), *_cpu_options(asked, layout, allocation))


def component_options(
    asked: RunOptions, layout: Layout, component: Allocation, index: int
) -> tuple[str, ...]:
    """As `layout_options`, for one component of a heterogeneous job."""
    groups = tuple(group for group in layout.groups if group.component == index)
    part = layout._replace(groups=groups)
    if part.ntasks_per_node is None:
        raise JaxsifError(
            f"the nodes of component {index} would have different numbers of tasks",
            "the heterogeneous job",
            "ask for --ntasks-per-node in each of its components",
        )
    # By SLURM_NTASKS srun would know the tasks of the whole job only.
    inside = _inside(asked._replace(ntasks=part.ntasks), part, component)
    return (f"--het-group={index}", *inside, *_cpu_options(asked, part, component))


def _outside(asked: RunOptions, layout: Layout) -> Iterable[str]:
    if asked.nodes or (asked.ntasks and layout.nodes):
        yield f"--nodes={layout.nodes}"
    if layout.ntasks_per_node:
        yield f"--ntasks-per-node={layout.ntasks_per_node}"
    if asked.ntasks:
        yield f"--ntasks={asked.ntasks}"
    yield from _gpu_options(asked, layout)
    if asked.cpus_per_task:
        yield f"--cpus-per-task={asked.cpus_per_task}"


def _inside(asked: RunOptions, layout: Layout, allocation: Allocation) -> Iterable[str]:
    tasks = (
        asked.ntasks
        or asked.ntasks_per_node
        or asked.per_node
        or asked.per_gpu
        or asked.gpus_per_task
    )
    yield f"--nodes={layout.nodes}"  # all of them, also when fewer tasks than nodes would do
    if layout.ntasks_per_node and not (layout.why.startswith("SLURM") and not tasks):
        # What the job itself asked for, srun inherits.
        yield f"--ntasks-per-node={layout.ntasks_per_node}"
    yield from _gpu_options(
        asked, layout, allocation.gpus_per_task is not None and not layout.gpu_bind
    )
    if layout.ntasks and (tasks or asked.nodes or allocation.in_step):
        # The job's own number, which srun would inherit, is for all of its nodes and not for this
        # step.
        yield f"--ntasks={layout.ntasks}"
    if allocation.in_step:
        yield "--overlap"  # the step that we are in holds what we would wait for


def _gpu_options(asked: RunOptions, layout: Layout, counted: bool = False) -> Iterable[str]:
    """`counted`: the job asked for GPUs per task, and the controller counts a step's GPUs so,
    unless told otherwise.
    """
    if asked.gpus_per_node is not None:
        yield f"--gpus-per-node={asked.gpus_per_node}"
    elif (counted or asked.gpus_per_task) and layout.ntasks_per_node and layout.gpus_per_node:
        yield f"--gpus-per-node={layout.gpus_per_node}"
    elif asked.gpus_per_task:
        yield f"--gpus-per-task={asked.gpus_per_task}"
        if asked.gpu_bind is None:
            yield "--gpu-bind=none"  # Slurm would bind them one by one
    if asked.gpu_bind is not None:
        yield f"--gpu-bind={asked.gpu_bind}"


def _placed(asked: RunOptions, layout: Layout, allocation: Allocation) -> Iterable[str]:
    """Name the node of each task: by itself srun spreads tasks as the CPUs are, and never as the
    GPUs are.
    """
    yield from (
        "--distribution=arbitrary",
        f"--nodelist={_name_nodes(layout, allocation)}",
        f"--ntasks={layout.ntasks}",
    )
    most = max(group.tasks or 0 for group in layout.groups)
    if allocation.ntasks_per_node and allocation.ntasks_per_node < most:
        yield f"--ntasks-per-node={most}"
    fair = min((group.cpus or 0) // (group.tasks or 1) for group in layout.groups)
    each = asked.cpus_per_task or min(fair, allocation.cpus_per_task or 0)
    if each:
        yield f"--cpus-per-task={each}"
    if fair < (each or 1):
        yield "--overcommit"
    if allocation.in_step:
        yield "--overlap"


def _name_nodes(layout: Layout, allocation: Allocation) -> str:
    """The name of each task's node."""
    hosts = expand(allocation.nodelist)
    if len(hosts) < (layout.nodes or 0):
        raise JaxsifError(
            f"a list of {len(hosts)} nodes, and the job has {layout.nodes}",
            "SLURM_JOB_NODELIST (environment)",
            "unset SLURM_JOB_ID when this is not inside of a job",
        )
    names = ""
    if (layout.ntasks or 0) <= _LONGEST_WORD:
        tasks = [group.tasks or 0 for group in layout.groups for _ in range(group.nodes or 0)]
        names = ",".join(name for name, count in zip(hosts, tasks) for _ in range(count))
    if not 0 < len(names) <= _LONGEST_WORD:
        raise JaxsifError(
            f"{layout.ntasks} tasks are too many to be placed one by one",
            layout.why,
            "allocate the same number of GPUs and CPUs on each node",
        )
    return names


def _cpu_options(asked: RunOptions, layout: Layout, allocation: Allocation) -> tuple[str, ...]:
    """What srun must be told of CPUs for a step in a job, where its defaults stand in the way."""
    tasks, gpus, cpus = layout.ntasks_per_node, layout.gpus_per_node, allocation.cpus_per_node
    if not tasks or not cpus:
        return (f"--cpus-per-task={asked.cpus_per_task}",) if asked.cpus_per_task else ()
    each = asked.cpus_per_task
    if each and tasks * each > cpus:
        raise JaxsifError(
            f"{tasks} tasks with {each} CPUs each on a node, but the job has {cpus} CPU(s) there",
            asked.source("cpus-per-task"),
            f"--cpus-per-task={cpus // tasks}, or a job with more"
            if cpus >= tasks
            else "a job with more CPUs",
        )
    if gpus and allocation.gpus_per_node and gpus < allocation.gpus_per_node:
        # By itself a step takes all CPUs of its nodes, and a second one, on the other GPUs, waits
        # until it is over.
        part = cpus * gpus // allocation.gpus_per_node
        if part >= tasks:
            memory = (
                allocation.mem_per_node
                and allocation.mem_per_node * gpus // allocation.gpus_per_node
            )
            return (
                "--exact",
                f"--cpus-per-task={each or part // tasks}",
                *([f"--mem={memory}"] if memory else []),
            )
    if each:
        return (f"--cpus-per-task={each}",)
    if allocation.cpus_per_task and tasks <= cpus:
        # srun inherits it no more, and would confine a process to one core; less where there are
        # more tasks.
        return (f"--cpus-per-task={min(allocation.cpus_per_task, cpus // tasks)}",)
    # A job that asked for GPUs alone often has one CPU a node; one task per GPU is right all the
    # same.
    return ("--overcommit",) if tasks > cpus else ()
