"""A client of the container engine for scripts and notebooks on one node: `jaxsif.client()`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence

from jaxsif.container.environment import resolve_environment
from jaxsif.images.file import Image, find_image
from jaxsif.images.spython_client import RuntimeClient
from jaxsif.launch.probe import count_gpus
from jaxsif.layers.store import find_layers
from jaxsif.runtime import Runtime, require_runtime
from jaxsif.settings.config import read_config, resolve_image

# The programs it starts are not tasks of a step, but would take themselves for their parent task.
_OF_TASKS = ("SLURM", "SRUN_", "PMI_")


def make_client(
    environ: Mapping[str, str], image: str | None, layers: str | Sequence[str]
) -> RuntimeClient:
    """Make a client with the image that `jaxsif run` would use; raise JaxsifError."""
    runtime = require_runtime(environ)
    named = resolve_image(image, environ, warnings.warn, "image")
    real_image = _obey_policies(find_image(named), runtime, environ)
    names = [layers] if isinstance(layers, str) else layers
    overlays = find_layers(names, "layers", real_image.path, environ)
    options = list_options(count_gpus(environ), overlays)
    return RuntimeClient(
        [*list_variables(runtime, environ), runtime.command], real_image.path, options
    )


def _obey_policies(image: Image, runtime: Runtime, environ: Mapping[str, str]) -> Image:
    """Return the image with its real path if the site's policies allow it; raise HostError."""
    config = read_config(environ, os.getcwd())
    if not config.policies:
        return image
    from jaxsif.container.policy import Subject, check_policies

    real = image._replace(path=os.path.realpath(image.path))
    check_policies(config, Subject(real.path, real.source, runtime), environ)
    return real


def list_options(gpus: int, overlays: Sequence[str]) -> tuple[str, ...]:
    """Return the options of each container."""
    of_layers = (word for path in overlays for word in ("--overlay", f"{path}:ro"))
    return ("--no-eval", *(("--nv",) if gpus else ()), *of_layers)


def list_variables(runtime: Runtime, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the words of env(1) that give the engine the environment of `jaxsif run --cleanenv`,
    without the variables that identify a task.
    """
    settled = resolve_environment(environ, {}, {}, clean=True)
    of_tasks = [name for name in environ if name.startswith(_OF_TASKS)]
    yield "env"
    for name in dict.fromkeys((*settled.unset, *of_tasks)):
        yield f"--unset={name}"
    for name, value in {**settled.host, **runtime.environ(settled.container.items())}.items():
        yield f"{name}={value}"
