"""Options, host and allocation -> one frozen plan of what to start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from jaxsif import mpirun
from jaxsif.apptainer import TASK_FOLDER, Runtime
from jaxsif.counts import Counts
from jaxsif.distributed import PORT_VARIABLE, check_node_address
from jaxsif.environment import CACHE, MEMORY, OLD_MEMORY, find_cautions, settle
from jaxsif.errors import JaxsifError
from jaxsif.launchers import LOCAL, MPIRUN, SRUN
from jaxsif.layouts.layout import Layout
from jaxsif.layouts.planner import Asked, plan_layout
from jaxsif.layouts.step import binding_variables, component_options, layout_options
from jaxsif.options import OPTIONS
from jaxsif.slurm import Allocation

NODE = "node"
TASK = "task"


class RunOptions(NamedTuple):
    """What the command line asks for; None where it says nothing."""

    command: tuple[str, ...]  # the program and its arguments
    launcher: str | None = None  # of launchers.LAUNCHERS
    nodes: int | None = None
    ntasks: int | None = None
    ntasks_per_node: int | None = None
    gpus_per_node: str | None = None  # N or TYPE:N
    gpus_per_task: int | None = None
    cpus_per_task: int | None = None
    gpu_bind: str | None = None  # as for srun
    per_node: bool = False  # one process on each node
    per_gpu: bool = False  # one process for each GPU
    allow_uneven: bool = False  # processes and nodes may have different numbers of GPUs
    share_gpus: bool = False  # several tasks may have one GPU
    time: str | None = None
    partition: str | None = None
    account: str | None = None
    constraint: str | None = None
    srun_args: tuple[str, ...] = ()  # further arguments of srun, as they are
    binds: tuple[str, ...] = ()  # SRC[:DEST[:OPTS]], as for the runtime
    env: tuple[tuple[str, str], ...] = ()  # variables for the container
    label: bool = False  # prefix output lines with the task's number
    coordinator_ports: str | None = None  # FIRST-LAST, from which one is taken
    node_address: str | None = None  # how tasks reach a node, %N its name
    init_timeout: int | None = None  # seconds, of jax.distributed.initialize
    heartbeat_timeout: int | None = None
    shutdown_timeout: int | None = None
    containers: str = NODE  # one container for all tasks of a node, or for each TASK
    hosts: str | None = None  # NAME:SLOTS,... for mpirun
    hostfile: str | None = None  # a file of them
    cleanenv: bool = False  # pass on what the table of environment.py names, and nothing else
    sources: Mapping[str, str] = MappingProxyType({})  # what set each option, by its key; for errors

    def source(self, key: str) -> str:
        """What set an option, such as 'run.ntasks-per-node in /sw/jaxsif/jaxsif.toml'."""
        return self.sources.get(key, f"--{key}")


class Host(NamedTuple):
    """What this host has; filled in by `host.probe`."""

    srun: bool  # Slurm's srun is on the PATH
    runtime: Runtime | None  # Apptainer or SingularityCE
    image: str | None  # the image's path; None without a runtime
    python: str  # this interpreter, which the nodes have too
    package: str  # the folder jaxsif of this installation
    port: int  # for JAX's coordinator, free here
    step: str  # a name that nobody can guess, by which the tasks of a node find each other
    gpus: int  # NVIDIA devices of this machine
    job_gpus: Counts | None  # GPUs on each node of the job, where Slurm had to be asked
    layers: tuple[str, ...] = ()  # files to mount over the image
    staged: tuple[str, ...] = ()  # for an image on the nodes' disks: its digest, and the file that it comes from
    hosts: tuple[mpirun.Host, ...] = ()  # where mpirun may start tasks
    hosts_source: str = ""  # what named them
    cache: str | None = None  # the folder of JAX's compile cache, which all nodes have; None for none


class LaunchPlan(NamedTuple):
    """Everything that a start needs; nothing in it differs between tasks."""

    launcher: str  # of launchers.LAUNCHERS
    layout: Layout  # what the argument vector asks Slurm for
    launch_argv: tuple[str, ...]  # srun or mpirun and its options; empty for local
    task_argv: tuple[str, ...]  # what every task executes
    set_environ: tuple[tuple[str, str], ...]  # variables to add to this process's own
    unset_environ: tuple[str, ...]  # variables to take away
    label: bool  # output lines begin with the task's number
    cautions: tuple[str, ...] = ()  # what the user's variables are known to break
    components: tuple[tuple[str, ...], ...] = ()  # srun's options for the other components of a heterogeneous job

    @property
    def argv(self) -> tuple[str, ...]:
        """The whole argument vector."""
        others = [word for options in self.components for word in (":", *options, *self.task_argv)]
        return (*self.launch_argv, *self.task_argv, *others)


def choose_launcher(asked: str | None, has_srun: bool, allocation: Allocation | None) -> str:
    """The one asked for, else srun where there is one; raises JaxsifError where srun is needed and missing."""
    chosen = asked or (SRUN if has_srun or allocation else LOCAL)
    if chosen == SRUN and not has_srun:
        raise JaxsifError("srun is not on the PATH", "--launcher srun" if asked else "SLURM_JOB_ID", "load Slurm")
    return chosen


def build(options: RunOptions, host: Host, allocation: Allocation | None, environ: Mapping[str, str]) -> LaunchPlan:
    """The plan for `options` on `host`; raises JaxsifError for a request that cannot work."""
    launcher = choose_launcher(options.launcher, host.srun, allocation)
    layout = _LAYOUTS[launcher](options, host, allocation)
    set_environ, unset_environ = _environ(options, host, launcher, layout, environ)
    launch_argv: tuple[str, ...] = ()
    components: list[tuple[str, ...]] = []
    if launcher == SRUN:
        launch_argv, *components = _srun_argv(options, layout, allocation)
        unset_environ += binding_variables(layout, allocation, environ)
    elif launcher == MPIRUN:
        names = mpirun.choose_variables(environ, set_environ, unset_environ)
        launch_argv = _mpirun_argv(options, host, layout, names)
    return LaunchPlan(
        launcher=launcher,
        layout=layout,
        launch_argv=launch_argv,
        task_argv=_task_argv(options, host, layout),
        set_environ=tuple(set_environ.items()),
        unset_environ=unset_environ,
        label=options.label,
        cautions=find_cautions(
            *(environ, dict(options.env), options.cleanenv), gpus=layout.gpus_per_node, tasks=layout.ntasks_per_node
        ),
        components=tuple(components),
    )


def _environ(
    options: RunOptions, host: Host, launcher: str, layout: Layout, environ: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Variables for this process to set and to take away before it starts the tasks."""
    values = {PORT_VARIABLE: str(host.port), **_coordinator_values(options, launcher)}
    values["JAXSIF_LAYOUT"] = _expectation(options, launcher, layout)
    if layout.sharers > 1 and OLD_MEMORY not in {**environ, **dict(options.env)}:  # JAX refuses both
        values[MEMORY] = f"{0.75 / layout.sharers:.3f}"
    if host.cache:
        values.update({CACHE: host.cache, "JAXSIF_CACHE": "1"})
    settled = settle(environ, dict(options.env), values, options.cleanenv, host.runtime is not None)
    variables, set_environ = settled.container, settled.host
    if _redirects_errors(options.srun_args):
        variables.pop("JAXSIF_REPORT", None)  # nobody would take the reports out of the files
    if host.runtime:
        set_environ["JAXSIF_STEP"] = host.step  # for jaxsif/node/share.py
        variables = host.runtime.environ(variables.items())
    return {**set_environ, **variables}, settled.unset


def _expectation(options: RunOptions, launcher: str, layout: Layout) -> str:
    if launcher == MPIRUN and options.gpus_per_node is None:  # each node hands out its own, not those of this one
        layout = layout._replace(groups=tuple(group._replace(gpus=None) for group in layout.groups))
    return layout.expectation


def _coordinator_values(options: RunOptions, launcher: str) -> dict[str, str]:
    """The options that the task shim reads, by the names of their variables."""
    timeouts = {
        "JAXSIF_INIT_TIMEOUT": options.init_timeout,
        "JAXSIF_HEARTBEAT_TIMEOUT": options.heartbeat_timeout,
        "JAXSIF_SHUTDOWN_TIMEOUT": options.shutdown_timeout,
    }
    variables = {name: str(value) for name, value in timeouts.items() if value is not None}
    if options.node_address is not None:
        address = check_node_address(options.node_address, options.source("node-address"))
        # On one machine there is no other network; empty, lest the variable of this environment reaches the tasks.
        variables["JAXSIF_NODE_ADDRESS"] = "" if launcher == LOCAL else address
    return variables


def asked_layout(options: RunOptions) -> Asked:
    """The part of the options that the planner needs."""
    return Asked(*(getattr(options, name) for name in Asked._fields))


def _srun_layout(options: RunOptions, host: Host, allocation: Allocation | None) -> Layout:
    return plan_layout(asked_layout(options), allocation, host.job_gpus)


def _local_layout(options: RunOptions, host: Host, _allocation: Allocation | None) -> Layout:
    if options.nodes not in (None, 1):
        remedy = "--nodes=1, or run it where srun is"
        raise JaxsifError(f"{options.nodes} nodes without Slurm", options.source("nodes"), remedy)
    gpus = str(host.gpus) if options.gpus_per_node is None else options.gpus_per_node
    asked = asked_layout(options)._replace(nodes=1, gpus_per_node=gpus, gpu_bind=None)
    layout = plan_layout(asked, None, None)
    if layout.ntasks_per_node:
        return layout
    return layout._replace(groups=(layout.groups[0]._replace(tasks=1),), why="one task without GPUs")


def _mpirun_layout(options: RunOptions, host: Host, allocation: Allocation | None) -> Layout:
    count = options.nodes or len(host.hosts)
    if count > len(host.hosts):
        hint = f"--nodes={len(host.hosts)}, or name more hosts"
        raise JaxsifError(f"{count} nodes, but {len(host.hosts)} host(s)", host.hosts_source, hint)
    gpus, slots = options.gpus_per_node, None
    told = options.ntasks_per_node or options.ntasks or options.per_node or options.per_gpu or options.gpus_per_task
    if not told and gpus is None:
        slots = mpirun.choose_slots(host.hosts[:count], host.hosts_source)
    if slots and slots > host.gpus > 0:
        slots = None  # often they are the cores
    if gpus is None and allocation is None and host.gpus:
        gpus = str(host.gpus)  # the nodes are taken to be like this one
    tasks = options.ntasks_per_node or slots
    asked = asked_layout(options)._replace(nodes=count, ntasks_per_node=tasks, gpus_per_node=gpus, gpu_bind=None)
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


_LAYOUTS = {SRUN: _srun_layout, LOCAL: _local_layout, MPIRUN: _mpirun_layout}


def _mpirun_argv(options: RunOptions, host: Host, layout: Layout, names: tuple[str, ...]) -> tuple[str, ...]:
    """mpirun, its options, and what tells each task who it is."""
    nodes = [one.name for one in host.hosts[: layout.nodes]]
    tasks = layout.ntasks_per_node or 1
    # Unless told, each node hands out its own, which may be others than here.
    gpus = "-" if options.gpus_per_node is None else str(layout.gpus_per_node)
    identify = (host.python, "-IS", f"{host.package}/node/mpi.py", ",".join(nodes), str(tasks), gpus)
    return (*mpirun.build_argv(nodes, tasks, options.label, names), *identify)


def _check_words(command: tuple[str, ...]) -> None:
    if ":" in command:
        raise JaxsifError(
            "srun takes an argument ':' for the beginning of another program",
            f"argument {command.index(':')} of the program",
            "put the command line into a script",
        )


def _srun_argv(options: RunOptions, layout: Layout, allocation: Allocation | None) -> list[tuple[str, ...]]:
    """srun and its options; one tuple for each component of the job."""
    _check_words(options.command)
    argv = [
        SRUN,
        "--export=ALL",  # a job submitted with --export=NONE would hand that on to its steps
        "--kill-on-bad-exit=1",  # one failed process ends the step
        "--quit-on-interrupt",  # one Ctrl-C ends it
    ]
    if options.label:
        argv.append("--label")
    asked = asked_layout(options)
    if allocation and allocation.components:
        numbered = enumerate(allocation.components)
        parts = [component_options(asked, layout, component, index) for index, component in numbered]
        return [(*argv, *parts[0], *options.srun_args), *parts[1:]]
    given = [(option.flag, getattr(options, option.field)) for option in OPTIONS if option.of_job]
    of_job = () if allocation else tuple(f"{flag}={value}" for flag, value in given if value is not None)
    return [(*argv, *layout_options(asked, layout, allocation), *of_job, *options.srun_args)]


def _redirects_errors(srun_args: tuple[str, ...]) -> bool:
    return any(re.match(r"--(output|error)\b|-[oe]", word) for word in srun_args)


def _task_argv(options: RunOptions, host: Host, layout: Layout) -> tuple[str, ...]:
    task_folder = f"{host.package}/task"
    if host.runtime is None or host.image is None:
        return ("/bin/sh", f"{task_folder}/start.sh", *options.command)
    binds = (f"{task_folder}:{TASK_FOLDER}:ro", *options.binds)
    program = ("/bin/sh", f"{TASK_FOLDER}/start.sh", *options.command)
    if options.containers == TASK or (layout.ntasks_per_node == 1 and not host.staged):
        return host.runtime.run_argv(host.image, binds, program, host.layers)
    staged = ("--staged", host.image, *host.staged) if host.staged else ()
    share = (host.python, "-IS", f"{host.package}/node/share.py", *staged)
    return (*share, *host.runtime.run_argv(host.image, binds, ("--", *program), host.layers))
