"""Describe an image by its labels, its file and, if those lack a fact, its package list."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jaxsif.errors import HostError
from jaxsif.images.execute import read_components
from jaxsif.images.file import read_date, read_objects, remembered_digest
from jaxsif.images.labels import read_labels
from jaxsif.runtime import find_runtime
from jaxsif.text import enclose

# Debian's and Go's words -> everybody else's.
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
_FOLDER = "an unpacked image has none"
_CREATED = "org.opencontainers.image.created"
_BUILT = "org.label-schema.build-date"  # the runtime's; the other labels may be those of the base


class Fact(NamedTuple):
    """One thing about an image."""

    key: str  # in JSON; these keys stay
    title: str  # in the table
    value: Any  # a string, a number of bytes or a list of strings; None if it is not known
    note: str = ""  # where it comes from, or why it is not known


class Package(NamedTuple):
    """A package whose version is shown."""

    key: str
    title: str
    purl: str  # a pattern, for wheels and for NVIDIA's Debian packages; the version follows
    parts: int | None = None  # parts of the version to show; None for all
    without: str = "no label; "  # the note if there is no label


PACKAGES = (
    Package("jax", "JAX", r"pkg:pypi/jax@"),
    Package("python", "Python", r"pkg:generic/python@", without=""),  # has no label by design
    Package(
        "cuda",
        "CUDA",
        r"pkg:pypi/nvidia-cuda-runtime(?:-cu\d+)?@|pkg:deb/\w+/cuda-cudart-\d+-\d+@",
        parts=2,
    ),
    Package("nccl", "NCCL", r"pkg:pypi/nvidia-nccl-cu\d+@|pkg:deb/\w+/libnccl2@"),
    Package(
        "cudnn",
        "cuDNN",
        r"pkg:pypi/nvidia-cudnn-cu\d+@|pkg:deb/\w+/libcudnn\d+(?:-cuda-\d+)?@",
    ),
)


def inspect_image(image: str, environ: Mapping[str, str]) -> list[Fact]:
    """Find all facts, in the order of the table; raise HostError for a file that is not an image,
    and OSError for one that cannot be read.
    """
    labels = read_labels(image)
    components, problem = _read_packages(image, environ)
    own = _folder_facts(image, labels) if os.path.isdir(image) else _file_facts(image, environ)
    is_derived = labels.get(_BUILT) != labels.get(_CREATED)
    return [
        Fact("path", "image", image),
        _from_label("flavour", labels, "io.jaxsif.flavour"),
        *(from_packages(package, labels, components, problem) for package in PACKAGES),
        _from_label("driver", labels, "io.jaxsif.driver", note="or newer"),
        *own,
        _from_label(
            *("revision", labels, "org.opencontainers.image.revision"),
            note="a label of this image or of its base" if is_derived else "",
        ),
    ]


def inspect_metadata(image: str, environ: Mapping[str, str]) -> list[Fact]:
    """Read how the image was made and what it runs; raise OSError."""
    from jaxsif.images.spython_client import ImageMetadata, read_metadata  # spython takes 30 ms

    try:
        found = read_metadata(image, environ)
    except HostError as error:
        return [Fact(key, key, None, error.what) for key in ImageMetadata._fields]
    return [Fact(key, key, value) for key, value in found._asdict().items()]


def _read_packages(
    image: str, environ: Mapping[str, str]
) -> tuple[Sequence[Mapping[str, Any]], str]:
    """Return the image's components, and '' or the reason why they are not available."""
    runtime = find_runtime(environ)
    if runtime is None:
        return (), "no container runtime here to list its packages"
    try:
        return read_components(runtime, image), ""
    except HostError as error:
        return (), error.what  # such as an image without Python; the other facts are still shown


def _from_label(key: str, labels: Mapping[str, str], *names: str, note: str = "") -> Fact:
    """Return the value of the first of these labels that exists; `note` is for a value other than
    'none'.
    """
    value = next((labels[name] for name in names if name in labels), None)
    notes = {None: "no label", "none": ""}
    return Fact(key, key, value, notes.get(value, note))


def from_packages(
    package: Package,
    labels: Mapping[str, str],
    components: Sequence[Mapping[str, Any]],
    problem: str,
) -> Fact:
    """Return a version from its label; if there is no label, or another version is installed,
    return the version from the package list.
    """
    key, title, purl, parts, without = package
    installed = (one for one in components if re.match(purl, one["purl"]))
    version = next(installed, {}).get("version") or ""
    found = ".".join(version.split(".")[:parts])
    label = labels.get(f"io.jaxsif.{key}")
    if label is not None:
        differs = found not in ("", label)
        return Fact(key, title, label, f"its package list says {found}" if differs else "")
    if found:
        return Fact(key, title, found, enclose("", without, "according to its package list"))
    if problem:
        return Fact(key, title, None, without + problem)
    return Fact(key, title, "none", f"{without}not in its package list")


def _file_facts(image: str, environ: Mapping[str, str]) -> Iterator[Fact]:
    """Yield the facts of a SIF file."""
    parts = read_objects(image)
    roots = ((part.architecture, part.file_system) for part in parts if part.system)
    architecture, file_system = next(roots, (None, None))
    prints = dict.fromkeys(part.fingerprint for part in parts if part.type == "signature")
    yield Fact("architecture", "architecture", architecture)
    yield _find("digest", lambda: remembered_digest(image, environ))
    yield Fact("signers", "signed by", [one if one.strip("0") else "a PEM key" for one in prints])
    yield Fact("size", "size", os.path.getsize(image))
    yield _find("created", lambda: read_date(image))
    yield Fact("file_system", "file system", file_system)


def _find(key: str, find: Callable[[], str]) -> Fact:
    """Return the result of `find`, or the reason for its failure, such as an overlay."""
    try:
        return Fact(key, key, find())
    except HostError as error:
        return Fact(key, key, None, error.what)


def _folder_facts(image: str, labels: Mapping[str, str]) -> Iterator[Fact]:
    """Yield the facts of an unpacked image."""
    architecture = _from_label("architecture", labels, "org.label-schema.build-arch")
    yield architecture._replace(value=_ARCHITECTURES.get(architecture.value, architecture.value))
    yield Fact("digest", "digest", None, _FOLDER)
    yield Fact("signers", "signed by", None, _FOLDER)
    hidden: list[OSError] = []  # root's unpacked images have folders that others cannot read
    walk = os.walk(image, onerror=hidden.append)
    size = sum(
        os.lstat(os.path.join(folder, name)).st_size for folder, _, names in walk for name in names
    )
    note = f"without {len(hidden)} folders that cannot be read" if hidden else ""
    yield Fact("size", "size", size, note)
    yield _from_label("created", labels, _BUILT, _CREATED)
    yield Fact("file_system", "file system", "folder")


def render_fact(fact: Fact) -> tuple[str, str]:
    """Render the row of a table, with the note in brackets."""
    note = enclose(" (", fact.note, ")")
    return fact.title, f"{_render_value(fact)}{note}"


def _render_value(fact: Fact) -> str:
    if fact.key == "size":
        return f"{fact.value / 1e6:.0f} MB"
    if isinstance(fact.value, list):
        return ", ".join(fact.value) or "nobody"
    return fact.value or "unknown"


def facts_as_json(facts: Sequence[Fact]) -> dict[str, Any]:
    """Return every key with its value or null, and the notes beside them."""
    return {
        **{fact.key: fact.value for fact in facts},
        "notes": {fact.key: fact.note for fact in facts if fact.note},
    }
