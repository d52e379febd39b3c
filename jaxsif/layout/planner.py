"""What was asked for and what the allocation has -> the layout of a step.

RULES is the table of cases: who gives the number of tasks, and then what is known of the nodes. The
first rule that answers gives each node its tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby, islice, repeat
from typing import NamedTuple, Optional

from jaxsif.errors import JaxsifError
from jaxsif.job.allocation import Allocation, gpus_of, parse_gpu_count
from jaxsif.job.counts import Counts, each_node, fold, size
from jaxsif.layout.checks import check_layout, render_gpus
from jaxsif.layout.layout import JOB, NOBODY, Group, Layout
from jaxsif.settings.request import RunOptions


class Asker(NamedTuple):
    """Who gives the number of tasks."""

    name: str  # an option without its first hyphens, JOB or NOBODY
    source: str  # as reports and errors name it
    number: int = 1  # tasks, tasks on each node or GPUs of each task, whichever the option gives


Groups = list[Group]
Chosen = tuple[Groups, str]  # the nodes with their tasks, and what gave these their number
Rule = Callable[[Asker, RunOptions, Groups], Optional[Chosen]]  # None: not its case


def plan_layout(
    asked: RunOptions, allocation: Allocation | None, job_gpus: Counts | None
) -> Layout:
    """Return the layout for the options given and the allocation, one task per GPU unless told
    otherwise.

    `job_gpus` is the number of GPUs on each node of the job, where it had to be asked for. Raises
    JaxsifError for a layout that cannot work.
    """
    asker = find_asker(asked, allocation)
    available = _available(asked, allocation, job_gpus)
    chosen, why = choose_tasks(asker, asked, available)
    groups = tuple(_give_gpus(asked, group) for group in chosen if group.tasks != 0)
    bind = _binding(asked, allocation)
    # Where Slurm binds, it decides how many each has; and who gives the number leaves the rest idle
    # on purpose.
    each = None if bind else asked.gpus_per_task
    layout = Layout(groups, why, each, bind, asked.allow_uneven, counted_by=asker.name)
    sharers = check_layout(layout, asked.share_gpus)
    return layout._replace(sharers=sharers, placed=_must_place(asked, layout, allocation))


def find_asker(asked: RunOptions, allocation: Allocation | None) -> Asker:
    """Return who gives the number of tasks; raise JaxsifError for options that contradict each
    other.
    """
    agreeing = asked.ntasks == (asked.nodes or 0) * (asked.ntasks_per_node or 0)
    counts = {
        "per-node": int(asked.per_node),
        "per-gpu": int(asked.per_gpu),
        "ntasks-per-node": asked.ntasks_per_node,
        "ntasks": None if agreeing else asked.ntasks,
    }
    # Beside another option, this one says how large tasks are and not how many; --per-gpu means 1.
    if (asked.per_gpu and asked.gpus_per_task != 1) or not any(counts.values()):
        counts["gpus-per-task"] = asked.gpus_per_task
    given = [(option, count) for option, count in counts.items() if count]
    if len(given) > 1:
        (first, _), (second, _), *_ = given
        raise JaxsifError(
            f"--{first} and --{second} contradict each other",
            asked.source(second),
            f"leave out --{second}",
        )
    if given:
        option, count = given[0]
        return Asker(option, asked.source(option), count)
    if allocation and allocation.task_variable:
        return Asker(JOB, allocation.task_variable)
    return Asker(NOBODY, "Slurm's default")


def _available(asked: RunOptions, allocation: Allocation | None, job_gpus: Counts | None) -> Groups:
    """Return the nodes of the step with what the job has there; .tasks is where Slurm would place
    the job's own. Raise JaxsifError for more nodes than the job has.
    """
    if allocation is None:
        return [Group(asked.nodes, None, None)]
    wanted = asked.nodes or allocation.nodes
    if wanted > allocation.nodes:
        raise JaxsifError(
            f"{wanted} nodes asked for, but the job has {allocation.nodes}",
            asked.source("nodes"),
            f"--nodes={allocation.nodes}, or a job with more",
        )
    groups = []
    found = each_node(job_gpus or ())
    for index, part in enumerate(allocation.parts):
        there = tuple(zip(islice(found, part.nodes), repeat(1)))
        columns = (part.placement, gpus_of(part) or there, part.cpus)
        rows = zip(*(_column(counts, part.nodes) for counts in columns))
        for (tasks, gpus, cpus), equal in groupby(islice(rows, wanted)):
            groups.append(Group(len(list(equal)), tasks, gpus, cpus, index))
    return groups


def _column(counts: Counts, nodes: int) -> Iterable[int | None]:
    """Return the value of each node, None where they are not known of all."""
    return each_node(counts) if size(counts) == nodes else repeat(None, nodes)


def choose_tasks(asker: Asker, asked: RunOptions, groups: Groups) -> Chosen:
    """Return what the first rule says that answers; raise JaxsifError for what cannot be."""
    answers = (rule(asker, asked, groups) for rule in RULES[asker.name])
    return next(filter(None, answers))


def on_each_node(asker: Asker, asked: RunOptions, groups: Groups) -> Chosen | None:
    """Put the number that was given on each node."""
    return _put(asker.number, groups), asker.source


def on_new_nodes(asker: Asker, asked: RunOptions, groups: Groups) -> Chosen | None:
    """Take as many nodes as the tasks fill, where neither a job nor an option gives a number."""
    if groups[0].nodes:
        return None
    tasks = min(asker.number, _wanted_gpus(asked) or 0)
    if not tasks or asker.number % tasks:
        return groups, asker.source  # Slurm decides
    return [Group(asker.number // tasks, tasks, None)], asker.source


def on_first_nodes(asker: Asker, asked: RunOptions, groups: Groups) -> Chosen | None:
    """Put one task on each of the first nodes, as srun does it, where there are more nodes."""
    if asked.nodes or asker.number >= _count_nodes(groups):
        return None
    return [groups[0]._replace(nodes=asker.number, tasks=1)], asker.source


def as_the_gpus(asker: Asker, asked: RunOptions, groups: Groups) -> Chosen | None:
    """Put the tasks where the job's GPUs are, if it has one for each, or so many as asked for."""
    each = asked.gpus_per_task or 1
    chosen = [group._replace(tasks=group.counts[2] // each) for group in groups]
    if _wanted_gpus(asked) or Layout(tuple(chosen), "").ntasks != asker.number:
        return None
    return chosen, asker.source


def evenly(asker: Asker, asked: RunOptions, groups: Groups) -> Chosen | None:
    """Put the same number on each node; raise JaxsifError where that leaves some tasks."""
    nodes = _count_nodes(groups)
    if asker.number % nodes == 0:
        return _put(asker.number // nodes, groups), asker.source
    fitting = max(nodes, asker.number - asker.number % nodes)
    raise JaxsifError(
        f"{nodes} nodes cannot share {asker.number} tasks evenly",
        asker.source,
        f"--ntasks={fitting}",
    )


def as_the_job(asker: Asker, asked: RunOptions, groups: Groups) -> Chosen | None:
    """Put the job's tasks where Slurm would place them, but evenly where the GPUs are even."""
    job, nodes = Layout(tuple(groups), ""), _count_nodes(groups)
    if asked.allow_uneven or not job.gpus_per_node or not job.ntasks or job.ntasks % nodes:
        return groups, asker.source
    return _put(job.ntasks // nodes, groups), asker.source


def without_known_gpus(asker: Asker, asked: RunOptions, groups: Groups) -> Chosen | None:
    """Leave the tasks to Slurm where GPUs are not known or none; raise JaxsifError where an option
    goes by them.
    """
    if any(_step_gpus(asked, groups)):
        return None
    if asker.name == NOBODY:
        return _put(None, groups), asker.source
    raise JaxsifError(
        "how many GPUs a node has is not known",
        asker.source,
        "--gpus-per-node=N, or --ntasks=N",
    )


def one_per_gpu(asker: Asker, asked: RunOptions, groups: Groups) -> Chosen | None:
    """Put one task for each GPU, or for each so many; raise JaxsifError where some would differ."""
    each, counts = asker.number, _step_gpus(asked, groups)
    if len(set(counts)) > 1 and not asked.allow_uneven:
        raise JaxsifError(
            f"the job's GPUs are spread unevenly over its nodes: {render_gpus(groups)}",
            "the allocation (--gpus gives a total; Slurm chooses where)",
            "allocate with --gpus-per-node=N, or pass --allow-uneven or --ntasks-per-node",
        )
    if any(count % each for count in counts):
        raise JaxsifError(
            f"{max(counts)} GPUs of a node cannot be shared by tasks with {each} each",
            asked.source("gpus-per-task"),
            f"a divisor, or --ntasks-per-node=N with --gpus-per-task={each}",
        )
    chosen = [group._replace(tasks=count // each) for group, count in zip(groups, counts)]
    return chosen, f"one task per {each} GPUs" if each > 1 else "one task per GPU"


# Who gives the number of tasks -> the rules, of which the first that answers counts.
RULES: dict[str, tuple[Rule, ...]] = {
    "per-node": (on_each_node,),
    "ntasks-per-node": (on_each_node,),
    "ntasks": (on_new_nodes, on_first_nodes, as_the_gpus, evenly),
    "per-gpu": (without_known_gpus, one_per_gpu),
    "gpus-per-task": (without_known_gpus, one_per_gpu),
    JOB: (as_the_job,),
    NOBODY: (without_known_gpus, one_per_gpu),
}


def _put(tasks: int | None, groups: Groups) -> Groups:
    """Return the groups with so many tasks on each node."""
    return [group._replace(tasks=tasks) for group in groups]


def _count_nodes(groups: Groups) -> int:
    return sum(group.counts[0] for group in groups)


def _wanted_gpus(asked: RunOptions) -> int | None:
    given = asked.gpus_per_node
    return None if given is None else parse_gpu_count(given, asked.source("gpus-per-node"))


def _step_gpus(asked: RunOptions, groups: Groups) -> list[int]:
    """Return the GPUs on the nodes of each group; [] where they are not known of all."""
    wanted = _wanted_gpus(asked)
    if wanted is not None:
        return [wanted] * len(groups)
    if None in [group.gpus for group in groups]:
        return []
    return [group.counts[2] for group in groups]


def _give_gpus(asked: RunOptions, group: Group) -> Group:
    """Return the group with the GPUs that the step will have on its nodes; raise JaxsifError where
    the job has fewer.
    """
    wanted, option = _wanted_gpus(asked), "gpus-per-node"
    if wanted is None and asked.gpus_per_task and group.tasks:
        wanted, option = asked.gpus_per_task * group.tasks, "gpus-per-task"
    if wanted is None:
        return group
    if group.gpus is not None and wanted > group.gpus:
        raise JaxsifError(
            f"{wanted} GPUs on a node, but the job has {group.gpus} on each",
            asked.source(option),
            f"--gpus-per-node={group.gpus}, or a job with more",
        )
    return group._replace(gpus=wanted)


def _binding(asked: RunOptions, allocation: Allocation | None) -> str:
    """Return what the user wants Slurm to bind, '' for nothing; what Slurm only adds to
    --gpus-per-task and the like is not wanted.
    """
    bind = ""
    if asked.gpu_bind is not None:
        bind = asked.gpu_bind
    elif allocation and allocation.gpu_bind != f"per_task:{allocation.gpus_per_task}":
        bind = allocation.gpu_bind
    return "" if bind == "none" else bind


def _must_place(asked: RunOptions, layout: Layout, allocation: Allocation | None) -> bool:
    """Return True where srun, left to itself, would place the tasks otherwise: it goes by CPUs and
    not by GPUs.
    """
    if allocation is None or allocation.components or layout.ntasks is None:
        return False
    counts = [group.counts for group in layout.groups]
    placement = fold((tasks, nodes) for nodes, tasks, _, _ in counts)
    if placement == allocation.placement and not asked.nodes:
        return False
    if len(placement) > 1 or (asked.nodes and len(counts) > 1):
        return True
    # Equal numbers of tasks: srun finds these nodes, unless CPUs are lacking here and to spare
    # there.
    lacking = any(0 < cpus < tasks for _, tasks, _, cpus in counts)
    return lacking and len(allocation.cpus) > 1
