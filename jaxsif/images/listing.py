"""List the images in a folder."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from jaxsif.errors import HostError, JaxsifError, raise_as
from jaxsif.images.file import known, read_date, unreadable
from jaxsif.images.labels import read_labels
from jaxsif.installation import find_home

_DEFAULT = "build/images"
_NAME = re.compile(r"jax-([^-]+)-(.+)\.sif")  # as `jaxsif image build` names them
_SHOWN = re.compile(r"[^.].*\.sif", re.DOTALL)


class Item(NamedTuple):
    """An image in a folder; None for a field that is not known."""

    name: str
    flavour: str | None = None
    jax: str | None = None
    size: int = 0  # bytes
    created: str | None = None
    digest: str | None = None  # if it was computed before
    problem: str | None = None  # why it is not an image


def find_folder(option: str | None, environ: Mapping[str, str]) -> Path:
    """Find the folder of --folder, JAXSIF_IMAGES, the default of builds, or the images beside an
    installed launcher; raise JaxsifError if it does not exist.
    """
    home = find_home()
    installed = os.path.join(os.path.dirname(home), "images") if home else _DEFAULT
    candidates = (
        (option, "--folder"),
        (environ.get("JAXSIF_IMAGES"), "JAXSIF_IMAGES (environment)"),
        (_DEFAULT if os.path.isdir(_DEFAULT) else installed, ""),
    )
    named, source = next((path, source) for path, source in candidates if path)
    if not Path(named).is_dir():
        hint = "pass another --folder" if option else "pass --folder, or set JAXSIF_IMAGES"
        if os.path.exists(named):
            hint = f"it is a file: {hint}"
        raise JaxsifError(f"image folder not found: {named}", source, hint)
    return Path(named).resolve()


def list_images(folder: Path, environ: Mapping[str, str]) -> list[Item]:
    """List every SIF file in the folder, by name, and files that merely have such a name; raise
    HostError.
    """
    # Unlike glob, listdir raises an error for a folder that cannot be read.
    hint = f"its owner can open it: {shlex.join(['chmod', 'a+rx', str(folder)])}"
    with raise_as(HostError(f"cannot read {folder}", "", hint)):
        paths = [folder / name for name in sorted(os.listdir(folder)) if _SHOWN.fullmatch(name)]
        return [_describe(path, environ) for path in paths if not path.is_dir()]


def _describe(path: Path, environ: Mapping[str, str]) -> Item:
    item = Item(path.name, size=os.lstat(path).st_size)
    try:
        with raise_as(unreadable(str(path), "")):
            return _read(path, item, environ)
    except HostError as error:
        return item._replace(problem=error.what)


def _read(path: Path, item: Item, environ: Mapping[str, str]) -> Item:
    """Complete the item from the image's file; raise HostError or OSError."""
    image = str(path)
    labels = read_labels(image)
    named = _NAME.fullmatch(path.name)
    jax, flavour = named.groups() if named else (None, None)
    return item._replace(
        flavour=labels.get("io.jaxsif.flavour", flavour),
        jax=labels.get("io.jaxsif.jax", jax),
        size=path.stat().st_size,
        created=read_date(image),
        digest=known(image, "digest", environ),
    )


HEADING = ("NAME", "FLAVOUR", "JAX", "SIZE", "CREATED", "DIGEST")


def render_item(item: Item) -> tuple[str, ...]:
    """Render the columns of an image, in the order of HEADING; '-' for an unknown value."""
    digest = (item.digest or "").partition(":")[2][:12]
    created = (item.created or "").partition("T")[0]
    columns = (item.name, item.flavour, item.jax, f"{item.size / 1e6:.0f} MB", created, digest)
    return tuple(column or "-" for column in columns)
