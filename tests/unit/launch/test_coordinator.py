"""The ports of JAX's coordinator."""

from __future__ import annotations

import pytest
from kit.caught import catch

from jaxsif.errors import JaxsifError
from jaxsif.launch.coordinator import COORDINATOR_PORTS, check_node_address, parse_ports
from jaxsif.settings.options import RunOptions


def test_ports_are_above_those_of_outgoing_connections() -> None:
    assert COORDINATOR_PORTS[0] > 60999  # the end of Linux's default net.ipv4.ip_local_port_range
    assert COORDINATOR_PORTS[-1] < 65536


@pytest.mark.parametrize(
    ("text", "ports"),
    [(None, COORDINATOR_PORTS), ("5000-5002", range(5000, 5003)), ("61234", range(61234, 61235))],
)
def test_parse_ports(text: str | None, ports: range) -> None:
    assert parse_ports(RunOptions(("x",), coordinator_ports=text)) == ports


@pytest.mark.parametrize("text", ["", "a", "5002-5000", "1000-2000", "60000-70000", "5000-", "-5000", "5000-5001-5002"])
def test_what_is_no_range_of_ports_is_refused(text: str) -> None:
    error = catch(JaxsifError, parse_ports, RunOptions(("x",), coordinator_ports=text))
    assert (error.what, error.where) == (f"not a range of ports: {text!r}", "--coordinator-ports")


def test_node_address_differs_from_node_to_node() -> None:
    check_node_address("%N-ib", "--node-address")  # raises nothing
    error = catch(JaxsifError, check_node_address, "10.0.0.1", "JAXSIF_NODE_ADDRESS (environment)")
    assert (error.what, error.where) == ("no %N in '10.0.0.1'", "JAXSIF_NODE_ADDRESS (environment)")
