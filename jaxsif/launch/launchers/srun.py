"""Slurm starts the tasks, by srun."""

from __future__ import annotations

from collections.abc import Mapping

from jaxsif.diagnose.reports import ReportFilter, find_step
from jaxsif.errors import JaxsifError
from jaxsif.job.nodelist import expand
from jaxsif.launch.children import INSIST, Child, Reader, Remote
from jaxsif.launch.look import ask_for_gpus
from jaxsif.layout.layout import Layout
from jaxsif.layout.planner import plan_layout
from jaxsif.plan.host import Host
from jaxsif.plan.launcher import SRUN, Launcher, Words, name_ends
from jaxsif.plan.plan import Plan
from jaxsif.plan.step import binding_variables, component_options, layout_options
from jaxsif.settings.options import OPTIONS
from jaxsif.settings.request import RunOptions

_ALWAYS = (
    SRUN,
    "--export=ALL",  # a job submitted with --export=NONE would hand that on to its steps
    "--kill-on-bad-exit=1",  # one failed process ends the step
)


def _look(asked: RunOptions, host: Host) -> Host:
    return host._replace(job_gpus=ask_for_gpus(asked, host.allocation))


def _layout(asked: RunOptions, host: Host) -> Layout:
    return plan_layout(asked, host.allocation, host.job_gpus)


def _name_nodes(plan: Plan, first: int, count: int | None) -> str:
    job = plan.host.allocation
    jobs = (job.components or (job,)) if job else ()
    names = [name for one in jobs for name in expand(one.nodelist)]
    if count is None or job is None or len(names) != job.nodes:
        return "one node" if count == 1 else "each node"
    if not plan.layout.placed and plan.layout.nodes != job.nodes:
        return f"{count} of {names[0]} … {names[-1]}"
    return name_ends(names[first : first + count])


def _argv(plan: Plan) -> tuple[str, ...]:
    """srun with its options and the task; once more after ':' for each further component."""
    asked, allocation = plan.asked, plan.host.allocation
    if ":" in asked.command:
        raise JaxsifError(
            "srun takes an argument ':' for the beginning of another program",
            f"argument {asked.command.index(':')} of the program",
            "put the command line into a script",
        )
    begin = (*_ALWAYS, "--label") if asked.label else _ALWAYS
    if allocation is None:
        given = ((option.flag, getattr(asked, option.field)) for option in OPTIONS if option.of_job)
        of_job = [f"{flag}={value}" for flag, value in given if value is not None]
        options = (*layout_options(asked, plan.layout, None), *of_job)
    elif allocation.components:
        options, *others = (
            component_options(asked, plan.layout, component, index)
            for index, component in enumerate(allocation.components)
        )
        rest = [word for part in others for word in (":", *part, *plan.task_argv)]
        return (*begin, *options, *asked.srun_args, *plan.task_argv, *rest)
    else:
        options = layout_options(asked, plan.layout, allocation)
    return (*begin, *options, *asked.srun_args, *plan.task_argv)


def _hides(layout: Layout, host: Host) -> tuple[str, ...]:
    return binding_variables(layout, host.allocation, host.environ)


def _children(
    plan: Plan, environ: Mapping[str, str], seen: ReportFilter, stdout: Reader | None
) -> list[Child]:
    in_job = "SLURM_JOB_ID" in environ or "SLURM_JOBID" in environ
    has_job = in_job or any(word.startswith("--jobid") for word in plan.asked.srun_args)

    def end() -> tuple[str, ...]:
        step = find_step(seen.reports)
        return ("scancel", "--signal=TERM", step) if step else ()

    def clear() -> tuple[str, ...]:
        step = find_step(seen.reports)
        job = () if has_job else (step.partition(".")[0],)
        return ("scancel", step, *job) if step else ()

    read = stdout() if stdout else None
    remote = Remote(end, clear)
    return [Child(plan.argv, environ, seen.feed, read, insist=INSIST[:1], remote=remote)]


LAUNCHER = Launcher(
    SRUN,
    Words(
        where="by srun",
        refuses="Slurm",
        remedy="sinfo and sacctmgr show what there is",
        look="squeue and scontrol show job tell of time limits, cancelled jobs and lost nodes",
    ),
    spans_nodes=True,
    look=_look,
    layout=_layout,
    argv=_argv,
    name_nodes=_name_nodes,
    children=_children,
    hides=_hides,
)
