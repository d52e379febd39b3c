"""Which Python packages an image has, with its layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxsif import process
from jaxsif.errors import HostError
from jaxsif.launch.probe import unchanged_image
from jaxsif.plan.host import Host

_PROGRAM = (
    "import importlib.util, sys; print(*filter(importlib.util.find_spec, sys.argv[1:]), sep='\\n')"
)


def find_packages(names: Sequence[str], host: Host, environ: Mapping[str, str]) -> list[str]:
    """Those that there are, in that order; raises HostError. Looked for on this host."""
    assert host.runtime is not None
    assert host.image is not None
    command = ("python3", "-c", _PROGRAM, *names)
    with unchanged_image(host):
        done = process.captured(
            host.runtime.run_argv(host.image, (), command, host.layers), environ
        )
    if done.returncode:
        raise HostError(
            f"cannot look for packages in {host.image}: {done.stderr.strip()}", "python3 in it"
        )
    return done.stdout.split()
