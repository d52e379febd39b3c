"""What differs between two images, in words and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit.siffile import write_image

from jaxsif.images import diff as images
from jaxsif.images import spython_client
from jaxsif.images.diff import (
    Comparison,
    Difference,
    compare_images,
    comparison_as_json,
    find_differences,
    render_comparison,
)
from jaxsif.images.spython_client import ImageMetadata
from jaxsif.runtime import Runtime
from jaxsif.text import printable

RUNTIME = Runtime("apptainer", "APPTAINERENV_")


def compare(**sections: list[Difference]) -> Comparison:
    names = ("packages", "labels", "definition")
    return Comparison({name: sections.get(name, []) for name in names}, ("a note",))


def test_differences() -> None:
    assert find_differences({"a": "1", "b": "1", "c": "1"}, {"b": "1", "c": "2", "d": "1"}) == [
        Difference("a", "1", None),
        Difference("c", "1", "2"),
        Difference("d", None, "1"),
    ]


def test_text() -> None:
    found = compare(
        packages=find_differences({"pypi jax": "1", "pypi a": "1"}, {"pypi jax": "2", "deb b": "1"}),
        definition=find_differences({"%post": "", "  x": ""}, {"%post": "", "  new\x1b[2J": ""}),
    )
    assert [printable(line) for line in render_comparison(found)] == [
        "packages: 3 differ",
        "  + deb b 1",
        "  - pypi a 1",
        "  ~ pypi jax 1 -> 2",
        "definition: 2 differ",
        "  +   new\\x1b[2J",
        "  -   x",
        "a note",
    ]


def test_json() -> None:
    assert comparison_as_json(compare())["equal"] is True
    found = compare(labels=[Difference("x", "1", "2")])
    assert json.loads(json.dumps(comparison_as_json(found))) == {
        "equal": False,
        "packages": [],
        "labels": [{"name": "x", "a": "1", "b": "2"}],
        "definition": [],
        "notes": ["a note"],
    }


def test_sif_files_that_differ_only_in_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "read_components", lambda *_: [])
    told = ImageMetadata("", "", {}, "", "", {})
    monkeypatch.setattr(spython_client, "read_metadata", lambda *_: told)
    image = write_image(tmp_path / "a.sif", b"squashfs")
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert compare_images(image, write_image(tmp_path / "b.sif", b"squashfs"), RUNTIME, environ).equal
    found = compare_images(image, write_image(tmp_path / "c.sif", b"squashFS"), RUNTIME, environ)
    assert not found.equal
    assert list(render_comparison(found)) == [
        "their digests differ: to compare files, unpack both, and use diff --recursive"
    ]


def test_sif_file_and_unpacked_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels are read from either; a line of the definition that changed its place is no difference."""
    monkeypatch.setattr(images, "read_components", lambda *_: [])
    image = write_image(tmp_path / "a.sif", b"squashfs")
    (tmp_path / "b/.singularity.d").mkdir(parents=True)
    (tmp_path / "b/.singularity.d/labels.json").write_text('{"x": "1"}')
    definitions = {image: "A\nFrom: a\n", str(tmp_path / "b"): "From: b\nA\n"}
    told = ImageMetadata("", "", {}, "", "", {})
    monkeypatch.setattr(spython_client, "read_metadata", lambda path, _: told._replace(definition=definitions[path]))
    assert compare_images(image, str(tmp_path / "b"), RUNTIME, {}).sections == {
        "packages": [],
        "labels": [Difference("x", None, "1")],
        "definition": [Difference("From: a", "", None), Difference("From: b", None, "")],
    }
