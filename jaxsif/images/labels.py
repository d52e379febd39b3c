"""An image's labels, read from its file without running any of its programs."""

from __future__ import annotations

import os
from collections.abc import Mapping

from jaxsif.errors import HostError, raise_as
from jaxsif.foreign import find, parse_json
from jaxsif.images.file import read_parts, read_unpacked

_UNKNOWN = (
    "JAX and driver versions unknown (it has no jaxsif labels; jaxsif image inspect looks inside)"
)


def read_labels(image: str) -> dict[str, str]:
    """Return name -> value, empty if the image has no labels. Raise HostError if they cannot be
    parsed, and OSError if they cannot be read.
    """
    if os.path.isdir(image):
        return _parse(read_unpacked(image, "labels.json", "labels file"), image)
    # The runtime's own data for `inspect`; there may be other JSON parts.
    for _, data in read_parts(image, "json"):
        labels = _parse(data.decode(errors="replace"), image, "data", "attributes", "labels")
        if labels:
            return labels
    return {}


def describe_image(image: str) -> str:
    """Describe the image by its labels for `jaxsif run --verbose`, or say why that is
    impossible.
    """
    try:
        labels = read_labels(image)
    except OSError as error:
        return f"cannot read its labels: {error.strerror}"
    except HostError as error:
        return error.what
    what = _render_labels(labels) if "io.jaxsif.jax" in labels else _UNKNOWN
    return f"{what}; unpacked, so without a digest" if os.path.isdir(image) else what


def _render_labels(labels: Mapping[str, str]) -> str:
    """Return 'JAX 0.12.0, cuda12, for driver 525 or newer'."""
    what = f"JAX {labels['io.jaxsif.jax']}, {labels.get('io.jaxsif.flavour', 'of no flavour')}"
    driver = labels.get("io.jaxsif.driver", "none")
    return what if driver == "none" else f"{what}, for driver {driver} or newer"


def _parse(text: str, image: str, *keys: str) -> dict[str, str]:
    """Return the texts and numbers of the object under `keys`; empty if there is no such object.
    Raise HostError for a text that is not JSON.
    """
    broken = HostError(f"cannot parse the labels of {image}", "", "copy or build it again")
    with raise_as(broken, ValueError):
        found = parse_json(text or "{}")
    labels = find(found, *keys)
    values = labels.items() if isinstance(labels, dict) else ()
    return {name: str(value) for name, value in values if isinstance(value, (str, int, float))}
