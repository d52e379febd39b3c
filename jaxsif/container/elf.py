"""Find which libraries, and which version of glibc, a shared library needs."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from mmap import mmap
from typing import Any, NamedTuple, Union

# See elf(5), and the generic ABI for the tags.
_LOAD, _DYNAMIC = 1, 2  # kinds of segments
_LAST = 0  # tag
_NEEDED, _STRTAB, _VERNEED, _VERNEEDNUM = 1, 5, 0x6FFFFFFE, 0x6FFFFFFF  # tags
_GLIBC = re.compile(rb"GLIBC_(\d{1,4})\.(\d{1,4})")
_RELR = b"GLIBC_ABI_DT_RELR"  # packed relative relocations, which glibc reads since 2.36


_MOST = 10_000  # tags, and versions, in one file; real libraries have hundreds
_LONGEST = 4096  # bytes of a name

_Bytes = Union[bytes, mmap]


class Needs(NamedTuple):
    """The libraries and the glibc version that a library needs."""

    libraries: tuple[str, ...]  # names such as libm.so.6
    glibc: tuple[int, int]  # (2, 38), or (0, 0) if it names no version


def read_needs(data: _Bytes) -> Needs | None:
    """Return the needs of a 64-bit little-endian ELF file (as on x86_64 and aarch64), or None for
    anything else, including a file that is truncated, or has tables with cycles or absurd sizes.
    """
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    try:
        segments = list(_segments(data))
        places = [(offset, size) for kind, offset, _, size in segments if kind == _DYNAMIC]
        tags = list(_tags(data, *places[0])) if places else []  # the loader reads only one, too
        values = dict(tags)
        if _STRTAB not in values:
            return Needs((), (0, 0))  # linked statically
        texts = _place(segments, values[_STRTAB])
        needed = [
            _text(data, texts + value).decode(errors="replace")
            for tag, value in tags
            if tag == _NEEDED
        ]
        versions: Iterable[bytes] = ()
        if _VERNEED in values:
            place = _place(segments, values[_VERNEED])
            versions = _versions(data, place, values[_VERNEEDNUM], texts)
        newest = max(map(_parse_version, versions), default=(0, 0))
    except (struct.error, LookupError):
        return None
    return Needs(tuple(needed), newest)


def _segments(data: _Bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield the kind of each segment, its offset in the file, its address, its size in the file."""
    (table,) = _unpack("<Q", data, 32)
    size, count = _unpack("<HH", data, 54)
    for number in range(count):
        kind, _, offset, address, _, length = _unpack("<IIQQQQ", data, table + number * size)
        yield kind, offset, address, length


def _tags(data: _Bytes, offset: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the tags and their values, up to the tag that marks the end."""
    for number in range(size // 16):
        if number == _MOST:
            raise LookupError(size)
        tag, value = _unpack("<QQ", data, offset + 16 * number)
        if tag == _LAST:
            return
        yield tag, value


def _place(segments: list[tuple[int, int, int, int]], address: int) -> int:
    """Return the place in the file of an address; raise LookupError if the file does not contain
    it.
    """
    for kind, offset, start, size in segments:
        if kind == _LOAD and start <= address < start + size:
            return address - start + offset
    raise LookupError(address)


def _versions(data: _Bytes, place: int, count: int, texts: int) -> Iterator[bytes]:
    """Yield the names of the needed versions of all libraries, such as GLIBC_2.38."""
    left = _MOST
    for _ in range(min(count, _MOST)):
        _, entries, _, first, following = _unpack("<HHIII", data, place)
        entry = place + first
        for _ in range(entries):
            left -= 1
            if left < 0:
                raise LookupError(count)
            _, _, _, name, step = _unpack("<IHHII", data, entry)
            yield _text(data, texts + name)
            entry += step
        if not following:
            return  # the last one
        place += following


def _text(data: _Bytes, place: int) -> bytes:
    _check(data, place)
    end = data.find(b"\0", place, place + _LONGEST)
    if end < 0:
        raise LookupError(place)
    return data[place:end]


def _unpack(layout: str, data: _Bytes, place: int) -> tuple[Any, ...]:
    _check(data, place)
    return struct.unpack_from(layout, data, place)


def _check(data: _Bytes, place: int) -> None:
    """Raise LookupError for a place outside the file, even one too large for struct and mmap."""
    if not 0 <= place <= len(data):
        raise LookupError(place)


def _parse_version(name: bytes) -> tuple[int, int]:
    found = _GLIBC.match(name)
    if found:
        return int(found[1]), int(found[2])
    return (2, 36) if name == _RELR else (0, 0)
