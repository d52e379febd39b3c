"""An image from the engine's, which lacks files of its base system and has links to files of wheels, and from these.

The base and each wheel are compressed once and kept in the cache; to make an image is to copy the compressed blocks.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from jaxsif import process
from jaxsif.errors import HostError
from jaxsif.imagefile import find_root
from jaxsif.images import squashfs
from jaxsif.images.hostsettings import CACHE_FOLDER
from jaxsif.images.squashfs import LINK, MKSQUASHFS, FileSystem, Node
from jaxsif.images.squashfs_writer import write
from jaxsif.sif import replace_partition

_PREFIX = f"{CACHE_FOLDER}/".encode()
_DEPTH = 3  # uv keeps a wheel in uv/archive-v0/ID of the cache


def read_system(image: Path) -> FileSystem:
    """The root file system of an image that the engine made."""
    return squashfs.read(str(image), find_root(str(image)).offset)


def find_links(root: Node) -> Iterator[tuple[Node, bytes, Path]]:
    """Each link into the cache: its folder, its name there, and its target in the cache."""
    for folder in root.walk():
        for name, node in folder.children.items():
            if node.type == LINK and node.target.startswith(_PREFIX):
                yield folder, name, Path(os.fsdecode(node.target[len(_PREFIX) :]))


def pack_wheels(root: Node, cache: Path, block: str, scratch: Path) -> int:
    """Compress the wheels that the engine's image has links to, unless they are kept; return how many were not."""
    wheels = {_wheel(target) for _, _, target in find_links(root)}
    missing = [wheel for wheel in sorted(wheels) if not _packed(cache, wheel, block).exists()]
    log = cache / "packed.log"
    for wheel in missing:
        partial = scratch / "packed"
        argv = ["mksquashfs", str(cache / wheel), str(partial), "-noappend", "-quiet", "-no-progress", *MKSQUASHFS]
        with open(log, "wb") as messages:
            status = process.run_plain([*argv, "-b", block], stdout=messages, stderr=messages)
        if status:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
            raise HostError(f"mksquashfs failed:\n{tail}", str(log), "see its messages")
        packed = _packed(cache, wheel, block)
        packed.parent.mkdir(exist_ok=True)
        partial.replace(packed)
    return len(missing)


def add_wheels(root: Node, cache: Path, block: str, mtime: int) -> None:
    """Put the files of wheels in place of the links to them; their modes and times do not depend on the cache."""
    wheels: dict[Path, Node] = {}
    for folder, name, path in list(find_links(root)):
        wheel = _wheel(path)
        if wheel not in wheels:
            wheels[wheel] = squashfs.read(str(_packed(cache, wheel, block))).root
        node = _find(wheels[wheel], [os.fsencode(part) for part in path.parts[_DEPTH:]])
        mode = 0o755 if node.mode & 0o100 else 0o644
        folder.children[name] = replace(node, mode=mode, uid=0, gid=0, mtime=mtime)


def add_base(root: Node, base: Path, names: Iterable[bytes]) -> None:
    """Put the files of these names, which the engine did not pack, in their places, as the base has them."""
    system = squashfs.read(str(base)).root
    for name in names:
        *folder, last = name.split(b"/")
        _find(root, folder).children[last] = _find(system, [*folder, last])


def write_image(target: Path, system: FileSystem, image: Path, created: int) -> None:
    """Write `target`: the engine's image with another file system, no time in it later than `created`."""
    for node in system.root.walk():
        node.mtime = min(node.mtime, created)  # what the base system brings is older
    with open(image, "rb") as file:
        head = file.read(find_root(str(image)).offset)
    with open(target, "wb") as out:
        out.write(head)
        size = write(out, system.root, system.block_size, created)
        out.seek(0)
        out.write(replace_partition(head, size, created))
    shutil.copymode(image, target)


def _wheel(target: Path) -> Path:
    """The folder of a wheel, relative to the cache."""
    return Path(*target.parts[:_DEPTH])


def _packed(cache: Path, wheel: Path, block: str) -> Path:
    return cache / "packed" / f"{wheel.name}-{block}.sqfs"


def _find(node: Node, path: Sequence[bytes]) -> Node:
    for name in path:
        node = node.children[name]
    return node
