"""What jaxsif works with on this host: Python, Slurm, the container runtime, the image."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence

from jaxsif import process
from jaxsif.errors import JaxsifError, Show
from jaxsif.images.find import find_image
from jaxsif.images.labels import describe_image
from jaxsif.installation import PACKAGE
from jaxsif.limits import shorten
from jaxsif.plan.launcher import SRUN
from jaxsif.process import find_executable
from jaxsif.runtime import find_runtime
from jaxsif.settings.config import resolve_image

_NONE = "none"


def find_versions(environ: Mapping[str, str], show: Show) -> dict[str, str]:
    """Return name -> version and place; 'none' or the error for what is not here.

    `show` is told of files of settings that do not count.
    """
    system = platform.uname()
    return {
        "folder": PACKAGE,
        "python": f"{platform.python_version()}, {sys.executable}",
        "system": f"{system.system} {system.release} {system.machine}",
        "slurm": _ask((SRUN, "--version"), environ),
        "runtime": _or_error(lambda: _find_runtime(environ)),
        "image": _or_error(lambda: _find_image(environ, show)),
    }


def _or_error(find: Callable[[], str]) -> str:
    """Return what is found, or the error: a bug report needs that, too."""
    try:
        return find()
    except JaxsifError as error:
        return error.what


def _find_runtime(environ: Mapping[str, str]) -> str:
    """Return the version and the command of the container runtime."""
    runtime = find_runtime(environ)
    if runtime is None:
        return _NONE
    return f"{_ask((runtime.command, '--version'), environ)}, {runtime.command}"


def _find_image(environ: Mapping[str, str], show: Show) -> str:
    """Return what the image is, its path, and what names it."""
    image = find_image(resolve_image(None, environ, show))
    return f"{describe_image(image.path)}, {image.path} (from {image.source})"


def _ask(argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the first line that a program of this host prints."""
    if not find_executable(argv[0], environ):
        return _NONE
    try:
        done = process.captured(argv, environ)
    except OSError as error:
        return f"{os.path.basename(argv[0])}: {error.strerror}"
    return shorten((done.stdout or done.stderr).strip().partition("\n")[0])
