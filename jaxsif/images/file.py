"""The file of an image: where its root file system lies in it, and the digest that names that,
whoever signed it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, BinaryIO

from jaxsif.errors import HostError
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
    """What a SIF file says of itself; raise HostError for one that is none or is cut short, and
    OSError.
    """
    file.seek(0)
    return check_sif(file.read(HEADER_SIZE), _size(file), image, source)


def read_objects(image: str, source: str = "") -> tuple[DataObject, ...]:
    """The parts of a SIF file; raise HostError as `read_header`, and for parts that are not in it;
    and OSError.
    """
    with open_image(image, source) as file:
        header = read_header(file, image, source)
        file.seek(header.table)
        return parse_descriptors(file.read(header.table_size), _size(file), image, source)


def read_parts(image: str, kind: str) -> list[tuple[DataObject, bytes]]:
    """The parts of one kind, such as 'signature', and their bytes; raise HostError for large ones,
    and OSError.
    """
    parts = [part for part in read_objects(image) if part.type == kind]
    size = sum(part.size for part in parts)
    check_field(size <= MOST_TEXT, f"size of its {kind} parts", size, image, "")
    with open_image(image) as file:
        return [(part, _read_at(file, part)) for part in parts]


def _read_at(file: BinaryIO, part: DataObject) -> bytes:
    file.seek(part.offset)
    return file.read(part.size)


def read_created(image: str) -> int:
    """When the image was made, in seconds since 1970; raise HostError where it does not tell, and
    OSError.
    """
    with open_image(image) as file:
        return check_time(read_header(file, image), image)


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def find_root(image: str, source: str = "") -> DataObject:
    """The partition that becomes the container's root; raises HostError where there is no such one,
    or more than it.

    A second partition would be laid over the root, and no digest of the first one tells what is
    seen then.
    """
    partitions = [part for part in read_objects(image, source) if part.type == "partition"]
    roots = [part for part in partitions if part.system]
    if len(roots) != 1 or len(partitions) != 1:
        raise HostError(
            f"image has {len(partitions)} partitions, {len(roots)} of them with a system: {image}",
            source,
            "apptainer sif list shows them; build it anew, with one",
        )
    return roots[0]


def digest(image: str, source: str = "", progress: Callable[[int], None] | None = None) -> str:
    """'sha256:…' over the root file system: the same before and after signing, and for builds of
    the same inputs.

    `progress` is told the bytes read so far. Raises HostError as `find_root`, and OSError.
    """
    import hashlib  # here: it takes 3 ms, and most runs compute none

    root = find_root(image, source)
    found = hashlib.sha256()
    with open_image(image, source) as file:
        file.seek(root.offset)
        left = root.size
        while left:
            data = file.read(min(left, _CHUNK))
            if not data:
                raise HostError(
                    f"image ended {left} bytes too early: {image}", source, "copy or build it again"
                )
            found.update(data)
            left -= len(data)
            if progress:
                progress(root.size - left)
    return f"sha256:{found.hexdigest()}"


def remembered_digest(image: str, environ: Mapping[str, str], source: str = "") -> str:
    """As `digest`, read again only when the file has changed: 2.8 GB take seconds."""
    return remembered(image, "digest", environ, lambda: digest(image, source))


def checksum(path: str) -> str:
    """SHA-256 of a whole file, in hexadecimal digits; raises OSError."""
    import hashlib

    found = hashlib.sha256()
    with open_image(path) as file:
        for data in iter(lambda: file.read(_CHUNK), b""):
            found.update(data)
    return found.hexdigest()


def known_digest(image: str, environ: Mapping[str, str]) -> str | None:
    """The digest, if it was computed before and the file has not changed since; raises OSError."""
    return known(image, "digest", environ)


def remembered(image: str, what: str, environ: Mapping[str, str], find: Callable[[], str]) -> str:
    """What `find` returned when it was last asked for `what` about `image`; found again when the
    file has changed.
    """
    state = _state(image)  # before: the file may change while it is read
    found = _entry(image, state, environ).get(what)
    return (
        found if isinstance(found, str) and found else remember(image, what, find(), environ, state)
    )


def known(image: str, what: str, environ: Mapping[str, str]) -> str | None:
    """What is remembered of `what` about the image as it is now; raises OSError."""
    found = _entry(image, _state(image), environ).get(what)
    return found if isinstance(found, str) and found else None


def remember(
    image: str, what: str, value: str, environ: Mapping[str, str], state: list[int] | None = None
) -> str:
    """Keep `value`, where that is possible, for `known`; return it. Raises OSError when there is no
    such image.
    """
    state = state or _state(image)
    entries = _recall(_memory(environ))
    entries[os.path.realpath(image)] = {
        **_entry(image, state, environ),
        "state": state,
        what: value,
    }
    _memorize(
        _memory(environ), {name: entry for name, entry in entries.items() if os.path.exists(name)}
    )
    return value


def _entry(image: str, state: list[int], environ: Mapping[str, str]) -> dict[str, Any]:
    """What is remembered of the image in this state."""
    entry = _recall(_memory(environ)).get(os.path.realpath(image))
    return entry if isinstance(entry, dict) and entry.get("state") == state else {}


def _state(image: str) -> list[int]:
    """What changes when the file's content does, and is the same on all hosts: on NFS and Lustre,
    st_dev is not.
    """
    status = os.stat(image)
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def find_state(image: str) -> str:
    """INODE:SIZE:TIME of the image's file, by which a node knows it (jaxsif/node/allowed.py);
    raises OSError.
    """
    inode, size, _, changed = _state(image)
    return f"{inode}:{size}:{changed}"


def _memory(environ: Mapping[str, str]) -> str:
    return os.path.join(cache_folder(environ), "images.json")


def _recall(memory: str) -> dict[str, Any]:
    try:
        known = parse_json(read_text(memory, "what is remembered of images", most=_MOST_REMEMBERED))
    except (OSError, ValueError, HostError):
        return {}  # the first time, or cut short by a full disk; it is written anew
    return known if isinstance(known, dict) else {}


def _memorize(memory: str, known: Mapping[str, Any]) -> None:
    import json

    partial = f"{memory}.{os.getpid()}"
    # A home that is full or cannot be written: next time the image is read again.
    with suppress(OSError):
        os.makedirs(os.path.dirname(memory), mode=0o700, exist_ok=True)
        try:
            with open(partial, "w") as file:
                json.dump(known, file)
            os.replace(partial, memory)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(partial)


def cache_folder(environ: Mapping[str, str]) -> str:
    """The folder of what jaxsif remembers for this user, and can do without."""
    caches = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME", "/"), ".cache")
    return os.path.join(caches, "jaxsif")


def staged_path(folder: str, digest: str) -> str:
    """Where a node has the image of this digest, below `folder`, for `jaxsif run --stage`: of this
    user alone.
    """
    return os.path.join(folder, f"jaxsif-{os.getuid()}", digest.partition(":")[2][:16])


def check_state(image: str, state: str, source: str) -> None:
    """Raise HostError unless the file of an image is as `find_state` told when a policy looked at
    it.
    """
    try:
        found = find_state(image)
    except OSError as error:
        raise unreadable(image, source, error) from error
    if found != state:
        raise HostError(
            f"the image changed while the policy looked at it: {image}", source, "run it again"
        )


def unreadable(image: str, source: str, error: OSError) -> HostError:
    return HostError(
        f"cannot read image {image}: {error.strerror}", source, "check its path and permissions"
    )
