"""Choose the address of JAX's coordinator: a free port, and a name that no program can guess."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from itertools import islice

from jaxsif.errors import HostError, JaxsifError
from jaxsif.limits import read_number
from jaxsif.plan.launcher import Launcher
from jaxsif.plan.plan import Coordinator, Plan, can_change_port, move_to_port
from jaxsif.settings.options import RunOptions
from jaxsif.text import shorten

# Above Linux's ephemeral ports (32768 to 60999), so that no outgoing connection holds one.
COORDINATOR_PORTS = range(61000, 65500)
_MORE_PORTS = 3  # to try if the first one is taken


def draw_coordinator(options: RunOptions, launcher: Launcher) -> Coordinator:
    """Return a coordinator on a port that is free here; raise JaxsifError."""
    ports = parse_ports(options)
    port = next(free_ports(ports), None)
    if port is None:
        what = f"none of the ports {ports[0]} to {ports[-1]} is free"
        raise HostError(what, "this host", "--coordinator-ports")
    return find_coordinator(options, port, draw_name(), one_machine=not launcher.spans_nodes)


def find_coordinator(options: RunOptions, port: int, step: str, one_machine: bool) -> Coordinator:
    """Return the requested coordinator; raise JaxsifError for an unusable address."""
    address = options.node_address
    if address is not None:
        check_node_address(address, options.source("node-address"))
        if one_machine:  # there is no other network; '' hides the variable in this environment
            address = ""
    timeouts = (options.init_timeout, options.heartbeat_timeout, options.shutdown_timeout)
    return Coordinator(port, step, address, *timeouts)


def parse_ports(options: RunOptions) -> range:
    """Parse the value of --coordinator-ports, 'FIRST-LAST' or 'PORT'; raise JaxsifError."""
    if options.coordinator_ports is None:
        return COORDINATOR_PORTS
    ends = [read_number(end) or 0 for end in options.coordinator_ports.split("-", 1)]
    if not 1024 <= ends[0] <= ends[-1] <= 65535:
        what = f"not a range of ports: {shorten(options.coordinator_ports)!r}"
        source = options.source("coordinator-ports")
        raise JaxsifError(what, source, "give FIRST-LAST, from 1024 to 65535")
    return range(ends[0], ends[-1] + 1)


def check_node_address(pattern: str, source: str) -> None:
    """Raise JaxsifError for a --node-address that would be the same on all nodes."""
    if "%N" not in pattern:
        raise JaxsifError(
            f"no %N in {pattern!r}", source, "write %N for the node's name, such as %N-ib"
        )


def draw_name() -> str:
    """Return a word that no program can guess."""
    return os.urandom(8).hex()


def free_ports(ports: range) -> Iterator[int]:
    """Yield those of `ports` that nobody listens on here, starting at a random one.

    The first task's node may be another host; the task shim checks the port there.
    """
    begin = int.from_bytes(os.urandom(4), "little")
    for index in range(len(ports)):
        port = ports[(begin + index) % len(ports)]
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            try:
                listener.bind(("", port))
            except OSError:
                continue
        yield port


def plans_on_other_ports(plan: Plan) -> Iterator[Plan]:
    """Yield a few plans of the same step on other ports, or none if that cannot help."""
    if not can_change_port(plan):
        return
    options, own = plan.options, plan.coordinator
    ports = parse_ports(options)
    for port in islice((port for port in free_ports(ports) if port != own.port), _MORE_PORTS):
        yield move_to_port(plan, own._replace(port=port, step=draw_name()))
