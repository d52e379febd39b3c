"""Where the tasks find JAX's coordinator, and the port on the first task's node."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from jaxsif.task.coordinator import prepare

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
    assert prepare(prepared) == ""
    assert prepared == {**environ, **added}


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A socket that listens on some port."""
    with socket.socket() as one:
        one.bind(("", 0))
        one.listen()
        yield one


def first_task(port: int) -> dict[str, str]:
    return {"SLURM_PROCID": "0", "SLURM_STEP_NODELIST": "gpu07", "JAXSIF_COORDINATOR_PORT": str(port)}


def test_first_task_refuses_a_port_that_is_taken(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert prepare(first_task(port)) == (
        f"port {port}, chosen for JAX's coordinator, is taken on this node: run it again for another port"
    )


def test_other_tasks_do_not_look_at_the_port(listener: socket.socket) -> None:
    environ = {**first_task(listener.getsockname()[1]), "SLURM_PROCID": "1"}
    assert prepare(environ) == ""


def test_children_of_the_first_task_find_the_port_taken_by_their_parent_and_go_on(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    listener.close()
    environ = first_task(port)
    assert prepare(environ) == ""
    del environ["JAX_COORDINATOR_ADDRESS"]  # as JAX's own detection in a child might
    with socket.socket() as coordinator:
        coordinator.bind(("", port))
        coordinator.listen()
        assert prepare(environ) == ""
