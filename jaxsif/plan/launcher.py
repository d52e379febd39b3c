"""What a launcher is: what starts the tasks. Each is a file in jaxsif/launch/launchers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxsif.errors import HostError
from jaxsif.job.allocation import Allocation

if TYPE_CHECKING:
    from jaxsif.layout.layout import Layout
    from jaxsif.plan.host import Host
    from jaxsif.plan.plan import Plan
    from jaxsif.plan.step import StepOptions
    from jaxsif.settings.request import RunOptions

SRUN = "srun"
LOCAL = "local"


# Slurm's number of a job, or of a component of one, and names of its nodes.
Nodes = tuple[str, tuple[str, ...]]


class Words(NamedTuple):
    """What is said of a launcher."""

    where: str  # it starts the tasks: 'by srun'
    refuses: str = ""  # who refuses a request
    remedy: str = ""  # what tells why it did
    look: str = ""  # what tells why tasks ended that said nothing


class Launcher(NamedTuple):
    """One way to start the tasks of a step."""

    name: str
    words: Words
    spans_nodes: bool  # tasks run elsewhere, too: the nodes must have the runtime
    look: Callable[[RunOptions, Host], Host]  # the host, with what this launcher must know of it
    layout: Callable[[RunOptions, Host], Layout]  # how many tasks where; raises JaxsifError
    argv: Callable[[Plan], tuple[str, ...]]  # what starts the tasks, whole
    # The names of some of the step's nodes: (plan, the number of the first, how many).
    name_nodes: Callable[[Plan, int, int | None], str]
    # The processes to start here: (plan, variables, reports, what reads standard output).
    children: Callable[[Plan, Mapping[str, str], Any, Any], list[Any]]
    # The variables that it must not see.
    hides: Callable[[Layout, Host], tuple[str, ...]] = lambda _layout, _host: ()
    # The jobs that the nodes with the tasks are of, and these nodes: (plan, the first task's report
    # of its start). None where all tasks are on this machine.
    nodes: Callable[[Plan, Any], tuple[Nodes, ...]] = lambda _plan, _started: ()
    # What srun is told, of each component of a heterogeneous job.
    options: Callable[[Plan], tuple[StepOptions, ...]] = lambda _plan: ()


def name_ends(names: Sequence[str]) -> str:
    """Return names in a row, of many the first and the last."""
    return f"{names[0]} … {names[-1]}" if len(names) > 2 else ", ".join(names)


def choose_launcher(asked: str | None, has_srun: bool, allocation: Allocation | None) -> str:
    """Return the launcher's name: the one asked for, else srun where Slurm is, else local.

    Raises HostError where srun is needed and missing.
    """
    if has_srun:
        return asked or SRUN
    needs: dict[str | None, str] = {SRUN: "--launcher srun"}
    if allocation:
        needs[None] = "SLURM_JOB_ID"  # in a job, who asks for nothing needs srun, too
    if asked in needs:
        raise HostError("srun is not on the PATH", needs[asked], "load Slurm")
    return asked or LOCAL
