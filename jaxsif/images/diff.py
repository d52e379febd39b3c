"""What differs between two images: packages, labels, environment, files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from jaxsif.errors import HostError
from jaxsif.images.execute import read_components, read_environment
from jaxsif.images.file import find_root, remembered_digest
from jaxsif.images.files import Entry, read_files
from jaxsif.images.labels import read_labels

SECTIONS = ("packages", "labels", "environment", "files")
_CUT = 20  # files shown unless all are asked for


class Difference(NamedTuple):
    """Something that one image has, or that differs; None where it is not there."""

    name: str
    a: Any
    b: Any


class Comparison(NamedTuple):
    """All differences of two images."""

    sections: Mapping[str, list[Difference]]  # every one of SECTIONS
    notes: tuple[str, ...]  # what could not be compared, and why

    @property
    def equal(self) -> bool:
        return not any(self.sections.values())


def compare_images(
    a: str, b: str, runtime: str, environ: Mapping[str, str], progress: Callable[[str], None]
) -> Comparison:
    """Raises HostError for what is no image or cannot be read, and OSError."""
    if _same_file_system(a, b, environ):
        return Comparison({section: [] for section in SECTIONS}, ())
    notes: list[str] = []
    readers: dict[str, Callable[[str], Mapping[str, Any]]] = {
        "packages": lambda image: _read_packages(runtime, image),
        "labels": read_labels,
        "environment": lambda image: read_environment(runtime, image),
    }
    sections: dict[str, list[Difference]] = {section: [] for section in SECTIONS}
    for section, read in readers.items():
        try:
            sections[section] = find_differences(read(a), read(b))
        except HostError as error:
            # An image without Python, say: its files tell all.
            notes.append(f"{section} not compared: {error.what}")
    files = []
    for image in (a, b):
        progress(f"reading the files of {image}")
        files.append(read_files(image))
    foreign = next(
        (image for image in (a, b) if os.path.isdir(image) and os.stat(image).st_uid != 0), None
    )
    if foreign:
        notes.append(f"owners not compared: whoever unpacked {foreign} owns all of it")
        files = [{path: entry._replace(owner="") for path, entry in one.items()} for one in files]
    sections["files"] = find_differences(*files)
    return Comparison(sections, tuple(notes))


def _same_file_system(a: str, b: str, environ: Mapping[str, str]) -> bool:
    """Whether both are SIF files with the same root, of which everything else follows."""
    if os.path.isdir(a) or os.path.isdir(b) or find_root(a).size != find_root(b).size:
        return False
    return remembered_digest(a, environ) == remembered_digest(b, environ)


def _read_packages(runtime: str, image: str) -> dict[str, str]:
    """'pypi jax' -> version."""
    return {
        f"{one['purl'].partition(':')[2].partition('/')[0]} {one['name']}": one["version"]
        for one in read_components(runtime, image)
    }


def find_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Sorted by name."""
    names = sorted({*a, *b})
    return [
        Difference(name, a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name)
    ]


def render_comparison(comparison: Comparison, show_all: bool) -> Iterator[str]:
    """For people: - only in the first image, + only in the second, ~ in both and different."""
    for section, found in comparison.sections.items():
        if not found:
            continue
        yield f"{section}: {len(found)} {'differs' if len(found) == 1 else 'differ'}"
        lines = list(_render_files(found, show_all) if section == "files" else map(_render, found))
        cut = len(lines) if show_all or section != "files" else _CUT
        yield from (f"  {line}" for line in lines[:cut])
        if lines[cut:]:
            yield f"  … and {len(lines) - cut} more lines; --all shows them"
    yield from comparison.notes


def _render(one: Difference) -> str:
    if one.a is None:
        return f"+ {one.name} {one.b}"
    if one.b is None:
        return f"- {one.name} {one.a}"
    return f"~ {one.name} {one.a} -> {one.b}"


def _render_files(found: list[Difference], show_all: bool) -> Iterator[str]:
    """A line a path; of a folder that one image lacks, what is below it is only counted, unless all
    is asked for.
    """
    lonely = {one.name for one in found if None in (one.a, one.b)}
    below: dict[str, int] = {}
    for name in lonely:
        top = name
        while os.path.dirname(top) in lonely and os.path.dirname(top) != top:
            top = os.path.dirname(top)
        if top != name:
            below[top] = below.get(top, 0) + 1
    for one in found:
        if one.a is not None and one.b is not None:
            yield f"~ /{one.name}: {', '.join(_render_entries(one.a, one.b))}"
        elif show_all or os.path.dirname(one.name) not in lonely:
            entry = one.a or one.b
            more = f", and {below[one.name]} below it" if one.name in below and not show_all else ""
            yield f"{'-' if one.a else '+'} /{one.name} ({entry.kind}{more})"


def _render_entries(a: Entry, b: Entry) -> Iterator[str]:
    if a.kind != b.kind:
        yield f"{a.kind} -> {b.kind}"
        return
    for field in ("mode", "owner", "size"):
        if getattr(a, field) != getattr(b, field):
            yield f"{field} {getattr(a, field)} -> {getattr(b, field)}"
    if a.content != b.content:
        yield "content" if a.kind == "file" else f"{a.content} -> {b.content}"


def comparison_as_json(comparison: Comparison) -> dict[str, Any]:
    """Every section as a list; of files, each side is an object."""

    def plain(value: Any) -> Any:
        return value._asdict() if isinstance(value, Entry) else value

    sections = {
        section: [{"name": one.name, "a": plain(one.a), "b": plain(one.b)} for one in found]
        for section, found in comparison.sections.items()
    }
    return {"equal": comparison.equal, **sections, "notes": list(comparison.notes)}
