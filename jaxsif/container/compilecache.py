"""The folder of JAX's compile cache: of this user alone, one for each image, on a disk that the
nodes share.

JAX executes what it finds there, so nobody else may write it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from zlib import crc32  # and not hashlib, which takes 3 ms to import

from jaxsif import files
from jaxsif.errors import HostError
from jaxsif.images.file import cache_folder, open_image, read_objects

_HEAD, _TAIL = 4096, 65536  # bytes


def identify(image: str) -> str:
    """Return a name for what is in an image's file, from a few of its bytes, since all of them take
    seconds to read.

    The ends of a squashfs hold its sizes, and the table of its files; a signature changes neither.
    Raise OSError, and HostError for a file that is no image.
    """
    head = tail = 0
    with open_image(image) as file:
        for part in read_objects(image):
            if part.type == "partition":
                file.seek(part.offset)
                head = crc32(file.read(min(part.size, _HEAD)), head)
                file.seek(part.offset + max(0, part.size - _TAIL))
                tail = crc32(file.read(min(part.size, _TAIL)), tail)
    return f"{head:08x}{tail:08x}"


def cache_of(image: str, folder: str | None, environ: Mapping[str, str]) -> str:
    """Return the path of an image's compile cache, below `folder` or else the user's own cache."""
    above = os.path.join(cache_folder(environ), "compiled")
    if folder:
        above = os.path.join(os.path.abspath(folder), f"jaxsif-{os.getuid()}")
    return os.path.join(above, identify(image))


def make_private(path: str, source: str) -> None:
    """Make a folder of `cache_of`, for this user alone; raise OSError, and HostError where others
    may write.
    """
    mine = os.path.dirname(path)
    above = os.path.dirname(mine)
    os.makedirs(above, mode=0o700, exist_ok=True)
    mode = os.stat(above).st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise _open_to_others(above, source)  # they could put another folder in its place
    for folder in (mine, path):
        if not files.make_private(folder):
            raise _open_to_others(folder, source)


def _open_to_others(folder: str, source: str) -> HostError:
    return HostError(
        f"the compile cache is open to others: {folder}",
        source,
        "remove it, since JAX executes what is in it;"
        " or pass --no-compile-cache, or --compile-cache-folder",
    )
