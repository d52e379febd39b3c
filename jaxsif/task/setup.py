"""A task's Slurm variables -> the variables by which JAX finds its devices and its coordinator."""

from __future__ import annotations

import socket
from collections.abc import Mapping, MutableMapping

# JAX's own variables, see jax/_src/distributed.py and jax/_src/config.py.
_LOCAL_DEVICE_IDS = "JAX_LOCAL_DEVICE_IDS"
_NUM_CPU_DEVICES = "JAX_NUM_CPU_DEVICES"
_COORDINATOR_ADDRESS = "JAX_COORDINATOR_ADDRESS"
_PLATFORMS = "JAX_PLATFORMS"
_FORCED_CPU_DEVICES = "xla_force_host_platform_device_count"  # the older way, in XLA_FLAGS

# Set by `jaxsif run`; absent under a bare srun.
_PORT = "JAXSIF_COORDINATOR_PORT"
# Set by the image: cpu, cuda12, cuda13.
_FLAVOUR = "JAXSIF_FLAVOUR"
_PORT_CHECKED = "JAXSIF_PORT_CHECKED"


def prepare(environ: MutableMapping[str, str]) -> str:
    """Complete `environ` for JAX, never replacing a value that is set; return why the task must not run, or ''."""
    gpus = visible_gpus(environ)
    if gpus:
        tasks = tasks_on_node(environ)
        private = has_private_gpus(environ)
        if _PORT in environ and not private and tasks > len(gpus):
            return f"{tasks} tasks on this node share {len(gpus)} GPU(s): JAX needs at least one GPU for each process"
        ids = local_device_ids(int(environ["SLURM_LOCALID"]), tasks, len(gpus), private)
        environ.setdefault(_LOCAL_DEVICE_IDS, ",".join(map(str, ids)))
        _set_platform(environ, len(environ[_LOCAL_DEVICE_IDS].split(",")))
    return _set_coordinator(environ)


def _set_platform(environ: MutableMapping[str, str], devices: int) -> None:
    if environ.get(_FLAVOUR) == "cpu":
        # The rehearsal: as many CPU devices as the task would have GPUs.
        if _FORCED_CPU_DEVICES not in environ.get("XLA_FLAGS", ""):
            environ.setdefault(_NUM_CPU_DEVICES, str(devices))
    elif _PORT in environ:
        # Left to itself, JAX runs on the CPU when it finds no usable GPU, and nobody notices.
        environ.setdefault(_PLATFORMS, "cuda")


def _set_coordinator(environ: MutableMapping[str, str]) -> str:
    port = environ.get(_PORT)
    if not port or _COORDINATOR_ADDRESS in environ:
        return ""
    if environ["SLURM_PROCID"] == "0" and _PORT_CHECKED not in environ:
        if _is_taken(int(port)):
            return f"port {port}, chosen for JAX's coordinator, is taken on this node: run it again for another port"
        environ[_PORT_CHECKED] = "1"  # inherited: a child process would find its parent listening
    environ[_COORDINATOR_ADDRESS] = f"{first_host(environ['SLURM_STEP_NODELIST'])}:{port}"
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


def visible_gpus(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The task's CUDA_VISIBLE_DEVICES as a tuple: indices, UUIDs (GPU-…) or MIG names.

    Slurm's NoDevFiles is none, and -1 is how people write none.
    """
    value = environ.get("CUDA_VISIBLE_DEVICES", "")
    return tuple(name for name in value.split(",") if name not in ("", "NoDevFiles", "-1"))


def has_private_gpus(environ: Mapping[str, str]) -> bool:
    """True when Slurm bound GPUs to each task (--gpus-per-task, --gpu-bind), so that all visible ones are its own."""
    of_step = environ.get("SLURM_STEP_GPUS", "")
    return bool(of_step) and len(visible_gpus(environ)) < len(of_step.split(","))


def tasks_on_node(environ: Mapping[str, str]) -> int:
    """How many tasks the step has on this node; SLURM_STEP_TASKS_PER_NODE is a list such as '2(x3),1'."""
    counts: list[int] = []
    for part in environ.get("SLURM_STEP_TASKS_PER_NODE", "1").split(","):
        count, _, repeat = part.rstrip(")").partition("(x")
        counts += [int(count)] * int(repeat or 1)
    return counts[int(environ.get("SLURM_NODEID", "0"))]


def local_device_ids(local_id: int, tasks: int, gpus: int, private: bool) -> tuple[int, ...]:
    """The indices into the task's visible GPUs that its process uses: all when private, else an equal share.

    `local_id` counts the node's tasks from 0. With more tasks than GPUs, tasks share a GPU in turn.
    """
    if private:
        return tuple(range(gpus))
    share = gpus // tasks
    return tuple(range(local_id * share, (local_id + 1) * share)) if share else (local_id % gpus,)


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
