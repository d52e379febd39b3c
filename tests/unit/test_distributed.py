"""What every task finds in its container, and the proxies that gRPC must not see."""

from __future__ import annotations

import pytest

from jaxsif.distributed import (
    COORDINATOR_PORTS,
    check_node_address,
    container_variables,
    parse_ports,
    scrub_proxies,
)
from jaxsif.errors import JaxsifError

ALWAYS = {"PYTHONNOUSERSITE": "1", "JAXSIF_REPORT": "1", "JAXSIF_COORDINATOR_PORT": "61234"}


@pytest.mark.parametrize(
    ("environ", "more"),
    [
        ({}, {"JAX_ENABLE_PREEMPTION_SERVICE": "0"}),
        ({"JAX_ENABLE_PREEMPTION_SERVICE": "1"}, {}),
        ({"JAX_ENABLE_PREEMPTION_SERVICE": ""}, {}),
    ],
    ids=["default", "the user's choice", "the user's empty choice"],
)
def test_container_variables(environ: dict[str, str], more: dict[str, str]) -> None:
    assert container_variables(61234, environ) == {**ALWAYS, **more}


@pytest.mark.parametrize(
    ("environ", "to_set", "to_remove"),
    [
        ({"HTTP_PROXY": "http://p:3128", "no_proxy": "localhost"}, {}, ()),
        (
            {"http_proxy": "http://p:3128", "https_proxy": "http://p:3129"},
            {"HTTP_PROXY": "http://p:3128", "HTTPS_PROXY": "http://p:3129"},
            ("http_proxy", "https_proxy"),
        ),
        ({"http_proxy": "http://p:3128", "HTTP_PROXY": "http://q:80"}, {}, ("http_proxy",)),
        ({"grpc_proxy": "http://p:3128"}, {}, ("grpc_proxy",)),
        ({"http_proxy": ""}, {"HTTP_PROXY": ""}, ("http_proxy",)),
    ],
    ids=["none that gRPC obeys", "moved", "both spellings", "gRPC's own", "empty"],
)
def test_scrub_proxies(environ: dict[str, str], to_set: dict[str, str], to_remove: tuple[str, ...]) -> None:
    assert scrub_proxies(environ) == (to_set, to_remove)


def test_ports_are_above_those_of_outgoing_connections() -> None:
    assert COORDINATOR_PORTS[0] > 60999  # the end of Linux's default net.ipv4.ip_local_port_range
    assert COORDINATOR_PORTS[-1] < 65536


@pytest.mark.parametrize(
    ("text", "ports"),
    [(None, COORDINATOR_PORTS), ("5000-5002", range(5000, 5003)), ("61234", range(61234, 61235))],
)
def test_parse_ports(text: str | None, ports: range) -> None:
    assert parse_ports(text, "--coordinator-ports") == ports


@pytest.mark.parametrize("text", ["", "a", "5002-5000", "1000-2000", "60000-70000", "5000-", "-5000", "5000-5001-5002"])
def test_what_is_no_range_of_ports_is_refused(text: str) -> None:
    with pytest.raises(JaxsifError) as caught:
        parse_ports(text, "--coordinator-ports")
    assert (caught.value.what, caught.value.where) == (f"not a range of ports: {text!r}", "--coordinator-ports")


def test_node_address_differs_from_node_to_node() -> None:
    assert check_node_address("%N-ib", "--node-address") == "%N-ib"
    with pytest.raises(JaxsifError) as caught:
        check_node_address("10.0.0.1", "JAXSIF_NODE_ADDRESS (environment)")
    assert (caught.value.what, caught.value.where) == ("no %N in '10.0.0.1'", "JAXSIF_NODE_ADDRESS (environment)")
