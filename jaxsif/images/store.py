"""The images of a folder: what is there, which module points to it, and how it goes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from jaxsif.errors import HostError, JaxsifError
from jaxsif.foreign import MOST_TEXT, open_file
from jaxsif.images.file import known_digest, read_created
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
    flavour: str | None
    jax: str | None
    size: int  # bytes
    created: str | None
    digest: str | None  # if it was computed before
    modules: tuple[str, ...]  # that point to it
    problem: str | None  # why it is no image


def find_shelf(option: str | None, environ: Mapping[str, str]) -> Shelf:
    """The folder of --folder, JAXSIF_IMAGES, or the one that builds go to; raises JaxsifError where
    there is none.
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
    """Every SIF file of the folder, by name, and what only has the name of one; raises OSError."""
    paths = sorted(
        path
        for path in shelf.folder.glob("*.sif")
        if not path.is_dir() and not path.name.startswith(".")
    )
    return [_describe(path, environ) for path in paths]


def _describe(path: Path, environ: Mapping[str, str]) -> Item:
    modules = tuple(find_modules(path))
    item = Item(path.name, None, None, os.lstat(path).st_size, None, None, modules, None)
    try:
        return _read(path, item, environ)
    except HostError as error:
        return item._replace(problem=error.what)
    except OSError as error:
        return item._replace(problem=f"cannot read image {path}: {error.strerror}")


def _read(path: Path, item: Item, environ: Mapping[str, str]) -> Item:
    """The item, with what the image's file says; raises HostError and OSError."""
    labels = read_labels(str(path))
    named = _NAME.fullmatch(path.name)
    jax, flavour = named.groups() if named else (None, None)
    created = datetime.fromtimestamp(read_created(str(path)), timezone.utc).isoformat(
        timespec="seconds"
    )
    return item._replace(
        flavour=labels.get("io.jaxsif.flavour", flavour),
        jax=labels.get("io.jaxsif.jax", jax),
        size=path.stat().st_size,
        created=labels.get("org.opencontainers.image.created", created),
        digest=known_digest(str(path), environ),
    )


def find_modules(image: Path) -> dict[str, Path]:
    """Name -> file of the modules beside a folder of images, PREFIX/jaxsif/images, that point to
    the image.
    """
    root = image.parent.parent.parent / "modulefiles"
    files = sorted(
        path for path in root.rglob("*") if path.is_file() and not path.name.startswith(".")
    )
    # A module may be there twice, in Tcl and in Lua.
    return {
        str(path.relative_to(root)).removesuffix(".lua"): path
        for path in files
        if _points_to(path, image)
    }


def _points_to(modulefile: Path, image: Path) -> bool:
    """Whether a file that sets JAX_IMAGE, in Lua or Tcl, has the image's path, or the end of it, in
    its text.
    """
    try:
        with open_file(str(modulefile), "modulefile") as file:
            text = file.read(MOST_TEXT).decode(errors="replace")
    except PermissionError:
        return False  # who cannot read it cannot load it
    pieces = re.split(r"[\s\"'{}\[\]]+", text) if "JAX_IMAGE" in text else []
    words = [piece[: piece.rindex(".sif") + len(".sif")] for piece in pieces if ".sif" in piece[1:]]
    # Behind a variable or in pathJoin() stands the end of the path alone; a whole one may go
    # through links.
    ends = any(str(image).endswith("/" + word.lstrip("/")) for word in words)
    return ends or any(
        word[0] == "/" and os.path.realpath(word) == os.path.realpath(image) for word in words
    )


def remove_image(shelf: Shelf, name: str, force: bool) -> list[Path]:
    """Remove an image and what the build left beside it; return what there was. Raises JaxsifError,
    OSError.
    """
    if "/" in name or name in ("", ".", ".."):
        raise JaxsifError(f"not the name of an image: {name!r}", "NAME", "jaxsif image list")
    image = shelf.folder / (name if name.endswith(".sif") else f"{name}.sif")
    modules = find_modules(image) if image.exists() else {}
    if modules and not force:
        module, path = next(iter(modules.items()))
        hint = f"jaxsif module remove {module}, or --force"
        raise JaxsifError(f"module {module} points to {image.name}", str(path), hint)
    # The image first: the others mean nothing without it.
    sides = sorted(
        path
        for path in shelf.folder.iterdir()
        if path.name.startswith(f"{image.name}.") and path.is_file()
    )
    found = [path for path in (image, *sides) if path.is_file()]
    for path in found:
        path.unlink()
    return found


def render_items(items: Sequence[Item]) -> Iterator[str]:
    """A table."""
    rows = [("NAME", "FLAVOUR", "JAX", "SIZE", "CREATED", "DIGEST", "MODULE")]
    for item in items:
        digest = item.digest[: len("sha256:") + 12] if item.digest else "-"
        fields = (
            item.flavour or "-",
            item.jax or "-",
            f"{item.size / 1e6:.0f} MB",
            item.created or "-",
            digest,
        )
        rows.append((item.name, *fields, ", ".join(item.modules) or "-"))
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        yield "  ".join(f"{value:<{width}}" for value, width in zip(row, widths)).rstrip()
