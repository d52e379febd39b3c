"""Results -> plots, by the matplotlib of the image and its layers: the launcher's Python need not
have one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jaxsif import process
from jaxsif.bench.program import INSIDE, find_binds, find_command
from jaxsif.errors import HostError
from jaxsif.plan.host import Host

_RESULTS = "/mnt"  # where the container sees them
_NO_MATPLOTLIB = 3  # exit status of plot.py


def draw(folder: Path, host: Host, environ: Mapping[str, str]) -> list[str]:
    """Draw the results of a folder, as PNG and SVG in it, on this machine; returns the files'
    names.

    Raises HostError where that cannot be done.
    """
    program = ("plot.py", _RESULTS if host.image else str(folder))
    argv = find_command(host, program)
    if host.image:
        assert host.runtime is not None
        binds = (*find_binds(host), f"{folder.resolve()}:{_RESULTS}")
        argv = host.runtime.run_argv(host.image, binds, argv, host.layers)
    done = process.captured(argv, environ)
    if done.returncode == _NO_MATPLOTLIB:
        hint = (
            f"jaxsif layer create bench matplotlib, then jaxsif bench plot --layer bench {folder}"
        )
        raise HostError(
            "no matplotlib in the image and its layers", str(host.image or INSIDE), hint
        )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise HostError(
            f"cannot draw {folder}: {last}",
            "matplotlib in the image",
            f"jaxsif bench plot {folder}",
        )
    return done.stdout.split()
