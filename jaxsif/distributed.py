"""The variables by which JAX processes find each other and keep out of harm's way."""

from __future__ import annotations

from collections.abc import Mapping

from jaxsif.errors import JaxsifError

# gRPC, and so jax.distributed.initialize, obeys these three even for an address of this very host. Their upper-case
# forms do no harm there, and Python's and curl's clients read them.
_GRPC_PROXIES = ("http_proxy", "https_proxy", "grpc_proxy")
# The share of a GPU's memory, and its older name; JAX raises an error when both are set.
_MEMORY = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
# Above Linux's ephemeral ports (32768 to 60999), so that no outgoing connection holds one.
COORDINATOR_PORTS = range(61000, 65500)
PORT_VARIABLE = "JAXSIF_COORDINATOR_PORT"  # for jaxsif/task/coordinator.py


def container_variables(port: int, environ: Mapping[str, str]) -> dict[str, str]:
    """What every task finds in its container; the user's own --env comes on top."""
    variables = {
        # The host's ~/.local has wheels for another Python, and shadows the image's.
        "PYTHONNOUSERSITE": "1",
        # Start of the task shim's reports; see jaxsif/task/start.sh.
        "JAXSIF_REPORT": "1",
        # Fresh for each step: JAX's own choice depends on the job alone, so two steps of a job would meet.
        PORT_VARIABLE: str(port),
    }
    if "JAX_ENABLE_PREEMPTION_SERVICE" not in environ:
        # With it JAX swallows SIGTERM, and a cancelled step lives on until SIGKILL.
        variables["JAX_ENABLE_PREEMPTION_SERVICE"] = "0"
    return variables


def parse_ports(text: str | None, source: str) -> range:
    """The value of --coordinator-ports, 'FIRST-LAST' or 'PORT'; raises JaxsifError."""
    if text is None:
        return COORDINATOR_PORTS
    first, dash, last = text.partition("-")
    ends = [first, last if dash else first]
    if not all(end.isdecimal() for end in ends) or not 1024 <= int(ends[0]) <= int(ends[1]) <= 65535:
        raise JaxsifError(f"not a range of ports: {text!r}", source, "give FIRST-LAST, from 1024 to 65535")
    return range(int(ends[0]), int(ends[1]) + 1)


def check_node_address(pattern: str, source: str) -> str:
    """The value of --node-address; raises JaxsifError for one that would be the same on all nodes."""
    if "%N" not in pattern:
        raise JaxsifError(f"no %N in {pattern!r}", source, "%N is the node's name: such as %N-ib")
    return pattern


def scrub_proxies(environ: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Variables to set and to remove so that gRPC uses no proxy and other programs still do."""
    removed = tuple(name for name in _GRPC_PROXIES if name in environ)
    moved = {name.upper(): environ[name] for name in removed if name.upper() not in environ and name != "grpc_proxy"}
    return moved, removed


def memory_variables(sharers: int, environ: Mapping[str, str]) -> dict[str, str]:
    """What lets `sharers` processes have one GPU: by itself each would take 75 % of its memory at once."""
    told = any(name in environ for name in _MEMORY)
    return {} if sharers == 1 or told else {_MEMORY[0]: f"{0.75 / sharers:.3f}"}
