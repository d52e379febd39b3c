"""Where JAX's processes find their coordinator, and how long they wait for each other."""

from __future__ import annotations

from typing import NamedTuple

from jaxsif.errors import JaxsifError
from jaxsif.limits import read_number, shorten
from jaxsif.settings.request import RunOptions
from jaxsif.task import contract

# Above Linux's ephemeral ports (32768 to 60999), so that no outgoing connection holds one.
COORDINATOR_PORTS = range(61000, 65500)


class Coordinator(NamedTuple):
    """The first task's address, as the tasks make it."""

    port: int  # free on this host; the first task's node may be another
    step: str  # a name that nobody can guess, by which the tasks of a node find each other
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


def find_coordinator(asked: RunOptions, port: int, step: str, one_machine: bool) -> Coordinator:
    """Return the coordinator that was asked for; raises JaxsifError for a useless address."""
    address = asked.node_address
    if address is not None:
        check_node_address(address, asked.source("node-address"))
        if one_machine:  # there is no other network; '' hides the variable of this environment
            address = ""
    timeouts = (asked.init_timeout, asked.heartbeat_timeout, asked.shutdown_timeout)
    return Coordinator(port, step, address, *timeouts)


def parse_ports(text: str | None, source: str) -> range:
    """Parse the value of --coordinator-ports, 'FIRST-LAST' or 'PORT'; raises JaxsifError."""
    if text is None:
        return COORDINATOR_PORTS
    ends = [read_number(end) or 0 for end in text.split("-", 1)]
    if not 1024 <= ends[0] <= ends[-1] <= 65535:
        what = f"not a range of ports: {shorten(text)!r}"
        raise JaxsifError(what, source, "give FIRST-LAST, from 1024 to 65535")
    return range(ends[0], ends[-1] + 1)


def check_node_address(pattern: str, source: str) -> None:
    """Raise JaxsifError for a --node-address that would be the same on all nodes."""
    if "%N" not in pattern:
        raise JaxsifError(
            f"no %N in {pattern!r}", source, "write %N for the node's name, such as %N-ib"
        )
