"""Where the tasks find JAX's coordinator, and the port on the first task's node."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator

import pytest

from jaxsif.task import coordinator
from jaxsif.task.contract import MisfitError
from jaxsif.task.port import hold

FINE = ("", "")


def prepare(environ: dict[str, str]) -> tuple[str, str]:
    """The event and the text of a refusal; FINE for none."""
    try:
        coordinator.prepare(environ, lambda _: None)
    except MisfitError as misfit:
        return misfit.event, str(misfit)
    return FINE


# The second of four tasks, two on each of two nodes, under `jaxsif run`.
TASK = {"SLURM_PROCID": "3", "SLURM_STEP_NODELIST": "gpu[07-08]", "JAXSIF_COORDINATOR_PORT": "61234"}


@pytest.mark.parametrize(
    ("environ", "added"),
    [
        (TASK, {"JAX_COORDINATOR_ADDRESS": "gpu07:61234"}),
        ({**TASK, "SLURM_STEP_NODELIST": "rack[1-2]n[1-4]"}, {"JAX_COORDINATOR_ADDRESS": "rack1n1:61234"}),
        ({**TASK, "JAX_COORDINATOR_ADDRESS": "gpu07:1"}, {}),
        ({"SLURM_PROCID": "3", "SLURM_STEP_NODELIST": "gpu[07-08]"}, {}),
    ],
    ids=["the first node", "a list that JAX misreads", "the user's coordinator", "a bare srun"],
)
def test_prepare(environ: dict[str, str], added: dict[str, str]) -> None:
    prepared = dict(environ)
    assert prepare(prepared) == FINE
    assert prepared == {**environ, **added}


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A socket that listens on some port."""
    with socket.socket() as one:
        one.bind(("", 0))
        one.listen()
        yield one


def first_task(port: int, **variables: str) -> dict[str, str]:
    return {"SLURM_PROCID": "0", "SLURM_STEP_NODELIST": "localhost", "JAXSIF_COORDINATOR_PORT": str(port), **variables}


def test_first_task_refuses_a_port_that_is_taken(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    text = f"port {port}, chosen for JAX's coordinator, is taken on this node"
    assert prepare(first_task(port)) == ("port-taken", text)
    assert prepare(first_task(port, JAXSIF_NODE_ADDRESS="%N")) == ("port-taken", text)


def test_other_tasks_do_not_look_at_the_port(listener: socket.socket) -> None:
    environ = {**first_task(listener.getsockname()[1]), "SLURM_PROCID": "1"}
    assert prepare(environ) == FINE


def free_port(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    listener.close()
    return port


@pytest.mark.parametrize("address", ["", "127.0.0.1", "::1"])
def test_a_port_that_is_held_is_taken_for_everybody_but_who_shares_it(listener: socket.socket, address: str) -> None:
    """As gRPC does, for JAX's coordinator."""
    port = free_port(listener)
    hold(address, port)
    with pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE)):
        hold(address, port)
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as coordinator:
        coordinator.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        coordinator.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        coordinator.bind((address, port))
        coordinator.listen()
        # All connections are the coordinator's: the socket that holds the port does not listen.
        with socket.create_connection((address or "127.0.0.1", port), timeout=5), coordinator.accept()[0]:
            pass


def test_children_of_the_first_task_find_the_port_taken_by_their_parent_and_go_on(listener: socket.socket) -> None:
    environ = first_task(free_port(listener))
    assert prepare(environ) == FINE
    del environ["JAX_COORDINATOR_ADDRESS"]  # as JAX's own detection in a child might
    assert prepare(environ) == FINE


def test_another_python_of_the_first_task_goes_on_beside_the_first(listener: socket.socket) -> None:
    """As in `python a.py | python b.py`, or in a shell: neither is the other's child."""
    port = free_port(listener)
    first, second, other_step = first_task(port), first_task(port), first_task(port, JAXSIF_STEP="another")
    assert [prepare(first), prepare(second)] == [FINE, FINE]
    assert second["JAX_COORDINATOR_ADDRESS"] == f"localhost:{port}"
    assert prepare(other_step)[0] == "port-taken"


def test_a_name_that_somebody_else_has_taken(listener: socket.socket) -> None:
    """It says nothing about the port, which is held all the same. Only who listens can be told from others."""
    port = free_port(listener)
    environ = first_task(port)
    name = "-".join(environ.get(part, "") for part in ("JAXSIF_STEP", "SLURM_JOB_ID", "SLURM_STEP_ID"))
    with socket.socket(socket.AF_UNIX) as one, socket.socket() as other:
        one.bind(f"\0jaxsif-port-{name}-{port}")
        assert prepare(environ) == FINE
        with pytest.raises(OSError, match="Address already in use"):
            other.bind(("", port))


@pytest.mark.parametrize(("task", "bound"), [("0", {"JAX_COORDINATOR_BIND_ADDRESS": "127.0.0.1:PORT"}), ("1", {})])
def test_another_network(listener: socket.socket, task: str, bound: dict[str, str]) -> None:
    """Every task goes to the first node's name there; the first one listens there and nowhere else."""
    port = free_port(listener)
    environ = first_task(port, SLURM_STEP_NODELIST="0.0.1,x", JAXSIF_NODE_ADDRESS="127.%N", SLURM_PROCID=task)
    assert prepare(environ) == FINE
    variables = {name: value for name, value in environ.items() if name.startswith("JAX_")}
    bound = {name: value.replace("PORT", str(port)) for name, value in bound.items()}
    assert variables == {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}", **bound}


def test_users_bind_address_stands(listener: socket.socket) -> None:
    user = {"JAX_COORDINATOR_BIND_ADDRESS": "0.0.0.0:7"}
    environ = first_task(free_port(listener), JAXSIF_NODE_ADDRESS="%N", **user)
    assert prepare(environ) == FINE
    assert environ["JAX_COORDINATOR_BIND_ADDRESS"] == "0.0.0.0:7"


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("192.0.2.1", "192.0.2.1 is not a name of this node: its address 192.0.2.1 is not on this node"),
        ("%N..ib", "no address is known for localhost..ib: "),
    ],
    ids=["another node's", "unknown"],
)
def test_a_name_that_is_not_this_nodes_is_refused(pattern: str, text: str) -> None:
    event, refusal = prepare(first_task(61234, JAXSIF_NODE_ADDRESS=pattern))
    assert event == "refused"
    assert refusal.startswith(text)


@pytest.mark.parametrize(
    ("distribution", "node", "event"),
    [("arbitrary", "gpu07", ""), ("arbitrary", "gpu08", "refused"), ("cyclic", "gpu08", ""), ("", "gpu08", "")],
)
def test_task_0_where_the_others_do_not_look_for_it(
    listener: socket.socket, distribution: str, node: str, event: str
) -> None:
    where = {"SLURM_STEP_NODELIST": "gpu[07-08]", "SLURMD_NODENAME": node, "SLURM_DISTRIBUTION": distribution}
    assert prepare(first_task(free_port(listener), **where))[0] == event
