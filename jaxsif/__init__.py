"""jaxsif: build, publish and run JAX in Singularity/Apptainer images on Slurm clusters."""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # typing would take milliseconds of each start
if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxsif.images.spython_client import RuntimeClient


def client(image: str | None = None, layers: str | Sequence[str] = ()) -> RuntimeClient:
    """Return spython's Client for the container engine, with the module's image (or `image`), the
    given layers, the GPUs of this host, and a clean environment (see docs/client.md); raise
    JaxsifError.
    """
    import os

    from jaxsif.launch.client import make_client

    return make_client(dict(os.environ), image, layers)
