"""Find Python packages in an image with its layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from jaxsif import process
from jaxsif.errors import HostError
from jaxsif.images.file import check_state
from jaxsif.plan.container import Container

_PROGRAM = (
    "import importlib.util, sys; print(*filter(importlib.util.find_spec, sys.argv[1:]), sep='\\n')"
)


def find_packages(
    names: Sequence[str], container: Container, environ: Mapping[str, str]
) -> list[str]:
    """Return those of `names` that the container has, in that order; raise HostError.

    The container is run on this host.
    """
    alone = container._replace(binds=())
    with unchanged_image(container):
        done = process.captured(alone.execute(("python3", "-c", _PROGRAM, *names)), environ)
    if done.returncode:
        what = f"cannot look for packages in {container.image}: {done.stderr.strip()}"
        raise HostError(what, "python3 in the image")
    return done.stdout.split()


@contextmanager
def unchanged_image(container: Container) -> Iterator[None]:
    """Raise HostError if an image that a policy allows changes while it runs on this host."""
    if container.allowed is None:
        yield
        return
    check_state(container.image, container.allowed.state, "this host")
    yield
    check_state(container.image, container.allowed.state, "this host")
