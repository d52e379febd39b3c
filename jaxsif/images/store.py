"""List and remove the images of a folder, with the modules that point to them."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from jaxsif.errors import HostError, JaxsifError, told_as
from jaxsif.foreign import MOST_TEXT, open_file
from jaxsif.images.file import known, read_date, unreadable
from jaxsif.images.labels import read_labels

_DEFAULT = "build/images"
_NAME = re.compile(r"jax-([^-]+)-(.+)\.sif")  # as `jaxsif image build` names them


class Shelf(NamedTuple):
    """A folder of images."""

    folder: Path
    source: str  # the option, variable or default that named it


class Item(NamedTuple):
    """An image of a shelf; None where it is not known."""

    name: str
    flavour: str | None = None
    jax: str | None = None
    size: int = 0  # bytes
    created: str | None = None
    digest: str | None = None  # if it was computed before
    modules: tuple[str, ...] = ()  # that point to it
    problem: str | None = None  # why it is no image


def find_shelf(option: str | None, environ: Mapping[str, str]) -> Shelf:
    """Return the folder of --folder, JAXSIF_IMAGES, or the one that builds go to; raise JaxsifError
    where there is none.
    """
    candidates = (
        (option, "--folder"),
        (environ.get("JAXSIF_IMAGES"), "JAXSIF_IMAGES (environment)"),
        (_DEFAULT, ""),
    )
    named, source = next((path, source) for path, source in candidates if path)
    if not Path(named).is_dir():
        raise JaxsifError(
            f"no folder of images: {named}", source, "pass --folder, or set JAXSIF_IMAGES"
        )
    return Shelf(Path(named).resolve(), source)


def list_images(shelf: Shelf, environ: Mapping[str, str]) -> list[Item]:
    """Return every SIF file of the folder, by name, and what only has the name of one; raise
    OSError.
    """
    paths = sorted(shelf.folder.glob("[!.]*.sif"))
    return [_describe(path, environ) for path in paths if not path.is_dir()]


def _describe(path: Path, environ: Mapping[str, str]) -> Item:
    size, modules = os.lstat(path).st_size, tuple(find_modules(path))
    item = Item(path.name, size=size, modules=modules)
    try:
        with told_as(unreadable(str(path), "")):
            return _read(path, item, environ)
    except HostError as error:
        return item._replace(problem=error.what)


def _read(path: Path, item: Item, environ: Mapping[str, str]) -> Item:
    """Return the item, with what the image's file says; raise HostError and OSError."""
    image = str(path)
    labels = read_labels(image)
    named = _NAME.fullmatch(path.name)
    jax, flavour = named.groups() if named else (None, None)
    return item._replace(
        flavour=labels.get("io.jaxsif.flavour", flavour),
        jax=labels.get("io.jaxsif.jax", jax),
        size=path.stat().st_size,
        created=labels.get("org.opencontainers.image.created", read_date(image)),
        digest=known(image, "digest", environ),
    )


def find_modules(image: Path) -> dict[str, Path]:
    """Return name -> file of the modules beside a folder of images, PREFIX/jaxsif/images, that
    point to the image.
    """
    root = image.parent.parent.parent / "modulefiles"
    found = [path for path in sorted(root.rglob("[!.]*")) if _points_to(path, image)]
    # A module may be there twice, in Tcl and in Lua.
    return {str(path.relative_to(root)).removesuffix(".lua"): path for path in found}


def _points_to(modulefile: Path, image: Path) -> bool:
    """Return whether it is a file that sets JAX_IMAGE, in Lua or Tcl, and names the image."""
    if not modulefile.is_file():
        return False
    try:
        with open_file(str(modulefile), "modulefile") as file:
            text = file.read(MOST_TEXT).decode(errors="replace")
    except PermissionError:
        return False  # who cannot read it cannot load it
    pieces = re.split(r"[\s\"'{}\[\]]+", text) if "JAX_IMAGE" in text else []
    return any(_is_path(piece, image) for piece in pieces)


def _is_path(word: str, image: Path) -> bool:
    """Return whether a word of a modulefile has the image's path, perhaps through links, or the end
    of it, as after a variable or in pathJoin().
    """
    if ".sif" not in word[1:]:
        return False
    path = word[: word.rindex(".sif") + len(".sif")]
    whole = path.startswith("/") and os.path.realpath(path) == os.path.realpath(image)
    return whole or str(image).endswith("/" + path.lstrip("/"))


def remove_image(shelf: Shelf, name: str, force: bool) -> list[Path]:
    """Remove an image and what the build left beside it; return what there was. Raise JaxsifError,
    OSError.
    """
    if "/" in name or name in ("", ".", ".."):
        raise JaxsifError(f"not the name of an image: {name!r}", "NAME", "jaxsif image list")
    image = shelf.folder / f"{name.removesuffix('.sif')}.sif"
    if image.exists() and not force:
        _check_unused(image)
    # The image first: the others mean nothing without it.
    sides = sorted(shelf.folder.glob(f"{glob.escape(image.name)}.*"))
    found = [path for path in (image, *sides) if path.is_file()]
    for path in found:
        path.unlink()
    return found


def _check_unused(image: Path) -> None:
    """Raise JaxsifError where a module points to the image."""
    for module, path in find_modules(image).items():
        hint = f"jaxsif module remove {module}, or --force"
        raise JaxsifError(f"module {module} points to {image.name}", str(path), hint)


HEADING = ("NAME", "FLAVOUR", "JAX", "SIZE", "CREATED", "DIGEST", "MODULE")


def render_item(item: Item) -> tuple[str, ...]:
    """Return the columns of an image, below HEADING; '-' for what is not known."""
    digest = (item.digest or "").partition(":")[2][:12]
    size, modules = f"{item.size / 1e6:.0f} MB", ", ".join(item.modules)
    created = (item.created or "").partition("T")[0]
    columns = (item.name, item.flavour, item.jax, size, created, digest, modules)
    return tuple(column or "-" for column in columns)
