"""A port for JAX's coordinator, and names that nobody can guess."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from itertools import islice

from jaxsif.errors import HostError
from jaxsif.plan.coordinator import Coordinator, find_coordinator, parse_ports
from jaxsif.plan.launcher import Launcher
from jaxsif.plan.plan import Plan, can_change_port, move_to_port
from jaxsif.settings.request import RunOptions

_MORE_PORTS = 3  # to try when the first is taken


def draw_coordinator(asked: RunOptions, launcher: Launcher) -> Coordinator:
    """Return a coordinator on a port that is free here; raises JaxsifError."""
    ports = parse_ports(asked.coordinator_ports, asked.source("coordinator-ports"))
    port = next(free_ports(ports), None)
    if port is None:
        what = f"none of the ports {ports[0]} to {ports[-1]} is free"
        raise HostError(what, "this host", "--coordinator-ports")
    return find_coordinator(asked, port, draw_name(), one_machine=not launcher.spans_nodes)


def draw_name() -> str:
    """Return a word that no program can guess."""
    return os.urandom(8).hex()


def free_ports(ports: range) -> Iterator[int]:
    """Yield those of `ports` that nobody listens on here, from one of them on, drawn at each call.

    The first task's node may be another host; the task shim looks there.
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
    """Yield a few plans of the same step on other ports, none where that cannot help."""
    if not can_change_port(plan):
        return
    asked, own = plan.asked, plan.coordinator
    ports = parse_ports(asked.coordinator_ports, asked.source("coordinator-ports"))
    for port in islice((port for port in free_ports(ports) if port != own.port), _MORE_PORTS):
        yield move_to_port(plan, own._replace(port=port, step=draw_name()))
