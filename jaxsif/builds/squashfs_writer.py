"""Write a squashfs file system whose files are those of other ones.

The data of a file are copied as they were compressed, so that a file is compressed once for all
images that hold it. Big ones come first, the biggest before the others: two images that differ in
small files alone begin alike.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import BinaryIO

from jaxsif.errors import HostError
from jaxsif.images.squashfs import (
    BLOCK_DEVICE,
    CHARACTER_DEVICE,
    CHUNK,
    DIRECTORY,
    ENTRY,
    FILE,
    INODE,
    LARGE,
    LARGE_DIRECTORY,
    LARGE_FILE,
    LINK,
    LISTING,
    MAGIC,
    NO_INDEX,
    STORED,
    SUPERBLOCK,
    ZSTD,
    Data,
    Node,
)

# Inodes, ids and (no) extended attributes not compressed, no fragments, no attributes, duplicates
# found.
_FLAGS = 0x1 | 0x10 | 0x40 | 0x200 | 0x800
_NONE = 0xFFFFFFFFFFFFFFFF  # the place of a table that is not there
_ENTRIES = 256  # in one listing
BIG = 1 << 20  # bytes of data
_STEP = 16 << 20  # bytes that are copied at once


class _Metadata:
    """A table that grows, in blocks of `CHUNK` bytes."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def place(self) -> tuple[int, int]:
        """Where the next byte goes: the beginning of its block in the table, the place in that
        block.
        """
        block, offset = divmod(len(self._bytes), CHUNK)
        return block * (CHUNK + 2), offset

    def add(self, *parts: bytes) -> None:
        for part in parts:
            self._bytes += part

    def packed(self) -> bytes:
        """The table as it is stored."""
        chunks = [self._bytes[at : at + CHUNK] for at in range(0, len(self._bytes), CHUNK)]
        return b"".join(struct.pack("<H", STORED | len(chunk)) + chunk for chunk in chunks)


class _Writer:
    """The metadata of the file system that is being written."""

    def __init__(self, root: Node, places: Mapping[Data, int]) -> None:
        self.inodes, self.directories = _Metadata(), _Metadata()
        self.ids = sorted({number for node in root.walk() for number in (node.uid, node.gid)})
        self._numbers = {id(node): number for number, node in enumerate(root.walk(), 1)}
        self._places = places
        self.count = len(self._numbers)
        self.root = self._add(root, self.count + 1)

    def _add(self, node: Node, parent: int) -> tuple[int, int]:
        """Write the inodes below a node, then its own; return the place of that."""
        number = self._numbers[id(node)]
        entries = [
            (name, child, self._add(child, number)) for name, child in sorted(node.children.items())
        ]
        if node.type == DIRECTORY:
            body = self._directory(node, parent, entries)
        elif node.type == FILE:
            assert node.data is not None
            body = LARGE_FILE.pack(
                self._places[node.data], node.size, node.sparse, 1, NO_INDEX, 0, NO_INDEX
            )
            body += struct.pack(f"<{len(node.data.blocks)}I", *node.data.blocks)
        elif node.type == LINK:
            body = struct.pack("<II", 1, len(node.target)) + node.target
        elif node.type in (BLOCK_DEVICE, CHARACTER_DEVICE):
            body = struct.pack("<II", 1, node.device)
        else:
            body = struct.pack("<I", 1)
        place = self.inodes.place()
        type_ = node.type + LARGE if node.type in (DIRECTORY, FILE) else node.type
        ids = self.ids.index(node.uid), self.ids.index(node.gid)
        self.inodes.add(INODE.pack(type_, node.mode, *ids, node.mtime, number), body)
        return place

    def _directory(
        self, node: Node, parent: int, entries: list[tuple[bytes, Node, tuple[int, int]]]
    ) -> bytes:
        block, offset = self.directories.place()
        size, position = 3, 0
        while position < len(entries):
            first = self._numbers[id(entries[position][1])]
            listed = list(self._one_listing(entries[position:], first))
            header = LISTING.pack(len(listed) - 1, entries[position][2][0], first)
            self.directories.add(header, *listed)
            size += len(header) + sum(map(len, listed))
            position += len(listed)
        links = 2 + sum(child.type == DIRECTORY for child in node.children.values())
        return LARGE_DIRECTORY.pack(links, size, block, parent, 0, offset, NO_INDEX)

    def _one_listing(
        self, entries: list[tuple[bytes, Node, tuple[int, int]]], first: int
    ) -> Iterator[bytes]:
        """As many entries as one header serves: inodes in one block, numbers near to the first."""
        for name, child, (block, offset) in entries[:_ENTRIES]:
            difference = self._numbers[id(child)] - first
            if block != entries[0][2][0] or difference > 0x7FFF:
                return
            yield ENTRY.pack(offset, difference, child.type, len(name) - 1) + name


def write(
    out: BinaryIO, root: Node, block_size: int, mtime: int, ahead: Mapping[Data, int] | None = None
) -> int:
    """Write a file system at the place where `out` is, which must be a multiple of 4096; return its
    size in bytes.

    `ahead` has the places in `out` of data that are there already.
    """
    begin = out.tell()
    places = place_data(root)
    missing = {
        data: begin + at
        for data, at in places.items()
        if not ahead or ahead.get(data) != begin + at
    }
    copy_data(out, missing)
    out.seek(begin + SUPERBLOCK.size + sum(data.length for data in places))
    writer = _Writer(root, places)
    inodes = out.tell() - begin
    out.write(writer.inodes.packed())
    directories = out.tell() - begin
    out.write(writer.directories.packed())
    fragments = out.tell() - begin  # an empty table
    ids = _Metadata()
    ids.add(struct.pack(f"<{len(writer.ids)}I", *writer.ids))
    out.write(ids.packed() + struct.pack("<Q", fragments))
    used = out.tell() - begin
    out.write(bytes(-used % 4096))
    end = out.tell()
    block, offset = writer.root
    shape = (block_size, 0, ZSTD, block_size.bit_length() - 1, _FLAGS, len(writer.ids), 4, 0)
    tables = (block << 16 | offset, used, used - 8, _NONE, inodes, directories, fragments, _NONE)
    out.seek(begin)
    out.write(SUPERBLOCK.pack(MAGIC, writer.count, mtime, *shape, *tables))
    out.seek(end)
    return end - begin


def place_data(root: Node) -> dict[Data, int]:
    """Where the data of all files go in a file system, once for those that share them."""
    found = dict.fromkeys(node.data for node in root.walk() if node.data)
    places, end = {}, SUPERBLOCK.size
    for data in sorted(found, key=lambda data: -data.length if data.length >= BIG else 0):
        places[data] = end
        end += data.length
    return places


def copy_data(
    out: BinaryIO, places: Mapping[Data, int], wanted: Callable[[], bool] = lambda: True
) -> None:
    """Copy data to their places in `out`, as long as they are wanted."""
    sources: dict[str, BinaryIO] = {}
    with ExitStack() as files:
        for data, place in places.items():
            if data.path not in sources:
                sources[data.path] = files.enter_context(open(data.path, "rb"))
            out.seek(place)
            _copy(sources[data.path], data, out, wanted)


def _copy(source: BinaryIO, data: Data, out: BinaryIO, wanted: Callable[[], bool]) -> None:
    position, left = data.start, data.length
    while left and wanted():
        count = os.sendfile(out.fileno(), source.fileno(), position, min(left, _STEP))
        if not count:
            raise HostError(
                f"file ended {left} bytes too early: {data.path}", "", "remove it, and build again"
            )
        position, left = position + count, left - count
