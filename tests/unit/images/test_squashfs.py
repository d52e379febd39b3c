"""A tree that is written is the tree that is read; tests/cluster has unsquashfs and FUSE read whole images."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.bounds import read_bounded

from jaxsif.builds.squashfs_writer import write
from jaxsif.errors import HostError
from jaxsif.images.squashfs import BLOCK_DEVICE, CHARACTER_DEVICE, DIRECTORY, FIFO, FILE, LINK, Data, Node, read

BLOCK = 131072
STORED = 1 << 24  # a block that is not compressed


def folder(**children: Node) -> Node:
    return Node(DIRECTORY, 0o755, children={name.encode(): child for name, child in children.items()})


def written(tmp_path: Path, root: Node, before: int = 0) -> str:
    """The file of a file system that begins behind `before` bytes."""
    path = tmp_path / "written.sqfs"
    with path.open("wb") as out:
        out.write(bytes(before))
        size = write(out, root, BLOCK, 1234567890)
    assert path.stat().st_size == before + size
    assert size % 4096 == 0
    return str(path)


def listed(root: Node, at: bytes = b"") -> dict[bytes, tuple[object, ...]]:
    """Every node of a tree, by its path, without the places of data."""
    blocks = root.data and root.data.blocks
    fields = (root.type, root.mode, root.uid, root.gid, root.mtime, root.target, root.size, root.sparse, root.device)
    nodes = {at: (*fields, blocks)}
    for name, child in root.children.items():
        nodes.update(listed(child, at + b"/" + name))
    return nodes


def content(node: Node) -> bytes:
    assert node.data
    with open(node.data.path, "rb") as file:
        file.seek(node.data.start)
        return file.read(node.data.length)


def test_every_kind_of_node(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"skipped" + b"a" * 50 + b"b" * 20)
    file = Node(FILE, 0o4755, 0, 42, 7, size=BLOCK + 20, data=Data(str(source), 7, (50, STORED | 20)))
    nodes = {
        "file": file,
        "same": Node(FILE, 0o600, 1000, 100, 9, size=file.size, data=file.data),
        "hole": Node(FILE, 0o644, size=3 * BLOCK, sparse=2 * BLOCK, data=Data(str(source), 57, (0, 20, 0))),
        "empty": Node(FILE, 0o644, data=Data(str(source), 0, ())),
        "link": Node(LINK, 0o777, target=b"/mnt/cache/x"),
        "null": Node(CHARACTER_DEVICE, 0o666, device=0x103),
        "disk": Node(BLOCK_DEVICE, 0o660, device=0x800),
        "pipe": Node(FIFO, 0o600),
        "folder": folder(inner=folder(file=file), empty=folder()),
    }
    path = written(tmp_path, folder(**nodes), before=8192)
    found = read(path, 8192)
    assert found.block_size == BLOCK
    assert listed(found.root) == listed(folder(**nodes))
    children = found.root.children
    assert content(children[b"file"]) == b"a" * 50 + b"b" * 20
    assert content(children[b"hole"]) == b"b" * 20
    assert children[b"same"].data == children[b"file"].data  # stored once
    # Header, data (70 and 20 bytes, once each), metadata: nothing is stored twice.
    assert Path(path).read_bytes().count(b"a" * 50) == 1


@pytest.mark.parametrize("number", [0, 1, 256, 257, 3000])
def test_folders_of_any_size(tmp_path: Path, number: int) -> None:
    """Listings of 256 entries at most, inodes and listings over many blocks of metadata."""
    files = {f"{n}-{'x' * (n % 200)}": Node(LINK, 0o777, target=b"y" * (n % 90 + 1)) for n in range(number)}
    root = folder(before=folder(**files), **files)
    assert listed(read(written(tmp_path, root)).root) == listed(root)


def test_numbers_of_inodes_that_lie_far_apart(tmp_path: Path) -> None:
    """An entry notes its inode's number as a difference of 16 bits to the first one of its listing."""
    many = {f"{n:05}": Node(FIFO, 0o600) for n in range(40_000)}
    root = folder(a=Node(FIFO, 0o600), b=folder(**many), c=Node(FIFO, 0o600))
    assert listed(read(written(tmp_path, root)).root) == listed(root)


def test_same_tree_same_bytes(tmp_path: Path) -> None:
    """In whatever order its entries were found."""
    names = [f"file{n}" for n in range(300)]
    one = Path(written(tmp_path, folder(**{name: Node(FIFO, 0o600) for name in names}))).read_bytes()
    other = Path(written(tmp_path, folder(**{name: Node(FIFO, 0o600) for name in reversed(names)}))).read_bytes()
    assert one == other


def test_another_file_system_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_bytes(b"hsqs" + bytes(200))
    with pytest.raises(HostError, match="not a file system packed by jaxsif"):
        read(str(path))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes]:
    """A place for file systems, and a whole one with each kind of node."""
    folder_ = tmp_path_factory.mktemp("small")
    (folder_ / "source").write_bytes(b"a" * 50)
    file = Node(FILE, 0o644, size=BLOCK + 20, data=Data(str(folder_ / "source"), 0, (30, STORED | 20)))
    nodes = {"a": folder(), "b": folder(file=file, pipe=Node(FIFO, 0o600)), "link": Node(LINK, 0o777, target=b"/x")}
    path = written(folder_, folder(**nodes, null=Node(CHARACTER_DEVICE, 0o666, device=0x103)))
    return path, Path(path).read_bytes()


def read_changed(small: tuple[str, bytes], content: bytes) -> None:
    """Either it is a file system, or the error names the file."""
    path, _ = small
    Path(path).write_bytes(content)
    error = read_bounded(lambda: list(read(path).root.walk()))
    assert error is None or error.what == f"not a file system packed by jaxsif: {path}"


@given(st.dictionaries(st.integers(0, 11), st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 600)), min_size=1))
def test_any_superblock(small: tuple[str, bytes], fields: dict[int, int]) -> None:
    """Numbers of 32 bits, then of 64."""
    content = bytearray(small[1])
    for field, value in fields.items():
        layout, place = ("<I", 4 + 4 * field) if field < 4 else ("<Q", 32 + 8 * (field - 4))
        struct.pack_into(layout, content, place, value & (0xFFFFFFFF if field < 4 else 0xFFFFFFFFFFFFFFFF))
    read_changed(small, content)


@given(st.lists(st.tuples(st.integers(0, 600), st.binary(min_size=1, max_size=4)), min_size=1), st.integers(0, 8192))
def test_any_bytes(small: tuple[str, bytes], changes: list[tuple[int, bytes]], size: int) -> None:
    content = bytearray(small[1])
    for place, data in changes:
        content[place : place + len(data)] = data
    read_changed(small, content[: max(size, 300)])


def test_folder_within_itself(small: tuple[str, bytes]) -> None:
    """And, with two entries for the one below it, a tree that doubles at each step."""
    path, content = small
    entry = content.index(struct.pack("<HH", DIRECTORY, 0) + b"a") - 4
    changed = bytearray(content)
    struct.pack_into("<H", changed, entry, struct.unpack_from("<Q", content, 32)[0] & 0xFFFF)
    read_changed(small, changed)
    with pytest.raises(HostError, match="not a file system packed by jaxsif"):
        read(path)


def test_file_of_absurd_size(small: tuple[str, bytes]) -> None:
    path, content = small
    changed = content.replace(struct.pack("<I", BLOCK + 20), struct.pack("<I", 2**32 - 1))
    assert changed != content
    read_changed(small, changed)
    with pytest.raises(HostError, match="not a file system packed by jaxsif"):
        read(path)


def test_data_that_are_cut_short(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"short")
    file = Node(FILE, 0o644, size=20, data=Data(str(source), 0, (20,)))
    with pytest.raises(HostError, match="file ended 15 bytes too early"):
        written(tmp_path, folder(file=file))
