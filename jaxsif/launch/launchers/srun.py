"""Slurm starts the tasks, by srun."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from jaxsif.diagnose.reports import Report, ReportFilter, find_start
from jaxsif.errors import JaxsifError
from jaxsif.job.allocation import Allocation
from jaxsif.job.nodelist import expand
from jaxsif.launch.children import INSIST, Child, Reader, Remote
from jaxsif.launch.look import ask_for_gpus
from jaxsif.launch.ports import draw_name
from jaxsif.layout.layout import Layout
from jaxsif.layout.planner import plan_layout
from jaxsif.plan.host import Host
from jaxsif.plan.launcher import SRUN, Launcher, Nodes, Words, name_ends
from jaxsif.plan.plan import Plan
from jaxsif.plan.step import StepOptions, binding_variables, step_options
from jaxsif.settings.request import RunOptions

_JOB_IDS = {"SLURM_JOB_ID", "SLURM_JOBID"}  # variables by which srun takes a job for its own
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
    names = _names_of_nodes(plan.host.allocation)
    if count is None or not names:
        return "one node" if count == 1 else "each node"
    if plan.layout.placed or plan.layout.nodes == len(names):
        return name_ends(names[first : first + count])
    return f"{count} of {names[0]} … {names[-1]}"


def _names_of_nodes(job: Allocation | None) -> list[str]:
    """Return the names of all nodes of a job; none where they are not known."""
    if job is None:
        return []
    names = [name for part in job.parts for name in expand(part.nodelist)]
    return names if len(names) == job.nodes else []


def _argv(plan: Plan) -> tuple[str, ...]:
    """srun with its options and the task; once more after ':' for each further component."""
    asked = plan.asked
    if ":" in asked.command:
        raise JaxsifError(
            "srun takes an argument ':' for the beginning of another program",
            f"argument {asked.command.index(':')} of the program",
            "put the command line into a script",
        )
    # Else srun shows whole lines only: neither a progress bar nor a prompt.
    begin = (
        *_ALWAYS,
        *_named(
            {"--label": asked.label, "--unbuffered": plan.is_live and not plan.is_told_unbuffered}
        ),
    )
    first, *others = _options(plan)
    rest = chain.from_iterable((":", *part.words, *plan.task_argv) for part in others)
    return (*begin, *first.words, *plan.task_argv, *rest)


def _named(options: Mapping[str, bool]) -> Iterator[str]:
    return (name for name, wanted in options.items() if wanted)


def _options(plan: Plan) -> tuple[StepOptions, ...]:
    return step_options(plan.asked, plan.layout, plan.host.allocation)


def _hides(layout: Layout, host: Host) -> tuple[str, ...]:
    return binding_variables(layout, host.allocation, host.environ)


def _children(
    plan: Plan, environ: Mapping[str, str], seen: ReportFilter, stdout: Reader
) -> list[Child]:
    in_job = not _JOB_IDS.isdisjoint(environ)
    has_job = in_job or any(part.value("--jobid") for part in _options(plan))
    step = _Step(seen, has_job)
    remote = Remote(step.end, step.clear)
    # srun begins its messages with the name by which it was called: a program that prints those of
    # another srun does not know it.
    name = f"{SRUN}-{draw_name()}"
    seen.name_srun(name)
    return [
        Child(plan.argv, environ, seen.feed, stdout(), insist=INSIST[:1], remote=remote, name=name)
    ]


class _Step(NamedTuple):
    """The step that srun has made, and how Slurm is told to end it: not before a task reports."""

    seen: ReportFilter
    has_job: bool  # the job is not srun's own

    def end(self) -> tuple[str, ...]:
        number = find_start(self.seen.reports).step
        return ("scancel", "--signal=TERM", number) if number else ()

    def clear(self) -> tuple[str, ...]:
        number = find_start(self.seen.reports).step
        job = () if self.has_job else (number.partition(".")[0],)
        return ("scancel", number, *job) if number else ()


def _nodes(plan: Plan, started: Report) -> tuple[Nodes, ...]:
    job = plan.host.allocation
    if job is None or (started.nodes and not job.components):
        return ((started.step.partition(".")[0], tuple(expand(started.nodes))),)
    return tuple((part.job_id, tuple(expand(part.nodelist))) for part in job.parts)


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
    nodes=_nodes,
    options=_options,
)
