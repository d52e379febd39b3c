"""Notes and warnings about a plan before the start; usually none."""

from __future__ import annotations

from collections.abc import Iterator

from jaxsif.container.environment import find_cautions
from jaxsif.job.srun_options import JOB, select
from jaxsif.plan.launcher import LOCAL, SRUN
from jaxsif.plan.plan import Plan, given_variables
from jaxsif.settings.options import OF_JOB, OFF, OPTIONS, REPORT, RESTART, Option, RunOptions
from jaxsif.text import count_of

# The options that one launcher takes.
_OF_A_LAUNCHER = tuple(option for option in OPTIONS if option.launcher)
_OF_HANGS = tuple(option for option in OPTIONS if option.key in ("on-hang", "busy-timeout"))


def find_notes(plan: Plan) -> tuple[str, ...]:
    """Return the lines that are printed even without --verbose."""
    layout = plan.layout
    notes = []
    if plan.launcher.name == LOCAL and plan.options.launcher is None:
        notes.append(
            f"no Slurm here: starting {count_of(layout.ntasks_per_node or 1, 'local process')}"
        )
    warnings = [*_of_place(plan), *_of_cpus(plan), *_of_options(plan), *_of_hangs(plan)]
    environ, given = plan.host.environ, given_variables(plan)
    cautions = find_cautions(
        environ,
        given,
        plan.options.cleanenv,
        gpus=layout.gpus_per_node,
        tasks=layout.ntasks_per_node,
    )
    typed = plan.options.is_on_command_line("env")
    by_setting = () if typed else dict(plan.options.env)
    place = f"; set by {plan.options.source('env')}"
    for caution in cautions:
        warnings.append(caution + (place if caution.partition("=")[0] in by_setting else ""))
    return (*notes, *(f"warning: {warning}" for warning in warnings))


def _of_place(plan: Plan) -> Iterator[str]:
    """Yield the warnings about a missing container, and about GPUs that are shared."""
    if plan.host.runtime is None:
        yield "no container runtime here: running in this machine's own Python"
    if plan.layout.sharers > 1:
        consequence = "NCCL refuses that, so on GPUs they cannot use collectives"
        yield f"up to {plan.layout.sharers} processes share a GPU: {consequence}"


def _of_cpus(plan: Plan) -> Iterator[str]:
    """Yield the warning about fewer CPUs than tasks."""
    if plan.launcher.name != SRUN:
        return
    few = [(cpus, tasks) for _, tasks, _, cpus in plan.layout.each("counts") if 0 < cpus < tasks]
    for cpus, tasks in sorted(few)[:1]:
        remedy = "allocate with --cpus-per-gpu or --cpus-per-task"
        yield f"{tasks} tasks on a node share {count_of(cpus, 'CPU')}: {remedy}"


def _of_options(plan: Plan) -> Iterator[str]:
    """Yield the warnings about options on the command line that have no effect."""
    options, name, place = plan.options, plan.launcher.name, _without_new_job(plan)
    for option, _ in OF_JOB:
        if place and _is_said(option, options):
            yield f"{option.flag} has no effect {place}"
    idle = select(options.passed, JOB) if name == SRUN else options.passed
    for argument in idle if place else ():
        yield f"{argument.flag} has no effect {place}"
    if options.on_hang == RESTART and not options.max_restarts:
        yield f"without --max-restarts, a hang ends the run: {options.source('on-hang')}"
    for option in _OF_A_LAUNCHER:
        if option.launcher != name and _is_said(option, options):
            yield f"{option.flag} has no effect with --launcher {name}"


def _of_hangs(plan: Plan) -> Iterator[str]:
    """Yield the warnings about options of hangs without hang detection."""
    options = plan.options
    for option in _OF_HANGS if options.hang_timeout == OFF else ():
        if _is_said(option, options) and getattr(options, option.field) not in (REPORT, OFF):
            yield f"{option.flag} has no effect: {options.source('hang-timeout')} is off"


def _is_said(option: Option, options: RunOptions) -> bool:
    """Return whether the command line, not a variable or a file, sets the option."""
    return options.is_on_command_line(option.key) and bool(getattr(options, option.field))


def _without_new_job(plan: Plan) -> str:
    """Return why the run requests no job from Slurm, or '' if it requests one."""
    job = plan.host.allocation
    if job and plan.launcher.name != LOCAL:
        return f"inside job {job.job_id}"
    if plan.launcher.name == SRUN:
        return ""
    return f"with --launcher {plan.launcher.name}" if plan.host.srun else "without Slurm"
