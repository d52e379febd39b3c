"""Results -> plots, drawn with the matplotlib of the image and its layers: the launcher's Python
may have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jaxsif import process
from jaxsif.bench.execute import INSIDE, find_binds, find_command
from jaxsif.errors import HostError
from jaxsif.plan.container import Container

_RESULTS = "/mnt"  # their path in the container
_NO_MATPLOTLIB = 3  # exit status of plot.py


def draw(folder: Path, container: Container | None, environ: Mapping[str, str]) -> list[str]:
    """Draw the results in a folder on this machine, as PNG and SVG in the same folder; return the
    files' names.

    Raise HostError if that is not possible.
    """
    argv = find_command(container, ("plot.py", _RESULTS if container else str(folder)))
    if container:
        binds = (*find_binds(), f"{folder.resolve()}:{_RESULTS}")
        argv = container._replace(binds=binds, staged=None).execute(argv)
    done = process.captured(argv, environ)
    if done.returncode == _NO_MATPLOTLIB:
        hint = (
            f"jaxsif layer create bench matplotlib, then jaxsif bench plot --layer bench {folder}"
        )
        raise HostError(
            "no matplotlib in the image or its layers",
            container.image if container else str(INSIDE),
            hint,
        )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise HostError(
            f"cannot draw {folder}: {last}",
            "matplotlib in the image",
            f"jaxsif bench plot {folder}",
        )
    return done.stdout.split()
