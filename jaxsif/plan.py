"""Options, host and allocation -> one frozen plan of what to start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from jaxsif.apptainer import TASK_FOLDER, Runtime
from jaxsif.counts import Counts
from jaxsif.distributed import check_node_address, container_variables, memory_variables, scrub_proxies
from jaxsif.errors import JaxsifError
from jaxsif.layout import Layout
from jaxsif.options import OPTIONS
from jaxsif.planner import Asked, plan_layout
from jaxsif.slurm import Allocation
from jaxsif.step import binding_variables, component_options, layout_options

SRUN = "srun"
LOCAL = "local"
NODE = "node"
TASK = "task"


class RunOptions(NamedTuple):
    """What the command line asks for; None where it says nothing."""

    command: tuple[str, ...]  # the program and its arguments
    launcher: str | None = None  # srun or local
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


class LaunchPlan(NamedTuple):
    """Everything that a start needs; nothing in it differs between tasks."""

    launcher: str  # srun or local
    layout: Layout  # what the argument vector asks Slurm for
    launch_argv: tuple[str, ...]  # srun and its options; empty for local
    task_argv: tuple[str, ...]  # what every task executes
    set_environ: tuple[tuple[str, str], ...]  # variables to add to this process's own
    unset_environ: tuple[str, ...]  # variables to take away
    label: bool  # output lines begin with the task's number
    components: tuple[tuple[str, ...], ...] = ()  # srun's options for the other components of a heterogeneous job

    @property
    def argv(self) -> tuple[str, ...]:
        """The whole argument vector."""
        others = [word for options in self.components for word in (":", *options, *self.task_argv)]
        return (*self.launch_argv, *self.task_argv, *others)


def choose_launcher(asked: str | None, has_srun: bool, allocation: Allocation | None) -> str:
    """srun where there is one; raises JaxsifError where it is asked for and missing."""
    if asked == LOCAL:
        return LOCAL
    if has_srun:
        return SRUN
    if asked == SRUN or allocation:
        raise JaxsifError("srun is not on the PATH", "--launcher srun" if asked else "SLURM_JOB_ID", "load Slurm")
    return LOCAL


def build(options: RunOptions, host: Host, allocation: Allocation | None, environ: Mapping[str, str]) -> LaunchPlan:
    """The plan for `options` on `host`; raises JaxsifError for a request that cannot work."""
    launcher = choose_launcher(options.launcher, host.srun, allocation)
    if launcher == LOCAL:
        layout = _local_layout(options, host)
    else:
        layout = plan_layout(asked_layout(options), allocation, host.job_gpus)
    # An --env for a name that jaxsif sets is the user's choice.
    variables = {**container_variables(host.port, environ), **_coordinator_variables(options, launcher)}
    variables.update(JAXSIF_LAYOUT=layout.expectation)
    variables.update(memory_variables(layout.sharers, {**environ, **dict(options.env)}))
    variables.update(options.env)
    if _redirects_errors(options.srun_args):
        del variables["JAXSIF_REPORT"]  # nobody would take the reports out of the files
    set_environ, unset_environ = scrub_proxies(environ)
    if launcher == SRUN:
        unset_environ += binding_variables(layout, allocation, environ)
    if host.runtime:
        set_environ["JAXSIF_STEP"] = host.step  # for jaxsif/node/share.py
    set_environ.update(host.runtime.environ(variables.items()) if host.runtime else variables)
    launch_argv, *components = _srun_argv(options, layout, allocation) if launcher == SRUN else [()]
    return LaunchPlan(
        launcher=launcher,
        layout=layout,
        launch_argv=launch_argv,
        task_argv=_task_argv(options, host, layout),
        set_environ=tuple(set_environ.items()),
        unset_environ=unset_environ,
        label=options.label,
        components=tuple(components),
    )


def _coordinator_variables(options: RunOptions, launcher: str) -> dict[str, str]:
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


def _local_layout(options: RunOptions, host: Host) -> Layout:
    if options.nodes not in (None, 1):
        raise JaxsifError(f"{options.nodes} nodes without Slurm", "--nodes", "--nodes=1, or run it where srun is")
    gpus = str(host.gpus) if options.gpus_per_node is None else options.gpus_per_node
    asked = asked_layout(options)._replace(nodes=1, gpus_per_node=gpus, gpu_bind=None)
    layout = plan_layout(asked, None, None)
    if layout.ntasks_per_node:
        return layout
    return layout._replace(groups=(layout.groups[0]._replace(tasks=1),), why="one task without GPUs")


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
    if options.containers == TASK or layout.ntasks_per_node == 1:
        return host.runtime.run_argv(host.image, binds, program, host.layers)
    share = (host.python, "-IS", f"{host.package}/node/share.py")
    return (*share, *host.runtime.run_argv(host.image, binds, ("--", *program), host.layers))
