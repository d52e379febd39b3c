"""The base class of launchers, which start the tasks; each one is a file in
jaxsif/launch/launchers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from jaxsif.job.srun_options import StepOptions

if TYPE_CHECKING:
    from jaxsif.layout.layout import Layout
    from jaxsif.plan.host import Host
    from jaxsif.plan.plan import Plan
    from jaxsif.settings.options import RunOptions

SRUN = "srun"
LOCAL = "local"


# Slurm's ID of a job, or of one of its components, and the names of its nodes.
Nodes = tuple[str, tuple[str, ...]]


class Words(NamedTuple):
    """The words for the launcher in messages."""

    where: str  # how it starts the tasks: 'by srun'
    refuses: str = ""  # who refuses a request
    remedy: str = ""  # where to find the reason
    hint: str = ""  # where to find why tasks ended without a message


class Launcher(ABC):
    """One way to start the tasks of a step."""

    name: ClassVar[str]
    words: ClassVar[Words]
    spans_nodes: ClassVar[bool] = True  # tasks run elsewhere, too: the nodes must have the runtime

    @abstractmethod
    def probe(self, options: RunOptions, host: Host) -> Host:
        """Add the facts that this launcher needs to the host."""

    @abstractmethod
    def plan_layout(self, options: RunOptions, host: Host) -> Layout:
        """Decide how many tasks run where; raise JaxsifError if the layout cannot work."""

    def step_options(
        self, options: RunOptions, layout: Layout, host: Host
    ) -> tuple[StepOptions, ...]:
        """Return srun's options: one set, or one for each component of a heterogeneous job; () for
        other launchers.
        """
        return ()

    @abstractmethod
    def argv(self, plan: Plan) -> tuple[str, ...]:
        """Return the command line that starts the tasks."""

    @abstractmethod
    def children(
        self, plan: Plan, environ: Mapping[str, str], seen: Any, stdout: Any
    ) -> Sequence[Any]:
        """Return the processes to start here; `seen` takes reports, `stdout` standard output."""

    def unset(self, layout: Layout, host: Host) -> tuple[str, ...]:
        """Return the variables that the launcher must not see."""
        return ()

    @abstractmethod
    def name_nodes(self, plan: Plan, first: int, count: int | None) -> str:
        """Name some of the step's nodes: `count` of them, starting with number `first`."""

    def nodes(self, plan: Plan, started: Any) -> tuple[Nodes, ...]:
        """Return the nodes that run the tasks, with their jobs; () if all tasks are on this
        machine. `started` is the first task's report of its start.
        """
        return ()


def name_ends(names: Sequence[str]) -> str:
    """Join names in a row; of many, only the first and the last."""
    return f"{names[0]} … {names[-1]}" if len(names) > 2 else ", ".join(names)
