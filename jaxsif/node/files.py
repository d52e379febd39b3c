"""The files of a staged image: a list of them is kept beside it, and tells later which have
changed.

The list has each file's name and time of change. Whatever happens to a file, its content, size or
mode, or to the names in a folder, sets that time, and no ordinary user can set it back; so one look
at each name of the list tells all.
"""

import os
import stat

# A tool that checks types takes it for true; to import typing would take milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def list_files(place: str) -> "Iterator[bytes]":
    """The list of the image at `place`, which is a folder or a file: names below it, itself first,
    and times.
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
    """Whether it is a folder of this user, which nobody else can change or read."""
    status = os.lstat(folder)
    return (
        stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
    )


def find_damage(place: str) -> "str | None":
    """Why the image at `place` cannot be used; None when it is as it was put there."""
    try:
        if not is_private(os.path.dirname(place)):
            return "absent"
        os.lstat(place)
        with open(f"{place}.list", "rb") as file:
            listed = file.read().split(b"\0")
    except FileNotFoundError:
        return "absent"
    base = os.fsencode(place)
    names, times = listed[:-1:2], listed[1::2]
    changed = [name for name, time in zip(names, times) if _changed_at(base + name) != time]
    if changed:
        return f"damaged: {len(changed)} file(s) changed, such as {os.fsdecode(changed[0][1:] or b'.')!a}"
    return None if names else "damaged: its list is empty"


def hold(place: str) -> "int | None":
    """Say that the image at `place` is used, from now until nobody has the returned descriptor
    open.

    A runtime that this process executes inherits it. The list's time is that of the image's last
    use. None where there is no list, or the folder is not this user's: `find_damage` then says
    "absent".
    """
    import fcntl

    try:
        if not is_private(os.path.dirname(place)):  # others could keep us waiting
            return None
        listed = os.open(f"{place}.list", os.O_RDONLY)
    except FileNotFoundError:
        return None
    fcntl.flock(listed, fcntl.LOCK_SH)
    os.utime(listed)
    os.set_inheritable(listed, True)
    return listed


def _changed_at(path: bytes) -> bytes:
    try:
        return b"%d" % os.lstat(path).st_ctime_ns
    except OSError:
        return b""  # it is gone, or what was its folder is none
