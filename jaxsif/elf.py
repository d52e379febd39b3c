"""The bytes of a shared library: which other libraries it needs, and how new a glibc."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from mmap import mmap
from typing import NamedTuple, Union

# See elf(5), and the generic ABI for the tags.
_LOAD, _DYNAMIC = 1, 2  # kinds of segments
_NEEDED, _STRTAB, _VERNEED, _VERNEEDNUM = 1, 5, 0x6FFFFFFE, 0x6FFFFFFF  # tags
_GLIBC = re.compile(rb"GLIBC_(\d+)\.(\d+)")
_RELR = b"GLIBC_ABI_DT_RELR"  # relative relocations packed, which glibc reads from 2.36 on


_Bytes = Union[bytes, mmap]


class Needs(NamedTuple):
    """What a library asks of the system."""

    libraries: tuple[str, ...]  # names such as libm.so.6
    glibc: tuple[int, int]  # (2, 38); (0, 0) where it names no version


def read_needs(data: _Bytes) -> Needs | None:
    """The needs of a 64-bit little-endian ELF file (of x86_64 and aarch64, say); None for anything else.

    Files that are cut short give None, too.
    """
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    try:
        segments = list(_segments(data))
        tags = [tag for kind, offset, _, size in segments if kind == _DYNAMIC for tag in _tags(data, offset, size)]
        values = dict(tags)
        if _STRTAB not in values:
            return Needs((), (0, 0))  # linked statically
        texts = _place(segments, values[_STRTAB])
        needed = [_text(data, texts + value).decode(errors="replace") for tag, value in tags if tag == _NEEDED]
        versions = []
        if _VERNEED in values:
            versions = list(_versions(data, _place(segments, values[_VERNEED]), values[_VERNEEDNUM], texts))
    except (struct.error, LookupError, ValueError):
        return None
    return Needs(tuple(needed), max(map(_parse_version, versions), default=(0, 0)))


def _segments(data: _Bytes) -> Iterator[tuple[int, int, int, int]]:
    """Kind, offset in the file, address, size in the file."""
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for number in range(count):
        kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", data, table + number * size)
        yield kind, offset, address, length


def _tags(data: _Bytes, offset: int, size: int) -> Iterator[tuple[int, int]]:
    for place in range(offset, offset + size, 16):
        yield struct.unpack_from("<QQ", data, place)


def _place(segments: list[tuple[int, int, int, int]], address: int) -> int:
    """Where in the file an address is; raises LookupError."""
    for kind, offset, start, size in segments:
        if kind == _LOAD and start <= address < start + size:
            return address - start + offset
    raise LookupError(address)


def _versions(data: _Bytes, place: int, count: int, texts: int) -> Iterator[bytes]:
    """The names of versions that are needed, such as GLIBC_2.38, of all libraries."""
    for _ in range(count):
        _, entries, _, first, following = struct.unpack_from("<HHIII", data, place)
        entry = place + first
        for _ in range(entries):
            _, _, _, name, step = struct.unpack_from("<IHHII", data, entry)
            yield _text(data, texts + name)
            entry += step
        place += following


def _text(data: _Bytes, place: int) -> bytes:
    end = data.find(b"\0", place)
    if end < 0:
        raise LookupError(place)
    return data[place:end]


def _parse_version(name: bytes) -> tuple[int, int]:
    found = _GLIBC.match(name)
    if found:
        return int(found[1]), int(found[2])
    return (2, 36) if name == _RELR else (0, 0)
