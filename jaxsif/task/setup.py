"""A task's Slurm variables -> the variables by which JAX finds its devices."""

from __future__ import annotations

from collections.abc import MutableMapping

from .devices import find_device_ids

# JAX's own variables, see jax/_src/distributed.py and jax/_src/config.py.
_LOCAL_DEVICE_IDS = "JAX_LOCAL_DEVICE_IDS"
_NUM_CPU_DEVICES = "JAX_NUM_CPU_DEVICES"
_PLATFORMS = "JAX_PLATFORMS"
_FORCED_CPU_DEVICES = "xla_force_host_platform_device_count"  # the older way, in XLA_FLAGS

# Set by `jaxsif run`; absent under a bare srun.
_PORT = "JAXSIF_COORDINATOR_PORT"
# Set by the image: cpu, cuda12, cuda13.
_FLAVOUR = "JAXSIF_FLAVOUR"


def prepare(environ: MutableMapping[str, str]) -> None:
    """Complete `environ` for JAX, never replacing a value that is set; raises MisfitError where the
    plan is not met.
    """
    ids = find_device_ids(environ)
    if ids:
        environ.setdefault(_LOCAL_DEVICE_IDS, ",".join(map(str, ids)))
        _set_platform(environ, len(environ[_LOCAL_DEVICE_IDS].split(",")))


def _set_platform(environ: MutableMapping[str, str], devices: int) -> None:
    if environ.get(_FLAVOUR) == "cpu":
        # The rehearsal: as many CPU devices as the task would have GPUs.
        if _FORCED_CPU_DEVICES not in environ.get("XLA_FLAGS", ""):
            environ.setdefault(_NUM_CPU_DEVICES, str(devices))
    elif _PORT in environ:
        # Left to itself, JAX runs on the CPU when it finds no usable GPU, and nobody notices.
        environ.setdefault(_PLATFORMS, "cuda")
