"""The format of squashfs, and the tree of a file system made with the options below; no compressor
is needed.

https://dr-emann.github.io/squashfs/squashfs.html describes the format; all numbers are little
endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from jaxsif.errors import HostError
from jaxsif.foreign import open_file

# Level 3 packs in about a third of level 6's time. The other options are for `read`: uncompressed
# metadata, a file's data in its own blocks, one name for each file.
SQFSTAR = (
    *("-comp", "zstd", "-Xcompression-level", "3", "-noI", "-noId"),
    *("-no-fragments", "-no-xattrs", "-no-hardlinks"),
)
MKSQUASHFS = (*SQFSTAR, "-no-exports")  # sqfstar makes no table of exports anyway

# magic inodes mtime block-size fragments compressor block-log flags ids version(2)
# root used ids xattrs inodes directories fragments exports
SUPERBLOCK = struct.Struct("<4s4I6H8Q")
MAGIC = b"hsqs"
ZSTD = 6
NO_INDEX = 0xFFFFFFFF  # of a fragment, of extended attributes

DIRECTORY, FILE, LINK, BLOCK_DEVICE, CHARACTER_DEVICE, FIFO, SOCKET = range(1, 8)
LARGE = 7  # a type's number plus this is its extended form
INODE = struct.Struct("<4H2I")  # type mode uid gid mtime number
_SMALL_DIRECTORY = struct.Struct("<IIHHI")  # block links size offset parent
LARGE_DIRECTORY = struct.Struct("<4I2HI")  # links size block parent indexes offset xattrs
_SMALL_FILE = struct.Struct("<4I")  # start fragment offset size
LARGE_FILE = struct.Struct("<3Q4I")  # start size sparse links fragment offset xattrs
LISTING = struct.Struct("<3I")  # entries-1 block first-number
ENTRY = struct.Struct("<HhHH")  # offset number-first type length-1

CHUNK = 8192  # bytes of metadata in a block
STORED = 0x8000  # in the header of a block of metadata: not compressed
_BLOCK_SIZES = [1 << power for power in range(12, 21)]  # of a file system
_MOST_TABLE = 64 << 20  # bytes of a table; 100,000 files have about 5 million
_DEEPEST = 200  # nested folders
_MOST_FILE = 1 << 60  # bytes: no file has a larger offset


class Data(NamedTuple):
    """The location of a file's compressed data."""

    path: str  # path of the file that holds the file system
    start: int  # of the first block, from the beginning of that file
    # Their sizes in squashfs's form, with bit 24 set for an uncompressed block.
    blocks: tuple[int, ...]

    @property
    def length(self) -> int:
        """The sum of the blocks, in bytes."""
        return sum(block & 0xFFFFFF for block in self.blocks)


@dataclass
class Node:
    """A file, folder, link or device of a tree."""

    type: int
    mode: int  # permissions
    uid: int = 0
    gid: int = 0
    mtime: int = 0
    children: dict[bytes, Node] = field(default_factory=dict)  # of a folder
    target: bytes = b""  # of a link
    size: int = 0  # of a file
    sparse: int = 0  # bytes of zeros in a file, not stored
    data: Data | None = None
    device: int = 0

    def walk(self) -> Iterator[Node]:
        """Yield this node and all nodes under it, in the order of their names."""
        yield self
        for _, child in sorted(self.children.items()):
            yield from child.walk()


class FileSystem(NamedTuple):
    """A file system as parsed by `read`."""

    root: Node
    block_size: int


class _Tree:
    """The metadata of a file system made with these options.

    All methods raise ValueError for a file system made with other options, and struct.error or
    IndexError for a number that points outside its table.
    """

    def __init__(self, path: str, offset: int) -> None:
        self._path, self._offset = path, offset
        with open_file(path, "file system") as file:
            file.seek(offset)
            head = SUPERBLOCK.unpack(file.read(SUPERBLOCK.size))
            magic, _, _, self._block_size, fragments, compressor, _, _, number_of_ids, *_ = head
            self._root, _, ids, _, inodes, directories, fragment_table, _ = head[11:]
            _require(magic == MAGIC and compressor == ZSTD and fragments == 0)
            _require(self._block_size in _BLOCK_SIZES and inodes <= _MOST_FILE)
            places = (inodes, directories, fragment_table, ids)
            sizes = [end - begin for begin, end in zip(places, places[1:])]
            _require(all(0 <= size <= _MOST_TABLE for size in sizes))
            file.seek(offset + inodes)
            self._inodes, self._directories, id_table = (_unpack(file.read(size)) for size in sizes)
        # One block has 2048 ids; the table of blocks follows it.
        self._ids = struct.unpack(f"<{number_of_ids}I", id_table[: 4 * number_of_ids])
        # With our options, each inode has one name; with others, a few. This limit keeps a tree
        # from growing without end.
        self._left = 4 * len(self._inodes)

    def read(self) -> FileSystem:
        """Return the whole tree."""
        return FileSystem(self.node(self._root >> 16, self._root & 0xFFFF), self._block_size)

    def _take(self, size: int) -> None:
        """Count the bytes of inodes read so far, up to the limit."""
        self._left -= size
        _require(self._left >= 0)

    def node(self, block: int, offset: int, depth: int = 0) -> Node:
        """Return the node whose inode is at this place, with all nodes under it."""
        _require(depth <= _DEEPEST)
        self._take(INODE.size)
        position = block // (CHUNK + 2) * CHUNK + offset
        type_, mode, uid, gid, mtime, _ = INODE.unpack_from(self._inodes, position)
        kind = type_ - LARGE if type_ > LARGE else type_
        node = Node(kind, mode, self._ids[uid], self._ids[gid], mtime)
        body = position + INODE.size
        if kind == DIRECTORY:
            node.children = dict(self._children(type_, body, depth + 1))
        elif kind == FILE:
            self._read_file(node, type_, body)
        elif kind == LINK:
            (size,) = struct.unpack_from("<I", self._inodes, body + 4)
            self._take(size)
            node.target = self._inodes[body + 8 : body + 8 + size]
        elif kind in (BLOCK_DEVICE, CHARACTER_DEVICE):
            (node.device,) = struct.unpack_from("<I", self._inodes, body + 4)
        return node

    def _read_file(self, node: Node, type_: int, body: int) -> None:
        if type_ == FILE:
            start, _, _, node.size = _SMALL_FILE.unpack_from(self._inodes, body)
            body += _SMALL_FILE.size
        else:
            start, node.size, node.sparse, *_ = LARGE_FILE.unpack_from(self._inodes, body)
            body += LARGE_FILE.size
        count = -(-node.size // self._block_size)
        self._take(4 * count)
        blocks = struct.unpack_from(f"<{count}I", self._inodes, body)
        node.data = Data(self._path, self._offset + start, blocks)

    def _children(self, type_: int, body: int, depth: int) -> Iterator[tuple[bytes, Node]]:
        if type_ == DIRECTORY:
            block, _, size, offset, _ = _SMALL_DIRECTORY.unpack_from(self._inodes, body)
        else:
            _, size, block, _, _, offset, _ = LARGE_DIRECTORY.unpack_from(self._inodes, body)
        position = block // (CHUNK + 2) * CHUNK + offset
        end = position + size - 3  # "." and ".." count for three bytes, and are not stored
        while position < end:
            more, block, _ = LISTING.unpack_from(self._directories, position)
            position += LISTING.size
            for _ in range(more + 1):
                offset, _, _, length = ENTRY.unpack_from(self._directories, position)
                position += ENTRY.size + length + 1
                name = self._directories[position - length - 1 : position]
                yield name, self.node(block, offset, depth)


def _unpack(table: bytes) -> bytes:
    """Return the metadata that blocks hold; raise ValueError for compressed ones."""
    blocks, position = [], 0
    while position < len(table):
        (header,) = struct.unpack_from("<H", table, position)
        _require(header & STORED)
        begin = position + 2
        position = begin + (header & ~STORED)
        blocks.append(table[begin:position])
    return b"".join(blocks)


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("not written by jaxsif")


def read(path: str, offset: int = 0) -> FileSystem:
    """Return the file system that begins at `offset` of a file; raise HostError for one made with
    other options.
    """
    try:
        return _Tree(path, offset).read()
    except (ValueError, struct.error, IndexError) as error:
        what = f"not a file system packed by jaxsif: {path}"
        raise HostError(what, "mksquashfs", "remove the file, and build again") from error
