"""A plan -> the map of a step: which process is on which node, with which GPUs and CPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from jaxsif.layout.layout import Group, Layout
from jaxsif.layout.topology import Near
from jaxsif.plan.plan import Plan
from jaxsif.text import align, count_of

_HEAD = ("node", "task", "process", "GPUs", "CPUs", "NIC")
_IN_BLOCKS = ("", "block", "arbitrary")  # distributions that put neighbours on one node
# A task's GPUs and adapters if its GPUs are not known, and if it has none.
_WITHOUT_GPUS: Mapping[tuple[int, ...] | None, tuple[str, str]] = {None: ("?", "?"), (): ("-", "-")}


class _Part(NamedTuple):
    """Equal neighbouring nodes; one node and one task if Slurm decides."""

    group: Group
    names: str
    nodes: int
    tasks: int  # on each node
    process: int  # the number of the first one


def render_map(plan: Plan, near: Sequence[Near] | None) -> str:
    """Return the table, with equal nodes in one row, and the reasons for the layout.

    `near` has the neighbours of each GPU if this host is a node of the step; otherwise it is None.
    """
    layout = plan.layout
    rows = [_HEAD, *_rows(plan, near or ())]
    if near is None:
        rows = [row[:-1] for row in rows]
    counts = (layout.ntasks, "process"), (layout.nodes, "node")
    title = " on ".join(count_of(number, noun) for number, noun in counts)
    return "\n".join([title, "", *align(rows), "", *_reasons(plan, near)])


def _known(value: int | None) -> str:
    return "?" if value is None else str(value)


def _parts(plan: Plan) -> Iterator[_Part]:
    """Yield the groups of the layout, each with its names and first number."""
    node = process = 0
    for group in plan.layout.groups:
        nodes, tasks = max(1, group.counts[0]), max(1, group.counts[1])
        yield _Part(group, plan.launcher.name_nodes(plan, node, group.nodes), nodes, tasks, process)
        node += nodes
        process += nodes * tasks


def _rows(plan: Plan, near: Sequence[Near]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each task, with equal nodes combined."""
    layout = plan.layout
    distribution = plan.distribution.split(":")[0].split("=")[0]  # 'cyclic' of 'cyclic:block'
    each, alone = plan.srun_option("--cpus-per-task"), len(layout.groups) == 1
    if layout.total:
        yield "?", "?", _number(0, layout.total, 1), "?", each or "?", "?"
        return
    for part in _parts(plan):
        cpus = each or _cpus(part)
        for local in range(part.tasks):
            processes = _processes(part, local, distribution, alone)
            gpus, nics = _devices(layout.device_ids(part.group, local), near)
            yield ("" if local else part.names, str(local), processes, gpus, cpus, nics)


def _processes(part: _Part, local: int, distribution: str, alone: bool) -> str:
    """Return the numbers of the same task on each node: '0', '0, 4', '0, 4 … 28'."""
    first, step = part.process + local, part.tasks
    if part.nodes == 1:
        return str(first)
    if distribution == "cyclic" and alone:
        first, step = local * part.nodes, 1  # dealt out like cards
    elif distribution not in _IN_BLOCKS:
        return "?"
    return _number(first, part.nodes, step)


def _number(first: int, count: int, step: int) -> str:
    """Return the first and last of equally spaced numbers: '0', '0, 4', '0, 4 … 28'."""
    last = f" … {first + (count - 1) * step}" if count > 2 else ""
    return f"{first}, {first + step}{last}" if count > 1 else str(first)


def _devices(ids: tuple[int, ...] | None, near: Sequence[Near]) -> tuple[str, str]:
    """Return a task's GPUs, and the adapters nearest to them."""
    if not ids:
        return _WITHOUT_GPUS[ids]
    nics = chain.from_iterable(near[index].nics for index in ids if index < len(near))
    return _gpus(ids), ",".join(dict.fromkeys(nics)) or "?"


def _gpus(ids: tuple[int, ...]) -> str:
    """Return '0', '0,1', '0-3'."""
    if len(ids) > 2 and ids == tuple(range(ids[0], ids[-1] + 1)):
        return f"{ids[0]}-{ids[-1]}"
    return ",".join(map(str, ids))


def _cpus(part: _Part) -> str:
    """Return the CPUs that each node has for its tasks."""
    cpus = part.group.cpus
    return _known(cpus) if cpus is None or part.tasks == 1 else f"{cpus} shared"


def _reasons(plan: Plan, near: Sequence[Near] | None) -> Iterator[str]:
    placed = (
        "; placed by node name, since srun would place tasks by CPUs" if plan.layout.placed else ""
    )
    each = plan.srun_option("--cpus-per-task")
    cpus = (
        f"--cpus-per-task={each}"
        if each
        else "all that the job has on the node, shared by its tasks"
    )
    yield f"tasks: {plan.layout.why}{placed}"
    yield f"GPUs: {_explain_gpus(plan.layout)}"
    yield f"CPUs: {cpus}"
    yield f"NIC: {_explain_nics(near)}"


def _explain_gpus(layout: Layout) -> str:
    if not any(group.gpus for group in layout.groups):
        return "none" if layout.gpus_per_node == 0 else "Slurm decides"
    if layout.gpu_bind:
        return (
            f"bound by Slurm, --gpu-bind={layout.gpu_bind}; a process uses every GPU that it sees"
        )
    if layout.sharers > 1:
        what = "processes share one, each with part of its memory; NCCL refuses that"
        return f"up to {layout.sharers} {what}"
    return "a task sees all GPUs of its node; JAX_LOCAL_DEVICE_IDS names those it uses"


def _explain_nics(near: Sequence[Near] | None) -> str:
    if near is None:
        return "not known: this host is not a node of the step"
    if not near:
        return "not known: this host has no NVIDIA GPU"
    nodes = ", ".join(f"GPU {index}: {gpu.numa}" for index, gpu in enumerate(near))
    return f"the nearest on this node; NUMA nodes: {nodes}"
