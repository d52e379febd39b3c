"""Parse the header and the table of a SIF file, to see whether the file is complete and where its
parts are.

https://github.com/apptainer/sif, pkg/sif/sif.go and descriptor.go; all numbers are little endian.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from jaxsif.errors import HostError

# launch script[32] magic[10] version[3] architecture[3] id[16] created modified
# descriptors free, total, offset, size; data offset, size
_HEADER = struct.Struct("<32s10s3s3s16s8q")
HEADER_SIZE = _HEADER.size
_MAGIC = b"SIF_MAGIC\x00"
# type used id group link offset size padded-size created modified uid gid name[128] extra[384]
_DESCRIPTOR = struct.Struct("<i?III7q128s384s")
_PARTITION = struct.Struct("<ii3s")  # the extra of a partition: file system, kind, architecture
# The extra of a signature: algorithm of its digests, fingerprint.
_SIGNATURE = struct.Struct("<i20s")
_TYPES = {
    0x4001: "definition",
    0x4003: "labels",
    0x4004: "partition",
    0x4005: "signature",
    0x4006: "json",
}
_FILE_SYSTEMS = {1: "squashfs", 2: "ext3", 5: "encrypted squashfs"}
_MOST_ROWS = 4096  # of a table; the runtime makes tables of 48
_LATEST = 253402300799  # the last second of the year 9999
_SYSTEM = 2  # the kind of the partition that becomes the container's root
_ARCHITECTURES = {b"02": "x86_64", b"04": "aarch64"}


class DamagedImageError(HostError):
    """A file is no complete SIF image."""


class DataObject(NamedTuple):
    """One part of a SIF file."""

    type: str  # definition, labels, partition, signature or json; the number of any other type
    offset: int  # bytes from the beginning of the file
    size: int  # bytes
    file_system: str = ""  # of a partition: squashfs, ext3, …
    system: bool = False  # whether a partition is the container's root, not an overlay or data
    architecture: str = ""  # of a partition: x86_64, aarch64
    # Of a signature: fingerprint of its PGP key, in upper case; zeros for a key of another kind.
    fingerprint: str = ""
    name: str = ""  # such as inspect-metadata.json


class Header(NamedTuple):
    """The fields of a header that jaxsif needs; all but the time are numbers of bytes."""

    created: int  # seconds since 1970
    table: int  # offset of the table of parts
    table_size: int
    end: int  # end of the last part


def takes_option(source: str) -> bool:
    """Return whether `source`, which named an image, is a variable, which --image overrides."""
    return source.startswith("JAX_IMAGE")


def parse_header(header: bytes, image: str, source: str = "") -> Header:
    """Parse the first bytes of an image. Raise HostError for other files and invalid fields."""
    if len(header) < HEADER_SIZE or header[32:42] != _MAGIC:
        pass_it = "pass --image PATH to" if takes_option(source) else "give the path of"
        hint = f"make image, or {pass_it} a .sif file"
        raise DamagedImageError(f"not a SIF image: {image}", source, hint)
    fields = _HEADER.unpack(header[:HEADER_SIZE])
    created, _, _, rows, table, table_size, data, data_size = fields[5:]
    for holds, field, value in (
        (data >= 0, "offset of its data", data),
        (data_size >= 0, "size of its data", data_size),
        (table >= 0, "offset of its table", table),
        (0 <= rows <= _MOST_ROWS, "number of its parts", rows),
        # The runtime reads as many rows as there are parts: the digest must cover exactly what the
        # runtime mounts.
        (table_size == rows * _DESCRIPTOR.size, "size of its table", table_size),
    ):
        check_field(holds, field, value, image, source)
    return Header(created, table, table_size, data + data_size)


def check_field(holds: bool, field: str, value: int, image: str, source: str) -> None:
    """Raise HostError naming a field of an image's file, unless `holds`."""
    if not holds:
        what = f"image is damaged (the {field} is {value}): {image}"
        raise DamagedImageError(what, source, "copy or build it again")


def check_sif(header: bytes, size: int, image: str, source: str) -> Header:
    """Return the header of a SIF image; raise HostError unless `header`, the first bytes of a file
    of `size` bytes, belongs to a complete one.
    """
    found = parse_header(header, image, source)
    if size < found.end:
        missing = f"{found.end - size} of {found.end} bytes are missing"
        what = f"image is truncated ({missing}): {image}"
        raise DamagedImageError(what, source, "copy or build it again")
    check_field(
        found.table + found.table_size <= size, "offset of its table", found.table, image, source
    )
    return found


def check_time(header: Header, image: str) -> int:
    """Return when the image was made, in seconds since 1970; raise HostError for a time outside the
    calendar.
    """
    check_field(0 <= header.created <= _LATEST, "time of its creation", header.created, image, "")
    return header.created


def parse_descriptors(
    table: bytes, size: int, image: str, source: str = ""
) -> tuple[DataObject, ...]:
    """Return the parts that a table lists; raise HostError for a part that is not within the file,
    which has `size` bytes.
    """
    parts = []
    for number, row in enumerate(_DESCRIPTOR.iter_unpack(table), 1):
        type_, used, offset, length, extra = row[0], row[1], row[5], row[6], row[-1]
        if used:
            check_field(0 <= offset <= size, f"offset of part {number}", offset, image, source)
            fits = 0 <= length <= size - offset
            check_field(fits, f"size of part {number}", length, image, source)
            name = row[-2].rstrip(b"\0").decode(errors="replace")
            parts.append(_parse_object(type_, offset, length, extra)._replace(name=name))
    return tuple(parts)


def _parse_object(number: int, offset: int, size: int, extra: bytes) -> DataObject:
    """Parse a part; `extra` has the details of a signature or a partition."""
    part = DataObject(_TYPES.get(number, str(number)), offset, size)
    if part.type == "signature":
        _, fingerprint = _SIGNATURE.unpack(extra[: _SIGNATURE.size])
        return part._replace(fingerprint=fingerprint.hex().upper())
    if part.type != "partition":
        return part
    file_system, kind, architecture = _PARTITION.unpack(extra[: _PARTITION.size])
    return DataObject(
        part.type,
        offset,
        size,
        _FILE_SYSTEMS.get(file_system, str(file_system)),
        kind == _SYSTEM,
        _ARCHITECTURES.get(architecture[:2], architecture[:2].decode(errors="replace")),
    )


def replace_partition(head: bytes, size: int, created: int, image: str) -> bytes:
    """Return `head`, the bytes before the last part of `image`, a partition, changed to precede
    another partition of `size` bytes.

    The id and all times are the same for the same `created`, in seconds since 1970. Raise HostError
    if the table is not in `head`.
    """
    _, table, table_size, _ = parse_header(head, image)
    check_field(table + table_size <= len(head), "offset of its table", table, image, "")
    header = list(_HEADER.unpack_from(head))
    changed = bytearray(head)
    for at in range(table, table + table_size, _DESCRIPTOR.size):
        row = list(_DESCRIPTOR.unpack_from(head, at))
        if not row[1]:
            continue
        if row[5] == len(head):
            header[-1] += size - row[6]
            row[6:8] = size, row[7] + size - row[6]
        row[8:12] = created, created, 0, 0
        _DESCRIPTOR.pack_into(changed, at, *row)
    header[4:7] = bytes(16), created, created
    _HEADER.pack_into(changed, 0, *header)
    return bytes(changed)
