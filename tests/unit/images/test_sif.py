"""SIF files: the header, and the table of what is in them."""

from __future__ import annotations

import struct

import pytest
from kit.caught import catch
from kit.siffile import descriptor, sif_header

from jaxsif.errors import HostError
from jaxsif.images.sif import (
    HEADER_SIZE,
    DataObject,
    Header,
    check_sif,
    check_time,
    parse_descriptors,
    replace_partition,
)

IMAGE = "/scratch/jax.sif"
SOURCE = "JAX_IMAGE (environment)"


@pytest.mark.parametrize("size", [4096 + 100, 4096 + 101], ids=["exact", "longer"])
def test_whole_image(size: int) -> None:
    check_sif(sif_header(4096, 100), size, IMAGE, SOURCE)


@pytest.mark.parametrize(("size", "missing"), [(4195, 1), (128, 4068)], ids=["by one byte", "right behind the header"])
def test_truncated_image(size: int, missing: int) -> None:
    assert catch(HostError, check_sif, sif_header(4096, 100), size, IMAGE, SOURCE).render() == (
        f"jaxsif: error: image is truncated ({missing} of 4196 bytes are missing): /scratch/jax.sif\n"
        "  from: JAX_IMAGE (environment)\n"
        "  try:  copy or build it again"
    )


@pytest.mark.parametrize(
    "header",
    [b"", b"hsqs" + bytes(200), sif_header(0, 0)[: HEADER_SIZE - 1], sif_header(0, 0, b"SIF_MAGIK\x00")],
    ids=["empty", "squashfs", "shorter than a header", "another magic"],
)
def test_not_an_image(header: bytes) -> None:
    assert catch(HostError, check_sif, header, len(header), IMAGE, SOURCE).render() == (
        "jaxsif: error: not a SIF image: /scratch/jax.sif\n"
        "  from: JAX_IMAGE (environment)\n"
        "  try:  make image, or pass --image PATH to a .sif file"
    )


def test_parts_of_an_image() -> None:
    rows = [
        descriptor(0x4001, 32176, 3831),
        descriptor(0x4004, 45056, 196947968, struct.pack("<ii3s", 1, 2, b"02\0")),
        descriptor(0x4004, 300000000, 7, struct.pack("<ii3s", 2, 4, b"04\0")),
        descriptor(0x4005, 400000000, 8, struct.pack("<i20s", 1, b"\xab" * 20)),
        descriptor(0x4006, 0, 0, used=False),
        descriptor(0x4999, 500000000, 9),
    ]
    assert parse_descriptors(b"".join(rows), 500000009, IMAGE) == (
        DataObject("definition", 32176, 3831, name="name"),
        DataObject("partition", 45056, 196947968, "squashfs", True, "x86_64", name="name"),
        DataObject("partition", 300000000, 7, "ext3", False, "aarch64", name="name"),
        DataObject("signature", 400000000, 8, fingerprint="AB" * 20, name="name"),
        DataObject(str(0x4999), 500000000, 9, name="name"),
    )


def test_what_a_header_says() -> None:
    header = check_sif(sif_header(4096, 100, rows=2), 4196, IMAGE, SOURCE)
    assert header == Header(created=1, table=128, table_size=2 * 585, end=4196)
    assert check_time(header, IMAGE) == 1


def test_another_partition_in_the_place_of_the_last_part() -> None:
    extra = struct.pack("<ii3s", 1, 2, b"02\0")
    table = descriptor(0x4001, 4000, 90) + descriptor(0x4004, 8192, 100, extra) + descriptor(0, 0, 0, used=False)
    header = sif_header(4000, 8192 - 4000 + 100, rows=3)
    head = replace_partition((header + table).ljust(8192, b"\0"), 5000, 77, IMAGE)
    assert len(head) == 8192
    check_sif(head, 8192 + 5000, IMAGE, SOURCE)
    with pytest.raises(HostError, match="1 of 13192 bytes are missing"):
        check_sif(head, 8192 + 4999, IMAGE, SOURCE)
    definition, partition = parse_descriptors(head[128 : 128 + len(table)], 8192 + 5000, IMAGE)
    assert (definition.offset, definition.size) == (4000, 90)
    assert partition == DataObject("partition", 8192, 5000, "squashfs", True, "x86_64", name="name")
    assert head[48:64] == bytes(16)  # the id, which the engine draws by chance
    assert struct.unpack_from("<2q", head, 64) == (77, 77)
    assert struct.unpack_from("<5q", head, 128 + 585 + 17 + 16) == (5005, 77, 77, 0, 0)  # padded size, times, owner
