"""Write a squashfs file system from files of existing ones.

File data are copied in compressed form, so a file is compressed only once for all images that
contain it.
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Mapping
from contextlib import ExitStack
from typing import BinaryIO, NamedTuple

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

# Inodes, ids and extended attributes uncompressed, no fragments, no extended attributes, duplicates
# removed.
_FLAGS = 0x1 | 0x10 | 0x40 | 0x200 | 0x800
_NONE = 0xFFFFFFFFFFFFFFFF  # the offset of a missing table
_ENTRIES = 256  # in one listing
_STEP = 16 << 20  # bytes per copy


def _place(table: bytearray) -> tuple[int, int]:
    """Return the position of a table's next byte: the offset of its block in the file, and the
    byte's offset in that block.
    """
    block, offset = divmod(len(table), CHUNK)
    return block * (CHUNK + 2), offset


def _packed(table: bytes | bytearray) -> bytes:
    """Return a table in its stored form, in blocks of `CHUNK` bytes."""
    chunks = [table[at : at + CHUNK] for at in range(0, len(table), CHUNK)]
    return b"".join(struct.pack("<H", STORED | len(chunk)) + chunk for chunk in chunks)


class _Entry(NamedTuple):
    """A written node in its folder."""

    name: bytes
    type: int
    number: int
    block: int  # the position of its inode
    offset: int

    def shares(self, other: _Entry) -> bool:
        """Return whether one header serves both entries: their inodes are in one block, and their
        numbers are close together.
        """
        return self.block == other.block and other.number - self.number <= 0x7FFF


class _Writer:
    """The metadata of the file system being written."""

    def __init__(self, root: Node, places: Mapping[Data, int]) -> None:
        nodes = list(root.walk())
        self.inodes, self.directories = bytearray(), bytearray()
        self.ids = sorted({node.uid for node in nodes} | {node.gid for node in nodes})
        self._numbers = {id(node): number for number, node in enumerate(nodes, 1)}
        self._places = places
        self.count = len(nodes)
        self.root = self._add(b"", root, self.count + 1)

    def _add(self, name: bytes, node: Node, parent: int) -> _Entry:
        """Write the inodes under a node, then its own."""
        number = self._numbers[id(node)]
        children = [self._add(name, child, number) for name, child in sorted(node.children.items())]
        type_ = node.type
        if type_ == DIRECTORY:
            type_, body = LARGE + DIRECTORY, self._directory(parent, children)
        elif type_ == FILE:
            type_, body = LARGE + FILE, self._file(node)
        elif type_ == LINK:
            body = struct.pack("<II", 1, len(node.target)) + node.target
        elif type_ in (BLOCK_DEVICE, CHARACTER_DEVICE):
            body = struct.pack("<II", 1, node.device)
        else:
            body = struct.pack("<I", 1)
        entry = _Entry(name, node.type, number, *_place(self.inodes))
        ids = self.ids.index(node.uid), self.ids.index(node.gid)
        self.inodes += INODE.pack(type_, node.mode, *ids, node.mtime, number) + body
        return entry

    def _file(self, node: Node) -> bytes:
        assert node.data is not None
        start, blocks = self._places[node.data], node.data.blocks
        body = LARGE_FILE.pack(start, node.size, node.sparse, 1, NO_INDEX, 0, NO_INDEX)
        return body + struct.pack(f"<{len(blocks)}I", *blocks)

    def _directory(self, parent: int, entries: list[_Entry]) -> bytes:
        """Write the listings of a folder; each is a header and its entries."""
        block, offset = _place(self.directories)
        size, listed = 3, 0
        while listed < len(entries):
            first, *rest = entries[listed : listed + _ENTRIES]
            served = [first, *itertools.takewhile(first.shares, rest)]
            listing = LISTING.pack(len(served) - 1, first.block, first.number)
            for entry in served:
                difference = entry.number - first.number
                listing += ENTRY.pack(entry.offset, difference, entry.type, len(entry.name) - 1)
                listing += entry.name
            self.directories += listing
            size, listed = size + len(listing), listed + len(served)
        links = 2 + [entry.type for entry in entries].count(DIRECTORY)
        return LARGE_DIRECTORY.pack(links, size, block, parent, 0, offset, NO_INDEX)


def write(out: BinaryIO, root: Node, block_size: int, mtime: int) -> int:
    """Write a file system at the current position of `out`, which must be a multiple of 4096;
    return its size in bytes.
    """
    begin = out.tell()
    out.seek(SUPERBLOCK.size, os.SEEK_CUR)  # the superblock is written last
    writer = _Writer(root, _copy_data(out, root))
    inodes = out.tell() - begin
    directories = inodes + out.write(_packed(writer.inodes))
    fragments = directories + out.write(_packed(writer.directories))  # an empty table
    ids = _packed(struct.pack(f"<{len(writer.ids)}I", *writer.ids))
    used = fragments + out.write(ids + struct.pack("<Q", fragments))
    out.write(bytes(-used % 4096))
    end = out.tell()
    root_place = writer.root.block << 16 | writer.root.offset
    shape = (block_size, 0, ZSTD, block_size.bit_length() - 1, _FLAGS, len(writer.ids), 4, 0)
    tables = (root_place, used, used - 8, _NONE, inodes, directories, fragments, _NONE)
    out.seek(begin)
    out.write(SUPERBLOCK.pack(MAGIC, writer.count, mtime, *shape, *tables))
    out.seek(end)
    return end - begin


def _copy_data(out: BinaryIO, root: Node) -> dict[Data, int]:
    """Copy the data of all files to the current position of `out`, shared data only once; return
    their offsets from the beginning of the file system.
    """
    places, end = {}, SUPERBLOCK.size
    sources: dict[str, BinaryIO] = {}
    with ExitStack() as files:
        for data in dict.fromkeys(node.data for node in root.walk() if node.data):
            if data.path not in sources:
                sources[data.path] = files.enter_context(open(data.path, "rb"))
            _copy(sources[data.path], data, out)
            places[data] = end
            end += data.length
    return places


def _copy(source: BinaryIO, data: Data, out: BinaryIO) -> None:
    """Append data to `out`; raise HostError if the data's file ends too early."""
    position, left = data.start, data.length
    while left:
        count = os.sendfile(out.fileno(), source.fileno(), position, min(left, _STEP))
        if not count:
            raise HostError(
                f"file ended {left} bytes too early: {data.path}", "", "remove it, and build again"
            )
        position, left = position + count, left - count
