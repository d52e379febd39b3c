"""Find which libraries, and which version of glibc, a shared library needs."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from mmap import mmap
from typing import NamedTuple, Union

# See elf(5), and the generic ABI for the tags.
_LOAD, _DYNAMIC = 1, 2  # kinds of segments
_LAST, _NEEDED, _STRTAB, _STRSZ = 0, 1, 5, 10  # tags
# The names of the needed versions of glibc are among the texts of a library.
_GLIBC = re.compile(rb"GLIBC_(\d{1,4})\.(\d{1,4})")
_RELR = b"GLIBC_ABI_DT_RELR"  # packed relative relocations, which glibc reads since 2.36

_MOST = 10_000  # tags in one file; real libraries have hundreds
_MOST_TEXTS = 1 << 25  # bytes; those of the largest libraries have a few million
_LONGEST = 4096  # bytes of a name

_Bytes = Union[bytes, mmap]


class Needs(NamedTuple):
    """The libraries and the glibc version that a library needs."""

    libraries: tuple[str, ...]  # names such as libm.so.6
    glibc: tuple[int, int]  # (2, 38), or (0, 0) if it names no version


def read_needs(data: _Bytes) -> Needs | None:
    """Return what a 64-bit little-endian ELF file (as on x86_64 and aarch64) needs, or None for
    anything else, including a file that is truncated, or has absurd sizes.
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
        begin = _place(segments, values[_STRTAB])
        texts = data[begin : begin + min(values[_STRSZ], _MOST_TEXTS)]
        needed = [_read_name(texts, value) for tag, value in tags if tag == _NEEDED]
    except (struct.error, LookupError, OverflowError):
        return None
    versions = [(int(major), int(minor)) for major, minor in _GLIBC.findall(texts)]
    relr = [(2, 36)] if _RELR in texts else []
    return Needs(tuple(needed), max([*versions, *relr], default=(0, 0)))


def _segments(data: _Bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield the kind of each segment, its offset in the file, its address, its size in the file."""
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for number in range(count):
        kind, _, offset, address, _, length = struct.unpack_from(
            "<IIQQQQ", data, table + number * size
        )
        yield kind, offset, address, length


def _tags(data: _Bytes, offset: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the tags and their values, up to the tag that marks the end."""
    for number in range(size // 16):
        if number == _MOST:
            raise LookupError(size)
        tag, value = struct.unpack_from("<QQ", data, offset + 16 * number)
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


def _read_name(texts: bytes, place: int) -> str:
    """Return the name at this place; raise LookupError if it is not terminated."""
    end = texts.find(b"\0", place, place + _LONGEST)
    if end < 0:
        raise LookupError(place)
    return texts[place:end].decode(errors="replace")
