"""What an image is: by its labels, its file, and where those do not tell, by its package list."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple

from jaxsif.errors import HostError
from jaxsif.images.execute import read_components
from jaxsif.images.file import read_created, read_objects, remembered_digest
from jaxsif.images.labels import read_labels
from jaxsif.runtime import find_runtime

# Key -> patterns of purls, as wheels and as NVIDIA's Debian packages; the version stands behind.
_PACKAGES = {
    "jax": r"pkg:pypi/jax@",
    "python": r"pkg:generic/python@",
    "cuda": r"pkg:pypi/nvidia-cuda-runtime(?:-cu\d+)?@|pkg:deb/\w+/cuda-cudart-\d+-\d+@",
    "nccl": r"pkg:pypi/nvidia-nccl-cu\d+@|pkg:deb/\w+/libnccl2@",
    "cudnn": r"pkg:pypi/nvidia-cudnn-cu\d+@|pkg:deb/\w+/libcudnn\d+(?:-cuda-\d+)?@",
}
_TITLES = {"jax": "JAX", "python": "Python", "cuda": "CUDA", "nccl": "NCCL", "cudnn": "cuDNN"}
# Debian's and Go's words -> everybody else's.
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
_FOLDER = "an unpacked image has none"


class Fact(NamedTuple):
    """One thing about an image."""

    key: str  # in JSON; these keys stay
    title: str  # in the table
    value: Any  # a string, a number of bytes, a list of strings; None where it is not known
    note: str = ""  # how it is known, or why not


def inspect_image(image: str, environ: Mapping[str, str]) -> list[Fact]:
    """All facts, in the order of the table; raises HostError for what is no image, and OSError."""
    labels = read_labels(image)
    components, problem = _read_packages(image, environ)
    return [
        Fact("path", "image", image),
        _from_label("flavour", "flavour", labels, "io.jaxsif.flavour"),
        *(_from_packages(key, labels, components, problem) for key in _PACKAGES),
        _from_label("driver", "driver", labels, "io.jaxsif.driver", "or newer"),
        *(
            _folder_facts(image, labels)
            if os.path.isdir(image)
            else _file_facts(image, labels, environ)
        ),
        _from_label("revision", "revision", labels, "org.opencontainers.image.revision"),
    ]


def _read_packages(
    image: str, environ: Mapping[str, str]
) -> tuple[Sequence[Mapping[str, Any]] | None, str]:
    """The image's components; None, and the reason, where they cannot be had."""
    runtime = find_runtime(environ)
    if runtime is None:
        return None, "no container runtime here to list its packages"
    try:
        return read_components(runtime.command, image), ""
    except HostError as error:
        return None, error.what  # an image without Python, say; the rest can still be told


def _from_label(
    key: str, title: str, labels: Mapping[str, str], label: str, note: str = ""
) -> Fact:
    value = labels.get(label)
    return Fact(key, title, value, "no label" if value is None else note if value != "none" else "")


def _from_packages(
    key: str,
    labels: Mapping[str, str],
    components: Sequence[Mapping[str, Any]] | None,
    problem: str,
) -> Fact:
    """By its label; where there is none, or another version is installed, by the package list."""
    title, label = _TITLES[key], labels.get(f"io.jaxsif.{key}")
    versions = [one["version"] for one in components or [] if re.match(_PACKAGES[key], one["purl"])]
    found = versions[0] if versions else None
    if key == "cuda" and found:
        found = ".".join(found.split(".")[:2])
    if label is not None:
        return Fact(
            key, title, label, f"its package list says {found}" if found and found != label else ""
        )
    without = "" if key == "python" else "no label; "  # which has none by design
    if found:
        return Fact(key, title, found, f"{without}by its package list" if without else "")
    return Fact(
        key, title, None if problem else "none", without + (problem or "not in its package list")
    )


def _file_facts(
    image: str, labels: Mapping[str, str], environ: Mapping[str, str]
) -> Iterator[Fact]:
    parts = read_objects(image)
    root = next((part for part in parts if part.system), None)
    prints = dict.fromkeys(part.fingerprint for part in parts if part.type == "signature")
    signers = [one if one.strip("0") else "a PEM key" for one in prints]
    yield Fact("architecture", "architecture", root and root.architecture)
    yield _digest_fact(image, environ)
    yield Fact("signers", "signed by", signers)
    yield Fact("size", "size", os.path.getsize(image))
    created = labels.get("org.opencontainers.image.created")
    yield Fact("created", "created", created) if created else _created_fact(image)
    yield Fact("file_system", "file system", root and root.file_system)


def _digest_fact(image: str, environ: Mapping[str, str]) -> Fact:
    try:
        return Fact("digest", "digest", remembered_digest(image, environ))
    except HostError as error:
        return Fact("digest", "digest", None, error.what)  # it has an overlay, say


def _created_fact(image: str) -> Fact:
    try:
        moment = datetime.fromtimestamp(read_created(image), timezone.utc).isoformat(
            timespec="seconds"
        )
    except HostError as error:
        return Fact("created", "created", None, error.what)
    return Fact("created", "created", moment, "no label; by its file")


def _folder_facts(image: str, labels: Mapping[str, str]) -> Iterator[Fact]:
    architecture = labels.get("org.label-schema.build-arch")
    yield Fact(
        "architecture",
        "architecture",
        _ARCHITECTURES.get(architecture or "", architecture),
        "" if architecture else "no label",
    )
    yield Fact("digest", "digest", None, _FOLDER)
    yield Fact("signers", "signed by", None, _FOLDER)
    hidden: list[OSError] = []  # an unpacked image of root's has folders that others cannot read
    walk = os.walk(image, onerror=hidden.append)
    sizes = (
        os.lstat(os.path.join(folder, name)).st_size for folder, _, names in walk for name in names
    )
    yield Fact(
        "size",
        "size",
        sum(sizes),
        f"without {len(hidden)} folders that cannot be read" if hidden else "",
    )
    created = labels.get("org.opencontainers.image.created") or labels.get(
        "org.label-schema.build-date"
    )
    yield Fact("created", "created", created, "" if created else "no label")
    yield Fact("file_system", "file system", "folder")


def render_facts(facts: Sequence[Fact]) -> Iterator[str]:
    """An aligned table, notes in brackets."""
    width = max(len(fact.title) for fact in facts)
    for fact in facts:
        value = _render_value(fact)
        note = f"({fact.note})" if fact.note else ""
        yield f"{fact.title:<{width}}  {' '.join(filter(None, (value, note)))}"


def _render_value(fact: Fact) -> str:
    if fact.key == "size":
        return f"{fact.value / 1e6:.0f} MB"
    if isinstance(fact.value, list):
        return ", ".join(fact.value) or "nobody"
    return fact.value or "unknown"


def facts_as_json(facts: Sequence[Fact]) -> dict[str, Any]:
    """Every key with its value or null, and the notes beside them."""
    return {
        **{fact.key: fact.value for fact in facts},
        "notes": {fact.key: fact.note for fact in facts if fact.note},
    }
