"""Where JAX's coordinator listens, and by which address all tasks find it."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, MutableMapping

# A tool that checks types takes it for true; most tasks start without what is imported so.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

# JAX's own variables, see jax/_src/distributed.py.
_ADDRESS = "JAX_COORDINATOR_ADDRESS"
_BIND_ADDRESS = "JAX_COORDINATOR_BIND_ADDRESS"

_PORT = "JAXSIF_COORDINATOR_PORT"  # set by `jaxsif run`; absent under a bare srun
_NODE_ADDRESS = "JAXSIF_NODE_ADDRESS"  # set by --node-address
PORT_HELD = "JAXSIF_PORT_HELD"


def prepare(environ: MutableMapping[str, str]) -> tuple[str, str]:
    """Complete `environ` for JAX, never replacing a value that is set.

    Return the event and the text of a report when the task must not run, or two empty ones.
    """
    port = environ.get(_PORT)
    if not port or _ADDRESS in environ:
        return "", ""
    first = first_host(nodes_of_step(environ))
    if environ["SLURM_PROCID"] == "0" and PORT_HELD not in environ:
        refusal = _find_misplacement(environ, first) or _prepare_first(
            environ, node_address(environ, first), int(port)
        )
        if refusal[0]:
            return refusal
    environ[_ADDRESS] = f"{node_address(environ, first) or first}:{port}"
    return "", ""


def nodes_of_step(environ: Mapping[str, str]) -> str:
    """A node list that begins with the node of task 0; of a heterogeneous step, Slurm sorts the
    list of all nodes.
    """
    return environ.get("SLURM_JOB_NODELIST_HET_GROUP_0") or environ["SLURM_STEP_NODELIST"]


def node_address(environ: Mapping[str, str], node: str) -> str:
    """The name by which the tasks shall reach `node`, of --node-address; '' where its own will do."""
    return environ.get(_NODE_ADDRESS, "").replace("%N", node)


def _find_misplacement(environ: Mapping[str, str], first: str) -> tuple[str, str] | None:
    """With a distribution of the user's own, task 0 may be anywhere, and the others have no way to
    know.
    """
    node = environ.get("SLURMD_NODENAME")
    if environ.get("SLURM_DISTRIBUTION") != "arbitrary" or node == first:
        return None
    remedy = f"pass --env JAX_COORDINATOR_ADDRESS={node}:{environ[_PORT]}"
    return (
        "refused",
        f"task 0 is not on {first}, the first node of the step, but on {node}: {remedy}",
    )


def _prepare_first(environ: MutableMapping[str, str], name: str, port: int) -> tuple[str, str]:
    """Hold the port on the first task's node: on all networks, or on that of `name` alone."""
    import socket  # here: all other tasks start without it

    try:
        address = (
            str(socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0][4][0]) if name else ""
        )
    except (socket.gaierror, UnicodeError) as error:
        return "refused", f"no address is known for {name}: {error}"
    claim = _claim(environ, port)
    held = hold(address, port) if claim else 0
    if claim and not held:
        claim.detach()  # open for as long as this process lives
    elif claim:
        claim.close()
    if held == errno.EADDRINUSE:
        return "port-taken", f"port {port}, chosen for JAX's coordinator, is taken on this node"
    if held == errno.EADDRNOTAVAIL:
        return "refused", f"{name} is not a name of this node: its address {address} is not here"
    environ[PORT_HELD] = "1"  # inherited: a child process would find its parent
    if address:
        environ.setdefault(
            _BIND_ADDRESS, f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        )
    return "", ""


def _claim(environ: Mapping[str, str], port: int) -> socket.socket | None:
    """The right to take the port for this task; None while another Python of the task has it, as in
    `python | python`.

    An abstract name (unix(7)), which other users can read in /proc/net/unix and take. A name that
    this user does not hold says nothing about the port.
    """
    import socket

    name = "-".join(
        environ.get(part, "") for part in ("JAXSIF_STEP", "SLURM_JOB_ID", "SLURM_STEP_ID")
    )
    address = f"\0jaxsif-port-{name}-{port}"
    one = socket.socket(socket.AF_UNIX)
    try:
        one.bind(address)
        one.listen()  # so that others see whose it is
    except OSError:
        if _is_own(address):
            one.close()
            return None
    return one


def _is_own(address: str) -> bool:
    """Whether a process of this user listens at an abstract name."""
    import socket
    import sys
    import time

    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as one:
            one.setblocking(False)  # somebody else's queue may be full
            try:
                one.connect(address)
            except ConnectionRefusedError:
                time.sleep(0.005)  # it does not listen yet
                continue
            except OSError:
                return False
            credentials = one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            return int.from_bytes(credentials[4:8], sys.byteorder) == os.getuid()
    return False


def hold(address: str, port: int) -> int:
    """Take `port` of this node if nobody has it, for this process; return 0, or the error's number.

    JAX would not say that it is taken: gRPC shares ports (SO_REUSEPORT). So does this socket once
    it has the port, and it never listens: from now on the port is taken for everybody but the
    coordinator, which is the same user's.
    """
    import socket

    anywhere = socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET
    family = anywhere if not address else socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as one:
            # Connections that are over do not count.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((address, port))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            one.detach()  # open for as long as this process lives
    except OSError as error:
        # Anything else (no IPv6 here, say) is not for us to judge.
        return error.errno if error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL) else 0
    return 0


def first_host(nodelist: str) -> str:
    """The first name of a Slurm node list: 'a,b', 'n[001-015],h', 'rack[1-2]n[1-4]', 'cn[1-2]-ib',
    'node[7]'.
    """
    name = ""
    rest = nodelist
    while rest and rest[0] != ",":
        if rest[0] == "[":
            group, _, rest = rest[1:].partition("]")
            name += group.split(",")[0].split("-")[0]
        else:
            name, rest = name + rest[0], rest[1:]
    return name
