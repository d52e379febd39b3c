"""A task's Slurm variables -> the variables by which JAX finds its devices."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

# JAX's own variables, see jax/_src/distributed.py and jax/_src/config.py.
_LOCAL_DEVICE_IDS = "JAX_LOCAL_DEVICE_IDS"
_NUM_CPU_DEVICES = "JAX_NUM_CPU_DEVICES"
_PLATFORMS = "JAX_PLATFORMS"
_FORCED_CPU_DEVICES = "xla_force_host_platform_device_count"  # the older way, in XLA_FLAGS

# Set by `jaxsif run`; absent under a bare srun.
_PORT = "JAXSIF_COORDINATOR_PORT"
# Set by the image: cpu, cuda12, cuda13.
_FLAVOUR = "JAXSIF_FLAVOUR"


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
    return ""


def _set_platform(environ: MutableMapping[str, str], devices: int) -> None:
    if environ.get(_FLAVOUR) == "cpu":
        # The rehearsal: as many CPU devices as the task would have GPUs.
        if _FORCED_CPU_DEVICES not in environ.get("XLA_FLAGS", ""):
            environ.setdefault(_NUM_CPU_DEVICES, str(devices))
    elif _PORT in environ:
        # Left to itself, JAX runs on the CPU when it finds no usable GPU, and nobody notices.
        environ.setdefault(_PLATFORMS, "cuda")


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
