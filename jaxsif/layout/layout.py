"""A step's shape: groups of equal nodes, and the GPUs of each task."""

from __future__ import annotations

from typing import NamedTuple

from jaxsif.layout import gpu_bind as binding
from jaxsif.task.contract import Expectation, share


class Group(NamedTuple):
    """Equal nodes that stand side by side in the step; None where Slurm decides."""

    nodes: int | None
    tasks: int | None  # tasks, and so JAX processes, on each of the nodes
    gpus: int | None  # GPUs that the step has on each
    cpus: int | None = None  # CPUs that the job has on each
    component: int = 0  # of a heterogeneous job


class Layout(NamedTuple):
    """One step's shape."""

    groups: tuple[Group, ...]
    why: str  # where the number of tasks comes from, for people
    gpus_per_task: int | None = None  # None: the GPUs of a node in equal shares
    # What Slurm binds; '' where every task sees all GPUs of its node and takes its share.
    gpu_bind: str = ""
    uneven: bool = False  # the shares may differ
    sharers: int = 1  # the greatest number of tasks on one GPU
    # The tasks' nodes are named one by one, for Slurm would place them otherwise.
    placed: bool = False
    gpus_assumed: bool = False  # a node may have other numbers of GPUs than this one

    @property
    def nodes(self) -> int | None:
        """Nodes of the step."""
        known = [group.nodes for group in self.groups if group.nodes is not None]
        return sum(known) if known else None

    @property
    def ntasks(self) -> int | None:
        """Tasks of the step."""
        known = [
            group.nodes * group.tasks
            for group in self.groups
            if group.nodes and group.tasks is not None
        ]
        return sum(known) if len(known) == len(self.groups) else None

    @property
    def ntasks_per_node(self) -> int | None:
        """Tasks on each node, where that is one number."""
        return _common([group.tasks for group in self.groups])

    @property
    def gpus_per_node(self) -> int | None:
        """GPUs on each node, where that is one number."""
        return _common([group.gpus for group in self.groups])

    def device_ids(self, group: Group, local_id: int) -> tuple[int, ...] | None:
        """The node's GPUs of one of its tasks, as the task will take them (jaxsif/task/devices.py);
        None: unknown.
        """
        if not group.gpus or not group.tasks:
            return None if group.gpus is None else ()
        if self.gpu_bind:
            found = binding.predict(self.gpu_bind, group.tasks, group.gpus)
            return found[local_id] if found else None
        return share(local_id, group.tasks, group.gpus, self.gpus_per_task)

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


def _common(values: list[int | None]) -> int | None:
    return values[0] if len(set(values)) == 1 else None
