"""Layers: files of packages that `jaxsif run` mounts over an image; where they are, and whether they fit the image.

Each layer is NAME.json, which tells what it is and names its squashfs file beside it. The JSON is renamed into place
last, so a layer is there whole or not at all. `jaxsif.layering` makes them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jaxsif.errors import HostError, JaxsifError
from jaxsif.imagefile import remembered_digest

_MAGIC = b"hsqs"  # the first bytes of a squashfs file


class Layer(NamedTuple):
    """What NAME.json holds."""

    name: str
    file: str  # the squashfs file's name
    size: int  # its bytes
    image: str  # the real path of the image that it was made for
    image_key: str  # that image's digest; 'folder:PATH' of an unpacked one
    image_state: tuple[int, int]  # its size and time of change: while they stay, the digest need not be looked at
    python: str  # the version of the image's Python
    created: str  # ISO 8601
    requirements: tuple[str, ...]  # as given
    allow_replace: tuple[str, ...]  # packages of the image that it may replace
    packages: dict[str, str]  # name -> version


def layers_folder(environ: Mapping[str, str]) -> str:
    """The folder of this user's layers."""
    data = environ.get("XDG_DATA_HOME") or os.path.join(environ.get("HOME", "/"), ".local/share")
    return os.path.join(data, "jaxsif/layers")


def check_name(name: str, source: str) -> str:
    """`name`, unless it would be a bad name of a file; raises JaxsifError."""
    if not (name[:1].isalnum() and name.isascii() and name.replace("-", "").replace("_", "").isalnum()):
        raise JaxsifError(f"not a name of a layer: {name!r}", source, "letters, digits, - and _, such as my-layer")
    return name


def list_names(environ: Mapping[str, str]) -> list[str]:
    """The names of this user's layers, sorted."""
    folder = layers_folder(environ)
    files = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(name[: -len(".json")] for name in files if name.endswith(".json"))


def read_layer(name: str, environ: Mapping[str, str], source: str) -> Layer:
    """The layer called `name`; raises JaxsifError where there is none, and HostError where its JSON is damaged."""
    import json

    path = os.path.join(layers_folder(environ), f"{check_name(name, source)}.json")
    try:
        with open(path) as file:
            entry = json.load(file)
        sequences = {field: tuple(entry[field]) for field in ("image_state", "requirements", "allow_replace")}
        return Layer(**{**entry, **sequences})
    except FileNotFoundError:
        known = ", ".join(list_names(environ))
        hint = f"one of {known}" if known else f"jaxsif layer create {name} PACKAGE..."
        raise JaxsifError(f"no layer {name}", f"{source}, {os.path.dirname(path)}", hint) from None
    except (ValueError, TypeError, KeyError) as error:
        raise HostError(f"cannot read layer {name}: {error}", path, f"jaxsif layer remove {name}") from error


def find_image_key(image: str, environ: Mapping[str, str], source: str = "") -> str:
    """What an image is known by: its digest, also after a copy; an unpacked one has none, and so its path."""
    if os.path.isdir(image):
        return f"folder:{os.path.realpath(image)}"
    return remembered_digest(image, environ, source)


def find_image_state(image: str) -> tuple[int, int]:
    """Size and time of change of an image's file."""
    status = os.stat(image)
    return status.st_size, status.st_mtime_ns


def is_made_for(layer: Layer, image: str, environ: Mapping[str, str]) -> bool:
    """Whether `layer` was made for the image at this path; raises OSError where nothing is there."""
    same_path = os.path.realpath(image) == layer.image
    if same_path and not os.path.isdir(image) and find_image_state(image) == layer.image_state:
        return True
    return find_image_key(image, environ) == layer.image_key


def find_damage(layer: Layer, environ: Mapping[str, str]) -> str:
    """What is wrong with a layer's file, by its beginning and its size; '' where nothing is."""
    path = os.path.join(layers_folder(environ), layer.file)
    try:
        with open(path, "rb") as file:
            start, size = file.read(len(_MAGIC)), os.fstat(file.fileno()).st_size
    except OSError as error:
        return f"{path}: {error.strerror}"
    if size != layer.size:
        return f"{path} has {size} bytes instead of {layer.size}"
    return "" if start == _MAGIC else f"{path} is no squashfs file"


def find_inner_damage(layer: Layer, environ: Mapping[str, str]) -> str:
    """As `find_damage`, by all of the file: its name has a part of its digest."""
    damage = find_damage(layer, environ)
    path = os.path.join(layers_folder(environ), layer.file)
    return damage or ("" if layer.file == name_file(layer.name, path) else f"{path} has changed")


def name_file(name: str, path: str) -> str:
    """The name of a layer's squashfs file: what has other content has another name. No name of a layer has a dot."""
    import hashlib

    found = hashlib.sha256()
    with open(path, "rb") as file:
        for data in iter(lambda: file.read(1 << 20), b""):
            found.update(data)
    return f"{name}.{found.hexdigest()[:12]}.sqfs"


def find_layers(names: Sequence[str], source: str, image: str | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The files to mount over `image`, in order; raises JaxsifError for what does not fit it or one another."""
    if not names:
        return ()
    if image is None:
        raise HostError("layers need a container runtime, and there is none here", source, "load Apptainer's module")
    layers = [read_layer(name, environ, source) for name in dict.fromkeys(names)]
    for layer in layers:
        damage = find_damage(layer, environ)
        if damage:
            raise HostError(
                f"layer {layer.name} is damaged: {damage}", source, f"jaxsif layer update --image {image} {layer.name}"
            )
        if not is_made_for(layer, image, environ):
            raise JaxsifError(
                f"layer {layer.name} was made for another image than {image}",
                f"{source}; it was made for {layer.image}, {layer.image_key[:19]}",
                f"jaxsif layer update --image {image} {layer.name}",
            )
    _check_together(layers, source)
    return tuple(os.path.join(layers_folder(environ), layer.file) for layer in layers)


def describe_layers(files: Sequence[str]) -> str:
    """The names of layers by their files, each with the part of its digest that is in the file's name."""
    parts = (os.path.basename(file).split(".") for file in files)
    return ", ".join(f"{name} (sha256:{digest})" for name, digest, _ in parts)


def _check_together(layers: Sequence[Layer], source: str) -> None:
    """Two versions of one package, mounted over each other, would be a mixture of both."""
    seen: dict[str, tuple[str, str]] = {}
    for layer in layers:
        for package, version in layer.packages.items():
            other, its_version = seen.setdefault(package, (layer.name, version))
            if version != its_version:
                raise JaxsifError(
                    f"layers {other} and {layer.name} have {package} in two versions, {its_version} and {version}",
                    source,
                    "make one layer with the requirements of both",
                )
