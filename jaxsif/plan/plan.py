"""What was asked for, what is here -> one frozen value with everything that a start needs."""

from __future__ import annotations

import re
from typing import NamedTuple

from jaxsif.container.environment import CACHE, MEMORY, OLD_MEMORY, REPORT, Settled, settle
from jaxsif.layout.layout import Layout
from jaxsif.plan.container import Container, OwnPython
from jaxsif.plan.coordinator import Coordinator
from jaxsif.plan.host import Host
from jaxsif.plan.launcher import Launcher
from jaxsif.settings.request import OFF, RunOptions
from jaxsif.task import contract


class Plan(NamedTuple):
    """A step to start; nothing in it differs between its tasks."""

    asked: RunOptions
    launcher: Launcher
    layout: Layout
    host: Host
    container: Container | None  # None where the tasks run in this machine's own Python
    coordinator: Coordinator
    environment: Settled  # the variables, but for the runtime's prefix
    # By which the reports of the tasks are known; none where nobody reads them.
    nonces: tuple[str, ...]
    credentials: str = ""  # for the coordinator, as tasks take them; '' for none

    @property
    def around(self) -> Container | OwnPython:
        """What the tasks run in."""
        return self.container or OwnPython()

    @property
    def argv(self) -> tuple[str, ...]:
        """The whole argument vector; raises JaxsifError where no such step can be asked for."""
        return self.launcher.argv(self)

    @property
    def task_argv(self) -> tuple[str, ...]:
        """What every task executes."""
        tasks = self.layout.ntasks_per_node
        return self.around.start_task(self.host, tasks, self.asked.command)

    @property
    def variables(self) -> dict[str, str]:
        """The variables to add to those of this process before it starts the tasks."""
        settled = self.environment
        return {**settled.host, **self.around.environ(settled.container, self.coordinator.step)}

    @property
    def unset(self) -> tuple[str, ...]:
        """The variables to take away from those of this process."""
        return (*self.environment.unset, *self.launcher.hides(self.layout, self.host))

    @property
    def started_environ(self) -> dict[str, str]:
        """The variables of what this process starts."""
        unset = set(self.unset)
        kept = {name: text for name, text in self.host.environ.items() if name not in unset}
        return {**kept, **self.variables}

    @property
    def cpus_per_task(self) -> str:
        """What srun is told of CPUs; '' for nothing."""
        return self._told("--cpus-per-task")

    @property
    def distribution(self) -> str:
        """How Slurm deals tasks to nodes: 'cyclic:block'; '' for its own way."""
        allocation = self.host.allocation
        return self._told("--distribution") or (allocation.distribution if allocation else "")

    @property
    def has_own_terminal(self) -> bool:
        """Whether srun gives the first task a terminal, to which everything goes."""
        return any(re.match(r"--pty\b", word) for word in self.asked.srun_args)

    @property
    def is_live(self) -> bool:
        """Whether people see on their terminal what the one task prints when it prints it: what has
        no newline yet, too, such as a progress bar or a prompt. Lines of several tasks stay whole.
        """
        on_terminal = bool(self.host.window) and not self.has_own_terminal
        return on_terminal and self.layout.is_one_task and not self.asked.label

    @property
    def is_told_unbuffered(self) -> bool:
        """Whether the user tells srun not to wait for whole lines."""
        words = (*self.asked.passed, *self.asked.srun_args)
        return any(re.match("--unb|-u", word) for word in words)

    @property
    def shows_whole_lines(self) -> bool:
        """Whether srun passes on whole lines only, which we must not cut."""
        return not (self.is_live or self.is_told_unbuffered)

    def _told(self, option: str) -> str:
        """Return the value that the last component has of an option; '' for none."""
        found = ""
        for component in self.launcher.options(self):
            found = component.value(option) or found
        return found

    @property
    def redirected(self) -> bool:
        """Whether srun writes standard error into files, so that no report arrives."""
        return any(re.match(r"--(output|error)\b|-[oe]", word) for word in self.asked.srun_args)


def build(
    asked: RunOptions,
    launcher: Launcher,
    host: Host,
    container: Container | None,
    coordinator: Coordinator,
    nonces: tuple[str, ...] = (),
) -> Plan:
    """Return the plan for what was `asked`; raises JaxsifError for what cannot work."""
    layout = launcher.layout(asked, host)
    plan = Plan(asked, launcher, layout, host, container, coordinator, Settled({}, (), {}), nonces)
    if plan.redirected or plan.has_own_terminal:
        plan = plan._replace(nonces=())  # from files and a terminal, nobody takes reports out
    plan = plan._replace(environment=_settle(plan))
    _ = plan.argv  # raises, before anything is started
    return plan


def move_to_port(plan: Plan, coordinator: Coordinator) -> Plan:
    """Return the same plan with another coordinator."""
    moved = plan._replace(coordinator=coordinator)
    return moved._replace(environment=_settle(moved))


def add_credentials(plan: Plan, credentials: str) -> Plan:
    """Return the same plan with a certificate for its coordinator; '' is none."""
    certified = plan._replace(credentials=credentials)
    return certified._replace(environment=_settle(certified)) if credentials else plan


def given_variables(plan: Plan) -> dict[str, str]:
    """Return the variables of the fabric's profile and, over them, those of --env."""
    return {**plan.around.variables, **dict(plan.asked.env)}


def _settle(plan: Plan) -> Settled:
    """Apply the table of variables to this process's own."""
    given = given_variables(plan)
    # Whatever --env says, the reader knows no other nonces.
    drawn = {REPORT: ":".join(plan.nonces)}
    if plan.credentials:
        drawn[contract.CREDENTIALS] = plan.credentials
        drawn[contract.COORDINATOR_TLS] = plan.asked.coordinator_tls
    values = {**drawn, **plan.coordinator.variables, contract.LAYOUT: _expect(plan.layout)}
    if plan.nonces:
        values.update(_watch(plan.asked))
    if plan.layout.sharers > 1 and OLD_MEMORY not in {**plan.host.environ, **given}:
        values[MEMORY] = f"{0.75 / plan.layout.sharers:.3f}"  # JAX refuses both
    if plan.is_live and all(plan.host.window):
        values.update(zip(("COLUMNS", "LINES"), map(str, plan.host.window)))
    cache = plan.around.cache
    if cache:
        values.update({CACHE: cache, contract.OWN_CACHE: "1"})
    return settle(
        plan.host.environ,
        {**given, **drawn},
        values,
        plan.asked.cleanenv,
        plan.container is not None,
    )


def _watch(asked: RunOptions) -> dict[str, str]:
    """Return what has tasks say while they run that they wait, and what they compile."""
    wanted = {
        contract.HANG_TIMEOUT: asked.hang_timeout,
        contract.CHECK_PROGRAMS: asked.check_programs,
    }
    return {name: str(value) for name, value in wanted.items() if value != OFF}


def _expect(layout: Layout) -> str:
    """Return what each task holds against what it finds."""
    if layout.gpus_assumed:
        groups = tuple(group._replace(gpus=None) for group in layout.groups)
        layout = layout._replace(groups=groups)
    return layout.expectation


def can_change_port(plan: Plan) -> bool:
    """Whether the step may start again on another port when its own is taken.

    Not where the program is no Python: a script may have come far before the first Python looked
    at the port. And not where --env names the port.
    """
    program = plan.asked.command[0].rpartition("/")[2]
    return program.startswith("python") and contract.COORDINATOR_PORT not in given_variables(plan)
