"""Tell `jaxsif run` what this JAX has not that this package uses, of names that are JAX's own.

Modules that change something of JAX look for it themselves, by `importing.find`; here stands what
others only read, long after the import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import importing
from .failure import Emit

_READ: Mapping[str, Sequence[str]] = {
    "jax._src.distributed": ("global_state.client", "global_state.coordinator_address"),
    "jax._src.api": ("clean_up",),
    "jax._src.xla_bridge": ("_backends",),
}


def install(environ: Mapping[str, str], emit: Emit) -> None:
    """Have the first task tell; all tasks have the same JAX."""
    if environ["SLURM_PROCID"] != "0":
        return
    importing.listen(lambda text: emit({"event": "missing", "text": text}))
    for module, names in _READ.items():
        importing.after(module, _look_for(names))


def _look_for(names: Sequence[str]) -> Callable[[Any], None]:
    def look(module: Any) -> None:
        for name in names:
            importing.find(module, name)

    return look
