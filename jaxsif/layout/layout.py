"""A step's shape: groups of equal nodes, and the GPUs of each task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

from jaxsif.layout import gpu_bind as binding
from jaxsif.task.contract import Expectation, share

# Who gives the number of tasks, where no option does.
JOB = "job"  # by its own variables
NOBODY = ""


def known(*counts: int | None) -> tuple[int, ...]:
    """Return the counts, 0 for what is not known."""
    return tuple(count or 0 for count in counts)


class Group(NamedTuple):
    """Equal nodes that stand side by side in the step; None where Slurm decides."""

    nodes: int | None
    tasks: int | None  # tasks, and so JAX processes, on each of the nodes
    gpus: int | None  # GPUs that the step has on each
    cpus: int | None = None  # CPUs that the job has on each
    component: int = 0  # of a heterogeneous job

    @property
    def ntasks(self) -> int | None:
        """Return the tasks on all of its nodes; None where Slurm decides."""
        return if_known(prod, (self.nodes, self.tasks))

    @property
    def counts(self) -> tuple[int, ...]:
        """Return nodes, tasks, GPUs, CPUs; 0 for what is not known."""
        return known(self.nodes, self.tasks, self.gpus, self.cpus)


class Layout(NamedTuple):
    """One step's shape."""

    groups: tuple[Group, ...]
    why: str  # what gives the number of tasks, as reports and errors name it
    gpus_per_task: int | None = None  # None: the GPUs of a node in equal shares
    # What Slurm binds; '' where every task sees all GPUs of its node and takes its share.
    gpu_bind: str = ""
    uneven: bool = False  # the shares may differ
    sharers: int = 1  # the greatest number of tasks on one GPU
    # The tasks' nodes are named one by one, for Slurm would place them otherwise.
    placed: bool = False
    gpus_assumed: bool = False  # a node may have other numbers of GPUs than this one
    counted_by: str = NOBODY  # the option that gives the number of tasks, JOB or NOBODY

    @property
    def nodes(self) -> int | None:
        """Return the nodes of the step; None where Slurm decides."""
        return if_known(sum, self.each("nodes"))

    @property
    def ntasks(self) -> int | None:
        """Return the tasks of the step; None where Slurm decides."""
        return if_known(sum, self.each("ntasks"))

    @property
    def is_one_task(self) -> bool:
        """Return True where the step has one task; without a number, a node has one."""
        return self.ntasks == 1 or (self.counted_by == NOBODY and self.nodes in (None, 1))

    @property
    def ntasks_per_node(self) -> int | None:
        """Return the tasks on each node; None where that is not one number."""
        return _common(self.each("tasks"))

    @property
    def gpus_per_node(self) -> int | None:
        """Return the GPUs on each node; None where that is not one number."""
        return _common(self.each("gpus"))

    @property
    def has_gpus(self) -> bool:
        """Return True where some node is known to have GPUs for the step."""
        return any(self.each("gpus"))

    def each(self, name: str) -> list[Any]:
        """Return that attribute of each group."""
        return [getattr(group, name) for group in self.groups]

    def put(self, tasks: int | None, why: str) -> Layout:
        """Return the layout with so many tasks on each node."""
        groups = tuple(group._replace(tasks=tasks) for group in self.groups)
        return self._replace(groups=groups, why=why)

    def describe(self) -> str:
        """Return what is known of nodes, tasks and GPUs: '2 node(s), 4 task(s) a node'."""
        counts = (
            (self.nodes, "node(s)"),
            (self.ntasks_per_node, "task(s) a node"),
            (self.gpus_per_node, "GPU(s) a node"),
        )
        return ", ".join(f"{count} {unit}" for count, unit in counts if count is not None)

    def device_ids(self, group: Group, local_id: int) -> tuple[int, ...] | None:
        """Return the node's GPUs of one of its tasks, as the task will take them
        (jaxsif/task/devices.py); None where they are not known.
        """
        _, tasks, gpus, _ = group.counts
        if group.gpus is None:
            return None
        if 0 in (tasks, gpus):
            return ()
        if not self.gpu_bind:
            return share(local_id, tasks, gpus, self.gpus_per_task)
        found = binding.predict(self.gpu_bind, tasks, gpus)
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
    """Return the sum or product of the values; None where one of them is not known."""
    return None if None in values else combine(values)


def _common(values: Sequence[int | None]) -> int | None:
    return values[0] if len(set(values)) == 1 else None
