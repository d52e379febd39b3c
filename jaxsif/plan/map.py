"""A plan -> the map of a step: which process is on which node, with which GPUs and CPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jaxsif.layout.layout import Group
from jaxsif.layout.topology import Near
from jaxsif.plan.plan import Plan

_HEAD = ("node", "task", "process", "GPUs", "CPUs", "NIC")


def render_map(plan: Plan, near: Sequence[Near] | None) -> str:
    """Return the table, equal nodes in one row, and the reasons.

    `near` has the neighbours of each GPU where this host is a node of the step, else it is None.
    """
    layout = plan.layout
    distribution = plan.distribution.split(":")[0].split("=")[0]  # 'cyclic' of 'cyclic:block'
    cpus = plan.cpus_per_task
    rows: list[tuple[str, ...]] = [_HEAD]
    first = node = 0
    for group in layout.groups:
        names = plan.launcher.name_nodes(plan, node, group.nodes)
        for local in range(group.tasks or 1):
            ids = layout.device_ids(group, local)
            name = "" if local else names
            processes = _processes(first + local, group, distribution, len(layout.groups))
            cells = (_gpus(ids), _cpus(cpus, group), _nics(ids, near or ()))
            rows.append((name, str(local), processes, *cells))
        node += group.nodes or 1
        first += (group.nodes or 1) * (group.tasks or 1)
    if near is None:
        rows = [row[:-1] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = [_render_row(row, widths) for row in rows]
    title = f"{_known(layout.ntasks)} process(es) on {_known(layout.nodes)} node(s)"
    return "\n".join([title, "", *lines, "", *_reasons(plan, cpus, near)])


def _render_row(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()


def _known(value: int | None) -> str:
    return "?" if value is None else str(value)


def _processes(process: int, group: Group, distribution: str, groups: int) -> str:
    """Return the numbers of the same task on each node: '0', '0, 4', '0, 4 … 28'."""
    nodes, step = group.nodes or 1, group.tasks or 1
    if distribution == "cyclic" and groups == 1:
        process, step = process * nodes, 1  # dealt out like cards
    elif distribution not in ("", "block", "arbitrary") and nodes > 1:
        return "?"
    numbers = [process + node * step for node in range(min(nodes, 2))]
    last = f" … {process + (nodes - 1) * step}" if nodes > 2 else ""
    return ", ".join(map(str, numbers)) + last


def _gpus(ids: tuple[int, ...] | None) -> str:
    if ids is None:
        return "?"
    if len(ids) > 2 and ids == tuple(range(ids[0], ids[-1] + 1)):
        return f"{ids[0]}-{ids[-1]}"
    return ",".join(map(str, ids)) or "-"


def _cpus(each: int | None, group: Group) -> str:
    if each:
        return str(each)
    if group.cpus is None:
        return "?"
    return str(group.cpus) if (group.tasks or 1) == 1 else f"{group.cpus} shared"


def _nics(ids: tuple[int, ...] | None, near: Sequence[Near]) -> str:
    if ids == ():
        return "-"
    known = [near[index].nics for index in ids or () if index < len(near)]
    return ",".join(dict.fromkeys(nic for nics in known for nic in nics)) or "?"


def _reasons(plan: Plan, each: int | None, near: Sequence[Near] | None) -> Iterator[str]:
    layout = plan.layout
    placed = "; placed by name, since srun goes by CPUs" if layout.placed else ""
    yield f"tasks: {layout.why}{placed}"
    yield f"GPUs: {_explain_gpus(plan)}"
    yield f"CPUs: {f'--cpus-per-task={each}' if each else _ALL_CPUS}"
    yield f"NIC: {_explain_nics(near)}"


_ALL_CPUS = "what the job has on the node, for all its tasks"


def _explain_gpus(plan: Plan) -> str:
    layout = plan.layout
    if not any(group.gpus for group in layout.groups):
        return "none" if layout.gpus_per_node == 0 else "Slurm decides"
    if layout.gpu_bind:
        return f"bound by Slurm, --gpu-bind={layout.gpu_bind}; a process uses all that it sees"
    if layout.sharers > 1:
        most = layout.sharers
        return f"up to {most} processes have one, and a part of its memory; NCCL refuses that"
    return "a task sees all of its node, and JAX_LOCAL_DEVICE_IDS takes its share"


def _explain_nics(near: Sequence[Near] | None) -> str:
    if near is None:
        return "this host is not a node of the step, so it cannot tell"
    if not near:
        return "this host has no NVIDIA GPU, so it cannot tell"
    nodes = ", ".join(f"GPU {index}: {gpu.numa}" for index, gpu in enumerate(near))
    return f"the nearest on this node; NUMA nodes: {nodes}"
