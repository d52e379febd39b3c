"""jaxsif layer …: packages on top of an image, each set in one file."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from jaxsif.commands import JSON, CommandGroup, argument
from jaxsif.errors import JaxsifError
from jaxsif.images.file import find_image
from jaxsif.layers.inside import normalize
from jaxsif.layers.make import Wanted, make_layer, remove_files
from jaxsif.layers.resolve import read_requirements
from jaxsif.layers.store import (
    Layer,
    check_name,
    find_damage,
    is_made_for,
    layers_folder,
    list_names,
    read_layer,
)
from jaxsif.runtime import require_runtime
from jaxsif.screen import note, print_json, print_table
from jaxsif.settings.config import resolve_image
from jaxsif.text import printable

VERBS = CommandGroup()

# Options of several commands.
_NAME = argument("name", metavar="NAME", help="the layer's name")
_IMAGE = argument("--image", metavar="PATH", help="the image, as for jaxsif run")


@VERBS.verb(
    "create",
    """\
Make a layer: one file with packages that the image lacks. `jaxsif run --layer
NAME` mounts it over the image.

The image's packages keep their versions: uv finds versions compatible with
them.

PACKAGE may be a project of your own: a folder, or a git repository. It is built
in a container without a network, and must be pure Python. A layer cannot be
changed, so it has a copy of the project, even with -e: to work on the sources,
add --env PYTHONPATH=FOLDER to `jaxsif run`.

examples:
  jaxsif layer create my-layer flax optax orbax-checkpoint
  jaxsif layer create my-layer ./project 'optax>=0.2'
  jaxsif layer create my-layer git+https://github.com/USER/PROJECT@v1.0
  jaxsif layer create -r requirements.txt my-layer
  jaxsif layer create --allow-replace numpy my-layer 'numpy<2.5'
""",
    _NAME,
    argument(
        "packages",
        nargs="*",
        metavar="PACKAGE",
        help="a requirement in pip's syntax: 'optax>=0.2', a wheel, a folder, git+https://…",
    ),
    argument(
        *("-e", "--editable"),
        action="append",
        default=[],
        metavar="FOLDER",
        help="a project, as for PACKAGE; the layer has a copy of it",
    ),
    argument(
        *("-r", "--requirements"),
        action="append",
        default=[],
        metavar="FILE",
        help="a file of packages, one per line",
    ),
    _IMAGE,
    argument(
        "--allow-replace",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="let the layer replace the image's version of this package",
    ),
    usage="jaxsif layer create [OPTIONS] NAME [PACKAGE...]",
)
def _create(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    name = check_name(arguments.name, "NAME")
    projects = [f"-e {folder}" for folder in arguments.editable]
    requirements = read_requirements(arguments.requirements, [*projects, *arguments.packages])
    wanted = Wanted(name, requirements, tuple(map(normalize, arguments.allow_replace)))
    runtime = require_runtime(environ)
    image = find_image(resolve_image(arguments.image, environ, note)).path
    made_of = None
    if name in list_names(environ):
        old = read_layer(name, environ, "NAME")
        is_same = (old.requirements, old.allow_replace) == wanted[1:]
        # Looking for damage reads the whole file.
        if not is_same or find_damage(old, environ) or not is_made_for(old, image, environ):
            what, hint = "damaged or for another image", f"jaxsif layer update {name}"
            if not is_same:  # `update` would keep the old ones
                what = "with other requirements or options"
                hint = f"give another NAME, or jaxsif layer remove {name} first"
            raise JaxsifError(f"layer {name} already exists, {what}", "NAME", hint)
        made_of = old.sources
    make_layer(wanted, image, runtime, environ, _print_progress, made_of)


def _print_progress(line: str) -> None:
    print(f"jaxsif: {line}" if line.startswith("note:") else line, file=sys.stderr, flush=True)


_DAMAGED = "damaged"
_HEADING = ("NAME", "STATUS", "PACKAGES", "MB", "IMAGE", "PROJECTS")


@VERBS.verb(
    "list",
    """\
List the layers with their status: 'ok'; 'stale', if the layer's image is
missing or has changed; 'damaged', if the layer's file is missing or has
changed; 'unreadable', if you may not read it.

example:
  jaxsif layer list
""",
    JSON,
)
def _list(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    described = [_describe(name, environ) for name in list_names(environ)]
    if arguments.json:
        print_json([entry for entry, _ in described])
    else:
        print_table([row for _, row in described], environ, _HEADING)


def _describe(name: str, environ: Mapping[str, str]) -> tuple[dict[str, object], tuple[str, ...]]:
    """Return a layer as JSON and as a row of the table. A layer that cannot be read has only a name
    and a status, so that the others are still listed.
    """
    try:
        layer = read_layer(name, environ, "jaxsif layer list")
        status = _find_status(layer, environ)
    except JaxsifError as error:
        note(f"warning: {printable(error.what)}")
        status = "unreadable" if isinstance(error.__cause__, PermissionError) else _DAMAGED
        return {"name": name, "status": status}, (name, status, "-", "-", "-", "-")
    size = f"{layer.size / 1e6:.1f}"
    sources = [f"{project} ({state[:19]})" for project, state in layer.sources.items()]
    row = (name, status, str(len(layer.packages)), size, layer.image, ", ".join(sources) or "-")
    return {**layer._asdict(), "status": status}, row


def _find_status(layer: Layer, environ: Mapping[str, str]) -> str:
    """Return 'ok', 'stale' or 'damaged'; raise HostError if the layer may not be read."""
    if find_damage(layer, environ):
        return _DAMAGED
    images = (layer.image, environ.get("JAX_IMAGE", ""))
    return "ok" if any(_fits(layer, image, environ) for image in images) else "stale"


def _fits(layer: Layer, image: str, environ: Mapping[str, str]) -> bool:
    try:
        return is_made_for(layer, image, environ)
    except (JaxsifError, OSError):
        return False  # the file is no longer an image, or cannot be read


@VERBS.verb(
    "show",
    """\
Show a layer: its requirements, packages and image.

example:
  jaxsif layer show my-layer
""",
    _NAME,
    JSON,
)
def _show(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    layer = read_layer(arguments.name, environ, "NAME")
    status, file = _find_status(layer, environ), os.path.join(layers_folder(environ), layer.file)
    if arguments.json:
        print_json({**layer._asdict(), "status": status, "file": file})
        return
    rows = [
        ("status", status),
        ("image", layer.image),
        ("digest", layer.image_key),
        ("python", layer.python),
        ("created", layer.created),
        ("file", file),
        ("size", f"{layer.size / 1e6:.1f} MB"),
        ("requirements", "\n".join(layer.requirements)),
        ("projects", "\n".join(f"{name} ({state})" for name, state in layer.sources.items())),
        ("may replace", "\n".join(layer.allow_replace)),
        ("packages", "\n".join(map(" ".join, sorted(layer.packages.items())))),
    ]
    lines = [
        ("" if index else name, line)
        for name, value in rows
        for index, line in enumerate(value.splitlines())
    ]
    print_table(lines, environ)


@VERBS.verb(
    "update",
    """\
Rebuild a layer from its saved requirements for the current image, with the
newest versions that fit. After an error, the layer is unchanged.

examples:
  jaxsif layer update my-layer
  jaxsif layer update --image /sw/jaxsif/images/jax-0.12.0.1-cuda12.sif my-layer
""",
    _NAME,
    _IMAGE,
)
def _update(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    old = read_layer(arguments.name, environ, "NAME")
    image = find_image(resolve_image(arguments.image, environ, note)).path
    wanted = Wanted(old.name, old.requirements, old.allow_replace)
    make_layer(wanted, image, require_runtime(environ), environ, _print_progress)


@VERBS.verb(
    "remove",
    """\
Remove layers. Jobs that use a layer lose its files.

example:
  jaxsif layer remove my-layer
""",
    argument("names", nargs="+", metavar="NAME", help="a layer's name"),
)
def _remove(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    folder, known = Path(layers_folder(environ)), list_names(environ)
    for name in arguments.names:
        if check_name(name, "NAME") not in known:
            raise JaxsifError(f"no layer {name}", f"NAME, {folder}", "jaxsif layer list")
    for name in dict.fromkeys(arguments.names):
        (folder / f"{name}.json").unlink()
        remove_files(name, folder)
