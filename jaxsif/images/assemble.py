"""An image from the engine's, in which the files of wheels are links into the cache, and from these files.

Each wheel is compressed once and kept in the cache; to make an image is to copy the compressed blocks.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from jaxsif import process
from jaxsif.errors import HostError
from jaxsif.imagefile import find_root
from jaxsif.images import squashfs
from jaxsif.images.hostsettings import CACHE_FOLDER
from jaxsif.images.squashfs import FILE, LINK, Node
from jaxsif.images.squashfs_writer import write
from jaxsif.sif import replace_partition

# Level 3 packs in about a third of level 6's time, see docs/image.md. The block size is the flavour's.
SQUASHFS = ("-comp", "zstd", "-Xcompression-level", "3", *squashfs.OPTIONS)
_PREFIX = f"{CACHE_FOLDER}/".encode()
_DEPTH = 3  # uv keeps a wheel in uv/archive-v0/ID of the cache


def find_links(root: Node) -> Iterator[tuple[Node, bytes, Path]]:
    """Each link into the cache: its folder, its name there, and its target in the cache."""
    for folder in root.walk():
        for name, node in folder.children.items():
            if node.type == LINK and node.target.startswith(_PREFIX):
                yield folder, name, Path(os.fsdecode(node.target[len(_PREFIX) :]))


def pack_wheels(image: Path, cache: Path, block: str, scratch: Path) -> int:
    """Compress the wheels that the engine's image has links to, unless they are kept; return how many were not."""
    root = squashfs.read(str(image), find_root(str(image)).offset).root
    wheels = {_wheel(target) for _, _, target in find_links(root)}
    missing = [wheel for wheel in sorted(wheels) if not _packed(cache, wheel, block).exists()]
    log = cache / "packed.log"
    for wheel in missing:
        partial = scratch / "packed"
        argv = ["mksquashfs", str(cache / wheel), str(partial), "-noappend", "-quiet", "-no-progress", *SQUASHFS]
        with open(log, "wb") as messages:
            status = process.run_plain([*argv, "-b", block], stdout=messages, stderr=messages)
        if status:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
            raise HostError(f"mksquashfs failed:\n{tail}", str(log), "see its messages")
        packed = _packed(cache, wheel, block)
        packed.parent.mkdir(exist_ok=True)
        partial.replace(packed)
    return len(missing)


def assemble(image: Path, target: Path, cache: Path, block: str, created: int) -> None:
    """Write `target`: the engine's image with the files of the wheels, no time in it later than `created`."""
    partition = find_root(str(image))
    root, block_size = squashfs.read(str(image), partition.offset)
    wheels: dict[Path, Node] = {}
    for folder, name, path in list(find_links(root)):
        wheel = _wheel(path)
        if wheel not in wheels:
            wheels[wheel] = squashfs.read(str(_packed(cache, wheel, block))).root
        folder.children[name] = replace(_find_file(wheels[wheel], path), mtime=created)
    for node in root.walk():
        node.mtime = min(node.mtime, created)  # what the base system brings is older
    with open(image, "rb") as file:
        head = file.read(partition.offset)
    with open(target, "wb") as out:
        out.write(head)
        size = write(out, root, block_size, created)
        out.seek(0)
        out.write(replace_partition(head, size, created))
    shutil.copymode(image, target)


def _wheel(target: Path) -> Path:
    """The folder of a wheel, relative to the cache."""
    return Path(*target.parts[:_DEPTH])


def _packed(cache: Path, wheel: Path, block: str) -> Path:
    return cache / "packed" / f"{wheel.name}-{block}.sqfs"


def _find_file(wheel: Node, path: Path) -> Node:
    """A file of a wheel, with permissions that do not depend on who filled the cache."""
    node = wheel
    for part in path.parts[_DEPTH:]:
        node = node.children[os.fsencode(part)]
    assert node.type == FILE
    return replace(node, mode=0o755 if node.mode & 0o100 else 0o644, uid=0, gid=0)
