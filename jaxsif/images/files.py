"""Every file of an image, without running anything of it: from a SIF file's squashfs, or from an
unpacked image.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from typing import IO, NamedTuple

from jaxsif import process
from jaxsif.errors import HostError
from jaxsif.images.file import find_root

_CHUNK = 1 << 20  # bytes read at once
# In unsquashfs's output, before the contents of all files.
_DATA = b"# START OF DATA - DO NOT MODIFY\n"
# Kinds as unsquashfs writes them; L, another name of a file, is resolved.
_KINDS = {"D": "folder", "R": "file", "S": "link", "C": "device", "B": "block device"}
_NAME = re.compile(rb"((?:[^\\ ]|\\.)+) ([A-Z]) (.*)", re.DOTALL)


class Entry(NamedTuple):
    """What a path of an image is."""

    kind: str  # file, folder, link, device, block device, pipe, socket
    mode: str  # octal; of a link none, since they all have the same
    owner: str  # uid:gid
    size: int  # of a file, bytes
    content: str  # of a file its SHA-256, of a link its target, of a device its numbers


def read_files(image: str) -> dict[str, Entry]:
    """Path -> what is there; paths begin without '/', the root is ''. Raises HostError and OSError."""
    if os.path.isdir(image):
        return dict(_read_folder(image))
    root = find_root(image)
    if root.file_system != "squashfs":
        raise HostError(
            f"cannot list the files of an {root.file_system} image: {image}",
            "the files of an image",
            "unpack it: apptainer build --sandbox FOLDER IMAGE",
        )
    if not shutil.which("unsquashfs"):
        raise HostError(
            "unsquashfs is not on the PATH", "the files of an image", "install squashfs-tools"
        )
    argv = ["unsquashfs", "-quiet", "-no-progress", "-o", str(root.offset), "-pf", "-", image]
    with tempfile.TemporaryFile() as messages, process.stream(argv, messages) as (output, wait):
        files = _parse_pseudo_file(output)
        output.close()  # whatever it would still write makes it fail, and never wait for us
        if wait() or files is None:
            messages.seek(0)
            said = (messages.read().decode(errors="replace").strip().splitlines() or ["nothing"])[0]
            raise HostError(
                f"unsquashfs cannot read {image}: {said}",
                "the files of an image",
                "it must be version 4.5 or newer",
            )
    return files


def _parse_pseudo_file(stream: IO[bytes]) -> dict[str, Entry] | None:
    """The files of `unsquashfs -pf -`: a line for each, then all contents; None where that stops
    too early.
    """
    found: dict[str, Entry] = {}
    places: list[tuple[int, str]] = []  # where the contents of files begin
    names: list[tuple[str, str]] = []  # other names of files
    for line in _lines(stream):
        if line == _DATA:
            break
        parsed = _NAME.fullmatch(line[:-1])
        if not parsed:
            continue  # a comment
        path, kind, rest = _unescape(parsed[1]), parsed[2].decode(), parsed[3]
        if kind == "L":
            names.append((path, _unescape(rest)))
            continue
        found[path] = _parse_entry(kind, rest)
        if kind == "R":
            places.append((int(rest.split()[5]), path))
    else:
        return None
    stream.readline()  # the '#' below
    for _, path in sorted(places):
        content = _digest(stream, found[path].size)
        if content is None:
            return None
        found[path] = found[path]._replace(content=content)
    return {**found, **{path: found[name] for path, name in names}}


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Whole lines; a newline behind a backslash is part of a name."""
    line = b""
    for piece in iter(stream.readline, b""):
        if not piece.endswith(b"\n"):
            return  # cut short
        line += piece
        stripped = line[:-1].rstrip(b"\\")
        if (len(line) - 1 - len(stripped)) % 2 == 0:
            yield line
            line = b""


def _unescape(name: bytes) -> str:
    return os.fsdecode(re.sub(rb"\\(.)", rb"\1", name, flags=re.DOTALL)).strip("/")


def _parse_entry(kind: str, rest: bytes) -> Entry:
    """`rest`: time, mode, uid, gid, and what depends on the kind."""
    _, mode, uid, gid, *more = rest.split(b" ", 4)
    owner = f"{int(uid)}:{int(gid)}"
    if kind == "I":
        return Entry("pipe" if more[0] == b"f" else "socket", f"{int(mode, 8):o}", owner, 0, "")
    if kind == "S":
        return Entry("link", "", owner, 0, os.fsdecode(more[0]))
    size = int(more[0].split()[0]) if kind == "R" else 0
    return Entry(
        _KINDS[kind], f"{int(mode, 8):o}", owner, size, os.fsdecode(more[0]) if kind in "CB" else ""
    )


def _digest(stream: IO[bytes], size: int) -> str | None:
    """SHA-256 of the next `size` bytes; None where there are fewer."""
    digest = hashlib.sha256()
    while size:
        data = stream.read(min(size, _CHUNK))
        if not data:
            return None
        digest.update(data)
        size -= len(data)
    return digest.hexdigest()


def _read_folder(root: str) -> Iterator[tuple[str, Entry]]:
    yield "", _read_entry(root)
    for folder, folders, files in os.walk(root, onerror=_refuse):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            yield os.path.relpath(path, root), _read_entry(path)


def _refuse(error: OSError) -> None:
    raise error


def _read_entry(path: str) -> Entry:
    status = os.lstat(path)
    mode, owner = f"{stat.S_IMODE(status.st_mode):o}", f"{status.st_uid}:{status.st_gid}"
    if stat.S_ISDIR(status.st_mode):
        return Entry("folder", mode, owner, 0, "")
    if stat.S_ISLNK(status.st_mode):
        return Entry("link", "", owner, 0, os.readlink(path))
    if stat.S_ISREG(status.st_mode):
        with open(path, "rb") as file:
            return Entry("file", mode, owner, status.st_size, _digest(file, status.st_size) or "")
    numbers = f"{os.major(status.st_rdev)} {os.minor(status.st_rdev)}"
    kinds = {
        stat.S_IFIFO: "pipe",
        stat.S_IFSOCK: "socket",
        stat.S_IFCHR: "device",
        stat.S_IFBLK: "block device",
    }
    kind = kinds[stat.S_IFMT(status.st_mode)]
    return Entry(kind, mode, owner, 0, numbers if "device" in kind else "")
