"""An image's labels, as its file says, without running anything of it."""

from __future__ import annotations

import json
import os

from jaxsif.imagefile import read_objects


def read_labels(image: str) -> dict[str, str]:
    """Name -> value; empty where the image has none. Raises HostError for a file that is no image, and OSError."""
    if os.path.isdir(image):
        try:
            with open(os.path.join(image, ".singularity.d/labels.json"), errors="replace") as file:
                return _parse(file.read())
        except FileNotFoundError:
            return {}
    for part in read_objects(image):
        if part.type == "json":  # what the runtime keeps for its own `inspect`; there may be others
            with open(image, "rb") as file:
                file.seek(part.offset)
                labels = _parse(file.read(part.size).decode(errors="replace"), "data", "attributes", "labels")
            if labels:
                return labels
    return {}


def describe_image(image: str) -> str:
    """For `jaxsif run --verbose`: what the image says that it is, or what nobody can know of it."""
    try:
        labels = read_labels(image)
    except OSError as error:
        return f"cannot read its labels: {error.strerror}"
    version, flavour, driver = (labels.get(f"io.jaxsif.{key}") for key in ("jax", "flavour", "driver"))
    if version is None:
        what = "not known which JAX and which driver (it has no labels of jaxsif; jaxsif image inspect looks into it)"
    else:
        what = f"JAX {version}, {flavour or 'of no flavour'}"
        what += "" if driver in (None, "none") else f", for driver {driver} or newer"
    return f"{what}; unpacked, so without a digest" if os.path.isdir(image) else what


def _parse(text: str, *keys: str) -> dict[str, str]:
    """The object below `keys`; empty for text that is not the runtime's."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}
