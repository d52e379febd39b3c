"""Assemble an image from the engine's image, which has links into the cache, and the cache's packed
files.

The base, each wheel and its compiled files are packed only once; an image is a copy of the packed
blocks.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from jaxsif import process
from jaxsif.builds.host_settings import CACHE_FOLDER
from jaxsif.builds.messages import end_of
from jaxsif.builds.squashfs_writer import write
from jaxsif.errors import HostError
from jaxsif.images import squashfs
from jaxsif.images.file import find_root, open_image
from jaxsif.images.sif import check_field, replace_partition
from jaxsif.images.squashfs import LINK, MKSQUASHFS, FileSystem, Node

# Bytes: definition, labels and bill of materials come before the file system.
_MOST_HEAD = 16 << 20
_PREFIX = f"{CACHE_FOLDER}/".encode()


def read_system(image: Path) -> FileSystem:
    """Return the root file system of an image that the engine made."""
    return squashfs.read(str(image), find_root(str(image)).offset)


def find_links(root: Node) -> Iterator[tuple[Node, bytes, Path]]:
    """Yield each link into the cache: its folder, its name there, and its target in the cache."""
    for folder in root.walk():
        for name, node in folder.children.items():
            if node.type == LINK and node.target.startswith(_PREFIX):
                yield folder, name, Path(os.fsdecode(node.target[len(_PREFIX) :]))


def pack_parts(root: Node, cache: Path, block: str, scratch: Path) -> int:
    """Pack the cache folders that the engine's image links to, unless they are packed already;
    return the number of folders packed.
    """
    (cache / "packed").mkdir(exist_ok=True)
    count = 0
    for part in sorted({_part(target) for _, _, target in find_links(root)}):
        packed = _packed(cache, part, block)
        if packed.exists():
            (cache / part).touch()
            packed.touch()
        else:
            _pack(cache / part, scratch / "packed", block, cache / "packed.log")
            (scratch / "packed").replace(packed)
            count += 1
    return count


def _pack(folder: Path, target: Path, block: str, log: Path) -> None:
    """Pack a folder into a squashfs file; raise HostError."""
    argv = ["mksquashfs", str(folder), str(target), "-noappend", "-quiet", "-no-progress"]
    with open(log, "wb") as messages:
        status = process.run_plain(
            [*argv, *MKSQUASHFS, "-b", block], stdout=messages, stderr=messages
        )
    if status:
        raise HostError("mksquashfs failed:", str(log), "see its messages", end_of(log))


def add_parts(root: Node, cache: Path, block: str, mtime: int) -> None:
    """Replace the links with the packed files; the files' modes and times do not depend on the
    cache.
    """
    links = list(find_links(root))
    parts = {_part(target) for _, _, target in links}
    roots = {part: squashfs.read(str(_packed(cache, part, block))).root for part in parts}
    for folder, name, target in links:
        part = _part(target)
        node = _find(roots[part], map(os.fsencode, target.relative_to(part).parts))
        mode = 0o755 if node.mode & 0o100 else 0o644
        folder.children[name] = replace(node, mode=mode, uid=0, gid=0, mtime=mtime)


def add_base(root: Node, base: Path, names: Iterable[bytes]) -> None:
    """Add the named files, which the engine did not pack, from the base."""
    system = squashfs.read(str(base)).root
    for name in names:
        *folder, last = name.split(b"/")
        _find(root, folder).children[last] = _find(system, [*folder, last])


def write_image(target: Path, system: FileSystem, image: Path, created: int) -> None:
    """Write `target`: the engine's image with another file system, and with no time later than
    `created`.
    """
    for node in system.root.walk():
        node.mtime = min(node.mtime, created)  # files of the base system are older
    begin = find_root(str(image)).offset
    check_field(begin <= _MOST_HEAD, "offset of its file system", begin, str(image), "")
    with open_image(str(image)) as file:
        head = file.read(begin)
    with open(target, "wb") as out:
        out.write(head)
        size = write(out, system.root, system.block_size, created)
        out.seek(0)
        out.write(replace_partition(head, size, created, str(image)))
    shutil.copymode(image, target)


def _part(target: Path) -> Path:
    """Find the folder that is packed as one part: uv/archive-v0/ID for a wheel, compiled/ID for its
    compiled files.
    """
    return Path(*target.parts[: 3 if target.parts[0] == "uv" else 2])


def _packed(cache: Path, part: Path, block: str) -> Path:
    return cache / "packed" / f"{part.name}-{block}.sqfs"


def _find(node: Node, path: Iterable[bytes]) -> Node:
    for name in path:
        node = node.children[name]
    return node
