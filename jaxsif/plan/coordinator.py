"""Where JAX's processes find their coordinator."""

from __future__ import annotations

from jaxsif.errors import JaxsifError
from jaxsif.limits import read_number, shorten

# Above Linux's ephemeral ports (32768 to 60999), so that no outgoing connection holds one.
COORDINATOR_PORTS = range(61000, 65500)
PORT_VARIABLE = "JAXSIF_COORDINATOR_PORT"  # for jaxsif/task/coordinator.py


def parse_ports(text: str | None, source: str) -> range:
    """The value of --coordinator-ports, 'FIRST-LAST' or 'PORT'; raises JaxsifError."""
    if text is None:
        return COORDINATOR_PORTS
    first, dash, last = text.partition("-")
    begin, end = read_number(first) or 0, read_number(last if dash else first) or 0
    if not 1024 <= begin <= end <= 65535:
        raise JaxsifError(
            f"not a range of ports: {shorten(text)!r}",
            source,
            "give FIRST-LAST, from 1024 to 65535",
        )
    return range(begin, end + 1)


def check_node_address(pattern: str, source: str) -> str:
    """The value of --node-address; raises JaxsifError for one that would be the same on all nodes."""
    if "%N" not in pattern:
        raise JaxsifError(f"no %N in {pattern!r}", source, "%N is the node's name: such as %N-ib")
    return pattern
