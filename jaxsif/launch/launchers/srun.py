"""The launcher for Slurm: srun starts the tasks, with options that yield exactly the layout."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from operator import floordiv
from typing import NamedTuple

from jaxsif.diagnose.reports import Report, ReportFilter, find_start
from jaxsif.errors import JaxsifError
from jaxsif.installation import PACKAGE
from jaxsif.job.allocation import BINDING_VARIABLES, Allocation
from jaxsif.job.counts import each_node
from jaxsif.job.nodelist import expand
from jaxsif.job.srun_options import BOTH, STEP, SrunArgument, StepOptions, select
from jaxsif.job.srun_options import JOB as ASKS_FOR_JOB
from jaxsif.launch.children import INSIST, Child, Reader, Remote
from jaxsif.launch.coordinator import draw_name
from jaxsif.launch.probe import query_gpus
from jaxsif.launch.program import name_program
from jaxsif.layout.layout import JOB, NOBODY, Layout, known
from jaxsif.layout.planner import plan_layout
from jaxsif.plan.host import Host
from jaxsif.plan.launcher import SRUN, Launcher, Nodes, Words, name_ends
from jaxsif.plan.plan import Plan
from jaxsif.settings.options import OF_JOB, RunOptions
from jaxsif.task.contract import TWICE
from jaxsif.text import shorten

_JOB_IDS = {"SLURM_JOB_ID", "SLURM_JOBID"}  # variables that make srun use an existing job
_ALWAYS = (
    SRUN,
    "--export=ALL",  # a job submitted with --export=NONE would pass that on to its steps
    "--kill-on-bad-exit=1",  # one failed process ends the step
)
# Options that would contradict a step that names the node of each task.
_PLACES = {"--nodelist", "--exclude", "--distribution", "--nodefile"}
_CHOOSE_NODES = ("--nodelist", "--exclude", "--jobid")
_LONGEST_WORD = 128 * 1024 - 1  # Linux's MAX_ARG_STRLEN
Options = dict[str, object]  # an option -> its value, as StepOptions has them


class Srun(Launcher):
    """Slurm's own launcher."""

    name = SRUN
    words = Words(
        where="by srun",
        refuses="Slurm",
        remedy="sinfo --format='%P %c %m %G %f %l %N' shows CPUs, memory, GPUs, features, times"
        " and nodes",
        hint="squeue and `scontrol show job` show time limits, cancelled jobs and lost nodes",
    )

    def probe(self, options: RunOptions, host: Host) -> Host:
        """Ask Slurm for the GPUs of the job, if its variables lack them; leave out the nodes of
        --exclude. Raise JaxsifError for nodes that the job does not have.
        """
        job = host.allocation
        if job is None:
            return host
        host = host._replace(job_gpus=query_gpus(options, job))
        given = {one.flag: one for one in options.srun_arguments if one.flag in _CHOOSE_NODES}
        if not given or "--jobid" in given or job.components or not job.nodelist:
            return host
        return _choose_nodes(host, job, given, options)

    def plan_layout(self, options: RunOptions, host: Host) -> Layout:
        """Plan the layout for the job, or for one yet to be created."""
        return plan_layout(options, host.allocation, host.job_gpus)

    def step_options(
        self, options: RunOptions, layout: Layout, host: Host
    ) -> tuple[StepOptions, ...]:
        """Return the options of the step; in a heterogeneous job, those of each component.

        Raise JaxsifError for impossible requests.
        """
        job = host.allocation
        if job is None:
            step = layout_options(options, layout, None)
            if "SLURM_JOB_NAME" not in host.environ and not step.value("--jobid"):
                name = options.job_name or name_program(options.command)
                step = step._replace(planned={**step.planned, "--job-name": name})
            return (step,)
        if not job.components:
            return (layout_options(options, layout, job),)
        first, *others = (
            _component_options(options, layout, component, index)
            for index, component in enumerate(job.components)
        )
        return (first._replace(further=_further(options, job)), *others)

    def argv(self, plan: Plan) -> tuple[str, ...]:
        """Return srun, its options and the task, repeated after ':' for each further component."""
        options = plan.options
        if ":" in options.command:
            raise JaxsifError(
                "srun takes the argument ':' as the beginning of another program",
                f"argument {options.command.index(':')} of the program",
                "put the command line into a script",
            )
        argv = [*_ALWAYS]
        if options.label:
            argv.append("--label")
        # Otherwise srun shows only whole lines: neither a progress bar nor a prompt.
        if plan.is_live and not plan.is_told_unbuffered:
            argv.append("--unbuffered")
        task = plan.task_argv
        for number, part in enumerate(plan.step):
            argv += [*([":"] if number else []), *part.words, *task]
        return tuple(argv)

    def unset(self, layout: Layout, host: Host) -> tuple[str, ...]:
        """Return the variables of a job that would make srun bind GPUs: each task is to see all
        GPUs of its node, as NCCL and JAX require.
        """
        if host.allocation is None:
            return ()
        # With it, srun would not end a step of which one task has failed.
        no_kill = ("SLURM_NO_KILL",) if host.whole else ()
        bound = () if layout.gpu_bind else BINDING_VARIABLES
        return tuple(name for name in (*no_kill, *bound) if name in host.environ)

    def children(
        self, plan: Plan, environ: Mapping[str, str], seen: ReportFilter, stdout: Reader
    ) -> Sequence[Child]:
        """Return srun as the only child."""
        if plan.takes_notices and plan.container and os.path.exists("/usr/bin/squashfuse_ll"):
            # The runtime finds one there that SIGTERM does not end.
            environ = {
                **environ,
                "PATH": f"{PACKAGE}/node/shield:{environ.get('PATH', os.defpath)}",
            }
        in_job = not _JOB_IDS.isdisjoint(environ)
        has_job = in_job or any(part.value("--jobid") for part in plan.step)
        step = _Step(seen, has_job, plan.takes_notices)
        # srun begins its messages with the name it was called by, which is unknown to a program
        # that prints messages of another srun.
        name = f"{SRUN}-{draw_name()}"
        seen.name_srun(name)
        return [
            Child(
                plan.argv,
                environ,
                seen.feed,
                stdout(),
                # On a lost node, srun waits half a minute for its tasks; the step is then cleared.
                insist=INSIST if plan.host.whole else INSIST[:1],
                remote=Remote(step.end, step.clear),
                name=name,
            )
        ]

    def name_nodes(self, plan: Plan, first: int, count: int | None) -> str:
        """Name nodes of the job; if Slurm has yet to create it, only their number is known."""
        job = plan.host.allocation
        names = [name for part in job.parts for name in expand(part.nodelist)] if job else []
        if count is None or job is None or len(names) != job.nodes:
            return "one node" if count == 1 else "each node"
        if plan.layout.placed or plan.layout.nodes == len(names):
            return name_ends(names[first : first + count])
        return f"{count} of {names[0]} … {names[-1]}"

    def nodes(self, plan: Plan, started: Report) -> tuple[Nodes, ...]:
        """Return the nodes from the job's variables, or from a task's report in a new job."""
        job = plan.host.allocation
        if job is None or (started.nodes and not job.components):
            return ((started.step.partition(".")[0], tuple(expand(started.nodes))),)
        return tuple((part.job_id, tuple(expand(part.nodelist))) for part in job.parts)


def _choose_nodes(
    host: Host, job: Allocation, given: Mapping[str, SrunArgument], options: RunOptions
) -> Host:
    """Return the host without the nodes of its job that --exclude names, unless it names them all.
    Raise JaxsifError for those of --nodelist that the job does not have.
    """
    there = expand(job.nodelist)
    for name in sorted(set(_list_nodes(given, "--nodelist")).difference(there)):
        what, source = f"{name} is not a node of this job", options.srun_source("--nodelist")
        raise JaxsifError(what, source, f"choose from {shorten(job.nodelist)}")
    excluded = set(_list_nodes(given, "--exclude"))
    left = [name for name in there if name not in excluded]
    return host.take(left) if 0 < len(left) < len(there) else host


def _list_nodes(given: Mapping[str, SrunArgument], flag: str) -> tuple[str, ...]:
    """Return the nodes that an option names; () for files and forms that only Slurm reads."""
    value = given[flag].value or "" if flag in given else ""
    return () if re.search("[/*{]", value) else expand(value, flag)


class _Step(NamedTuple):
    """The step that srun has made, and the commands to end it, once a task has reported."""

    seen: ReportFilter
    has_job: bool  # the job is not srun's own
    takes_notices: bool  # the first SIGTERM may be one, and the second ends the tasks

    def end(self) -> tuple[str, ...]:
        number = find_start(self.seen.reports).step
        command = ("scancel", "--signal=TERM", number)
        again = f'"$@"; sleep {2 * TWICE}; exec "$@"'
        twice = ("sh", "-c", again, "sh") if self.takes_notices else ()
        return (*twice, *command) if number else ()

    def clear(self) -> tuple[str, ...]:
        number = find_start(self.seen.reports).step
        job = () if self.has_job else (number.partition(".")[0],)
        return ("scancel", number, *job) if number else ()


def layout_options(
    options: RunOptions, layout: Layout, allocation: Allocation | None
) -> StepOptions:
    """Return --nodes, --ntasks-per-node, --gpus-per-node and similar options; outside a job, also
    --time and others that request one. Raise JaxsifError for impossible requests.
    """
    if allocation is None:
        planned = _outside(options, layout)
    elif layout.placed:
        planned = _placed(options, layout, allocation)
    else:
        planned = _inside(options, layout, allocation)
    return StepOptions(planned, _further(options, allocation))


def _further(options: RunOptions, allocation: Allocation | None) -> tuple[SrunArgument, ...]:
    """Return the user's own srun options; in a job, without those that only request one."""
    handled = (STEP, BOTH) if allocation else (STEP, BOTH, ASKS_FOR_JOB)
    own = select(options.passed, *handled) if options.passed else ()
    return (*own, *options.srun_args)


def _component_options(
    options: RunOptions, layout: Layout, component: Allocation, index: int
) -> StepOptions:
    """Return the options of one component of a heterogeneous job; raise JaxsifError for nodes with
    different numbers of tasks.
    """
    groups = tuple(group for group in layout.groups if group.component == index)
    # From SLURM_NTASKS, srun would only know the tasks of the whole job, so pass all of them.
    part = layout._replace(groups=groups, counted_by="ntasks")
    if part.ntasks_per_node is None:
        raise JaxsifError(
            f"the nodes of component {index} would have different numbers of tasks",
            "the heterogeneous job",
            "set --ntasks-per-node in each of its components",
        )
    # As a string, since the number 0 would be left out.
    return StepOptions({"--het-group": str(index), **_inside(options, part, component)})


def _outside(options: RunOptions, layout: Layout) -> Options:
    return {
        "--nodes": layout.nodes,
        "--ntasks-per-node": layout.ntasks_per_node,
        "--ntasks": options.ntasks,
        **_gpu_options(options, layout),
        "--cpus-per-task": options.cpus_per_task,
        **{option.flag: getattr(options, field) for option, field in OF_JOB},
    }


def _inside(options: RunOptions, layout: Layout, allocation: Allocation) -> Options:
    explicit = layout.counted_by not in (JOB, NOBODY)
    # The job's own number, which srun would inherit, is for all of its nodes, not for this step.
    part = explicit or options.nodes or allocation.in_step or allocation.left_out
    counted = allocation.gpus_per_task is not None and not layout.gpu_bind
    return {
        "--nodes": layout.nodes,  # all of them, even if fewer would do for the tasks
        # srun inherits the job's own number.
        "--ntasks-per-node": None if layout.counted_by == JOB else layout.ntasks_per_node,
        **_gpu_options(options, layout, counted),
        "--ntasks": layout.ntasks if part else None,
        "--overlap": allocation.is_held,  # else we would wait for that step
        "--exclude": allocation.left_out or None,
        **_cpu_options(options, layout, allocation),
    }


def _gpu_options(options: RunOptions, layout: Layout, counted: bool = False) -> Options:
    """Return --gpus-per-node or --gpus-per-task, and --gpu-bind.

    `counted` means that the job requested GPUs per task, and the controller counts a step's GPUs
    like that by default.
    """
    per_node: object = options.gpus_per_node
    per_task, bind = options.gpus_per_task, options.gpu_bind
    if layout.ntasks_per_node and (counted or per_task):
        per_node = per_node or _typed(options, layout.gpus_per_node)
    if per_node or not per_task:
        return {"--gpus-per-node": per_node, "--gpu-bind": bind}
    # Slurm would bind them one by one.
    bind = "none" if bind is None else bind
    return {"--gpus-per-task": _typed(options, per_task), "--gpu-bind": bind}


def _typed(options: RunOptions, number: int | None) -> object:
    """Return a number of GPUs with the type given in --gpus-per-task."""
    return f"{options.gpu_type}:{number}" if options.gpu_type and number else number


def _placed(options: RunOptions, layout: Layout, allocation: Allocation) -> Options:
    """Return options that name the node of each task: srun would distribute tasks by the CPUs, and
    never by the GPUs.
    """
    _check_places(options, layout)
    _, tasks, _, cpus = zip(*(group.counts for group in layout.groups))
    wanted, own, per_node = known(
        options.cpus_per_task, allocation.cpus_per_task, allocation.ntasks_per_node
    )
    most, fair = max(tasks), min(map(floordiv, cpus, tasks))
    each = wanted or min(fair, own)
    return {
        "--distribution": "arbitrary",
        "--nodelist": _name_nodes(layout, allocation),
        "--ntasks": layout.ntasks,
        "--ntasks-per-node": most if 0 < per_node < most else None,
        "--cpus-per-task": each,
        "--overcommit": fair < max(each, 1),
        "--overlap": allocation.is_held,
        **_gpu_options(options, layout),
    }


def _check_places(options: RunOptions, layout: Layout) -> None:
    """Raise JaxsifError for a user's option that also places tasks."""
    for option in options.srun_arguments:
        if option.flag in _PLACES:
            raise JaxsifError(
                f"{option.flag} conflicts with this layout, which names the node of each task",
                layout.why,
                "take it out, or allocate the same number of GPUs on each node",
            )


def _name_nodes(layout: Layout, allocation: Allocation) -> str:
    """Return the name of each task's node; raise JaxsifError for too many tasks."""
    hosts = expand(allocation.nodelist)
    each = [*each_node(tuple((group.counts[1], group.counts[0]) for group in layout.groups))]
    if len(hosts) < len(each):
        raise JaxsifError(
            f"the list has {len(hosts)} nodes, but the job has {layout.nodes}",
            "SLURM_JOB_NODELIST (environment)",
            "unset SLURM_JOB_ID if this is not inside a job",
        )
    length = sum((len(host) + 1) * tasks for host, tasks in zip(hosts, each)) - 1
    if not 0 < length <= _LONGEST_WORD:
        raise JaxsifError(
            f"{layout.ntasks} tasks are too many to be placed one by one",
            layout.why,
            "allocate the same number of GPUs and CPUs on each node",
        )
    return ",".join(chain.from_iterable(map(repeat, hosts, each)))


def _cpu_options(options: RunOptions, layout: Layout, allocation: Allocation) -> Options:
    """Return the CPU options that srun needs for a step in a job, if its defaults do not fit."""
    each, own, cpus = known(
        options.cpus_per_task, allocation.cpus_per_task, allocation.cpus_per_node
    )
    tasks, gpus = known(layout.ntasks_per_node, layout.gpus_per_node)
    whole, memory = known(allocation.gpus_per_node, allocation.mem_per_node)
    if 0 in (tasks, cpus):
        return {"--cpus-per-task": each}
    fitting = cpus // tasks
    if each > fitting:
        raise _too_few_cpus(options, tasks, cpus)
    # By default, a step takes all CPUs of its nodes, and a second one, on the other GPUs, waits for
    # its end.
    part = cpus * gpus // whole if gpus < whole else 0
    if part >= tasks:
        exact = each or part // tasks
        return {"--exact": True, "--cpus-per-task": exact, "--mem": memory * gpus // whole}
    return {
        # A job that requested only GPUs often has one CPU per node; one task per GPU is still
        # right.
        "--overcommit": fitting == 0,
        # srun no longer inherits it, and would confine a process to one core; fewer if there are
        # more tasks.
        "--cpus-per-task": each or min(own, fitting),
    }


def _too_few_cpus(options: RunOptions, tasks: int, cpus: int) -> JaxsifError:
    each, fitting = options.cpus_per_task, cpus // tasks
    return JaxsifError(
        f"{tasks} tasks with {each} CPUs each on a node, but the job has only {cpus} there",
        options.source("cpus-per-task"),
        f"--cpus-per-task={fitting}, or a job with more" if fitting else "a job with more CPUs",
    )


LAUNCHER = Srun()
