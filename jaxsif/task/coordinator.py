"""The address where JAX's coordinator listens and all tasks find it, and whether they connected."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from functools import wraps
from typing import Any

from . import credentials, failure, importing
from .contract import (
    COORDINATOR_PORT,
    INDEPENDENT,
    NODE_ADDRESS,
    PORT_HELD,
    STEP,
    MisfitError,
    first_host,
    tasks_on_node,
)

# JAX's own variables, see jax/_src/distributed.py.
_ADDRESS = "JAX_COORDINATOR_ADDRESS"
_BIND_ADDRESS = "JAX_COORDINATOR_BIND_ADDRESS"


def prepare(
    environ: MutableMapping[str, str], emit: Callable[[Mapping[str, object]], None]
) -> None:
    """Complete `environ` for JAX, never replacing an existing value.

    Report if this process holds the port: from then on, the program's own errors about the port do
    not count. Raise MisfitError if the task must not run.
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
    """Return a node list that begins with task 0's node: Slurm sorts the full node list of a
    heterogeneous step.
    """
    return environ.get("SLURM_JOB_NODELIST_HET_GROUP_0") or environ["SLURM_STEP_NODELIST"]


def node_address(environ: Mapping[str, str], node: str) -> str:
    """Return the name from --node-address at which the tasks are to reach `node`, or '' if there is
    none.
    """
    return environ.get(NODE_ADDRESS, "").replace("%N", node)


def _check_placement(environ: Mapping[str, str], first: str) -> None:
    """Raise MisfitError unless task 0 is where the other tasks look for it.

    With the user's own distribution, task 0 may be anywhere, and the others cannot know.
    """
    node = environ.get("SLURMD_NODENAME")
    if environ.get("SLURM_DISTRIBUTION") == "arbitrary" and node != first:
        remedy = f"pass --env JAX_COORDINATOR_ADDRESS={node}:{environ[COORDINATOR_PORT]}"
        raise MisfitError(
            f"task 0 is not on {first}, the first node of the step, but on {node}: {remedy}"
        )


def _prepare_first(environ: MutableMapping[str, str], name: str, port: str) -> None:
    """Hold the port on the first task's node: on all networks, or only on that of `name`."""
    from . import port as ports  # here: all other tasks start without it, and without socket

    address = ports.resolve(name, int(port)) if name else ""
    step = "-".join(environ.get(part, "") for part in (STEP, "SLURM_JOB_ID", "SLURM_STEP_ID"))
    ports.hold_for_task(step, name, address, int(port))
    environ[PORT_HELD] = "1"  # inherited: a child process would find its parent's port taken
    if address:
        host = f"[{address}]" if ":" in address else address
        environ.setdefault(_BIND_ADDRESS, f"{host}:{port}")


def report_unconnected(
    environ: Mapping[str, str], emit: Callable[[Mapping[str, object]], None]
) -> None:
    """Make this process, if the step has several tasks, report at its end that it computed with JAX
    but was connected to no other process: the program did not call jax.distributed.initialize.

    `jaxsif run` warns if several tasks report it. JAXSIF_INDEPENDENT=1 allows independent copies.
    """
    tasks = environ.get("SLURM_STEP_NUM_TASKS") or environ.get("SLURM_NTASKS", "1")
    if tasks == "1" or environ.get(INDEPENDENT):
        return

    def report() -> None:
        backends = getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None)
        state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
        # The address remains if the program has closed the connection itself.
        if backends and getattr(state, "coordinator_address", "unknown") is None:
            emit({"event": "alone"})

    # Before JAX's own exit handler, which clears this state.
    threading._register_atexit(report)  # type: ignore[attr-defined]


def report_arguments(
    environ: Mapping[str, str], emit: Callable[[Mapping[str, object]], None]
) -> None:
    """Make this process report a call of jax.distributed.initialize that names this run's
    coordinator, but not its processes, or a coordinator that not all of them can reach. The first
    may be right: workers may be JAX's processes.
    """
    known = {"num_processes": environ.get("SLURM_NTASKS"), "process_id": environ["SLURM_PROCID"]}
    tasks = tasks_on_node(environ) if environ.get("SLURM_GTIDS") else sys.maxsize
    is_one_node = str(tasks) == known["num_processes"]

    def find_odd(given: Mapping[str, Any]) -> list[str]:
        given = {**known, **given}
        address = str(given.get("coordinator_address", ""))
        # On one node, its loopback reaches all processes; then the numbers must agree.
        if address and not (is_one_node and _is_loopback(_name_host(address))):
            return ["coordinator_address"] if _is_unreachable(given, tasks) else []
        return [name for name in known if str(given[name]) != known[name]]

    def look(arguments: Mapping[str, Any]) -> None:
        given = {name: value for name, value in arguments.items() if value is not None}
        odd = [] if failure.is_worker() else find_odd(given)
        if odd:
            text = ", ".join(f"{name}={given[name]!r}" for name in odd)
            where = failure.find_user(sys._getframe())
            emit({"event": "arguments", "text": text, "where": where})

    importing.after(
        "jax._src.distributed", lambda module: importing.before_initialize(module, look)
    )


def report_raised(emit: Callable[[Mapping[str, object]], None]) -> None:
    """Make this process report the exception that a function handles, as in a `finally`, while it
    waits for all other processes: these may wait elsewhere, and Python prints a traceback only
    after that. When the wait ends, an empty text withdraws the report.
    """

    is_told = False

    def look() -> None:
        nonlocal is_told
        raised = sys.exc_info()[1]
        if raised is None or not failure.exit_status(raised) or failure.is_worker():
            return
        caller = failure.find_own(failure.walk_stack(sys._getframe()))
        text = failure.describe(raised)
        is_its = raised.__traceback__ is not None and raised.__traceback__.tb_frame is caller
        if is_its and not failure.is_consequence(text):
            is_told = True
            emit({"event": "raised", "text": text, "where": failure.location(raised)})

    def withdraw() -> None:
        nonlocal is_told
        if is_told:
            is_told = False
            emit({"event": "raised", "text": "", "where": ""})

    def wrap(module: Any, owner: Any, name: str) -> None:
        original = importing.find(module, name)

        @wraps(original)
        def wait(*arguments: Any, **named: Any) -> Any:
            withdraw()  # of a wait that has raised
            with suppress(Exception):  # the program's own call must continue
                look()
            result = original(*arguments, **named)
            withdraw()
            return result

        setattr(owner, name.rpartition(".")[2], wait)

    importing.after(
        "jax._src.distributed", lambda module: wrap(module, module.State, "State.shutdown")
    )
    importing.after(
        "jax.experimental.multihost_utils",
        lambda module: wrap(module, module, "sync_global_devices"),
    )


def _name_host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _is_unreachable(given: Mapping[str, Any], tasks: int) -> bool:
    """Return whether not all processes can reach the coordinator: there are more than this node's
    `tasks`, and its address is each node's own; its name has no address; or process 0 is here, but
    the address is not.
    """
    host = _name_host(str(given["coordinator_address"]))
    if _is_loopback(host):
        number = str(given["num_processes"])
        return number.isdigit() and int(number) > tasks
    from . import port  # here: most tasks do without socket

    known = port.find_addresses(host)
    return not known or (str(given["process_id"]) == "0" and not any(map(port.is_here, known)))
