"""What the user should know of a plan before the start; usually nothing."""

from __future__ import annotations

from collections.abc import Iterator

from jaxsif.container.environment import find_cautions
from jaxsif.plan.launcher import LOCAL, SRUN
from jaxsif.plan.plan import Plan, given_variables
from jaxsif.settings.options import OPTIONS


def find_notes(plan: Plan) -> tuple[str, ...]:
    """Return the lines, without --verbose too."""
    layout = plan.layout
    notes = []
    if plan.launcher.name == LOCAL and plan.asked.launcher is None:
        notes.append(f"no Slurm here: starting {layout.ntasks_per_node or 1} local process(es)")
    warnings = [*_of_place(plan), *_of_options(plan)]
    environ, given = plan.host.environ, given_variables(plan)
    warnings += find_cautions(
        environ, given, plan.asked.cleanenv, gpus=layout.gpus_per_node, tasks=layout.ntasks_per_node
    )
    return (*notes, *(f"warning: {warning}" for warning in warnings))


def _of_place(plan: Plan) -> Iterator[str]:
    """Yield the warnings on a missing container, and on GPUs that are shared."""
    if plan.host.runtime is None:
        yield "no container runtime here: running in this machine's own Python"
    if plan.layout.sharers > 1:
        most = plan.layout.sharers
        consequence = "NCCL refuses that, so they cannot use collectives"
        yield f"up to {most} processes share a GPU: {consequence}"


def _of_options(plan: Plan) -> Iterator[str]:
    """Yield the warnings on CPUs, and on options of the command line without effect."""
    allocation, name = plan.host.allocation, plan.launcher.name
    in_job = allocation if name != LOCAL else None
    tasks = plan.layout.ntasks_per_node or 0
    if name == SRUN and allocation and tasks > (allocation.cpus_per_node or tasks):
        cpus = allocation.cpus_per_node
        remedy = "allocate with --cpus-per-gpu or --cpus-per-task"
        yield f"{tasks} tasks on each node share {cpus} CPU(s): {remedy}"
    given = [option for option in OPTIONS if getattr(plan.asked, option.field, None)]
    said = [option for option in given if plan.asked.source(option.key) == option.flag]
    for option in said:
        if option.of_job and in_job:
            yield f"{option.flag} has no effect inside job {in_job.job_id}"
        elif option.of_job and name != SRUN:
            yield f"{option.flag} has no effect without Slurm"
    for option in said:
        if option.launcher not in ("", name):
            yield f"{option.flag} has no effect with --launcher {name}"
