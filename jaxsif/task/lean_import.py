"""Less work while a process imports NumPy and JAX: threads that spin, garbage collections."""

from __future__ import annotations

import gc
from collections.abc import MutableMapping
from types import ModuleType

from . import importing

# OpenBLAS, in NumPy and SciPy, makes a thread for each core. Each spins for 2 to this power ticks
# of the processor's clock before it sleeps. The default is 28: `import numpy` keeps all cores busy
# for 0.1 s, in each process. With 20, half a millisecond, threads still bridge the time between the
# operations of a loop.
_BLAS_SPIN = ("OPENBLAS_THREAD_TIMEOUT", "20")


def install(environ: MutableMapping[str, str]) -> None:
    """Prepare a process that may import NumPy and JAX."""
    environ.setdefault(*_BLAS_SPIN)
    importing.around("jax", _without_collections)


def _without_collections(module: ModuleType, execute: importing.Step) -> None:
    """Import JAX without a garbage collection: of the 150,000 objects that it makes, nearly all are
    to stay.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(0)  # and not gc.disable(), which is the program's
    try:
        execute(module)
        if not gc.get_freeze_count():
            # Both together move all objects to the oldest generation, and do not look at them.
            gc.freeze()
            gc.unfreeze()
    finally:
        if gc.get_threshold()[0] == 0:
            gc.set_threshold(*thresholds)
