"""Find an image: by what names it, or ./jax.sif."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import NamedTuple

from jaxsif.errors import HostError, told_as
from jaxsif.images.file import open_image, read_header, unreadable
from jaxsif.settings.config import Setting
from jaxsif.trust import find_writers

_DEFAULT_IMAGE = "jax.sif"


class Image(NamedTuple):
    """An image that was found, and by what."""

    path: str
    source: str  # the option, variable or default that named it


def find_image(setting: Setting | None) -> Image:
    """Return the image that was named, or ./jax.sif.

    Raises HostError for what is no image.
    """
    if setting is None:
        return _find_default()
    named, source = setting
    mode = _mode(named, source)
    if mode is None:
        hint = "make image, module load jax/sif, or pass --image PATH"
        raise HostError(f"image not found: {named}", source, hint)
    _check_image(named, mode, source)
    return Image(os.path.abspath(named), source)


def _find_default() -> Image:
    """Return ./jax.sif, which counts though nobody named it; raises HostError."""
    source = f"./{_DEFAULT_IMAGE}"
    mode = _mode(_DEFAULT_IMAGE, "")
    if mode is None:
        raise HostError(
            f"no image: neither --image nor JAX_IMAGE names one, and there is no {source} here",
            hint="module load jax/sif, make image, or pass --image PATH",
        )
    writers = find_writers(_DEFAULT_IMAGE)
    if writers:
        what = f"others may have written {source}, and nothing names it"
        raise HostError(what, writers, f"--image {source}")
    _check_image(_DEFAULT_IMAGE, mode, source)
    return Image(os.path.abspath(_DEFAULT_IMAGE), source)


def _mode(path: str, source: str) -> int | None:
    """Return the type and permissions of what is at `path`, None where nothing is."""
    nothing = suppress(FileNotFoundError, NotADirectoryError)
    with told_as(unreadable(path, source)), nothing:
        return os.stat(path).st_mode
    return None


def _check_image(image: str, mode: int, source: str) -> None:
    """Raise HostError for a file or folder that is no image."""
    if stat.S_ISDIR(mode):
        if _mode(os.path.join(image, ".singularity.d"), source) is None:
            what = f"not an image: {image} is a folder without .singularity.d"
            raise HostError(what, source, "pass a .sif file")
        return
    with told_as(unreadable(image, source)), open_image(image, source) as file:
        read_header(file, image, source)
