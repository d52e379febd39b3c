"""JAX's compile cache, in the task: its counts, complete entries, and one key for all processes.

JAX is patched when the program imports it, and only if its code matches JAX 0.12.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from . import importing
from .contract import CACHE_COUNTS

# Name of a JAX event -> field of the report.
_COUNTED = {
    "/jax/compilation_cache/compile_requests_use_cache": "requests",
    "/jax/compilation_cache/cache_hits": "hits",
    "/jax/compilation_cache/cache_misses": "written",
}
_SAVED = "/jax/compilation_cache/compile_time_saved_sec"


def install(emit: Callable[[Mapping[str, Any]], None]) -> None:
    """Watch the cache of this process; `emit` gets the counts at the end."""
    counts: dict[str, Any] = {"event": "cache", **dict.fromkeys(CACHE_COUNTS, 0), "saved": 0.0}

    def report() -> None:
        if counts["requests"]:
            emit(counts)

    importing.after("jax._src.monitoring", lambda module: _listen(module, counts))
    importing.after("jax._src.lru_cache", _write_whole_entries)
    importing.after("jax._src.compilation_cache", _remove_broken_entries)
    importing.after("jax._src.cache_key", _share_keys)
    atexit.register(report)


def _listen(module: Any, counts: dict[str, Any]) -> None:
    def count(event: str, **_: object) -> None:
        if event in _COUNTED:
            counts[_COUNTED[event]] += 1

    def add(event: str, duration: float, **_: object) -> None:
        if event == _SAVED:
            counts["saved"] += max(0.0, duration)

    importing.find(module, "register_event_listener")(count)
    importing.find(module, "register_event_duration_secs_listener")(add)


def _write_whole_entries(module: Any) -> None:
    """Write each entry to a temporary file first: otherwise JAX would leave a partial entry if it
    is killed.
    """
    original = importing.find(module, "LRUCache.put", "key", "value")

    def put(self: Any, key: str, value: bytes) -> None:
        whole = os.path.join(str(self.path), f"{key}-cache")
        if not self.eviction_enabled:
            partial = f"{whole}.{os.urandom(4).hex()}"
            try:
                with open(partial, "xb") as file:
                    file.write(value)
                os.replace(partial, whole)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(partial)
        original(self, key, value)

    module.LRUCache.put = put


def _remove_broken_entries(module: Any) -> None:
    """Remove an entry that cannot be read: JAX does not overwrite an existing entry, and would warn
    about it forever.
    """
    importing.find(module, "_cache")
    original = importing.find(module, "get_executable_and_time", "cache_key")

    def get(cache_key: str, *arguments: Any, **more: Any) -> Any:
        try:
            return original(cache_key, *arguments, **more)
        except Exception:
            module._cache.path.joinpath(f"{cache_key}-cache").unlink(missing_ok=True)
            raise

    module.get_executable_and_time = get


def _share_keys(module: Any) -> None:
    """Compute the same key in all processes of a program.

    On CPUs, JAX's key contains the numbers of the process's own devices, so no other process finds
    the entries of process 0. The others would compile while process 0 waits for them, and Gloo
    waits no longer than 30 seconds. JAX's own remedy for GPUs (strip_device_assignment) works for
    CPUs, too, but requires processors of the same kind.

    On GPUs, JAX's key contains a fingerprint of the links between the GPUs that the process itself
    sees. If nodes differ, some processes find an entry and do not take part in XLA's autotuning,
    while the others compile and wait forever for their share of it (jax-ml/jax#40940). So the key
    of a program of several processes contains the kind of each device instead of the fingerprint;
    JAX adds the platform's version, with those of CUDA and the driver. A program of one process
    keeps the fingerprint.
    """
    strip = "strip_device_assignment"
    options = importing.find(module, "_hash_serialized_compile_options", strip)
    accelerators = importing.find(module, "_hash_accelerator_config")
    devices = importing.find(module, "_hash_devices")

    def hash_options(
        found: Any, compile_options: Any, strip_device_assignment: bool = False
    ) -> None:
        options(found, compile_options, strip_device_assignment=True)

    def hash_accelerators(found: Any, used: Any) -> None:
        if used.flat[0].platform == "cpu":
            devices(found, used)
            found.update(_processor())
        elif len({device.process_index for device in used.flat}) > 1:
            devices(found, used)
        else:
            accelerators(found, used)

    module._hash_serialized_compile_options = hash_options
    module._hash_accelerator_config = hash_accelerators


def _processor() -> bytes:
    """Return the features of this machine's processors."""
    with open("/proc/cpuinfo", "rb") as file:
        return next((line for line in file if line.startswith((b"flags", b"Features"))), b"")
