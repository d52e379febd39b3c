"""The options and the allocation -> the layout of a step.

RULES is the table of cases: by the source of the number of tasks, and then by what is known about
the nodes. The first rule that applies gives each node its tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice, repeat
from math import prod
from typing import NamedTuple

from jaxsif.errors import JaxsifError
from jaxsif.job.allocation import NO_JOB, Allocation, gpus_of, parse_gpu_count
from jaxsif.job.counts import Counts, each_node, fold, size
from jaxsif.layout.layout import (
    JOB,
    NOBODY,
    Group,
    Layout,
    LayoutError,
    Remedy,
    check_layout,
    if_known,
    known,
    render_gpus,
)
from jaxsif.settings.options import RunOptions, Setting
from jaxsif.text import count_of, enclose, join_or


class Basis(NamedTuple):
    """The source of the number of tasks."""

    name: str  # an option without its first hyphens, JOB or NOBODY
    source: str  # as reports and errors name it
    number: int = 1  # tasks, tasks on each node or GPUs of each task, whichever the option gives


class Case(NamedTuple):
    """The facts that the rules use."""

    basis: Basis
    options: RunOptions
    there: Layout  # the nodes with what the job has on each, and where Slurm would place its tasks
    whole: Layout  # likewise, all nodes of the job
    wanted: int | None  # GPUs on each node, if an option gives them

    @property
    def nodes(self) -> int:
        """Return the number of nodes; 0 if it is not known."""
        return self.there.nodes or 0

    @property
    def gpus(self) -> list[int]:
        """Return the step's GPUs on the nodes of each group; [] unless all are known."""
        gpus = self.there.each("gpus")
        if self.wanted is not None:
            return [self.wanted] * len(gpus)
        return [] if None in gpus else gpus


def plan_layout(
    options: RunOptions, allocation: Allocation | None, job_gpus: Counts | None
) -> Layout:
    """Return the layout for the options and the allocation, by default one task per GPU.

    `job_gpus` is the number of GPUs on each node of the job, if Slurm had to be asked. Raise
    JaxsifError for a layout that cannot work, with the remedies that work here.
    """
    job, gpus = allocation or NO_JOB, job_gpus or ()
    try:
        return _resolve(options, job, gpus)
    except LayoutError as error:
        found = (_find_remedy(ways, options, job, gpus) for ways in error.remedies)
        hint = join_or([*filter(None, [*found, error.hint])])
        hint = hint or "request a job with enough GPUs on each node"
        raise JaxsifError(error.what, error.where, hint) from None


def _find_remedy(
    ways: Sequence[Remedy], options: RunOptions, job: Allocation, job_gpus: Counts
) -> str:
    """Return the first of the remedies that works, with all of its values that work, or ''."""
    for option, values in ways:
        if option == "gpus-per-node" and options.gpus:
            continue  # they would contradict each other
        field = option.replace("-", "_")
        tried = ((value, options._replace(**{field: value})) for value in values if value)
        working = [value for value, changed in tried if _works(changed, job, job_gpus)]
        if working:
            is_switch = working[0] is True
            return f"--{option}" + ("" if is_switch else f"={' or '.join(map(str, working))}")
    return ""


def _works(options: RunOptions, job: Allocation, job_gpus: Counts) -> bool:
    """Return whether the options give a layout."""
    try:
        _resolve(options, job, job_gpus)
    except JaxsifError:
        return False
    return True


def _resolve(options: RunOptions, job: Allocation, job_gpus: Counts) -> Layout:
    """Return the layout; raise JaxsifError for one that cannot work."""
    basis = find_basis(options, job)
    there = _look_at(job, options, job_gpus)
    whole = _look_at(job, options._replace(nodes=None), job_gpus)
    gpus = options.gpus_per_node
    wanted = None if gpus is None else parse_gpu_count(gpus, options.source("gpus-per-node"))
    case = Case(basis, options, there, whole, wanted)
    rule = next(rule for rule in RULES[basis.name] if rule.applies(case))
    chosen = rule.choose(case)
    bind = _binding(options, job)
    layout = chosen._replace(
        groups=tuple([_give_gpus(case, group) for group in chosen.groups if group.tasks != 0]),
        # If Slurm binds, it decides how many each has; and whoever gives the number leaves the rest
        # idle on purpose.
        gpus_per_task=None if bind else options.gpus_per_task,
        gpu_bind=bind,
        uneven=options.allow_uneven,
        counted_by=basis.name,
    )
    sharers = check_layout(layout, options.share_gpus)
    return layout._replace(sharers=sharers, placed=_must_place(options, layout, job))


def find_basis(options: RunOptions, job: Allocation = NO_JOB) -> Basis:
    """Return the source of the number of tasks; raise JaxsifError for options that contradict each
    other.
    """
    product = Group(options.nodes, options.ntasks_per_node, None).ntasks
    counts = {
        "per-node": int(options.per_node),
        "per-gpu": int(options.per_gpu),
        "ntasks-per-node": options.ntasks_per_node,
        "ntasks": None if options.ntasks == product else options.ntasks,  # they agree
    }
    # Next to another option, this one gives the size of tasks, not their number; --per-gpu means 1.
    if (options.per_gpu and options.gpus_per_task != 1) or not any(counts.values()):
        counts["gpus-per-task"] = options.gpus_per_task
    explicit = [Basis(name, options.source(name), n) for name, n in counts.items() if n]
    if len(explicit) > 1:
        first, second, *_ = explicit
        raise JaxsifError(
            f"--{first.name} and --{second.name} contradict each other",
            "; ".join(dict.fromkeys((first.source, second.source))),
            f"leave out --{second.name}",
        )
    if job is not NO_JOB and job.task_variable:
        explicit.append(Basis(JOB, job.task_variable))
    return [*explicit, Basis(NOBODY, "Slurm's default")][0]


def _look_at(job: Allocation, options: RunOptions, job_gpus: Counts) -> Layout:
    """Return the nodes of the step with the job's resources there; .tasks is where Slurm would
    place the job's own tasks. Raise JaxsifError for more nodes than the job has.
    """
    if job is NO_JOB:
        return Layout((Group(options.nodes, None, None),), "")
    wanted = options.nodes or job.nodes
    if wanted > job.nodes:
        raise JaxsifError(
            f"{wanted} nodes requested, but the job has {job.nodes}"
            f"{enclose(' without ', job.left_out or '')}",
            options.source("nodes"),
            f"--nodes={job.nodes}, or a job with more",
        )
    return Layout(tuple(_find_groups(job, wanted, job_gpus)), "")


def _find_groups(job: Allocation, most: int, job_gpus: Counts) -> Iterator[Group]:
    """Yield the equal neighbours among the first nodes of each component, at most `most` nodes."""
    found = each_node(job_gpus)
    for index, part in enumerate(job.parts):
        there = fold(zip(islice(found, part.nodes), repeat(1)))
        rows = zip(
            _column(part.placement, part.nodes),
            _column(gpus_of(part) or there, part.nodes),
            _column(part.cpus, part.nodes),
        )
        for row, equal in groupby(islice(rows, most)):
            yield Group(len(list(equal)), *row, index)


def _column(counts: Counts, nodes: int) -> Iterable[int | None]:
    """Return the value of each node; None unless all are known."""
    return each_node(counts) if size(counts) == nodes else repeat(None, nodes)


def always(_case: Case) -> bool:
    """Apply in every case."""
    return True


def on_each_node(case: Case) -> Layout:
    """Put the given number of tasks on each node."""
    return case.there.put(case.basis.number, case.basis.source)


def no_nodes_known(case: Case) -> bool:
    """Return whether neither a job nor an option gives the number of nodes."""
    return case.nodes == 0


def on_new_nodes(case: Case) -> Layout:
    """Take as many nodes as the tasks fill, or leave the number of nodes to Slurm."""
    number, source = case.basis.number, case.basis.source
    tasks = min(number, (case.wanted or 0) // (case.options.gpus_per_task or 1))
    if not tasks or number % tasks:
        return case.there.put(None, source)._replace(total=number)
    return Layout((Group(number // tasks, tasks, None),), source)


def nodes_to_spare(case: Case) -> bool:
    """Return whether there are fewer tasks than nodes, and no option requests all of the nodes."""
    return not case.options.nodes and case.basis.number < case.nodes


def on_first_nodes(case: Case) -> Layout:
    """Put one task on each of the first nodes, as srun does."""
    first = case.there.groups[0]._replace(nodes=case.basis.number, tasks=1)
    return Layout((first,), case.basis.source)


def gpus_for_all(case: Case) -> bool:
    """Return whether the job has GPUs for exactly these tasks, and no option gives the GPUs of each
    node.
    """
    return not case.wanted and as_the_gpus(case).ntasks == case.basis.number


def as_the_gpus(case: Case) -> Layout:
    """Put the tasks where the job's GPUs are, one for each group of `gpus_per_task` GPUs."""
    each = case.options.gpus_per_task or 1
    groups = (group._replace(tasks=group.counts[2] // each) for group in case.there.groups)
    return Layout(tuple(groups), case.basis.source)


def evenly(case: Case) -> Layout:
    """Put the same number of tasks on each node; raise JaxsifError if some would be left over."""
    nodes, number = case.nodes, case.basis.number
    if number % nodes == 0:
        return case.there.put(number // nodes, case.basis.source)
    less = number - number % nodes
    of_nodes = "" if case.options.is_on_command_line("nodes") else case.options.source("nodes")
    raise LayoutError(
        f"{nodes} nodes cannot share {count_of(number, 'task')} evenly",
        "; ".join(filter(None, (case.basis.source, of_nodes))),
        (Remedy("ntasks", (less, less + nodes)),),
        *([(Remedy("nodes", (1,)),)] if of_nodes else []),
    )


def as_the_job(case: Case) -> Layout:
    """Put the job's tasks where Slurm would place them, but evenly if all of its nodes have equal
    numbers of GPUs.
    """
    there, whole, source = case.there, case.whole, case.basis.source
    tasks, nodes = known(whole.ntasks, whole.nodes)
    if case.options.allow_uneven or not whole.gpus_per_node or not tasks or tasks % nodes:
        return there._replace(why=source)
    return there.put(tasks // nodes, source)


def gpus_known(case: Case) -> bool:
    """Return whether the nodes are known to have GPUs."""
    return any(case.gpus)


def left_to_slurm(case: Case) -> Layout:
    """Leave the tasks to Slurm."""
    return case.there.put(None, case.basis.source)


def refuse_unknown_gpus(case: Case) -> Layout:
    """Raise JaxsifError: an option depends on GPUs that are not known."""
    raise JaxsifError(
        "the number of GPUs per node is not known",
        case.basis.source,
        "--gpus-per-node=N" if case.options.per_gpu else "--gpus-per-node=N, or --ntasks=N",
    )


def one_per_gpu(case: Case) -> Layout:
    """Put one task on each GPU, or on each group of `gpus_per_task` GPUs; raise JaxsifError if the
    nodes would differ, or some GPUs be left over.
    """
    options, groups, gpus, each = case.options, case.there.groups, case.gpus, case.basis.number
    if len(set(gpus)) > 1 and not options.allow_uneven:
        raise JaxsifError(
            f"the job's GPUs are spread unevenly across its nodes: {render_gpus(groups)}",
            "the components of the job"
            if groups[-1].component
            else "the allocation (--gpus gives a total; Slurm chooses where)",
            "allocate with one --gpus-per-node=N for all nodes, or pass --allow-uneven",
        )
    if any(count % each for count in gpus):
        what = f"{count_of(max(gpus), 'GPU')} on a node cannot be divided among tasks with {each}"
        hint = f"--gpus-per-task with a divisor, or --ntasks-per-node=N with --gpus-per-task={each}"
        if min(filter(None, gpus)) < each:
            hint = f"--gpus-per-task={math.gcd(*gpus)}, or a job with more GPUs on each node"
        raise JaxsifError(f"{what} each", options.source("gpus-per-task"), hint)
    chosen = tuple(group._replace(tasks=count // each) for group, count in zip(groups, gpus))
    return Layout(chosen, f"one task per {each} GPUs" if each > 1 else "one task per GPU")


class TaskRule(NamedTuple):
    """How to put tasks on nodes, and in which cases."""

    choose: Callable[[Case], Layout]  # nodes with their tasks, and what gave these their number
    applies: Callable[[Case], bool] = always


# The source of the number of tasks -> its rules; the first that applies counts.
RULES: dict[str, tuple[TaskRule, ...]] = {
    "per-node": (TaskRule(on_each_node),),
    "ntasks-per-node": (TaskRule(on_each_node),),
    "ntasks": (
        TaskRule(on_new_nodes, no_nodes_known),
        TaskRule(on_first_nodes, nodes_to_spare),
        TaskRule(as_the_gpus, gpus_for_all),
        TaskRule(evenly),
    ),
    "per-gpu": (TaskRule(one_per_gpu, gpus_known), TaskRule(refuse_unknown_gpus)),
    "gpus-per-task": (TaskRule(one_per_gpu, gpus_known), TaskRule(refuse_unknown_gpus)),
    JOB: (TaskRule(as_the_job),),
    NOBODY: (TaskRule(one_per_gpu, gpus_known), TaskRule(left_to_slurm)),
}


def _give_gpus(case: Case, group: Group) -> Group:
    """Return the group with the GPUs that the step will have on its nodes; raise JaxsifError if the
    job has fewer.
    """
    wanted, option = case.wanted, "gpus-per-node"
    if wanted is None:
        each = case.options.gpus_per_task or None
        wanted, option = if_known(prod, (each, group.tasks)), "gpus-per-task"
    if wanted is None:
        return group
    if group.gpus is not None and wanted > group.gpus:
        most = group.gpus if case.wanted else group.gpus // (group.tasks or 1)
        raise LayoutError(
            f"{wanted} GPUs on a node, but the job has {group.gpus} on each",
            case.options.source(option),
            (Remedy(option, (str(most) if case.wanted else most,)),),
            hint="a job with more",
        )
    return group._replace(gpus=wanted)


def _binding(options: RunOptions, job: Allocation) -> str:
    """Return the binding that the user wants from Slurm, or ''; one that Slurm itself adds for
    --gpus-per-task and similar options does not count.
    """
    bind, unwanted = options.gpu_bind, ["none"]
    if bind is None:
        bind, unwanted = job.gpu_bind, ["none", f"per_task:{job.gpus_per_task}"]
    return "" if bind in unwanted else bind


def _must_place(options: RunOptions, layout: Layout, job: Allocation) -> bool:
    """Return whether srun, left to itself, would place the tasks differently: it goes by CPUs, not
    by GPUs.
    """
    if job.components or layout.ntasks is None:
        return False
    counts = layout.each("counts")
    # srun would choose other nodes if some lack CPUs and others have CPUs to spare.
    astray = len(job.cpus) > 1 and any(0 < cpus < tasks for _, tasks, _, cpus in counts)
    if options.nodes:
        return astray or len(counts) > 1
    placement = fold((tasks, nodes) for nodes, tasks, _, _ in counts)
    return placement != job.placement and (astray or len(placement) > 1)


def resolve_totals(options: RunOptions, there: int | None) -> RunOptions:
    """Return the options with --nodes as a number, and --gpus-per-node instead of --gpus.

    `there` is the number of existing nodes, or None if Slurm allocates a job first. Raise
    JaxsifError for tasks or GPUs that the nodes cannot share evenly.
    """
    if options.node_range:
        nodes = _choose_nodes(options, *options.node_range, there)
        options = options._replace(nodes=nodes, node_range=None)
    return _share_gpus(options, options.gpus, there) if options.gpus else options


def _choose_nodes(options: RunOptions, least: int, most: int, there: int | None) -> int:
    """Return the largest number of nodes in a range that are available, or, for a new job, the
    smallest number that fits, since srun places no tasks unless the number of nodes is fixed.
    """
    if least > most:
        raise JaxsifError(
            f"not a range of nodes: '{least}-{most}'", options.source("nodes"), f"{most}-{least}"
        )
    if there:
        return min(most, max(least, there))
    # 0, if neither is given, is a multiple of any number.
    shared = math.gcd(*known(options.ntasks, _count_gpus(options.gpus, options.source("gpus"))))
    nodes = next((nodes for nodes in range(least, most + 1) if shared % nodes == 0), 0)
    if nodes:
        return nodes
    raise JaxsifError(
        f"{least} to {most} nodes cannot share {shared} tasks or GPUs evenly",
        options.source("nodes"),
        "another range, or another number of tasks or GPUs",
    )


def _count_gpus(explicit: str | None, source: str) -> int | None:
    """Return the number in an option's value, or None."""
    return parse_gpu_count(explicit, source) if explicit else None


def _share_gpus(options: RunOptions, gpus: str, there: int | None) -> RunOptions:
    """Return the options with the GPUs of each node."""
    source = options.source("gpus")
    total, kind = parse_gpu_count(gpus, source), gpus.rpartition(":")[0]
    nodes = options.nodes or there or _count_new_nodes(options, total)
    if nodes is None:
        raise JaxsifError(f"{total} GPUs on an unknown number of nodes", source, "add --nodes=N")
    each, left = divmod(total, nodes)
    if left:
        hint = f"--gpus={nodes * each}" if each else "--nodes=1"
        tasks = options.ntasks or 0
        if each and tasks % nodes:
            hint += f" --ntasks={max(nodes, tasks - tasks % nodes)}"
        what = f"{nodes} nodes cannot share {count_of(total, 'GPU')} evenly"
        raise JaxsifError(what, source, hint)
    if _count_gpus(options.gpus_per_node, "--gpus-per-node") not in (None, each):
        raise JaxsifError(
            f"--gpus={gpus} and --gpus-per-node={options.gpus_per_node} contradict each other",
            source,
            f"leave out --gpus: {count_of(nodes, 'node')}",
        )
    per_node = options.gpus_per_node or enclose("", kind, ":") + str(each)
    sources = {"gpus-per-node": Setting(per_node, source), **options.sources}
    nodes = options.nodes or (None if there else nodes)  # those of a job are not requested again
    return options._replace(nodes=nodes, gpus_per_node=per_node, sources=sources)


def _count_new_nodes(options: RunOptions, total: int) -> int | None:
    """Return the number of nodes that follows from the options, or None."""
    if total == 1:
        return 1
    gpus = _count_gpus(options.gpus_per_node, "--gpus-per-node")
    per_node, ntasks, tasks = known(gpus, options.ntasks, options.ntasks_per_node)
    pairs = ((total, per_node), (ntasks, tasks))
    counts = (whole // part for whole, part in pairs if part and whole % part == 0)
    return next(filter(None, counts), None if total else 1)
