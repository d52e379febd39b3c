"""Images that lie: each reader of an image's file names the file and the field, in bounded time and memory."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.bounds import read_bounded
from kit.siffile import descriptor, sif_header

from jaxsif.errors import JaxsifError
from jaxsif.images import execute as inside
from jaxsif.images.file import digest, find_image, find_root, read_date, read_objects
from jaxsif.images.inspect import PACKAGES, Fact, from_packages, inspect_image, render_fact
from jaxsif.images.labels import describe_image, read_labels
from jaxsif.images.listing import list_images, render_item
from jaxsif.images.signing import read_signatures
from jaxsif.launch.container import identify
from jaxsif.modules.modulefile import Module, read_module
from jaxsif.runtime import Runtime
from jaxsif.settings.options import Setting

LABELS = json.dumps({"data": {"attributes": {"labels": {"io.jaxsif.jax": "0.12.0"}}}}).encode()
ENVELOPE = json.dumps({"payload": "e30=", "signatures": [{"keyid": "SHA256:abc"}]}).encode()
READERS: dict[str, Callable[[str], object]] = {
    "header": lambda image: find_image(Setting(image, "--image")),
    "parts": read_objects,
    "root": find_root,
    "digest": digest,
    "created": read_date,
    "labels": read_labels,
    "signatures": read_signatures,
    "compile cache": identify,
    "verbose": describe_image,
    "inspect": lambda image: list(map(render_fact, inspect_image(image, {"PATH": "", "HOME": os.path.dirname(image)}))),
    "list": lambda image: list(map(render_item, list_images(Path(image).parent, {"HOME": "/nowhere"}))),
}
HEADER = {"created": 64, "rows": 88, "table": 96, "table size": 104, "data": 112, "data size": 120}
ROW = {"type": 0, "used": 4, "offset": 17, "size": 25}


def small_image() -> bytearray:
    """A whole SIF file with labels, a signature and 99 bytes for a file system."""
    kind = struct.pack("<ii3s", 1, 2, b"02\0")
    places = (2000, 2000 + len(LABELS), 4096)
    rows = descriptor(0x4006, places[0], len(LABELS)) + descriptor(0x4005, places[1], len(ENVELOPE), bytes(24))
    rows += descriptor(0x4004, places[2], 99, kind)
    head = (sif_header(2000, 4096 + 99 - 2000, rows=3) + rows).ljust(2000, b"\0")
    return bytearray((head + LABELS + ENVELOPE).ljust(4096, b"\0") + b"r" * 99)


def read_all(image: str) -> list[JaxsifError]:
    """What the readers raise, all together within the bounds of one; each error names the file."""
    found: list[JaxsifError] = []

    def read() -> None:
        for name, reader in READERS.items():
            try:
                reader(image)
            except JaxsifError as error:
                assert name != "list", "one bad image spoils the list"
                found.append(error)

    read_bounded(read)
    assert all(image in error.what for error in found)
    return found


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of an image that each example writes anew."""
    return str(tmp_path_factory.mktemp("images") / "a.sif")


def test_whole_image(image: str) -> None:
    Path(image).write_bytes(small_image())
    assert read_all(image) == []
    assert read_labels(image) == {"io.jaxsif.jax": "0.12.0"}
    assert [one.signer for one in read_signatures(image)] == ["SHA256:abc"]


NUMBERS = st.one_of(
    st.sampled_from([-1, 0, 1, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63), 4096, 4195, 4196]),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-10_000, 10_000),
)


@given(st.dictionaries(st.sampled_from(sorted(HEADER)), NUMBERS, min_size=1))
def test_header(image: str, fields: dict[str, int]) -> None:
    content = small_image()
    for field, value in fields.items():
        struct.pack_into("<q", content, HEADER[field], value)
    Path(image).write_bytes(content)
    read_all(image)


@given(st.dictionaries(st.tuples(st.integers(0, 2), st.sampled_from(["offset", "size"])), NUMBERS, min_size=1))
def test_table(image: str, fields: dict[tuple[int, str], int]) -> None:
    content = small_image()
    for (row, field), value in fields.items():
        struct.pack_into("<q", content, 128 + 585 * row + ROW[field], value)
    Path(image).write_bytes(content)
    read_all(image)


@given(st.lists(st.tuples(st.integers(0, 4194), st.binary(min_size=1, max_size=9)), min_size=1), st.integers(0, 4195))
def test_any_bytes(image: str, changes: list[tuple[int, bytes]], size: int) -> None:
    """Bytes changed anywhere, and now and then the end cut off."""
    content = small_image()
    for place, data in changes:
        content[place : place + len(data)] = data
    Path(image).write_bytes(content[: max(size, 2 * size % len(content))])
    read_all(image)


@given(st.sampled_from([LABELS, ENVELOPE]), st.integers(0, 60), st.text(max_size=20), st.integers(1, 100_000))
def test_texts_in_it(image: str, text: bytes, place: int, put: str, times: int) -> None:
    """Labels and signatures with anything in them, up to 500 kB."""
    content = small_image()
    other = text[:place] + (put.encode(errors="replace") * times)[:500_000] + text[place:]
    row = 0 if text == LABELS else 1
    struct.pack_into("<2q", content, 128 + 585 * row + ROW["offset"], len(content), len(other))
    Path(image).write_bytes(content + other)
    read_all(image)


@pytest.mark.parametrize(
    ("place", "value", "reader", "what"),
    [
        (HEADER["table"], -1, "parts", "the offset of its table is -1"),
        (HEADER["table"], 2**62, "parts", f"the offset of its table is {2**62}"),
        (HEADER["rows"], 2**40, "parts", f"the number of its parts is {2**40}"),
        (HEADER["rows"], 4, "parts", f"the size of its table is {3 * 585}"),
        (HEADER["table size"], -1, "parts", "the size of its table is -1"),
        (HEADER["data"], -(2**63), "header", f"the offset of its data is {-(2**63)}"),
        (HEADER["data size"], -1, "header", "the size of its data is -1"),
        (HEADER["created"], 2**63 - 1, "created", f"the time of its creation is {2**63 - 1}"),
        (128 + ROW["offset"], -1, "labels", "the offset of part 1 is -1"),
        (128 + ROW["size"], -1, "labels", "the size of part 1 is -1"),
        (128 + 585 + ROW["size"], 2**40, "signatures", f"the size of part 2 is {2**40}"),
        (128 + 2 * 585 + ROW["offset"], 2**63 - 1, "digest", f"the offset of part 3 is {2**63 - 1}"),
        (128 + 2 * 585 + ROW["size"], 100, "digest", "the size of part 3 is 100"),
    ],
)
def test_field_is_named(image: str, place: int, value: int, reader: str, what: str) -> None:
    content = small_image()
    struct.pack_into("<q", content, place, value)
    Path(image).write_bytes(content)
    error = read_bounded(lambda: READERS[reader](image))
    assert error.render() == (
        f"jaxsif: error: image is damaged ({what}): {image}\n"
        + ("  from: --image\n" if reader == "header" else "")
        + "  try:  copy or build it again"
    )


@pytest.mark.parametrize(("row", "reader"), [(0, "labels"), (1, "signatures")])
def test_part_of_absurd_size(image: str, row: int, reader: str) -> None:
    """In a file that has so many bytes: what is a text is not read."""
    content = small_image()
    struct.pack_into("<q", content, 128 + 585 * row + ROW["size"], 1 << 40)
    Path(image).write_bytes(content)
    os.truncate(image, 1 << 41)
    error = read_bounded(lambda: READERS[reader](image))
    assert error.what.startswith(
        f"image is damaged (the size of its {'signature' if row else 'json'} parts is {1 << 40}): "
    )


@pytest.mark.parametrize("labels", [b"[" * 100_000, b'{"data":' * 100_000, b'{"data":' + b"9" * 100_000 + b"}"])
def test_labels_of_absurd_nesting(image: str, labels: bytes) -> None:
    content = small_image()
    struct.pack_into("<2q", content, 128 + ROW["offset"], len(content), len(labels))
    Path(image).write_bytes(content + labels)
    error = read_bounded(lambda: read_labels(image))
    assert error.what.startswith(f"cannot parse the labels of {image}: ")


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=9)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["components", "name", "version", "purl", "state", "digest", "image"]), inner),
    ),
    max_leaves=9,
)


@given(VALUES)
def test_bill_of_materials(image: str, value: object) -> None:
    """What the image's own Python prints is the list of components, or an error."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inside, "read_sbom", lambda *_: json.dumps(value))
        error = read_bounded(lambda: facts_of(inside.read_components(Runtime("apptainer", "APPTAINERENV_"), image)))
    assert error is None or error.what.startswith(f"cannot parse the bill of materials of {image}: ")


def facts_of(components: list[dict[str, Any]]) -> list[Fact]:
    """As `jaxsif image inspect` and `diff` look at them."""
    assert all(isinstance(one["name"], str) for one in components)
    return [from_packages(package, {}, components, "") for package in PACKAGES]


@given(VALUES)
def test_what_a_modulefile_says_of_itself(image: str, value: object) -> None:
    path = Path(image).with_suffix(".lua")
    for record in (value, {**dict.fromkeys(Module._fields, "a"), "image": value}):
        path.write_text(f"-- jaxsif: {json.dumps(record)}\n")
        found: list[Module | None] = []
        assert read_bounded(lambda found=found: found.append(read_module(path))) is None
        assert found[0] is None or all(isinstance(field, str) for field in found[0])


@pytest.mark.parametrize("reader", READERS)
def test_image_that_is_a_fifo(tmp_path: Path, reader: str) -> None:
    """Nobody waits for somebody to write into it."""
    os.mkfifo(tmp_path / "a.sif")
    said = f"image is a FIFO, not a file: {tmp_path}/a.sif"
    if reader == "list":
        assert [one.problem for one in list_images(tmp_path, {"HOME": "/nowhere"})] == [said]
    elif reader == "verbose":
        assert describe_image(str(tmp_path / "a.sif")) == said
    else:
        error = read_bounded(lambda: READERS[reader](str(tmp_path / "a.sif")))
        assert error
        assert error.what == said
