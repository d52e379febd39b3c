"""The files of a staged image, with a list of them beside it to detect changes.

The list has each file's name and change time. Any change to a file's content, size or mode, or
to the names in a folder, sets that time, and no ordinary user can set it back; so checking each
name in the list once is enough.
"""

import os
import stat

# Type checkers take it for true; importing typing would take milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def list_files(place: str) -> "Iterator[bytes]":
    """Yield the list of the image at `place`, a folder or a file: itself and all names under it,
    each with its change time.
    """
    base, names = os.fsencode(place), [b""]
    while names:
        name = names.pop()
        status = os.lstat(base + name)
        yield b"%s\0%d\0" % (name, status.st_ctime_ns)
        if stat.S_ISDIR(status.st_mode):
            names += [
                name + b"/" + entry for entry in sorted(os.listdir(base + name), reverse=True)
            ]


def is_private(folder: str) -> bool:
    """Return whether `folder` is a folder of this user that nobody else can change or read."""
    status = os.lstat(folder)
    is_folder = stat.S_ISDIR(status.st_mode)
    return is_folder and status.st_uid == os.getuid() and not status.st_mode & 0o077


def find_damage(place: str) -> "str | None":
    """Return why the image at `place` cannot be used, or None if it is unchanged."""
    try:
        os.lstat(place)
        with open(_open_list(place), "rb") as file:
            listed = file.read().split(b"\0")
    except FileNotFoundError:
        return "absent"
    base = os.fsencode(place)
    names, times = listed[:-1:2], listed[1::2]
    if not names:
        return "damaged: its list is empty"
    changed = [name for name, time in zip(names, times) if _changed_at(base + name) != time]
    if not changed:
        return None
    first = os.fsdecode(changed[0][1:] or b".")
    return f"damaged: {len(changed)} of {len(names)} files changed, such as {first!a}"


def hold(place: str) -> "int | None":
    """Mark the image at `place` as used, for as long as a process has the returned descriptor.

    A runtime that this process executes inherits the descriptor. The list's time is that of the
    image's last use. Return None if there is no list, or the folder is not this user's:
    `find_damage` then returns "absent".
    """
    import fcntl

    try:
        listed = _open_list(place)
    except FileNotFoundError:
        return None
    fcntl.flock(listed, fcntl.LOCK_SH)
    os.utime(listed)
    os.set_inheritable(listed, True)
    return listed


def _open_list(place: str) -> int:
    """Return a descriptor of the list; raise FileNotFoundError if there is none.

    The folder must be private: another user who can change it could keep this process waiting.
    """
    if not is_private(os.path.dirname(place)):
        raise FileNotFoundError(place)
    return os.open(f"{place}.list", os.O_RDONLY)


def _changed_at(path: bytes) -> bytes:
    try:
        return b"%d" % os.lstat(path).st_ctime_ns
    except OSError:
        return b""  # it is gone, or its folder is no longer a folder
