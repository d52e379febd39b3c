"""Where JAX's coordinator listens, and by which address all tasks find it."""

from __future__ import annotations

import socket
from collections.abc import MutableMapping

_ADDRESS = "JAX_COORDINATOR_ADDRESS"  # JAX's own variable, see jax/_src/distributed.py
_PORT = "JAXSIF_COORDINATOR_PORT"  # set by `jaxsif run`; absent under a bare srun
_PORT_CHECKED = "JAXSIF_PORT_CHECKED"


def prepare(environ: MutableMapping[str, str]) -> str:
    """Complete `environ` for JAX, never replacing a value that is set; return why the task must not run, or ''."""
    port = environ.get(_PORT)
    if not port or _ADDRESS in environ:
        return ""
    if environ["SLURM_PROCID"] == "0" and _PORT_CHECKED not in environ:
        if _is_taken(int(port)):
            return f"port {port}, chosen for JAX's coordinator, is taken on this node: run it again for another port"
        environ[_PORT_CHECKED] = "1"  # inherited: a child process would find its parent listening
    environ[_ADDRESS] = f"{first_host(environ['SLURM_STEP_NODELIST'])}:{port}"
    return ""


def _is_taken(port: int) -> bool:
    """True when a program listens on `port`. JAX itself would not say so: gRPC shares ports (SO_REUSEPORT)."""
    family = socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
            return False
    except OSError as error:
        return error.errno == 98  # EADDRINUSE; anything else (no IPv6 here, say) is not for us to judge


def first_host(nodelist: str) -> str:
    """The first name of a Slurm node list: 'a,b', 'n[001-015],h', 'rack[1-2]n[1-4]', 'cn[1-2]-ib', 'node[7]'."""
    name = ""
    rest = nodelist
    while rest and rest[0] != ",":
        if rest[0] == "[":
            group, rest = rest[1:].split("]", 1)
            name += group.split(",")[0].split("-")[0]
        else:
            name, rest = name + rest[0], rest[1:]
    return name
