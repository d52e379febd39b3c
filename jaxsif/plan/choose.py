"""The layout for each launcher: how many tasks where, out of the options, the host and the
allocation.
"""

from __future__ import annotations

from jaxsif.errors import JaxsifError
from jaxsif.job.allocation import Allocation
from jaxsif.layout.layout import Layout
from jaxsif.layout.planner import plan_layout
from jaxsif.plan import mpirun
from jaxsif.plan.host import Host
from jaxsif.plan.launchers import LOCAL, MPIRUN, SRUN
from jaxsif.settings.request import RunOptions


def _srun_layout(options: RunOptions, host: Host, allocation: Allocation | None) -> Layout:
    return plan_layout(options, allocation, host.job_gpus)


def _local_layout(options: RunOptions, host: Host, _allocation: Allocation | None) -> Layout:
    if options.nodes not in (None, 1):
        remedy = "--nodes=1, or run it where srun is"
        raise JaxsifError(f"{options.nodes} nodes without Slurm", options.source("nodes"), remedy)
    gpus = str(host.gpus) if options.gpus_per_node is None else options.gpus_per_node
    asked = options._replace(nodes=1, gpus_per_node=gpus, gpu_bind=None)
    layout = plan_layout(asked, None, None)
    if layout.ntasks_per_node:
        return layout
    return layout._replace(
        groups=(layout.groups[0]._replace(tasks=1),), why="one task without GPUs"
    )


def _mpirun_layout(options: RunOptions, host: Host, allocation: Allocation | None) -> Layout:
    count = options.nodes or len(host.hosts)
    if count > len(host.hosts):
        hint = f"--nodes={len(host.hosts)}, or name more hosts"
        raise JaxsifError(f"{count} nodes, but {len(host.hosts)} host(s)", host.hosts_source, hint)
    gpus, slots = options.gpus_per_node, None
    told = (
        options.ntasks_per_node
        or options.ntasks
        or options.per_node
        or options.per_gpu
        or options.gpus_per_task
    )
    if not told and gpus is None:
        slots = mpirun.choose_slots(host.hosts[:count], host.hosts_source)
    if slots and slots > host.gpus > 0:
        slots = None  # often they are the cores
    if gpus is None and allocation is None and host.gpus:
        gpus = str(host.gpus)  # the nodes are taken to be like this one
    tasks = options.ntasks_per_node or slots
    asked = options._replace(nodes=count, ntasks_per_node=tasks, gpus_per_node=gpus, gpu_bind=None)
    layout = plan_layout(asked, allocation, host.job_gpus)
    if slots:
        return layout._replace(why=f"the slots of {host.hosts_source}")
    if layout.ntasks_per_node:
        return layout
    if any(group.tasks for group in layout.groups):
        remedy = "--ntasks-per-node=N, or --launcher srun"
        raise JaxsifError("mpirun starts the same number of tasks on each node", layout.why, remedy)
    groups = tuple(group._replace(tasks=1) for group in layout.groups)
    return layout._replace(groups=groups, why="one task on each node")


LAYOUTS = {SRUN: _srun_layout, LOCAL: _local_layout, MPIRUN: _mpirun_layout}
