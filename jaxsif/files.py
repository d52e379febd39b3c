"""Files and folders of this host: written whole or not at all, private, and where there is room."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress

from jaxsif.errors import HostError

_MEMORY = "/dev/shm"
# Below the home folder, where the variable of the XDG Base Directory Specification does not tell.
_USER_FOLDERS = {
    "XDG_CACHE_HOME": ".cache",
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
}


def user_folder(environ: Mapping[str, str], variable: str) -> str:
    """Return the folder of this user that an XDG variable names; one that is relative counts as
    none, as the specification says.
    """
    named = environ.get(variable, "")
    if os.path.isabs(named):
        return named
    return os.path.join(environ.get("HOME", "/"), _USER_FOLDERS[variable])


def write_files(contents: Mapping[str, bytes], mode: int = 0o666, sync: bool = True) -> None:
    """Write all of these files, path -> content, or none: each beside its place, then renamed.

    Make their folders where they are missing; who may read a file may enter its folder. Without
    `sync`, nothing waits for the disk: a crash of the host may lose the files. Raise OSError, which
    names the file that cannot be written.
    """
    partials: dict[str, str] = {}
    try:
        for path, content in contents.items():
            folder = os.path.dirname(path) or os.curdir
            os.makedirs(folder, mode | (mode & 0o444) >> 2, exist_ok=True)
            partials[path] = _write_beside(path, content, mode, sync)
        for path, partial in partials.items():
            os.replace(partial, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    finally:
        for partial in partials.values():
            _remove(partial)  # where it was not renamed


def write_file(path: str, content: bytes, mode: int = 0o666) -> None:
    """Write one file as `write_files` does; raise OSError."""
    write_files({path: content}, mode)


def create_file(path: str, content: bytes, mode: int = 0o666) -> None:
    """Write a file that is whole as soon as it is there, and never over another one.

    Raise FileExistsError where something has this name, also when it came meanwhile; and OSError,
    which names the file.
    """
    partial = ""
    try:
        partial = _write_beside(path, content, mode)
        os.link(partial, path)  # a rename would replace what somebody else has written there
    except OSError as error:  # one of a full disk has no name
        raise OSError(error.errno, error.strerror, path) from error
    finally:
        _remove(partial)


def _write_beside(path: str, content: bytes, mode: int, sync: bool = True) -> str:
    """Write a new file in the same folder, under a hidden name that nobody can foresee.

    Return its path. Raise OSError, also where something has that name, and leave that alone.
    """
    folder, name = os.path.split(path)
    partial = os.path.join(folder, f".{name}.{os.urandom(8).hex()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if sync:  # some disks of a network tell only now that they are full
                os.fsync(descriptor)
    except BaseException:
        _remove(partial)
        raise
    return partial


def _remove(partial: str) -> None:
    """Remove what is left of a file that could not be written."""
    with suppress(OSError):
        os.unlink(partial)


def make_private(folder: str) -> bool:
    """Make a folder for this user alone; return whether it is one, also where it was there.

    Raise OSError where it cannot be made.
    """
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    status = os.lstat(folder)
    own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return own and not status.st_mode & 0o077


def check_space(folder: str, needed: int) -> None:
    """Raise HostError unless there are `needed` bytes for a file in `folder`."""
    free = _find_room(os.statvfs(folder))
    if free < needed:
        raise HostError(
            f"no room for {needed / 1e6:.0f} MB in {folder}: {free / 1e6:.0f} MB are free",
            folder,
            "make room there, or choose another folder",
        )


def fast_folder(needed: int, disk: str, memory: str = _MEMORY) -> str:
    """Return `memory`, if programs may run from there, and it and this host have `needed` bytes to
    spare; otherwise `disk`.
    """
    try:
        status = os.statvfs(memory)
    except OSError:
        return disk
    room = min(_find_room(status), _available())
    usable = os.access(memory, os.W_OK) and not status.f_flag & os.ST_NOEXEC
    return memory if usable and room >= needed else disk


def _find_room(status: os.statvfs_result) -> int:
    """Return the bytes that a file of this user could have."""
    return status.f_bavail * status.f_frsize


def _available() -> int:
    """Return the bytes of memory that this host could give without swapping."""
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))
