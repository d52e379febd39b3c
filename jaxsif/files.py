"""Files and folders on this host: atomic writes, private and scratch folders, free space."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from jaxsif.errors import DISK_FULL, HostError

MEMORY = "/dev/shm"
_LOCK = ".lock"  # the suffix of a scratch folder's lock
# In the home folder, unless the variable of the XDG Base Directory Specification is set.
_USER_FOLDERS = {
    "XDG_CACHE_HOME": ".cache",
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
}


def user_folder(environ: Mapping[str, str], variable: str) -> str:
    """Return this user's folder for an XDG variable; a relative path in the variable is ignored, as
    the specification says.
    """
    named = environ.get(variable, "")
    if os.path.isabs(named):
        return named
    return os.path.join(environ.get("HOME", "/"), _USER_FOLDERS[variable])


def write_files(contents: Mapping[str, bytes], mode: int = 0o666, sync: bool = True) -> None:
    """Write all of these files, path -> content, or none: each under a temporary name, then
    renamed.

    Create missing folders; whoever may read a file may enter its folder. Without `sync`, do not
    wait for the disk: a crash of the host may lose the files. Raise an OSError that names the file
    that cannot be written.
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
            _remove(partial)  # if it was not renamed


def write_file(path: str, content: bytes, mode: int = 0o666) -> None:
    """Write one file as `write_files` does; raise OSError."""
    write_files({path: content}, mode)


def create_file(path: str, content: bytes, mode: int = 0o666) -> None:
    """Write a file that is whole as soon as it exists, and never replace another file.

    Raise FileExistsError if the name is taken, even if it was taken only in the meantime; any other
    OSError names the file, too.
    """
    partial = ""
    try:
        partial = _write_beside(path, content, mode)
        os.link(partial, path)  # a rename would replace a file that somebody else has written there
    except OSError as error:  # the error of a full disk names no file
        raise OSError(error.errno, error.strerror, path) from error
    finally:
        _remove(partial)


def _write_beside(path: str, content: bytes, mode: int, sync: bool = True) -> str:
    """Write a new file in the same folder, under a hidden name that others cannot guess.

    Return its path. Raise OSError if the file cannot be written; a file that already has the name
    is left alone.
    """
    folder, name = os.path.split(path)
    partial = os.path.join(folder, f".{name}.{os.urandom(8).hex()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if sync:  # some network disks report only now that they are full
                os.fsync(descriptor)
    except BaseException:
        _remove(partial)
        raise
    return partial


def _remove(partial: str) -> None:
    """Remove an unfinished file, if there is one."""
    with suppress(OSError):
        os.unlink(partial)


def make_private(folder: str) -> bool:
    """Create a folder that only this user may enter, unless it exists; return whether it is such a
    folder.

    Raise OSError if it cannot be created.
    """
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    status = os.lstat(folder)
    own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return own and not status.st_mode & 0o077


@contextmanager
def scratch_folder(place: str, prefix: str) -> Iterator[str]:
    """Create a private folder in `place` for the body of the `with`, and remove it at the end;
    first remove folders with this prefix that killed processes have left there.

    A lock next to the folder is held until the end. If the disk is full, an OSError from the body
    names the folder.
    """
    import signal
    from tempfile import TemporaryDirectory

    remove_abandoned(place, prefix)
    folder = TemporaryDirectory(prefix=_of_host(prefix), dir=place)
    lock = -1
    try:
        lock = _hold(folder.name + _LOCK)
        yield folder.name
    except OSError as error:
        if error.errno in DISK_FULL:
            error.filename = error.filename or folder.name
        raise
    finally:
        # A signal that arrives now is handled when the folder is gone.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        try:
            folder.cleanup()
            _remove(folder.name + _LOCK)  # if this fails, the next call tries again
        finally:
            if lock >= 0:
                os.close(lock)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def remove_abandoned(place: str, prefix: str) -> None:
    """Remove this user's scratch folders in `place` that were created on this host, with this
    prefix, by processes that have been killed: their locks are free.
    """
    prefix, names = _of_host(prefix), []
    with suppress(OSError):  # no such folder, or one that cannot be listed
        names = os.listdir(place)
    for name in names:
        if name.startswith(prefix) and name.endswith(_LOCK):
            # One that is held, has gone in the meantime, or cannot be removed does no harm.
            with suppress(OSError):
                _remove_if_abandoned(os.path.join(place, name))


def _of_host(prefix: str) -> str:
    """Return a prefix with this host's name: on some shared disks, a lock works within one host
    only.
    """
    return f"{prefix}{os.uname().nodename}-"


def _hold(path: str) -> int:
    """Return the descriptor of a new lock, which is held until this process ends; -1 if the disk is
    full or does not support locks. Raise OSError if the file cannot be created.
    """
    import fcntl

    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(lock, b"held\n")  # an empty lock does not count as abandoned
    except OSError:
        os.unlink(path)
        os.close(lock)
        return -1
    return lock


def _remove_if_abandoned(path: str) -> None:
    """Remove one of this user's locks, and its folder, unless the lock is held; raise OSError."""
    import fcntl

    lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status, folder = os.fstat(lock), path[: -len(_LOCK)]
        is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        if not is_own or not status.st_size:
            return
        if os.path.lexists(folder) and os.lstat(folder).st_uid == os.geteuid():
            remove_tree(folder)
        os.unlink(path)
    finally:
        os.close(lock)


def remove_tree(folder: str) -> None:
    """Remove a folder, even if folders in it are read-only for their owner; follow no links."""
    import shutil

    os.chmod(folder, 0o700)
    for above, names, _ in os.walk(folder):
        for path in (os.path.join(above, name) for name in names):
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    shutil.rmtree(folder)


def check_space(folder: str, needed: int) -> None:
    """Raise HostError unless there are `needed` bytes for a file in `folder`."""
    free = find_room(folder)
    if free < needed:
        raise HostError(
            f"no room for {needed / 1e6:.0f} MB in {folder}: {free / 1e6:.0f} MB are free",
            folder,
            "make room there, or choose another folder",
        )


def fast_folder(needed: int, disk: str, memory: str = MEMORY) -> str:
    """Return `memory`, if programs may run from there and both it and this host have `needed` bytes
    to spare; otherwise `disk`.
    """
    try:
        status = os.statvfs(memory)
    except OSError:
        return disk
    usable = os.access(memory, os.W_OK) and not status.f_flag & os.ST_NOEXEC
    return memory if usable and min(find_room(memory), _available()) >= needed else disk


def find_room(folder: str) -> int:
    """Return the number of bytes that this user may write in `folder`."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def _available() -> int:
    """Return the bytes of memory that are available on this host without swapping."""
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))
