"""Options, host and allocation -> one frozen plan of what to start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from jaxsif.container.environment import CACHE, MEMORY, OLD_MEMORY, REPORT, find_cautions, settle
from jaxsif.errors import JaxsifError
from jaxsif.job.allocation import Allocation
from jaxsif.layout.layout import Layout
from jaxsif.plan import mpirun
from jaxsif.plan.choose import LAYOUTS
from jaxsif.plan.coordinator import PORT_VARIABLE, check_node_address
from jaxsif.plan.host import Host
from jaxsif.plan.launchers import LOCAL, MPIRUN, SRUN, choose_launcher
from jaxsif.plan.step import binding_variables, component_options, layout_options
from jaxsif.runtime import TASK_FOLDER, Runtime
from jaxsif.settings.options import OPTIONS
from jaxsif.settings.request import TASK, RunOptions


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
    # Srun's options for the other components of a heterogeneous job.
    components: tuple[tuple[str, ...], ...] = ()
    command: tuple[str, ...] = ()  # the program in each task, and its arguments
    redirected: bool = False  # srun writes standard error into files, so that no report arrives
    image: str | None = None  # the file or folder that the tasks run from; None without a container
    # By which the reports of the tasks are known; none where the tasks report nothing.
    nonces: tuple[str, ...] = ()

    @property
    def argv(self) -> tuple[str, ...]:
        """The whole argument vector."""
        others = [word for options in self.components for word in (":", *options, *self.task_argv)]
        return (*self.launch_argv, *self.task_argv, *others)


def build(
    options: RunOptions, host: Host, allocation: Allocation | None, environ: Mapping[str, str]
) -> LaunchPlan:
    """The plan for `options` on `host`; raises JaxsifError for a request that cannot work."""
    launcher = choose_launcher(options.launcher, host.srun, allocation)
    layout = LAYOUTS[launcher](options, host, allocation)
    redirected = _redirects_errors(options.srun_args)
    if redirected or any(re.match(r"--pty\b", word) for word in options.srun_args):
        # Into files and onto a terminal: nobody takes reports out.
        host = host._replace(nonces=())
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
            *(environ, dict(options.env), options.cleanenv),
            gpus=layout.gpus_per_node,
            tasks=layout.ntasks_per_node,
        ),
        components=tuple(components),
        command=options.command,
        redirected=redirected,
        image=host.image,
        nonces=host.nonces,
    )


def _environ(
    options: RunOptions, host: Host, launcher: str, layout: Layout, environ: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Variables for this process to set and to take away before it starts the tasks."""
    reports = {REPORT: ":".join(host.nonces)}
    values = {**reports, PORT_VARIABLE: str(host.port), **_coordinator_values(options, launcher)}
    values["JAXSIF_LAYOUT"] = _expectation(options, launcher, layout)
    # JAX refuses both.
    if layout.sharers > 1 and OLD_MEMORY not in {**environ, **dict(options.env)}:
        values[MEMORY] = f"{0.75 / layout.sharers:.3f}"
    if host.cache:
        values.update({CACHE: host.cache, "JAXSIF_CACHE": "1"})
    # Whatever --env says, the reader knows no other nonces.
    asked = {**dict(options.env), **reports}
    settled = settle(environ, asked, values, options.cleanenv, host.runtime is not None)
    variables, set_environ = settled.container, settled.host
    if host.runtime:
        set_environ["JAXSIF_STEP"] = host.step  # for jaxsif/node/share.py
        variables = host.runtime.environ(variables.items())
    return {**set_environ, **variables}, settled.unset


def _expectation(options: RunOptions, launcher: str, layout: Layout) -> str:
    # Each node hands out its own, not those of this one.
    if launcher == MPIRUN and options.gpus_per_node is None:
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
        # On one machine there is no other network; empty, lest the variable of this environment
        # reaches the tasks.
        variables["JAXSIF_NODE_ADDRESS"] = "" if launcher == LOCAL else address
    return variables


def _mpirun_argv(
    options: RunOptions, host: Host, layout: Layout, names: tuple[str, ...]
) -> tuple[str, ...]:
    """mpirun, its options, and what tells each task who it is."""
    nodes = [one.name for one in host.hosts[: layout.nodes]]
    tasks = layout.ntasks_per_node or 1
    # Unless told, each node hands out its own, which may be others than here.
    gpus = "-" if options.gpus_per_node is None else str(layout.gpus_per_node)
    identify = (
        host.python,
        "-IS",
        f"{host.package}/node/mpi.py",
        ",".join(nodes),
        str(tasks),
        gpus,
    )
    return (*mpirun.build_argv(nodes, tasks, options.label, names), *identify)


def _check_words(command: tuple[str, ...]) -> None:
    if ":" in command:
        raise JaxsifError(
            "srun takes an argument ':' for the beginning of another program",
            f"argument {command.index(':')} of the program",
            "put the command line into a script",
        )


def _srun_argv(
    options: RunOptions, layout: Layout, allocation: Allocation | None
) -> list[tuple[str, ...]]:
    """srun and its options; one tuple for each component of the job."""
    _check_words(options.command)
    argv = [
        SRUN,
        "--export=ALL",  # a job submitted with --export=NONE would hand that on to its steps
        "--kill-on-bad-exit=1",  # one failed process ends the step
    ]
    if options.label:
        argv.append("--label")
    if allocation and allocation.components:
        numbered = enumerate(allocation.components)
        parts = [
            component_options(options, layout, component, index) for index, component in numbered
        ]
        return [(*argv, *parts[0], *options.srun_args), *parts[1:]]
    given = [(option.flag, getattr(options, option.field)) for option in OPTIONS if option.of_job]
    of_job = (
        () if allocation else tuple(f"{flag}={value}" for flag, value in given if value is not None)
    )
    return [(*argv, *layout_options(options, layout, allocation), *of_job, *options.srun_args)]


def _redirects_errors(srun_args: tuple[str, ...]) -> bool:
    return any(re.match(r"--(output|error)\b|-[oe]", word) for word in srun_args)


def _task_argv(options: RunOptions, host: Host, layout: Layout) -> tuple[str, ...]:
    task_folder = f"{host.package}/task"
    if host.runtime is None or host.image is None:
        return ("/bin/sh", f"{task_folder}/start.sh", *options.command)
    binds = (f"{task_folder}:{TASK_FOLDER}:ro", *options.binds)
    program = ("/bin/sh", f"{TASK_FOLDER}/start.sh", *options.command)
    alone = options.containers == TASK
    if not host.staged and not host.allowed and (alone or layout.ntasks_per_node == 1):
        return host.runtime.run_argv(host.image, binds, program, host.layers)
    return share_argv(host, host.runtime, alone, binds, program)


def share_argv(
    host: Host, runtime: Runtime, alone: bool, binds: tuple[str, ...], program: tuple[str, ...]
) -> tuple[str, ...]:
    """`program` in a container that jaxsif/node/share.py starts, which looks at a staged image, or
    an allowed one.
    """
    assert host.image is not None
    image = ("--staged", host.image, *host.staged) if host.staged else ()
    if host.allowed:
        image = ("--allowed", *host.allowed, host.image)
    share = (
        host.python,
        "-IS",
        f"{host.package}/node/share.py",
        *(["--alone"] if alone else []),
        *image,
    )
    return (*share, *runtime.run_argv(host.image, binds, ("--", *program), host.layers))
