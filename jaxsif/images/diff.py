"""Compare two images: packages, labels, and the lines of their definition."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from jaxsif.errors import HostError
from jaxsif.images.execute import read_components
from jaxsif.images.file import find_root, remembered_digest
from jaxsif.images.labels import read_labels
from jaxsif.runtime import Runtime


class Difference(NamedTuple):
    """A difference between two images; the value is None for an image that lacks the name."""

    name: str
    a: str | None
    b: str | None


class Comparison(NamedTuple):
    """All differences of two images."""

    sections: Mapping[str, list[Difference]]  # packages, labels, definition
    notes: tuple[str, ...]  # what could not be compared, and why
    other_digests: bool = False  # of two SIF files

    @property
    def equal(self) -> bool:
        """Whether no section has a difference, and two SIF files have one digest."""
        return not (any(self.sections.values()) or self.other_digests)


def compare_images(a: str, b: str, runtime: Runtime, environ: Mapping[str, str]) -> Comparison:
    """Find the differences. Raise HostError for a file that is not an image, and OSError for one
    that cannot be read.
    """
    readers: dict[str, Callable[[str], Mapping[str, str]]] = {
        "packages": partial(_read_packages, runtime),
        "labels": read_labels,
        "definition": partial(_read_definition, environ),
    }
    sections: dict[str, list[Difference]] = {section: [] for section in readers}
    notes: list[str] = []
    if _same_file_system(a, b, environ):
        return Comparison(sections, ())
    for section, read in readers.items():
        try:
            sections[section] = find_differences(read(a), read(b))
        except HostError as error:  # such as an image without Python; compare the rest
            notes.append(f"{section} not compared: {error.what}")
    other_digests = os.path.isfile(a) and os.path.isfile(b)
    if other_digests and not any(sections.values()):
        notes.append(
            "their digests differ: to compare files, unpack both, and use diff --recursive"
        )
    return Comparison(sections, tuple(notes), other_digests)


def _same_file_system(a: str, b: str, environ: Mapping[str, str]) -> bool:
    """Return whether both images are SIF files with the same root file system, which determines
    everything else.
    """
    if os.path.isdir(a) or os.path.isdir(b) or find_root(a).size != find_root(b).size:
        return False
    return remembered_digest(a, environ) == remembered_digest(b, environ)


def _read_packages(runtime: Runtime, image: str) -> dict[str, str]:
    """Return 'pypi jax' -> version."""
    return {
        f"{one['purl'].partition(':')[2].partition('/')[0]} {one['name']}": one["version"]
        for one in read_components(runtime, image)
    }


def _read_definition(environ: Mapping[str, str], image: str) -> dict[str, str]:
    """Return the lines of the definition that the image was built from, or none if the image has no
    definition.
    """
    from jaxsif.images.spython_client import read_metadata  # spython takes 30 ms

    return dict.fromkeys(read_metadata(image, environ).definition.splitlines(), "")


def find_differences(a: Mapping[str, str], b: Mapping[str, str]) -> list[Difference]:
    """Find the names with different values, sorted."""
    found = [Difference(name, a.get(name), b.get(name)) for name in sorted({*a, *b})]
    return [one for one in found if one.a != one.b]


def render_comparison(comparison: Comparison) -> Iterator[str]:
    """Yield lines: - only in the first image, + only in the second, ~ in both but different."""
    for section, found in comparison.sections.items():
        if found:
            yield f"{section}: {len(found)} {'differs' if len(found) == 1 else 'differ'}"
        for one in found:
            yield f"  {_render(one)}"
    yield from comparison.notes


def _render(one: Difference) -> str:
    if one.a is None:
        return f"+ {one.name} {one.b}".rstrip()
    if one.b is None:
        return f"- {one.name} {one.a}".rstrip()
    return f"~ {one.name} {one.a} -> {one.b}"


def comparison_as_json(comparison: Comparison) -> dict[str, Any]:
    """Return every section as a list of objects."""
    sections = {
        section: [one._asdict() for one in found] for section, found in comparison.sections.items()
    }
    return {"equal": comparison.equal, **sections, "notes": list(comparison.notes)}
