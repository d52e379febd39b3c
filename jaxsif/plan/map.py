"""A plan -> the map of a step: which process is on which node, with which GPUs and CPUs, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jaxsif.job.allocation import Allocation
from jaxsif.job.nodelist import expand
from jaxsif.layout.layout import Group, Layout
from jaxsif.layout.topology import Near
from jaxsif.plan.launchers import LOCAL, MPIRUN
from jaxsif.plan.plan import LaunchPlan

_HEAD = ("node", "task", "process", "GPUs", "CPUs", "NIC")


def render_map(plan: LaunchPlan, allocation: Allocation | None, near: Sequence[Near] | None) -> str:
    """The table, equal nodes in one row, and the reasons; `near` where this host is a node of the
    step.
    """
    layout = plan.layout
    rows: list[tuple[str, ...]] = [_HEAD]
    first = node = 0
    for group in layout.groups:
        rows += _rows(plan, group, _names(plan, group, node, allocation), first, allocation, near)
        node += group.nodes or 1
        first += (group.nodes or 1) * (group.tasks or 1)
    if near is None:
        rows = [row[:-1] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows
    ]
    return "\n".join([_title(layout), "", *lines, "", *_reasons(plan, allocation, near)])


def _title(layout: Layout) -> str:
    processes = "?" if layout.ntasks is None else layout.ntasks
    nodes = "?" if layout.nodes is None else layout.nodes
    return f"{processes} process(es) on {nodes} node(s)"


def _rows(
    plan: LaunchPlan,
    group: Group,
    names: str,
    first: int,
    allocation: Allocation | None,
    near: Sequence[Near] | None,
) -> Iterable[tuple[str, ...]]:
    for local in range(group.tasks or 1):
        ids = plan.layout.device_ids(group, local)
        yield (
            "" if local else names,
            str(local),
            _processes(first + local, group, plan, allocation),
            _gpus(ids),
            _cpus(plan, group),
            ",".join(_nics(ids, near)) or ("-" if ids == () else "?"),
        )


def _processes(process: int, group: Group, plan: LaunchPlan, allocation: Allocation | None) -> str:
    """Process numbers of the same task on each node: '0', '0, 4', '0, 4 … 28'."""
    nodes, step = group.nodes or 1, group.tasks or 1
    distribution = _distribution(plan, allocation)
    if distribution == "cyclic" and len(plan.layout.groups) == 1:
        process, step = process * nodes, 1  # dealt out like cards
    elif distribution not in ("", "block", "arbitrary") and nodes > 1:
        return "?"
    numbers = [process + node * step for node in range(min(nodes, 2))]
    last = f" … {process + (nodes - 1) * step}" if nodes > 2 else ""
    return ", ".join(map(str, numbers)) + last


def _distribution(plan: LaunchPlan, allocation: Allocation | None) -> str:
    """How Slurm deals tasks to nodes: 'cyclic' of 'cyclic:block'."""
    given = [
        word.partition("=")[2] for word in plan.launch_argv if word.startswith("--distribution=")
    ]
    value = given[-1] if given else allocation.distribution if allocation else ""
    return value.split(":")[0].split("=")[0]


def _gpus(ids: tuple[int, ...] | None) -> str:
    if ids is None:
        return "?"
    if len(ids) > 2 and ids == tuple(range(ids[0], ids[-1] + 1)):
        return f"{ids[0]}-{ids[-1]}"
    return ",".join(map(str, ids)) or "-"


def cpus_per_task(plan: LaunchPlan) -> int | None:
    """What srun is told of CPUs; the last one counts, as for srun."""
    given = [
        word.partition("=")[2] for word in plan.launch_argv if word.startswith("--cpus-per-task=")
    ]
    return int(given[-1]) if given else None


def _cpus(plan: LaunchPlan, group: Group) -> str:
    each = cpus_per_task(plan)
    if each:
        return str(each)
    if group.cpus is None:
        return "?"
    return str(group.cpus) if (group.tasks or 1) == 1 else f"{group.cpus} shared"


def _nics(ids: tuple[int, ...] | None, near: Sequence[Near] | None) -> list[str]:
    found = [nic for index in ids or () if near and index < len(near) for nic in near[index].nics]
    return list(dict.fromkeys(found))


def _names(plan: LaunchPlan, group: Group, node: int, allocation: Allocation | None) -> str:
    """Names of a group's nodes, the first and the last of many."""
    nodes = group.nodes
    if plan.launcher == LOCAL:
        return "this machine"
    if plan.launcher == MPIRUN and nodes is not None:
        hosts = plan.launch_argv[plan.launch_argv.index("--host") + 1].split(",")
        return _ends([host.rpartition(":")[0] for host in hosts[node : node + nodes]])
    jobs = (allocation.components or (allocation,)) if allocation else ()
    names = [name for job in jobs for name in expand(job.nodelist)]
    if nodes is None or not allocation or len(names) != allocation.nodes:
        return "each node" if nodes is None or nodes > 1 else "one node"
    if not plan.layout.placed and plan.layout.nodes != allocation.nodes:
        return f"{nodes} of {names[0]} … {names[-1]}"
    return _ends(names[node : node + nodes])


def _ends(names: Sequence[str]) -> str:
    return f"{names[0]} … {names[-1]}" if len(names) > 2 else ", ".join(names)


def _reasons(
    plan: LaunchPlan, allocation: Allocation | None, near: Sequence[Near] | None
) -> Iterable[str]:
    layout = plan.layout
    yield f"tasks: {layout.why}" + (
        "; placed by name, since srun goes by CPUs" if layout.placed else ""
    )
    if not any(group.gpus for group in layout.groups):
        yield "GPUs: none" if layout.gpus_per_node == 0 else "GPUs: Slurm decides"
    elif layout.gpu_bind:
        yield f"GPUs: bound by Slurm, --gpu-bind={layout.gpu_bind}; a process uses all that it sees"
    elif layout.sharers > 1:
        yield f"GPUs: up to {layout.sharers} processes have one, and a part of its memory; NCCL refuses that"
    else:
        yield "GPUs: a task sees all of its node, and JAX_LOCAL_DEVICE_IDS takes its share"
    each = cpus_per_task(plan)
    yield f"CPUs: {f'--cpus-per-task={each}' if each else 'what the job has on the node, for all its tasks'}"
    if near is None:
        yield "NIC: this host is not a node of the step, so it cannot tell"
    elif not near:
        yield "NIC: this host has no NVIDIA GPU, so it cannot tell"
    else:
        nodes = ", ".join(f"GPU {index}: {one.numa}" for index, one in enumerate(near))
        yield f"NIC: the nearest on this node; NUMA nodes: {nodes}"
