"""A shared library as small as it can be, as the ELF format lays it out: what it needs, and nothing that runs."""

from __future__ import annotations

import struct

_HEADER, _SEGMENT = 64, 56


def elf_library(needed: tuple[str, ...] = ("libc.so.6",), versions: tuple[str, ...] = ()) -> bytes:
    """A file for x86_64 that needs these libraries, and these versions of the first one."""
    texts = b"\0"
    places = {}
    for text in (*needed, *versions):
        places[text] = len(texts)
        texts += text.encode() + b"\0"
    begin = _HEADER + 2 * _SEGMENT
    wanted = b""
    for number, version in enumerate(versions, 1):
        step = 16 if number < len(versions) else 0
        wanted += struct.pack("<IHHII", 0, 0, number + 1, places[version], step)
    verneed = begin + len(texts)
    if versions:
        wanted = struct.pack("<HHIII", 1, len(versions), places[needed[0]], 16, 0) + wanted
    dynamic = verneed + len(wanted)
    tags = [(1, places[name]) for name in needed] + [(5, begin), (10, len(texts))]
    tags += [(0x6FFFFFFE, verneed), (0x6FFFFFFF, 1)] if versions else []
    table = b"".join(struct.pack("<QQ", *tag) for tag in [*tags, (0, 0)])
    size = dynamic + len(table)
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, _HEADER, 0, 0, _HEADER, _SEGMENT, 2, 0, 0, 0)
    segments = struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, size, size, 4096)
    segments += struct.pack("<IIQQQQQQ", 2, 4, dynamic, dynamic, dynamic, len(table), len(table), 8)
    return header + segments + texts + wanted + table
