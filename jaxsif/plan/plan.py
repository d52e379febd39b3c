"""Everything that a start needs, as one frozen value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from jaxsif.container.environment import (
    CACHE,
    MEMORY,
    OLD_MEMORY,
    PREEMPTION,
    REPORT,
    Environment,
    resolve_environment,
)
from jaxsif.job.srun_options import StepOptions
from jaxsif.layout.layout import Layout
from jaxsif.plan.container import Container, OwnPython
from jaxsif.plan.host import Host
from jaxsif.plan.launcher import SRUN, Launcher
from jaxsif.settings.options import OFF, RunOptions
from jaxsif.task import contract

# Abbreviations, which srun accepts, of options that write the tasks' output into files; and of
# others with which no report arrives: --pty, --test-only, --help, --usage, --version.
_INTO_FILES = ("--ou", "--er")
_HIDES_REPORTS = (*_INTO_FILES, "--pt", "--te", "--hel", "--usa", "--vers")
# Variables that do the same as the first, unless they have srun's default, "all".
_REDIRECTING = ("SLURM_STDOUTMODE", "SLURM_STDERRMODE", "SRUN_OUTPUT", "SRUN_ERROR")


class Coordinator(NamedTuple):
    """The parts from which the tasks form the first task's address, and timeouts."""

    port: int  # free on this host; the first task's node may be another
    step: str  # a name that nobody can guess, under which the tasks of a node find each other
    node_address: str | None = None  # how tasks reach a node, %N its name; '' for one machine
    init_timeout: int | None = None  # seconds, of jax.distributed.initialize; None for JAX's own
    heartbeat_timeout: int | None = None  # seconds
    shutdown_timeout: int | None = None  # seconds

    @property
    def variables(self) -> dict[str, str]:
        """The variables that the task shim reads."""
        values = {
            contract.COORDINATOR_PORT: self.port,
            contract.INIT_TIMEOUT: self.init_timeout,
            contract.HEARTBEAT_TIMEOUT: self.heartbeat_timeout,
            contract.SHUTDOWN_TIMEOUT: self.shutdown_timeout,
            contract.NODE_ADDRESS: self.node_address,
        }
        return {name: str(value) for name, value in values.items() if value is not None}


class Plan(NamedTuple):
    """A step to start; nothing in it differs between its tasks."""

    options: RunOptions
    launcher: Launcher
    layout: Layout
    host: Host
    container: Container | None  # None if the tasks run in this machine's own Python
    coordinator: Coordinator
    step: Sequence[StepOptions]  # for srun: of each component of a heterogeneous job
    # These mark the tasks' reports; none without a reader.
    nonces: tuple[str, ...] = ()
    credentials: str = ""  # for the coordinator, as tasks take them; '' for none
    takes_notices: bool = False  # tasks ask, by a report, if SIGTERM announces the end of the job
    hidden: tuple[str, ...] = ()  # variables that the launcher must not see
    environment: Environment = Environment(
        {}, (), {}
    )  # the variables, but for the runtime's prefix
    variables: Mapping[str, str] = MappingProxyType({})  # to add to those of this process
    argv: tuple[str, ...] = ()  # the whole command line

    @property
    def runs_in(self) -> Container | OwnPython:
        """The container, or this machine's own Python."""
        return self.container or OwnPython()

    @property
    def task_argv(self) -> tuple[str, ...]:
        """The command line of every task."""
        container, count = self.runs_in, self.layout.ntasks_per_node
        return (
            *self.options.before,
            *container.start_task(self.host, count, self.options.command),
        )

    @property
    def unset(self) -> tuple[str, ...]:
        """The variables to remove from those of this process."""
        return (*self.environment.unset, *self.hidden)

    @property
    def started_environ(self) -> dict[str, str]:
        """The variables of the processes that this one starts."""
        unset = set(self.unset)
        kept = {name: text for name, text in self.host.environ.items() if name not in unset}
        return {**kept, **self.variables}

    def srun_option(self, name: str) -> str:
        """Return the last component's value of an srun option, or ''."""
        return next(filter(None, [part.value(name) for part in reversed(self.step)]), "")

    @property
    def distribution(self) -> str:
        """How Slurm distributes tasks to nodes, such as 'cyclic:block'; '' for its default."""
        allocation = self.host.allocation
        return self.srun_option("--distribution") or (allocation.distribution if allocation else "")

    @property
    def is_live(self) -> bool:
        """Whether the user's terminal shows output as it is printed, even before a newline, as for
        a progress bar or a prompt: only if there is a single task. Lines of several tasks stay
        whole.
        """
        if not self.host.window or self.options.label or not self.layout.is_one_task:
            return False
        return "--pty" not in [
            argument.flag for argument in self.options.srun_args
        ]  # srun's own terminal

    @property
    def is_told_unbuffered(self) -> bool:
        """Whether the user's srun options ask for output before a line is complete."""
        return any(argument.flag.startswith("--unb") for argument in self.options.srun_arguments)

    @property
    def shows_whole_lines(self) -> bool:
        """Whether srun passes on only whole lines, which we must not cut."""
        return not (self.is_live or self.is_told_unbuffered)

    @property
    def redirected(self) -> bool:
        """Whether srun writes standard error into files, so that no report arrives."""
        return bool(find_hiding(self.options, self.launcher, self.host.environ, _INTO_FILES))


def find_hiding(
    options: RunOptions,
    launcher: Launcher,
    environ: Mapping[str, str],
    beginnings: tuple[str, ...] = _HIDES_REPORTS,
) -> str:
    """Return the option, of those with such beginnings, or the variable with which srun passes on
    no reports, or ''.
    """
    for argument in options.srun_args:
        if argument.flag.startswith(beginnings):
            return argument.flag
    for name in _REDIRECTING:
        if launcher.name == SRUN and not environ.get(name, "all").lower().startswith("all"):
            return name
    return ""


def build(
    options: RunOptions,
    launcher: Launcher,
    host: Host,
    container: Container | None,
    coordinator: Coordinator,
    nonces: tuple[str, ...] = (),
    credentials: str = "",
) -> Plan:
    """Make the plan for `options`; raise JaxsifError if it cannot work.

    `credentials` holds the certificate for the coordinator and its key; '' for none.
    """
    layout = launcher.plan_layout(options, host)
    step, hidden = launcher.step_options(options, layout, host), launcher.unset(layout, host)
    if find_hiding(options, launcher, host.environ):
        nonces = ()  # nobody reads reports from files or a terminal
    goes_on = options.max_restarts or options.max_requeues is not None
    takes_notices = bool(goes_on and nonces and launcher.name == SRUN)
    parts = (options, launcher, layout, host, container, coordinator)
    return _complete(Plan(*parts, step, nonces, credentials, takes_notices, hidden))


def _complete(plan: Plan) -> Plan:
    """Add the variables, by the table and this process's own, and then the command line, in which
    they may appear.
    """
    given = given_variables(plan)
    # Whatever --env says, the reader knows no other nonces.
    drawn = {REPORT: ":".join(plan.nonces)}
    if plan.credentials:
        drawn[contract.CREDENTIALS] = plan.credentials
        drawn[contract.COORDINATOR_TLS] = plan.options.coordinator_tls
    layout = plan.layout
    if layout.gpus_assumed:  # other nodes may differ
        groups = tuple([group._replace(gpus=None) for group in layout.groups])
        layout = layout._replace(groups=groups)
    values = {**drawn, **plan.coordinator.variables, contract.LAYOUT: layout.expectation}
    if plan.options.hang_timeout != OFF:  # without a reader of reports, for `jaxsif stacks`
        values[contract.HANG_TIMEOUT] = str(plan.options.hang_timeout)
    if plan.nonces and plan.options.check_programs != OFF:
        values[contract.CHECK_PROGRAMS] = plan.options.check_programs
    if plan.layout.sharers > 1 and OLD_MEMORY not in {**plan.host.environ, **given}:
        values[MEMORY] = f"{0.75 / plan.layout.sharers:.3f}"  # JAX refuses both
    if plan.takes_notices:
        values.update({contract.NOTICES: "1", PREEMPTION: "1"})
    values.update(_find_output_variables(plan))
    cache = plan.runs_in.cache
    if cache:
        values.update({CACHE: cache, contract.OWN_CACHE: "1"})
    resolved = resolve_environment(
        plan.host.environ,
        {**given, **drawn},
        values,
        plan.options.cleanenv,
        plan.container is not None,
    )
    inside = plan.runs_in.environ(resolved.container, plan.coordinator.step)
    plan = plan._replace(environment=resolved, variables={**resolved.host, **inside})
    return plan._replace(argv=plan.launcher.argv(plan))


def move_to_port(plan: Plan, coordinator: Coordinator) -> Plan:
    """Return the plan with another coordinator."""
    return _complete(plan._replace(coordinator=coordinator))


def given_variables(plan: Plan) -> dict[str, str]:
    """Return the variables of the fabric's profile, overridden by those of --env."""
    return {**plan.runs_in.variables, **dict(plan.options.env)}


def _find_output_variables(plan: Plan) -> dict[str, str]:
    """Return the variables for the terminal's size if the task is shown live, and otherwise for the
    names of log files: `jaxsif run` itself writes those of a live task.
    """
    if plan.is_live:
        size = plan.host.window
        return dict(zip(("COLUMNS", "LINES"), map(str, size))) if all(size) else {}
    return {contract.TASK_LOG: plan.options.log_dir} if plan.options.log_dir else {}


def can_change_port(plan: Plan) -> bool:
    """Whether the step may start again on another port if its own is taken.

    It cannot if the program is not Python, since a script may have got far before its first Python
    process checks the port, or if --env sets the port.
    """
    program = plan.options.command[0].rpartition("/")[2]
    return program.startswith("python") and contract.COORDINATOR_PORT not in given_variables(plan)
