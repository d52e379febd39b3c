"""A plan -> text for people: the command line that it stands for, and what it means."""

from __future__ import annotations

from jaxsif.job.allocation import Allocation
from jaxsif.plan.host import Host
from jaxsif.plan.launchers import LAUNCHERS, LOCAL, SRUN
from jaxsif.plan.plan import LaunchPlan
from jaxsif.settings.options import OPTIONS
from jaxsif.settings.request import RunOptions


def render_command(plan: LaunchPlan) -> str:
    """One line for a POSIX shell that starts exactly what `children.run` starts; of local
    processes, each one's.
    """
    import shlex  # here: most runs render nothing

    words = [f"{name}={shlex.quote(value)}" for name, value in plan.set_environ]
    if plan.unset_environ:
        words = ["env", *(f"--unset={shlex.quote(name)}" for name in plan.unset_environ), *words]
    line = " ".join([*words, shlex.join(plan.argv)])
    if plan.launcher == LOCAL:  # what tells the processes apart, launch.py adds
        line += f"  # one of {plan.layout.ntasks_per_node} process(es)"
    return line


def render_summary(plan: LaunchPlan, image_source: str) -> str:
    """What --verbose says before the start."""
    layout = plan.layout
    counts = (
        (layout.nodes, "node(s)"),
        (layout.ntasks_per_node, "task(s) a node"),
        (layout.gpus_per_node, "GPU(s) a node"),
    )
    shape = ", ".join(f"{count} {unit}" for count, unit in counts if count is not None)
    what = f"{shape or 'one task'} {LAUNCHERS[plan.launcher].where} ({layout.why}); image from {image_source}"
    return f"jaxsif: {what}\njaxsif: {render_command(plan)}"


def render_notes(
    options: RunOptions, plan: LaunchPlan, host: Host, allocation: Allocation | None
) -> tuple[str, ...]:
    """What the user should know before the start even without --verbose; usually nothing."""
    notes = []
    if plan.launcher == LOCAL and options.launcher is None:
        notes.append(
            f"no Slurm here: starting {plan.layout.ntasks_per_node or 1} local process(es)"
        )
    if host.runtime is None:
        notes.append("warning: no container runtime here: running in this machine's own Python")
    if plan.layout.sharers > 1:
        most = plan.layout.sharers
        notes.append(
            f"warning: up to {most} processes share a GPU: NCCL refuses that, so they cannot use collectives"
        )
    # What the command line says; a site's file sets its partition, say, for those runs that ask for
    # a job.
    given = [option for option in OPTIONS if getattr(options, option.field, None) is not None]
    ignored = [
        option.flag
        for option in given
        if option.of_job and options.source(option.key) == option.flag
    ]
    if plan.launcher == LOCAL or not allocation:
        notes += [
            f"warning: {name} has no effect without Slurm"
            for name in ignored
            if plan.launcher != SRUN
        ]
    else:
        tasks, cpus = plan.layout.ntasks_per_node, allocation.cpus_per_node
        if plan.launcher == SRUN and tasks and cpus and tasks > cpus:
            remedy = "allocate with --cpus-per-gpu or --cpus-per-task"
            notes.append(f"warning: {tasks} tasks on each node share {cpus} CPU(s): {remedy}")
        notes += [
            f"warning: {name} has no effect inside job {allocation.job_id}" for name in ignored
        ]
    others = [
        key for name, one in LAUNCHERS.items() if name != plan.launcher for key in one.options
    ]
    useless = [
        key
        for key in others
        if getattr(options, key.replace("-", "_")) and options.source(key) == f"--{key}"
    ]
    notes += [f"warning: --{key} has no effect with --launcher {plan.launcher}" for key in useless]
    return (*notes, *(f"warning: {caution}" for caution in plan.cautions))
