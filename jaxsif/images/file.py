"""The file of an image: where its root file system lies in it, the digest that names that, whoever
signed it, and what is remembered of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, BinaryIO

from jaxsif.errors import HostError, told_as
from jaxsif.files import user_folder, write_file
from jaxsif.foreign import MOST_TEXT, open_file, parse_json, read_text
from jaxsif.images.sif import (
    HEADER_SIZE,
    DataObject,
    Header,
    check_field,
    check_sif,
    check_time,
    parse_descriptors,
)

_CHUNK = 1 << 20  # bytes read at once
_MOST_REMEMBERED = 4 << 20  # bytes: hundreds of images, each with the names of its libraries


def open_image(image: str, source: str = "") -> BinaryIO:
    """Open an image's file. Raise HostError for what is no file, such as a FIFO, and OSError."""
    return open_file(image, "image", source)


def read_header(file: BinaryIO, image: str, source: str = "") -> Header:
    """Return what a SIF file says of itself; raise HostError for one that is none or is cut short,
    and OSError.
    """
    file.seek(0)
    return check_sif(file.read(HEADER_SIZE), _size(file), image, source)


def read_objects(image: str, source: str = "") -> tuple[DataObject, ...]:
    """Return the parts of a SIF file; raise HostError as `read_header`, and for parts that are not
    in it; and OSError.
    """
    with open_image(image, source) as file:
        header = read_header(file, image, source)
        file.seek(header.table)
        return parse_descriptors(file.read(header.table_size), _size(file), image, source)


def read_parts(image: str, kind: str) -> list[tuple[DataObject, bytes]]:
    """Return the parts of one kind, such as 'signature', and their bytes; raise HostError for large
    ones, and OSError.
    """
    parts = [part for part in read_objects(image) if part.type == kind]
    size = sum(part.size for part in parts)
    check_field(size <= MOST_TEXT, f"size of its {kind} parts", size, image, "")
    with open_image(image) as file:
        return [(part, _read_at(file, part)) for part in parts]


def read_unpacked(image: str, name: str, what: str) -> str:
    """Return a text that the runtime keeps in an unpacked image; '' where it is not there. Raise
    HostError for a large one, which it calls `what`, and OSError.
    """
    with suppress(FileNotFoundError):
        return read_text(os.path.join(image, ".singularity.d", name), what)
    return ""


def _read_at(file: BinaryIO, part: DataObject) -> bytes:
    file.seek(part.offset)
    return file.read(part.size)


def read_date(image: str) -> str:
    """Return when the image was made, as 2026-11-20T09:30:00+00:00; raise HostError where it does
    not tell, and OSError.
    """
    from datetime import datetime, timezone  # here: no run needs it

    with open_image(image) as file:
        created = check_time(read_header(file, image), image)
    return datetime.fromtimestamp(created, timezone.utc).isoformat(timespec="seconds")


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def find_root(image: str, source: str = "") -> DataObject:
    """Return the partition that becomes the container's root; raise HostError where there is none,
    or more than that.

    A second partition would be laid over the root, and no digest of the first one tells what is
    seen then.
    """
    partitions = [part for part in read_objects(image, source) if part.type == "partition"]
    roots = [part for part in partitions if part.system]
    if len(roots) != 1 or len(partitions) != 1:
        raise HostError(
            f"image has {len(partitions)} partitions, {len(roots)} of them with a system: {image}",
            source,
            "see apptainer sif list; rebuild the image with one",
        )
    return roots[0]


def _ignore(_done: int, _total: int) -> None:
    """Take no note."""


def digest(image: str, source: str = "", progress: Callable[[int, int], None] = _ignore) -> str:
    """Return 'sha256:…' over the root file system: the same before and after signing, and for
    builds of the same inputs.

    `progress` is told the bytes read so far, and all. Raise HostError as `find_root`, and OSError.
    """
    import hashlib  # here: it takes 3 ms, and most runs compute none

    root = find_root(image, source)
    found, read = hashlib.sha256(), 0
    with open_image(image, source) as file:
        file.seek(root.offset)
        for data in _pieces(file, root.size):
            found.update(data)
            read += len(data)
            progress(read, root.size)
    left = root.size - read
    if left:
        raise HostError(
            f"image ended {left} bytes too early: {image}", source, "copy or build it again"
        )
    return f"sha256:{found.hexdigest()}"


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the next `size` bytes of a file, or all up to its end, a few at once."""
    while data := file.read(min(size, _CHUNK)):
        yield data
        size -= len(data)


def remembered_digest(image: str, environ: Mapping[str, str], source: str = "") -> str:
    """Return what `digest` does; read the file, gigabytes in seconds, only when it has changed."""

    def find() -> str:
        from jaxsif.screen import working  # here: most runs compute none

        with working(f"jaxsif: the digest of {os.path.basename(image)}", environ) as update:
            return digest(image, source, update)

    return remembered(image, "digest", environ, find)


def checksum(path: str) -> str:
    """Return the SHA-256 of a whole file, in hexadecimal digits; raise OSError."""
    import hashlib

    found = hashlib.sha256()
    with open_image(path) as file:
        for data in iter(lambda: file.read(_CHUNK), b""):
            found.update(data)
    return found.hexdigest()


def remembered(image: str, what: str, environ: Mapping[str, str], find: Callable[[], str]) -> str:
    """Return what `find` returned when it was last asked for `what` about `image`, and ask it again
    when the file has changed.
    """
    state = _state(image)  # before: the file may change while it is read
    return known(image, what, environ) or remember(image, what, find(), environ, state)


def known(image: str, what: str, environ: Mapping[str, str]) -> str | None:
    """Return what is remembered of `what` about the image as it is now, None for nothing; raise
    OSError.
    """
    found = _entry(image, _state(image), environ).get(what)
    return found if isinstance(found, str) and found else None


def remember(
    image: str, what: str, value: str, environ: Mapping[str, str], state: list[int] | None = None
) -> str:
    """Keep `value`, where that is possible, for `known`; return it. Raise OSError when there is no
    such image.
    """
    import json

    state = state or _state(image)
    memory = _memory(environ)
    entries = {name: entry for name, entry in _recall(memory).items() if os.path.exists(name)}
    entry = {**_entry(image, state, environ), "state": state, what: value}
    entries[os.path.realpath(image)] = entry
    # A home that is full or cannot be written: next time the image is read again.
    with suppress(OSError):
        write_file(memory, json.dumps(entries).encode(), 0o600)
    return value


def _entry(image: str, state: list[int], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return what is remembered of the image in this state."""
    entry = _recall(_memory(environ)).get(os.path.realpath(image))
    return entry if isinstance(entry, dict) and entry.get("state") == state else {}


def _state(image: str) -> list[int]:
    """Return what changes when the file's content does, and is the same on all hosts: on NFS and
    Lustre, st_dev is not.
    """
    status = os.stat(image)
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def find_state(image: str) -> str:
    """Return INODE:SIZE:TIME of the image's file, by which a node knows it
    (jaxsif/node/allowed.py); raise OSError.
    """
    inode, size, _, changed = _state(image)
    return f"{inode}:{size}:{changed}"


def _memory(environ: Mapping[str, str]) -> str:
    return os.path.join(cache_folder(environ), "images.json")


def _recall(memory: str) -> dict[str, Any]:
    """Return path -> what is remembered of an image; nothing of a file that cannot be read."""
    try:
        images = parse_json(
            read_text(memory, "what is remembered of images", most=_MOST_REMEMBERED)
        )
    except (OSError, ValueError, HostError):
        return {}  # the first time, or cut short by a full disk
    return images if isinstance(images, dict) else {}


def cache_folder(environ: Mapping[str, str]) -> str:
    """Return the folder of what jaxsif remembers for this user, and can do without."""
    return os.path.join(user_folder(environ, "XDG_CACHE_HOME"), "jaxsif")


def staged_path(folder: str, digest: str) -> str:
    """Return where a node has the image of this digest, below `folder`, for `jaxsif run --stage`:
    of this user alone.
    """
    return os.path.join(folder, f"jaxsif-{os.getuid()}", digest.partition(":")[2][:16])


def check_state(image: str, state: str, source: str) -> None:
    """Raise HostError unless the file of an image is as `find_state` told when a policy looked at
    it.
    """
    with told_as(unreadable(image, source)):
        found = find_state(image)
    if found != state:
        raise HostError(
            f"the image changed while the policy looked at it: {image}", source, "run it again"
        )


def unreadable(image: str, source: str) -> HostError:
    """Return the error for an image that the system does not let us read."""
    return HostError(f"cannot read image {image}", source, "check its path and permissions")
