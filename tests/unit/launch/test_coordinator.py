"""The ports of JAX's coordinator, and what is started when the first one turns out to be taken."""

from __future__ import annotations

import socket

import pytest
from kit.caught import catch
from kit.hosts import plan_for

from jaxsif.errors import HostError, JaxsifError
from jaxsif.launch.coordinator import (
    COORDINATOR_PORTS,
    check_node_address,
    draw_coordinator,
    draw_name,
    free_ports,
    parse_ports,
    plans_on_other_ports,
)
from jaxsif.launch.probe import choose_launcher
from jaxsif.settings.options import RunOptions


def test_ports_are_above_those_of_outgoing_connections() -> None:
    assert COORDINATOR_PORTS[0] > 60999  # the end of Linux's default net.ipv4.ip_local_port_range
    assert COORDINATOR_PORTS[-1] < 65536


@pytest.mark.parametrize(
    ("text", "ports"), [(None, COORDINATOR_PORTS), ("5000-5002", range(5000, 5003)), ("61234", range(61234, 61235))]
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


RANGE = "61234-61236"


def draw_port(ports: str | None = None) -> int:
    return draw_coordinator(RunOptions(("x",), coordinator_ports=ports), choose_launcher("local", True, None)).port


def test_port_is_in_range_and_can_be_bound() -> None:
    port = draw_port()
    assert port in COORDINATOR_PORTS
    with socket.socket() as listener:
        listener.bind(("", port))


def test_taken_ports_are_left_out_and_each_other_one_comes_once() -> None:
    with socket.create_server(("", 0)) as listener:
        taken = listener.getsockname()[1]
        assert taken not in free_ports(range(taken - 2, taken + 3))
        error = catch(HostError, draw_port, str(taken))
    assert error.what == f"none of the ports {taken} to {taken} is free"
    found = list(free_ports(COORDINATOR_PORTS))
    assert len(set(found)) == len(found) > len(COORDINATOR_PORTS) // 2


def test_drawn_names_differ() -> None:
    assert len({draw_name() for _ in range(100)}) == 100


def test_plans_differ_in_port_and_name_of_the_step() -> None:
    plan = plan_for(RunOptions(("/usr/bin/python3.12", "train.py"), coordinator_ports=RANGE))
    plans = [other.variables for other in plans_on_other_ports(plan)]
    assert {other["APPTAINERENV_JAXSIF_COORDINATOR_PORT"] for other in plans} == {"61235", "61236"}
    assert len({other["JAXSIF_STEP"] for other in plans} | {plan.coordinator.step}) == 3
    assert list(plans[0]) == list(plan.variables)


def test_there_are_only_a_few() -> None:
    assert len(list(plans_on_other_ports(plan_for(RunOptions(("python", "-V")))))) == 3


@pytest.mark.parametrize("program", ["bash", "./train.sh", "env"])
def test_a_script_is_not_started_again(program: str) -> None:
    """It may have come far before the first Python in it looked at the port."""
    asked = RunOptions((program, "python", "train.py"), coordinator_ports=RANGE)
    assert list(plans_on_other_ports(plan_for(asked))) == []


def test_a_port_that_the_user_chose_stays() -> None:
    asked = RunOptions(("python", "train.py"), env=(("JAXSIF_COORDINATOR_PORT", "62009"),))
    assert list(plans_on_other_ports(plan_for(asked))) == []
