"""What was asked for and what the allocation has -> the layout of a step."""

from __future__ import annotations

from jaxsif.errors import JaxsifError
from jaxsif.job.allocation import Allocation, gpus_of, parse_gpu_count
from jaxsif.job.counts import Counts, align, fold, size, take
from jaxsif.layout.checks import check_layout, count_sharers, render_gpus
from jaxsif.layout.layout import Group, Layout
from jaxsif.limits import MOST_GPUS, MOST_TASKS
from jaxsif.settings.request import RunOptions


def plan_layout(
    asked: RunOptions, allocation: Allocation | None, job_gpus: Counts | None
) -> Layout:
    """The layout for the options given and the allocation, one task per GPU unless told otherwise.

    `job_gpus` is the number of GPUs on each node of the job, where it had to be asked for. Raises
    JaxsifError for a layout that cannot work.
    """
    _refuse_contradictions(asked)
    groups = _available(asked, allocation, job_gpus)
    groups, why = _choose_tasks(asked, allocation, groups)
    groups = [_choose_gpus(asked, group, allocation) for group in groups if group.tasks != 0]
    _check_size(groups, why)
    bind = _binding(asked, allocation)
    # Where Slurm binds, it decides how many each has; and who gives the number leaves the rest idle
    # on purpose.
    each = None if bind else asked.gpus_per_task
    layout = Layout(tuple(groups), why or "Slurm's default", each, bind, asked.allow_uneven)
    check_layout(layout, asked.share_gpus)
    return layout._replace(
        sharers=count_sharers(layout), placed=_must_place(asked, layout, allocation)
    )


def _refuse_contradictions(asked: RunOptions) -> None:
    tasks = {
        "--per-node": asked.per_node,
        "--per-gpu": asked.per_gpu,
        "--ntasks-per-node": asked.ntasks_per_node,
        "--ntasks": asked.ntasks,
    }
    given = [name for name, value in tasks.items() if value]
    if asked.per_gpu and (asked.gpus_per_task or 1) != 1:
        given.append("--gpus-per-task")
    agree = (
        asked.ntasks and asked.nodes and asked.ntasks == asked.nodes * (asked.ntasks_per_node or 0)
    )
    if len(given) > 1 and not (agree and set(given) == {"--ntasks", "--ntasks-per-node"}):
        raise JaxsifError(
            f"{given[0]} and {given[1]} contradict each other",
            asked.source(given[1][2:]),
            f"leave out {given[1]}",
        )


def _check_size(groups: list[Group], why: str) -> None:
    """Raise JaxsifError for more tasks or GPUs on a node than can be: what follows goes through
    them one by one.
    """
    for group in groups:
        if (group.tasks or 0) > MOST_TASKS:
            raise JaxsifError(
                f"{group.tasks} tasks on one node; the most is {MOST_TASKS}",
                why,
                "ask for fewer tasks",
            )
        if (group.gpus or 0) > MOST_GPUS:
            raise JaxsifError(
                f"{group.gpus} GPUs on one node; the most is {MOST_GPUS}", why, "ask for fewer GPUs"
            )


def _available(
    asked: RunOptions, allocation: Allocation | None, job_gpus: Counts | None
) -> list[Group]:
    """The nodes of the step with what the job has there; .tasks is where Slurm would place the
    job's own.
    """
    if allocation is None:
        return [Group(asked.nodes, None, None)]
    if asked.nodes and asked.nodes > allocation.nodes:
        raise JaxsifError(
            f"{asked.nodes} nodes asked for, but the job has {allocation.nodes}",
            asked.source("nodes"),
            f"--nodes={allocation.nodes}, or a job with more",
        )
    groups = []
    unseen = job_gpus or ()
    for index, component in enumerate(allocation.components or (allocation,)):
        known = gpus_of(component) or take(unseen, component.nodes)
        unseen = _drop(unseen, component.nodes)
        columns = [
            _column(counts, component.nodes)
            for counts in (_own_tasks(component), known, component.cpus)
        ]
        rows = [take(column, asked.nodes or component.nodes) for column in columns]
        for nodes, *values in align(*rows):
            tasks, gpus, cpus = (None if value < 0 else value for value in values)
            groups.append(Group(nodes, tasks, gpus, cpus, index))
    return groups


def _column(counts: Counts, nodes: int) -> Counts:
    """The counts, or -1 for every node where they are not known."""
    return counts if size(counts) == nodes else ((-1, nodes),)


def _drop(counts: Counts, nodes: int) -> Counts:
    rest = []
    for value, times in counts:
        if times > nodes:
            rest.append((value, times - nodes))
        nodes = max(0, nodes - times)
    return tuple(rest)


def _own_tasks(job: Allocation) -> Counts:
    """Tasks on each node as the job asked for them."""
    if job.ntasks_per_node:
        return ((job.ntasks_per_node, job.nodes),)
    if job.ntasks and not job.tasks and job.ntasks % job.nodes == 0:
        return ((job.ntasks // job.nodes, job.nodes),)
    return job.tasks


def _choose_tasks(
    asked: RunOptions, allocation: Allocation | None, groups: list[Group]
) -> tuple[list[Group], str]:
    """The groups with their tasks, and what says so."""
    if asked.ntasks_per_node or asked.per_node:
        source = asked.source("per-node" if asked.per_node else "ntasks-per-node")
        return [group._replace(tasks=asked.ntasks_per_node or 1) for group in groups], source
    if asked.ntasks:
        return _spread(asked.ntasks, groups, asked), asked.source("ntasks")
    own = allocation is not None and (allocation.components or (allocation,))
    if (
        own
        and not (asked.per_gpu or asked.gpus_per_task)
        and any(job.ntasks or job.ntasks_per_node for job in own)
    ):
        source = (
            "SLURM_NTASKS_PER_NODE" if all(job.ntasks_per_node for job in own) else "SLURM_NTASKS"
        )
        return _fitting(groups, asked), source
    return _one_per_gpu(asked, groups)


def _one_per_gpu(asked: RunOptions, groups: list[Group]) -> tuple[list[Group], str]:
    each, wanted = asked.gpus_per_task or 1, _asked_gpus(asked)
    counts = [group.gpus if wanted is None else wanted for group in groups]
    if None in counts or not any(counts):
        if asked.per_gpu or asked.gpus_per_task:
            source = asked.source("per-gpu" if asked.per_gpu else "gpus-per-task")
            raise JaxsifError(
                "how many GPUs a node has is not known", source, "--gpus-per-node=N, or --ntasks=N"
            )
        return [group._replace(tasks=None) for group in groups], ""
    if len(set(counts)) > 1 and not asked.allow_uneven:
        raise JaxsifError(
            f"the job's GPUs are spread unevenly over its nodes: {render_gpus(groups)}",
            "the allocation (--gpus gives a total; Slurm chooses where)",
            "allocate with --gpus-per-node=N, or pass --allow-uneven or --ntasks-per-node",
        )
    chosen = [group._replace(tasks=(count or 0) // each) for group, count in zip(groups, counts)]
    if any((count or 0) % each for count in counts) or not any(group.tasks for group in chosen):
        raise JaxsifError(
            f"{max(count or 0 for count in counts)} GPUs of a node cannot be shared by tasks with {each} each",
            asked.source("gpus-per-task"),
            f"a divisor, or --ntasks-per-node=N with --gpus-per-task={each}",
        )
    return chosen, f"one task per {each} GPUs" if each > 1 else "one task per GPU"


def _fitting(groups: list[Group], asked: RunOptions) -> list[Group]:
    """The job's own tasks where Slurm would place them; evenly, if the GPUs are even and those
    would not fit.
    """
    if any(group.tasks is None or not group.gpus for group in groups):
        return groups
    known = [(group.nodes or 1, group.tasks or 0, group.gpus or 1) for group in groups]
    ntasks, nodes = (
        sum(count * tasks for count, tasks, _ in known),
        sum(count for count, _, _ in known),
    )
    placed = len({gpus / tasks for _, tasks, gpus in known if tasks}) == 1
    if placed or asked.allow_uneven or ntasks % nodes or len({gpus for _, _, gpus in known}) > 1:
        return groups
    return [group._replace(tasks=ntasks // nodes) for group in groups]


def _spread(ntasks: int, groups: list[Group], asked: RunOptions) -> list[Group]:
    """`ntasks` over the nodes: equally, or as their GPUs are."""
    nodes, gpus = Layout(tuple(groups), "").nodes, _asked_gpus(asked)
    if nodes is None:
        if gpus and ntasks % gpus == 0:
            return [groups[0]._replace(nodes=ntasks // gpus, tasks=gpus)]
        fits = gpus is None or ntasks < gpus
        return [
            groups[0]._replace(
                nodes=1 if gpus and fits else None, tasks=ntasks if gpus and fits else None
            )
        ]
    if asked.nodes is None and ntasks < nodes:
        return [groups[0]._replace(nodes=ntasks, tasks=1)]  # as srun does it
    each = asked.gpus_per_task or 1
    if (
        sum((group.nodes or 1) * ((gpus or group.gpus or 0) // each) for group in groups) == ntasks
        and not gpus
    ):
        return [group._replace(tasks=(group.gpus or 0) // each) for group in groups]
    if ntasks % nodes == 0:
        return [group._replace(tasks=ntasks // nodes) for group in groups]
    fitting = max(nodes, ntasks - ntasks % nodes)
    raise JaxsifError(
        f"{nodes} nodes cannot share {ntasks} tasks evenly",
        asked.source("ntasks"),
        f"--ntasks={fitting}",
    )


def _asked_gpus(asked: RunOptions) -> int | None:
    given = asked.gpus_per_node
    return None if given is None else parse_gpu_count(given, asked.source("gpus-per-node"))


def _choose_gpus(asked: RunOptions, group: Group, allocation: Allocation | None) -> Group:
    """The group with the GPUs that the step will have on its nodes."""
    wanted, option = _asked_gpus(asked), "gpus-per-node"
    if wanted is None and asked.gpus_per_task and group.tasks:
        wanted, option = asked.gpus_per_task * group.tasks, "gpus-per-task"
    if wanted is None:
        return group
    if allocation and group.gpus is not None and wanted > group.gpus:
        raise JaxsifError(
            f"{wanted} GPUs on a node, but the job has {group.gpus} on each",
            asked.source(option),
            f"--gpus-per-node={group.gpus}, or a job with more",
        )
    return group._replace(gpus=wanted)


def _binding(asked: RunOptions, allocation: Allocation | None) -> str:
    """What the user wants Slurm to bind; what Slurm only adds to --gpus-per-task and the like is
    not wanted.
    """
    if asked.gpu_bind is not None:
        return "" if asked.gpu_bind == "none" else asked.gpu_bind
    found = allocation.gpu_bind if allocation else ""
    added = allocation is not None and found == f"per_task:{allocation.gpus_per_task}"
    return "" if added or found == "none" else found


def _must_place(asked: RunOptions, layout: Layout, allocation: Allocation | None) -> bool:
    """True where srun, left to itself, would place the tasks otherwise: it goes by CPUs and not by
    GPUs.
    """
    if allocation is None or allocation.components or layout.ntasks is None:
        return False
    tasks = fold((group.tasks or 0, group.nodes or 0) for group in layout.groups)
    if tasks == _own_tasks(allocation) and not asked.nodes:
        return False
    if len(tasks) > 1 or (asked.nodes and len(layout.groups) > 1):
        return True
    # Equal numbers of tasks: srun finds them by itself, unless CPUs are lacking here and to spare
    # there.
    short = any(
        group.cpus is not None and group.cpus < (group.tasks or 0) for group in layout.groups
    )
    return short and len(allocation.cpus) > 1
