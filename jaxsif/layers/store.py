"""Layers: files of packages that `jaxsif run` mounts over an image; where they are, and whether
they fit the image.

Each layer is NAME.json, which tells what it is and names its squashfs file beside it. The JSON is
renamed into place last, so a layer is there whole or not at all. `jaxsif.layering` makes them.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxsif.errors import HostError, JaxsifError
from jaxsif.foreign import parse_json, read_text
from jaxsif.images.file import checksum, remembered, remembered_digest

_MAGIC = b"hsqs"  # the first bytes of a squashfs file
_LONGEST_NAME = 100  # letters; a file's name may have 255 bytes, with what is put behind it
_MOST, _LONGEST = 10_000, 4096  # entries of a field, and characters of a text


class Layer(NamedTuple):
    """What NAME.json holds."""

    name: str
    file: str  # the squashfs file's name
    size: int  # its bytes
    image: str  # the real path of the image that it was made for
    image_key: str  # that image's digest; 'folder:PATH' of an unpacked one
    # Its size and time of change: while they stay, the digest need not be looked at.
    image_state: tuple[int, int]
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
    if not _is_name(name):
        hint = f"use up to {_LONGEST_NAME} letters, digits, - and _, such as my-layer"
        raise JaxsifError(f"not a name of a layer: {name[:_LONGEST_NAME]!r}", source, hint)
    return name


def _is_name(name: str) -> bool:
    return bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name)) and len(name) <= _LONGEST_NAME


def list_names(environ: Mapping[str, str]) -> list[str]:
    """The names of this user's layers, sorted."""
    folder = layers_folder(environ)
    files = os.listdir(folder) if os.path.isdir(folder) else []
    names = (name[: -len(".json")] for name in files if name.endswith(".json"))
    return sorted(filter(_is_name, names))


def read_layer(name: str, environ: Mapping[str, str], source: str) -> Layer:
    """The layer called `name`; raises JaxsifError where there is none, and HostError where its JSON
    is damaged.
    """
    path = os.path.join(layers_folder(environ), f"{check_name(name, source)}.json")
    try:
        return _parse_layer(name, parse_json(read_text(path, "its JSON")))
    except FileNotFoundError:
        known = ", ".join(list_names(environ))
        hint = f"one of {known}" if known else f"jaxsif layer create {name} PACKAGE..."
        raise JaxsifError(f"no layer {name}", f"{source}, {os.path.dirname(path)}", hint) from None
    except (ValueError, OSError, HostError) as error:
        raise HostError(
            f"cannot read layer {name}: {error}", path, f"jaxsif layer remove {name}"
        ) from error


def _parse_layer(name: str, entry: Any) -> Layer:
    """The layer of a JSON object; raises ValueError that names the field which is not as it must
    be.
    """
    if not isinstance(entry, dict):
        raise ValueError("it holds no object")
    for field in Layer._fields:
        if field not in entry:
            raise ValueError(f"it has no {field}")
        if not _KINDS[field](entry[field]):
            raise ValueError(f"its {field} is not what it must be")
    for field in entry:
        if field not in Layer._fields:
            raise ValueError(f"it has a field {field[:_LONGEST_NAME]!r}, which no layer has")
    if entry["name"] != name or not re.fullmatch(rf"{name}\.[0-9a-f]+\.sqfs", entry["file"]):
        raise ValueError(f"its name or file is not that of {name}")
    sequences = {
        field: tuple(entry[field]) for field in ("image_state", "requirements", "allow_replace")
    }
    return Layer(**{**entry, **sequences})


def _is_text(value: Any) -> bool:
    """Whether it is a text that can be a path: without NUL, and as bytes without a part of a
    character.
    """
    if not isinstance(value, str) or len(value) > _LONGEST or "\0" in value:
        return False
    # The others stand for bytes that are no UTF-8.
    return not re.search("[\ud800-\udc7f\udd00-\udfff]", value)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _is_state(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_size, value))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= _MOST and all(map(_is_text, value))


def _are_versions(value: Any) -> bool:
    return isinstance(value, dict) and _are_texts([*value, *value.values()])


_KINDS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("name", "file", "image", "image_key", "python", "created"), _is_text),
    **dict.fromkeys(("requirements", "allow_replace"), _are_texts),
    "size": _is_size,
    "image_state": _is_state,
    "packages": _are_versions,
}


def find_image_key(image: str, environ: Mapping[str, str], source: str = "") -> str:
    """What an image is known by: its digest, also after a copy; an unpacked one has none, and so
    its path.
    """
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
    """What is wrong with a layer's file; '' where nothing is.

    The file's name has a part of its digest, which is remembered for as long as the file does not
    change.
    """
    path = os.path.join(layers_folder(environ), layer.file)
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return f"{path} is no file"
        if status.st_size != layer.size:
            return f"{path} has {status.st_size} bytes instead of {layer.size}"
        with open(path, "rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                return f"{path} is no squashfs file"
        named = remembered(path, "layer", environ, lambda: name_file(layer.name, path))
    except OSError as error:
        return f"{path}: {error.strerror}"
    return "" if layer.file == named else f"{path} has changed"


def name_file(name: str, path: str) -> str:
    """The name of a layer's squashfs file: what has other content has another name. No name of a
    layer has a dot.
    """
    return f"{name}.{checksum(path)[:12]}.sqfs"


def find_layers(
    names: Sequence[str], source: str, image: str | None, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """The files to mount over `image`, in order; raises JaxsifError for what does not fit it or one
    another.
    """
    if not names:
        return ()
    if image is None:
        raise HostError(
            "layers need a container runtime, and there is none here",
            source,
            "load Apptainer's module",
        )
    layers = [read_layer(name, environ, source) for name in dict.fromkeys(names)]
    for layer in layers:
        damage = find_damage(layer, environ)
        if damage:
            raise HostError(
                f"layer {layer.name} is damaged: {damage}",
                source,
                f"jaxsif layer update --image {image} {layer.name}",
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
    """The names of layers by their files, each with the part of its digest that is in the file's
    name.
    """
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
