"""The file of an image: its parts, its root file system and that file system's digest, and a cache
of facts about the image.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple

from jaxsif.errors import HostError, raise_as
from jaxsif.files import user_folder, write_file
from jaxsif.foreign import MOST_TEXT, open_file, read_text
from jaxsif.images.sif import (
    HEADER_SIZE,
    DamagedImageError,
    DataObject,
    Header,
    check_field,
    check_sif,
    check_time,
    parse_descriptors,
    takes_option,
)
from jaxsif.settings.options import Setting
from jaxsif.trust import find_writers

_CHUNK = 1 << 20  # bytes per read


class Allowed(NamedTuple):
    """An image that every policy allows, as nodes and job scripts recognize it."""

    digest: str
    state: str  # of the image's file, from `find_state`
    reasons: tuple[str, ...] = ()  # why each policy allows it


def open_image(image: str, source: str = "") -> BinaryIO:
    """Open an image's file. Raise HostError for anything that is not a file, such as a FIFO, and
    OSError if it cannot be opened.
    """
    return open_file(image, "image", source)


def read_header(file: BinaryIO, image: str, source: str = "") -> Header:
    """Parse the header of a SIF file; raise HostError for other or truncated files, and OSError if
    the file cannot be read.
    """
    size = os.fstat(file.fileno()).st_size
    return check_sif(os.pread(file.fileno(), HEADER_SIZE, 0), size, image, source)


def read_objects(image: str, source: str = "") -> tuple[DataObject, ...]:
    """List the parts of a SIF file; raise the errors of `read_header`, and HostError for parts
    outside the file.
    """
    with open_image(image, source) as file:
        header = read_header(file, image, source)
        table = os.pread(file.fileno(), header.table_size, header.table)
        return parse_descriptors(table, os.fstat(file.fileno()).st_size, image, source)


def read_parts(image: str, kind: str) -> list[tuple[DataObject, bytes]]:
    """Read the parts of one kind, such as 'signature', with their bytes; raise the errors of
    `read_objects`, and HostError for large parts.
    """
    parts = [part for part in read_objects(image) if part.type == kind]
    size = sum(part.size for part in parts)
    check_field(size <= MOST_TEXT, f"size of its {kind} parts", size, image, "")
    with open_image(image) as file:
        return [(part, os.pread(file.fileno(), part.size, part.offset)) for part in parts]


def read_unpacked(image: str, name: str, what: str) -> str:
    """Read a text file that the runtime keeps in an unpacked image; '' if there is none. Raise
    HostError, which names the text as `what`, if it is too large, and OSError if it cannot be read.
    """
    with suppress(FileNotFoundError):
        return read_text(os.path.join(image, ".singularity.d", name), what)
    return ""


def read_date(image: str) -> str:
    """Read the time of the build, as 2026-11-20T09:30:00+00:00; raise the errors of `read_header`,
    and HostError if the header has no valid time.
    """
    from datetime import datetime, timezone  # here: no run needs it

    with open_image(image) as file:
        created = check_time(read_header(file, image), image)
    return datetime.fromtimestamp(created, timezone.utc).isoformat(timespec="seconds")


def find_root(image: str, source: str = "") -> DataObject:
    """Find the partition that becomes the container's root. Raise the errors of `read_objects`, and
    HostError unless there is exactly one partition.

    A second partition would be laid over the root, and the digest of the first would not cover it.
    """
    partitions = [part for part in read_objects(image, source) if part.type == "partition"]
    roots = [part for part in partitions if part.system]
    if len(roots) != 1 or len(partitions) != 1:
        kind = HostError if roots else DamagedImageError
        hint = "rebuild the image with one root file system" if roots else "restore the image"
        raise kind(
            f"image has {len(partitions)} partitions, {len(roots)} of them with a root file system:"
            f" {image}",
            source,
            f"see apptainer sif list; {hint}",
        )
    return roots[0]


def digest(
    image: str, source: str = "", progress: Callable[[int, int], object] = lambda *_: None
) -> str:
    """Compute 'sha256:…' of the root file system: the same before and after signing, and for builds
    from the same inputs.

    `progress` gets the bytes read so far, and the total. Raise the errors of `find_root`, and
    HostError if the file ends too early.
    """
    import hashlib  # here: it takes 3 ms, and most runs compute none

    root = find_root(image, source)
    found, left = hashlib.sha256(), root.size
    with open_image(image, source) as file:
        file.seek(root.offset)
        while data := file.read(min(left, _CHUNK)):
            found.update(data)
            left -= len(data)
            progress(root.size - left, root.size)
    if left:
        raise HostError(
            f"image ended {left} bytes too early: {image}", source, "copy or build it again"
        )
    return f"sha256:{found.hexdigest()}"


def remembered_digest(image: str, environ: Mapping[str, str], source: str = "") -> str:
    """Look up `digest`, or compute it if the file has changed: reading gigabytes takes seconds."""

    def find() -> str:
        from jaxsif.screen import show_progress  # here: most runs compute none

        with show_progress(f"jaxsif: the digest of {os.path.basename(image)}", environ) as update:
            return digest(image, source, update)

    return remembered(image, "digest", environ, find)


def checksum(path: str, what: str = "image") -> str:
    """Compute the SHA-256 of a whole file, in hexadecimal digits; raise the errors of `open_file`,
    which takes `what`.
    """
    import hashlib

    found = hashlib.sha256()
    with open_file(path, what) as file:
        for data in iter(lambda: file.read(_CHUNK), b""):
            found.update(data)
    return found.hexdigest()


def remembered(image: str, what: str, environ: Mapping[str, str], find: Callable[[], str]) -> str:
    """Look up the fact `what` about `image`, or find it again if the file has changed."""
    state = _state(image)  # before: the file may change while it is read
    return known(image, what, environ) or remember(image, what, find(), environ, state)


def known(image: str, what: str, environ: Mapping[str, str]) -> str | None:
    """Return the fact `what` about the image in its present state, or None if the fact is not
    known. Raise OSError if there is no such image.
    """
    return _entry(image, _state(image), environ).get(what)


def remember(
    image: str, what: str, value: str, environ: Mapping[str, str], state: list[int] | None = None
) -> str:
    """Keep `value` for `known`, if possible, and return it. Raise OSError if there is no such
    image.
    """
    import json

    state = state or _state(image)
    memory = _memory(environ)
    entries = {name: entry for name, entry in _recall(memory).items() if os.path.exists(name)}
    entry = {**_entry(image, state, environ), "state": state, what: value}
    entries[os.path.realpath(image)] = entry
    # If the home is full or read-only, the image is read again next time.
    with suppress(OSError):
        write_file(memory, json.dumps(entries).encode(), 0o600)
    return value


def _entry(image: str, state: list[int], environ: Mapping[str, str]) -> dict[str, Any]:
    """Look up the facts about the image in this state."""
    entry = _recall(_memory(environ)).get(os.path.realpath(image), {})
    return entry if entry.get("state") == state else {}


def _state(image: str) -> list[int]:
    """Identify the content of a file in the same way on all hosts: on NFS and Lustre, st_dev
    differs.
    """
    status = os.stat(image)
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def find_state(image: str) -> str:
    """Identify the image's file as INODE:SIZE:TIME, as nodes do (jaxsif/node/allowed.py); raise
    OSError.
    """
    inode, size, _, changed = _state(image)
    return f"{inode}:{size}:{changed}"


def _memory(environ: Mapping[str, str]) -> str:
    return os.path.join(cache_folder(environ), "images.json")


def _recall(memory: str) -> dict[str, Any]:
    """Read path -> facts about an image; return an empty dict if the file cannot be read."""
    import json

    try:
        with open(memory, encoding="utf-8") as file:
            images: dict[str, Any] = json.load(file)
    except (OSError, ValueError):
        return {}  # there is no file yet, or it is damaged
    return images


def cache_folder(environ: Mapping[str, str]) -> str:
    """Find the folder of this user's caches; all of them can be deleted."""
    return os.path.join(user_folder(environ, "XDG_CACHE_HOME"), "jaxsif")


def staged_path(folder: str, digest: str) -> str:
    """Return the path where `jaxsif run --stage` puts the image with this digest, in this user's
    own folder under `folder` on a node's disk.
    """
    return os.path.join(folder, f"jaxsif-{os.getuid()}", digest.partition(":")[2][:16])


def check_state(image: str, state: str, source: str) -> None:
    """Raise HostError unless the image's file is still in the state that the policy checked."""
    with raise_as(unreadable(image, source)):
        found = find_state(image)
    if found != state:
        raise HostError(
            f"the image changed while it was checked against the policy: {image}",
            source,
            "run it again",
        )


def unreadable(image: str, source: str) -> HostError:
    """Make the error for an image that cannot be read."""
    hint = "check its path and permissions, or ask its owner"
    return HostError(f"cannot read image {image}", source, hint)


_DEFAULT_IMAGE = "jax.sif"


class Image(NamedTuple):
    """An image, and the option, variable or default that named it."""

    path: str
    source: str  # the option, variable or default that named it


def find_image(setting: Setting | None) -> Image:
    """Find the named image, or ./jax.sif.

    Raise HostError for a file or folder that is not an image.
    """
    named, source, _ = setting or Setting(_DEFAULT_IMAGE, f"./{_DEFAULT_IMAGE}")
    mode = _mode(named, source if setting else "")
    if mode is None and setting:
        hint = "correct its path"
        if source == "--image":
            hint += ", or leave --image out and call module load jax/sif"
        elif " in " in source:  # a file; JAX_IMAGE of a module takes precedence
            hint += ", or call module load jax/sif"
        if takes_option(source):
            hint = "correct JAX_IMAGE, or pass --image PATH; if a module set it, tell site staff"
        if "://" in named:
            hint = f"download it first: jaxsif image pull {named}"
        raise HostError(f"image not found: {named}", source, hint)
    if mode is None:
        raise HostError(
            f"no image: JAX_IMAGE names none, and there is no {source} here",
            hint="module load jax/sif, or name one; make image writes it into build/images",
        )
    writers = "" if setting else find_writers(named)
    if writers:
        what = f"others may have written {source}, and neither --image nor JAX_IMAGE names it"
        raise HostError(what, writers, f"--image {source}")
    _check_image(named, mode, source)
    return Image(os.path.abspath(named), source)


def _mode(path: str, source: str) -> int | None:
    """Read the type and permissions of `path`, or None if it does not exist."""
    with raise_as(unreadable(path, source)), suppress(FileNotFoundError, NotADirectoryError):
        return os.stat(path).st_mode
    return None


def _check_image(image: str, mode: int, source: str) -> None:
    """Raise HostError for a file or folder that is not an image."""
    if stat.S_ISDIR(mode):
        if _mode(os.path.join(image, ".singularity.d"), source) is None:
            what = f"not an image: {image} is a folder without .singularity.d"
            raise HostError(what, source, "pass a .sif file")
        return
    try:
        with raise_as(unreadable(image, source)), open_image(image, source) as file:
            read_header(file, image, source)
    except DamagedImageError as error:
        if takes_option(source) and not os.access(image, os.W_OK):  # as a module's, for users
            error.hint = "report it to its owner, and load another module or pass --image PATH"
        raise
