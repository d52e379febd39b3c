"""Layers: package files that `jaxsif run` mounts over an image; where they are, and whether they
fit the image.

Each layer is NAME.json, which describes the layer and names its squashfs file beside it. The JSON
is renamed into place last, so a layer is complete or absent. `jaxsif.layers.make` makes layers.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from jaxsif.errors import HostError, JaxsifError
from jaxsif.files import user_folder
from jaxsif.images.file import checksum, remembered, remembered_digest
from jaxsif.settings.config import for_staff, is_of_site

_MAGIC = b"hsqs"  # the first bytes of a squashfs file
_LONGEST_NAME = 100  # characters; a file's name may have 255 bytes, with its suffix
_NAME = f"[A-Za-z0-9][A-Za-z0-9_-]{{0,{_LONGEST_NAME - 1}}}"


class Layer(NamedTuple):
    """The content of NAME.json."""

    name: str
    file: str  # the squashfs file's name
    size: int  # its bytes
    image: str  # the real path of its image
    image_key: str  # that image's digest; 'folder:PATH' for an unpacked one
    # Its size and modification time: while they are unchanged, the digest need not be checked.
    image_state: tuple[int, int]
    python: str  # the version of the image's Python
    created: str  # ISO 8601
    requirements: tuple[str, ...]  # as given
    allow_replace: tuple[str, ...]  # packages of the image that it may replace
    packages: dict[str, str]  # name -> version
    # Of each project among the requirements: the commit, or the digest of its folder's files.
    sources: dict[str, str]


def layers_folder(environ: Mapping[str, str]) -> str:
    """Return the folder of this user's layers."""
    return os.path.join(user_folder(environ, "XDG_DATA_HOME"), "jaxsif/layers")


def check_name(name: str, source: str) -> str:
    """Return `name`; raise JaxsifError if it is not a valid file name for a layer."""
    if not re.fullmatch(_NAME, name):
        hint = f"use up to {_LONGEST_NAME} letters, digits, - and _, such as my-layer"
        if "," in name:
            hint = "repeat the option for each layer: --layer NAME --layer NAME"
        raise JaxsifError(f"not a valid layer name: {name[:_LONGEST_NAME]!r}", source, hint)
    return name


def list_names(environ: Mapping[str, str]) -> list[str]:
    """Return the names of this user's layers, sorted; raise HostError if the user may not list
    them.
    """
    folder = layers_folder(environ)
    try:
        names = os.listdir(folder)
    except PermissionError as error:
        raise _unreadable("the layers", folder, environ) from error
    except OSError:
        return []  # there is no folder yet
    stems = [name.removesuffix(".json") for name in names if name.endswith(".json")]
    return sorted(filter(re.compile(_NAME).fullmatch, stems))


def read_layer(name: str, environ: Mapping[str, str], source: str) -> Layer:
    """Return the layer called `name`; raise JaxsifError if there is none, and HostError if its JSON
    is damaged or may not be read.
    """
    import json

    path = os.path.join(layers_folder(environ), f"{check_name(name, source)}.json")
    try:
        with open(path, encoding="utf-8") as file:
            fields: dict[str, Any] = json.load(file)
        sequences = {key: tuple(value) for key, value in fields.items() if type(value) is list}
        return Layer(**{"sources": {}, **fields, **sequences})  # absent in older ones
    except FileNotFoundError:
        if is_of_site(source):
            hint = "leave it out there: layers are one user's; packages for all go into an image"
            raise JaxsifError(f"no layer {name}", source, for_staff(hint, source)) from None
        known = ", ".join(list_names(environ))
        hint = f"one of {known}" if known else f"jaxsif layer create {name} PACKAGE..."
        raise JaxsifError(f"no layer {name}", f"{source}, {os.path.dirname(path)}", hint) from None
    except PermissionError as error:
        raise _unreadable(f"layer {name}", path, environ) from error
    except (AttributeError, OSError, TypeError, ValueError) as error:
        raise HostError(
            f"cannot read layer {name}: {error}", path, f"jaxsif layer remove {name}"
        ) from error


def suggest_layer(
    names: Collection[str], image: str, mounted: Collection[str], environ: Mapping[str, str]
) -> str:
    """Suggest the layers for `image` with one of these packages, or '' if there are none; leave out
    those whose files are `mounted`.
    """
    from jaxsif.layers.inside import normalize

    wanted = set(map(normalize, names))
    known: list[str] = []
    found = []
    with suppress(HostError):  # nor have layers that the user may not list
        known = list_names(environ)
    for name in known:
        with suppress(JaxsifError, OSError):  # a damaged layer has nothing to offer
            layer = read_layer(name, environ, "")
            is_mounted = os.path.join(layers_folder(environ), layer.file) in mounted
            if wanted.intersection(layer.packages) and not is_mounted:
                found += [f"--layer {name}"] * is_made_for(layer, image, environ)
    return f"{' or '.join(found)} has it" if found else ""


def find_image_key(image: str, environ: Mapping[str, str]) -> str:
    """Find the key of an image: its digest, which stays the same in a copy, or its path for an
    unpacked image, which has no digest.
    """
    if os.path.isdir(image):
        return f"folder:{os.path.realpath(image)}"
    return remembered_digest(image, environ)


def find_image_state(image: str) -> tuple[int, int]:
    """Return the size and the modification time of an image's file."""
    status = os.stat(image)
    return status.st_size, status.st_mtime_ns


def is_made_for(layer: Layer, image: str, environ: Mapping[str, str]) -> bool:
    """Return whether `layer` was made for the image at this path; raise OSError if nothing is
    there.
    """
    state = (os.path.realpath(image), find_image_state(image))
    return state == (layer.image, layer.image_state) or (
        find_image_key(image, environ) == layer.image_key
    )


def find_damage(layer: Layer, environ: Mapping[str, str]) -> str:
    """Describe the damage to a layer's file; return '' if there is none. Raise HostError if the
    user may not read it.

    The file's name contains a part of its digest, which is remembered for as long as the file does
    not change.
    """
    path = os.path.join(layers_folder(environ), layer.file)
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return f"{path} is not a file"
        if status.st_size != layer.size:
            return f"{path} has {status.st_size} bytes instead of {layer.size}"
        with open(path, "rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                return f"{path} is not a squashfs file"
        named = remembered(path, "layer", environ, lambda: name_file(layer.name, path))
    except PermissionError as error:
        raise _unreadable(f"layer {layer.name}", path, environ) from error
    except OSError as error:
        return f"{path}: {error.strerror}"
    return "" if layer.file == named else f"{path} has changed"


def _unreadable(what: str, path: str, environ: Mapping[str, str]) -> HostError:
    """Describe files of a shared folder of layers, made with a umask that closes them to others."""
    import shlex
    from pathlib import Path

    folder = layers_folder(environ)
    # A closed folder hides the modes of the folders in it, so these are named, too.
    closed = [str(one) for one in Path(folder).parents if not os.access(one, os.X_OK)]
    commands = [["chmod", "a+x", *reversed(closed)]] if closed else []
    commands.append(["chmod", "-R", "a+rX", folder])
    hint = f"let the owner call: {' && '.join(map(shlex.join, commands))}"
    return HostError(f"cannot read {what}: Permission denied", path, hint)


def name_file(name: str, path: str) -> str:
    """Return the name of a layer's squashfs file, which depends on its content. Layer names contain
    no dots.
    """
    return f"{name}.{checksum(path)[:12]}.sqfs"


def find_layers(
    names: Sequence[str], source: str, image: str, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the files to mount over `image`, in order; raise JaxsifError if a layer does not fit
    the image or another layer.
    """
    layers = [read_layer(name, environ, source) for name in dict.fromkeys(names)]
    for layer in layers:
        update = f"jaxsif layer update --image {image} {layer.name}"
        damage = find_damage(layer, environ)
        if damage:
            raise HostError(f"layer {layer.name} is damaged: {damage}", source, update)
        if not is_made_for(layer, image, environ):
            is_there = layer.image == os.path.realpath(image)
            made_for = "another image at that path" if is_there else layer.image
            raise JaxsifError(
                f"layer {layer.name} was not made for {image}",
                f"{source}; it was made for {made_for}, {layer.image_key[:19]}",
                update,
            )
    _check_together(layers, source)
    return tuple(os.path.join(layers_folder(environ), layer.file) for layer in layers)


def describe_layers(files: Sequence[str]) -> str:
    """Return the names of layers from their files, each with the part of the digest that the file's
    name contains.
    """
    parts = (os.path.basename(file).split(".") for file in files)
    return ", ".join(f"{name} (sha256:{digest})" for name, digest, _ in parts)


def _check_together(layers: Sequence[Layer], source: str) -> None:
    """Raise JaxsifError for two versions of one package: mounted over each other, they would
    mix.
    """
    versions: dict[str, tuple[str, str]] = {}
    for layer in layers:
        for package, version in layer.packages.items():
            other, other_version = versions.setdefault(package, (layer.name, version))
            if version != other_version:
                raise JaxsifError(
                    f"layers {other} and {layer.name} have different versions of {package}, "
                    f"{other_version} and {version}",
                    source,
                    "make one layer with the requirements of both",
                )
