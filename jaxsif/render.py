"""A plan -> text for people: the command line that it stands for, and what it means."""

from __future__ import annotations

from jaxsif.plan import LOCAL, Host, LaunchPlan, RunOptions
from jaxsif.slurm import ALLOCATION_OPTIONS, Allocation

# Options that ask for a job, and mean nothing where there is one already, or none can be.
_OF_A_JOB = ("--partition", "--account", "--constraint", "--time")


def render_command(plan: LaunchPlan) -> str:
    """One line for a POSIX shell that starts exactly what `process.run` starts; of local processes, each one's."""
    import shlex  # here: most runs render nothing

    words = [f"{name}={shlex.quote(value)}" for name, value in plan.set_environ]
    if plan.unset_environ:
        words = ["env", *(f"--unset={name}" for name in plan.unset_environ), *words]
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
    where = "on this machine" if plan.launcher == LOCAL else "by srun"
    what = f"{shape or 'one task'} {where} ({layout.why}); image from {image_source}"
    return f"jaxsif: {what}\njaxsif: {render_command(plan)}"


def render_notes(options: RunOptions, plan: LaunchPlan, host: Host, allocation: Allocation | None) -> tuple[str, ...]:
    """What the user should know before the start even without --verbose; usually nothing."""
    notes = []
    if plan.launcher == LOCAL and options.launcher is None:
        notes.append(f"no Slurm here: starting {plan.layout.ntasks_per_node or 1} local process(es)")
    if host.runtime is None:
        notes.append("warning: no container runtime here: running in this machine's own Python")
    ignored = [name for name in _OF_A_JOB if _given(options, name)]
    if plan.launcher == LOCAL:
        notes += [f"warning: {name} has no effect without Slurm" for name in ignored]
    elif allocation:
        tasks, cpus = plan.layout.ntasks_per_node, allocation.cpus_per_node
        if tasks and cpus and tasks > cpus:
            remedy = "allocate with --cpus-per-gpu or --cpus-per-task"
            notes.append(f"warning: {tasks} tasks on each node share {cpus} CPU(s): {remedy}")
        notes += [f"warning: {name} has no effect inside job {allocation.job_id}" for name in ignored]
    return tuple(notes)


def _given(options: RunOptions, name: str) -> bool:
    """Whether the command line says it; a site's file sets its partition for those runs that ask for a job."""
    return getattr(options, ALLOCATION_OPTIONS[name]) is not None and options.source(name[2:]) == name
