"""A step's shape: groups of equal nodes, and the GPUs of each task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, cycle, islice, repeat
from math import prod
from operator import attrgetter
from typing import Any, NamedTuple

from jaxsif.errors import JaxsifError
from jaxsif.limits import MOST_GPUS, MOST_TASKS, read_number
from jaxsif.task.contract import Expectation, share, times
from jaxsif.text import count_of, enclose, shorten

# What gives the number of tasks if no option does.
JOB = "job"  # by its own variables
NOBODY = ""


def known(*counts: int | None) -> tuple[int, ...]:
    """Return the counts, with 0 for those that are not known."""
    return tuple(count or 0 for count in counts)


class Group(NamedTuple):
    """Equal neighbouring nodes of the step; an attribute is None if Slurm decides."""

    nodes: int | None
    tasks: int | None  # tasks, and so JAX processes, on each of the nodes
    gpus: int | None  # GPUs that the step has on each
    cpus: int | None = None  # CPUs that the job has on each
    component: int = 0  # of a heterogeneous job

    @property
    def ntasks(self) -> int | None:
        """Return the tasks on all of its nodes; None if Slurm decides."""
        return if_known(prod, (self.nodes, self.tasks))

    @property
    def counts(self) -> tuple[int, ...]:
        """Return nodes, tasks, GPUs, CPUs; 0 for those that are not known."""
        return self.nodes or 0, self.tasks or 0, self.gpus or 0, self.cpus or 0


class Layout(NamedTuple):
    """One step's shape."""

    groups: tuple[Group, ...]
    why: str  # what gives the number of tasks, as reports and errors name it
    gpus_per_task: int | None = None  # None: the GPUs of a node in equal shares
    # Slurm's binding; '' if every task sees all GPUs of its node and takes its share.
    gpu_bind: str = ""
    uneven: bool = False  # the shares may differ
    sharers: int = 1  # the greatest number of tasks on one GPU
    # The tasks' nodes are named one by one, because Slurm would place the tasks differently.
    placed: bool = False
    gpus_assumed: bool = False  # nodes may have other numbers of GPUs than this one
    counted_by: str = NOBODY  # the option that gives the number of tasks, JOB or NOBODY
    total: int | None = None  # all tasks, if Slurm spreads them over a number of nodes of its own

    @property
    def nodes(self) -> int | None:
        """Return the nodes of the step; None if Slurm decides."""
        return if_known(sum, self.each("nodes"))

    @property
    def ntasks(self) -> int | None:
        """Return the tasks of the step; None if Slurm decides."""
        return self.total or if_known(sum, self.each("ntasks"))

    @property
    def is_one_task(self) -> bool:
        """Return whether the step has one task; by default, Slurm starts one on each node."""
        by_slurm = self.ntasks is None and self.counted_by == NOBODY
        return self.ntasks == 1 or (by_slurm and self.nodes in (None, 1))

    @property
    def ntasks_per_node(self) -> int | None:
        """Return the tasks on each node; None if they differ or are not known."""
        return _common(self.each("tasks"))

    @property
    def gpus_per_node(self) -> int | None:
        """Return the GPUs on each node; None if they differ or are not known."""
        return _common(self.each("gpus"))

    def each(self, name: str) -> list[Any]:
        """Return the attribute with this name for each group."""
        return list(map(attrgetter(name), self.groups))

    def put(self, tasks: int | None, why: str) -> Layout:
        """Return the layout with this number of tasks on each node."""
        groups = tuple(group._replace(tasks=tasks) for group in self.groups)
        return self._replace(groups=groups, why=why)

    def describe(self) -> str:
        """Return the known numbers of nodes, tasks and GPUs: '2 nodes, 4 tasks a node'."""
        counts = (
            (self.nodes, "node", ""),
            (self.total, "task", ""),
            (self.ntasks_per_node, "task", " a node"),
            (self.gpus_per_node, "GPU", " a node"),
        )
        known = (f"{count_of(n, noun)}{of}" for n, noun, of in counts if n is not None)
        return ", ".join(known)

    def device_ids(self, group: Group, local_id: int) -> tuple[int, ...] | None:
        """Return the GPUs that one of a node's tasks will take (jaxsif/task/devices.py); None if
        they are not known.
        """
        _, tasks, gpus, _ = group.counts
        if group.gpus is None:
            return None
        if 0 in (tasks, gpus):
            return ()
        if not self.gpu_bind:
            return share(local_id, tasks, gpus, self.gpus_per_task)
        found = predict_binding(self.gpu_bind, tasks, gpus)
        return found[local_id] if found else None

    @property
    def expectation(self) -> str:
        """What each node should find, for jaxsif/task/devices.py: '4:4(x3),2:2 uneven'."""
        return Expectation(
            [((group.tasks, group.gpus), group.nodes or 1) for group in self.groups],
            each=self.gpus_per_task,
            bound=bool(self.gpu_bind) and not self.gpu_bind.startswith("closest"),
            uneven=self.uneven,
            share=self.sharers > 1,
        ).render()


def if_known(combine: Callable[[Any], int], values: Sequence[int | None]) -> int | None:
    """Return the sum or product of the values; None if one of them is not known."""
    return None if None in values else combine(values)


def _common(values: Sequence[int | None]) -> int | None:
    return values[0] if len(set(values)) == 1 else None


class Remedy(NamedTuple):
    """An option that may correct a layout, with the values to try."""

    option: str  # without its first hyphens
    values: tuple[Any, ...] = (True,)  # True for a switch


class LayoutError(JaxsifError):
    """A layout that cannot work; its remedies may contradict the other options or the job."""

    def __init__(
        self, what: str, where: str, *remedies: tuple[Remedy, ...], hint: str = ""
    ) -> None:
        super().__init__(what, where, hint)
        self.remedies = remedies  # of the alternatives in each, the first that works counts


def _put_tasks(layout: Layout, each: Sequence[int]) -> tuple[Remedy, ...]:
    """Return the options that put one of these numbers of tasks on each node."""
    nodes = layout.nodes or 0  # 0 makes no remedy
    totals = tuple(nodes * tasks for tasks in each)
    return Remedy("ntasks-per-node", tuple(each)), Remedy("ntasks", totals)


_REMEDY = "--gpu-bind=none, so that each task takes its share"
Bound = tuple[tuple[int, ...], ...]  # the GPUs of each of a node's tasks


def predict_binding(bind: str, tasks: int, gpus: int) -> Bound:
    """Return the GPUs of each of a node's `tasks`; raise JaxsifError if the binding cannot work.

    Return () if only Slurm knows the binding, or if nothing is bound.
    """
    kind, _, value = bind.replace("verbose,", "").partition(":")
    if kind not in _RULES:  # such as closest: gres.conf and the CPUs of each task decide
        return ()
    try:
        found = _RULES[kind](value, tasks, gpus)
    except ValueError as error:
        raise JaxsifError(
            f"cannot read --gpu-bind={shorten(bind)}", "--gpu-bind", "see srun(1)"
        ) from error
    missing = set(chain.from_iterable(found)).difference(range(gpus))
    if missing:
        raise _refusal(bind, f"GPU {min(missing)} of a node with {gpus}")
    if not all(found):
        raise _refusal(bind, "no GPU to a task")
    return found


def _refusal(bind: str, what: str) -> JaxsifError:
    return JaxsifError(f"--gpu-bind={shorten(bind)} gives {what}", "--gpu-bind", _REMEDY)


def count_sharers(bind: str, tasks: int, gpus: int) -> int:
    """Return the greatest number of tasks on one GPU of a node; raise JaxsifError as
    `predict_binding` does.
    """
    found = predict_binding(bind, tasks, gpus)
    if not found:
        return -(-tasks // gpus)
    return max(Counter(chain.from_iterable(found)).values())


def _single(value: str, tasks: int, gpus: int) -> Bound:
    """Put N tasks on each GPU in turn, for single:N; a lone task is not bound."""
    if tasks == 1:
        return (tuple(range(gpus)),)
    each = _positive(value)
    return tuple((local // each % gpus,) for local in range(tasks))


def _per_task(value: str, tasks: int, gpus: int) -> Bound:
    """Give each task the next N GPUs, for per_task:N; of GPUs that the node lacks, only the first
    is given.
    """
    each = _positive(value)
    firsts = (min(local * each, gpus) for local in range(tasks))
    return tuple(tuple(range(first, min(first + each, gpus + 1))) for first in firsts)


def _map(value: str, tasks: int, _gpus: int) -> Bound:
    """For map_gpu:0,1*2, give GPU 0 to the first task, and GPU 1 to each of the next two."""
    return _deal(value, tasks, lambda gpu: (int(gpu, 0),))


def _mask(value: str, tasks: int, gpus: int) -> Bound:
    """Give the first task GPUs 0 and 1, and the second one GPUs 2 and 3, for mask_gpu:3,c."""
    return _deal(value, tasks, lambda mask: _bits(int(mask, 16), gpus))


_RULES: dict[str, Callable[[str, int, int], Bound]] = {
    "single": _single,
    "per_task": _per_task,
    "map_gpu": _map,
    "mask_gpu": _mask,
}


def _bits(mask: int, gpus: int) -> tuple[int, ...]:
    """Return the GPUs of a mask; of GPUs that the node lacks, return only the first."""
    first_missing = [gpus] if mask >> gpus else []
    return (*(bit for bit in range(gpus) if mask >> bit & 1), *first_missing)


def _positive(value: str) -> int:
    number = read_number(value)
    if not number:
        raise ValueError(value)
    return number


def _deal(value: str, tasks: int, read: Callable[[str], tuple[int, ...]]) -> Bound:
    """Return the result of `read` for each item of a list such as '0,1*2', whose second item counts
    twice; a list that is too short for all tasks is repeated.
    """
    if not value.isascii():  # int would read the digits of other scripts
        raise ValueError(value)
    parts = [part.partition("*") for part in value.split(",")]
    runs = [repeat(read(item), _positive(times) if star else 1) for item, star, times in parts]
    return tuple(islice(cycle(chain.from_iterable(runs)), tasks))


def check_layout(layout: Layout, share_gpus: bool) -> int:
    """Return the greatest number of tasks on one GPU.

    Raise JaxsifError for more tasks or GPUs than a node can have, for tasks without a GPU, and,
    unless requested, for GPUs that are shared or divided unequally.
    """
    for group in layout.groups:  # first: what follows goes through them one by one
        _, tasks, gpus, _ = group.counts
        for number, most, noun in ((tasks, MOST_TASKS, "tasks"), (gpus, MOST_GPUS, "GPUs")):
            if number > most:
                what = f"{number} {noun} on one node; the maximum is {most}"
                raise JaxsifError(what, layout.why, f"request fewer {noun}")
    if not any(layout.each("gpus")):
        return 1
    planned = [group for group in layout.groups if None not in (group.tasks, group.gpus)]
    check = partial(_check_node, layout, share_gpus)
    sharers = max(map(check, planned), default=1)
    if not layout.gpu_bind and not layout.uneven:
        _check_even(layout, planned)
    return sharers


def _check_node(layout: Layout, share_gpus: bool, group: Group) -> int:
    """Return the greatest number of tasks on one GPU of a group's nodes; raise JaxsifError."""
    _, tasks, gpus, _ = group.counts
    if share_gpus and gpus:
        return count_sharers(layout.gpu_bind, tasks, gpus)
    if tasks > gpus:
        raise LayoutError(
            f"{tasks} tasks on a node with {count_of(gpus, 'GPU')}: "
            "JAX needs at least one GPU for each process",
            layout.why,
            _put_tasks(layout, (gpus,)),
            (Remedy("gpus-per-node", (str(tasks),)),),
            (Remedy("share-gpus"),),
        )
    each = layout.gpus_per_task or 1
    if tasks * each > gpus:
        raise LayoutError(
            f"{count_of(tasks, 'task')} with {each} GPUs each on a node with"
            f" {count_of(gpus, 'GPU')}",
            layout.why,
            (Remedy("gpus-per-task", (gpus // tasks,)),),
            _put_tasks(layout, (gpus // each,)),
            (Remedy("gpus-per-node", (str(tasks * each),)),),
        )
    sharers = count_sharers(layout.gpu_bind, tasks, gpus)
    if sharers > 1:
        raise JaxsifError(
            f"--gpu-bind={shorten(layout.gpu_bind)} gives one GPU to several of {tasks} tasks",
            "--gpu-bind",
            f"{_REMEDY}, or --share-gpus",
        )
    return sharers


def _check_even(layout: Layout, groups: Sequence[Group]) -> None:
    """Raise JaxsifError if tasks would have different numbers of GPUs."""
    each = layout.gpus_per_task
    sizes = {  # of a node's tasks, the first one has the most, and the last the fewest
        len(share(local, tasks, gpus, each))
        for _, tasks, gpus, _ in map(attrgetter("counts"), groups)
        for local in (0, tasks - 1)
    }
    if len(sizes) > 1:
        least = min(group.counts[2] for group in groups)
        divisors = [number for number in range(1, least + 1) if least % number == 0]
        shares = _render(groups, partial(_render_shares, each))
        raise LayoutError(
            f"processes would have different numbers of GPUs: {shares}",
            layout.why,
            _put_tasks(layout, divisors),
            (Remedy("gpus-per-task", (1,)),),
            (Remedy("allow-uneven"),),
        )


def _render_shares(each: int | None, group: Group) -> str:
    """Return the number of GPUs of each task of a node as '2, 1'."""
    _, tasks, gpus, _ = group.counts
    return ", ".join(str(len(share(local, tasks, gpus, each))) for local in range(tasks))


def render_gpus(groups: Sequence[Group]) -> str:
    """Return the GPUs of each node as '3 + 1', those of equal nodes as '4 (x7)'."""
    return _render(groups, attrgetter("gpus"))


def _render(groups: Sequence[Group], describe: Callable[[Group], object]) -> str:
    return " + ".join(
        f"{describe(group)}{enclose(' ', times(group.counts[0]))}" for group in groups
    )
