"""An image's labels, as its file says, without running anything of it."""

from __future__ import annotations

import os

from jaxsif.errors import HostError
from jaxsif.foreign import find, parse_json, read_text
from jaxsif.images.file import read_parts


def read_labels(image: str) -> dict[str, str]:
    """Name -> value; empty where the image has none. Raise HostError where they cannot be parsed,
    and OSError.
    """
    if os.path.isdir(image):
        try:
            return _parse(
                read_text(os.path.join(image, ".singularity.d/labels.json"), "file of labels"),
                image,
            )
        except FileNotFoundError:
            return {}
    # What the runtime keeps for its own `inspect`; there may be others.
    for _, data in read_parts(image, "json"):
        labels = _parse(data.decode(errors="replace"), image, "data", "attributes", "labels")
        if labels:
            return labels
    return {}


def describe_image(image: str) -> str:
    """For `jaxsif run --verbose`: what the image says that it is, or what nobody can know of it."""
    try:
        labels = read_labels(image)
    except OSError as error:
        return f"cannot read its labels: {error.strerror}"
    except HostError as error:
        return error.what
    version, flavour, driver = (
        labels.get(f"io.jaxsif.{key}") for key in ("jax", "flavour", "driver")
    )
    if version is None:
        what = "not known which JAX and which driver (it has no labels of jaxsif; jaxsif image inspect looks into it)"
    else:
        what = f"JAX {version}, {flavour or 'of no flavour'}"
        what += "" if driver in (None, "none") else f", for driver {driver} or newer"
    return f"{what}; unpacked, so without a digest" if os.path.isdir(image) else what


def _parse(text: str, image: str, *keys: str) -> dict[str, str]:
    """The texts and numbers of the object below `keys`; empty for an object that is not the
    runtime's.
    """
    try:
        found = parse_json(text) if text else {}
    except ValueError as error:
        raise HostError(
            f"cannot parse the labels of {image}: {error}", "", "copy or build it again"
        ) from error
    labels = find(found, *keys)
    values = labels.items() if isinstance(labels, dict) else ()
    return {name: str(value) for name, value in values if isinstance(value, (str, int, float))}
