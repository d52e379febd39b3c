"""Where JAX's coordinator listens, by which address all tasks find it, and whether they did."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, MutableMapping

from . import credentials
from .contract import (
    COORDINATOR_PORT,
    INDEPENDENT,
    NODE_ADDRESS,
    PORT_HELD,
    STEP,
    MisfitError,
    first_host,
)

# JAX's own variables, see jax/_src/distributed.py.
_ADDRESS = "JAX_COORDINATOR_ADDRESS"
_BIND_ADDRESS = "JAX_COORDINATOR_BIND_ADDRESS"


def prepare(
    environ: MutableMapping[str, str], emit: Callable[[Mapping[str, object]], None]
) -> None:
    """Complete `environ` for JAX, never replacing a value that is set.

    Report when this process holds the port: nothing that the program says of it counts then. Raise
    MisfitError when the task must not run.
    """
    port = environ.get(COORDINATOR_PORT)
    is_own = bool(port) and _ADDRESS not in environ
    credentials.prepare(environ, is_own)
    if not port or not is_own:
        return
    first = first_host(nodes_of_step(environ))
    name = node_address(environ, first)
    if environ["SLURM_PROCID"] == "0" and PORT_HELD not in environ:
        _check_placement(environ, first)
        _prepare_first(environ, name, port)
        emit({"event": "port-held", "text": name or first})
    environ[_ADDRESS] = f"{name or first}:{port}"


def nodes_of_step(environ: Mapping[str, str]) -> str:
    """Return a node list that begins with the node of task 0: of a heterogeneous step, Slurm sorts
    the list of all nodes.
    """
    return environ.get("SLURM_JOB_NODELIST_HET_GROUP_0") or environ["SLURM_STEP_NODELIST"]


def node_address(environ: Mapping[str, str], node: str) -> str:
    """Return the name of --node-address by which the tasks shall reach `node`; '' without one."""
    return environ.get(NODE_ADDRESS, "").replace("%N", node)


def _check_placement(environ: Mapping[str, str], first: str) -> None:
    """Raise MisfitError unless task 0 is where the other tasks look for it.

    With a distribution of the user's own it may be anywhere, and the others have no way to know.
    """
    node = environ.get("SLURMD_NODENAME")
    if environ.get("SLURM_DISTRIBUTION") == "arbitrary" and node != first:
        remedy = f"pass --env JAX_COORDINATOR_ADDRESS={node}:{environ[COORDINATOR_PORT]}"
        raise MisfitError(
            f"task 0 is not on {first}, the first node of the step, but on {node}: {remedy}"
        )


def _prepare_first(environ: MutableMapping[str, str], name: str, port: str) -> None:
    """Hold the port on the first task's node: on all networks, or on that of `name` alone."""
    from . import port as ports  # here: all other tasks start without it, and without socket

    address = ports.resolve(name, int(port)) if name else ""
    step = "-".join(environ.get(part, "") for part in (STEP, "SLURM_JOB_ID", "SLURM_STEP_ID"))
    ports.hold_for_task(step, name, address, int(port))
    environ[PORT_HELD] = "1"  # inherited: a child process would find its parent
    if address:
        host = f"[{address}]" if ":" in address else address
        environ.setdefault(_BIND_ADDRESS, f"{host}:{port}")


def report_unconnected(
    environ: Mapping[str, str], emit: Callable[[Mapping[str, object]], None]
) -> None:
    """Report at the end of this process, where the step has several tasks, that it computed with
    JAX and was connected to no other: jax.distributed.initialize was forgotten.

    `jaxsif run` warns when several tasks report it. JAXSIF_INDEPENDENT=1 allows independent copies.
    """
    tasks = environ.get("SLURM_STEP_NUM_TASKS") or environ.get("SLURM_NTASKS", "1")
    if tasks == "1" or environ.get(INDEPENDENT):
        return

    def report() -> None:
        backends = getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None)
        state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
        # The address stays when the program has ended the connection itself.
        if backends and getattr(state, "coordinator_address", "unknown") is None:
            emit({"event": "alone"})

    # Before JAX's own exit handler, after which nothing is left to see.
    threading._register_atexit(report)  # type: ignore[attr-defined]
