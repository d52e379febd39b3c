"""Whether others may have written a file that is used without being named: a project's jaxsif.toml,
or ./jax.sif.

The rule is that of git's safe.directory: a file counts if it and its folder belong to the user or
to root, and nobody else may write to them. A group may, if it is the user's private group: systems
such as RHEL give each user one, with a umask of 002. Any other jaxsif.toml counts only if
JAXSIF_CONFIG names it.

Permissions that the mode does not show, those of an NFSv4 ACL, are missed. (A POSIX ACL shows: its
mask is the mode of the group. So a private group may write only if there is no ACL.) As in git, the
folders further up are not checked. Whoever may rename such a folder can put another one in its
place, but cannot choose the content of a folder that belongs to the user.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from jaxsif.errors import JaxsifError

# The states of a file.
READ = "read"
ABSENT = "not there"
IGNORED = "ignored"
REFUSED = "not allowed"
_MOST_BYTES = 1 << 20  # read of a file
_ACL = "system.posix_acl_access"  # the attribute of a POSIX ACL


class Candidate(NamedTuple):
    """A settings file that may apply."""

    path: str
    state: str  # READ, ABSENT, IGNORED or REFUSED
    content: bytes = b""  # if READ; the bytes that were judged are those that are parsed
    error: JaxsifError | None = None  # the reason for REFUSED or IGNORED


class _File(NamedTuple):
    """A file as it was opened, with the folders whose writers can put another file in its place."""

    path: str
    status: os.stat_result
    # The folder of its path and, if the path is a link, that of the file.
    folders: Mapping[str, os.stat_result]
    content: bytes

    @property
    def places(self) -> dict[str, os.stat_result]:
        """The file and the folders, by path, to which only the user and root may write."""
        return {self.path: self.status, **self.folders}


def read_own(path: str) -> Candidate:
    """Read a file that counts no matter who wrote it: the site's, the host's or the user's; raise
    JaxsifError.
    """
    try:
        return Candidate(path, READ, _read(path).content)
    except OSError as error:
        if _is_absent(path, error):
            return Candidate(path, ABSENT)
        raise _unreadable(path, error) from error


def _is_absent(path: str, error: OSError) -> bool:
    """Return whether a path that cannot be opened does not exist. A dangling link exists: the
    settings that it stands for, such as a policy, must not be silently lost.
    """
    missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
    return missing and not os.path.islink(path)


def find_project(name: str, folder: str) -> Iterator[Candidate]:
    """Find the files with this name in `folder` and above it: those that are ignored, and the first
    one that is not.

    A file in a folder such as /tmp is treated as missing, and the search continues in the folders
    above: otherwise, anybody could stop all runs under /tmp.
    """
    while True:
        file = _judge(os.path.join(folder, name))
        if file.state != ABSENT:
            yield file
        if file.state in (READ, REFUSED) or folder == os.path.dirname(folder):
            return
        folder = os.path.dirname(folder)


def _judge(path: str) -> Candidate:
    folder = os.path.dirname(path)
    try:
        file = _read(path)
    except OSError as error:
        # No file can have this path.
        hidden = error.errno == errno.ENAMETOOLONG or not os.access(folder, os.X_OK)
        if hidden or _is_absent(path, error):
            return Candidate(path, ABSENT)
        return _turn_away(path, os.stat(folder), _unreadable(path, error))
    except JaxsifError as error:
        return _turn_away(path, os.stat(folder), error)
    if not find_places_of_others(file.places, os.geteuid()):
        return Candidate(path, READ, file.content)
    refusal = JaxsifError(f"others may have written {path}", _describe(file), _advise(file))
    return _turn_away(path, file.folders[folder], refusal)


def _turn_away(path: str, folder: os.stat_result, error: JaxsifError) -> Candidate:
    """Return a file that does not count: IGNORED if anybody could have put it there, as in /tmp, or
    else REFUSED.
    """
    open_to_all = folder.st_mode & (stat.S_ISVTX | stat.S_IWOTH)
    return Candidate(path, IGNORED if open_to_all else REFUSED, error=error)


def find_places_of_others(places: Mapping[str, os.stat_result], user: int) -> list[str]:
    """Return those of the paths to which users other than `user` and root may write."""
    return [path for path, status in places.items() if _is_of_others(path, status, user)]


def _is_of_others(path: str, status: os.stat_result, user: int) -> bool:
    if status.st_uid not in (0, user) or status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and (
        not _is_private_group(status.st_gid, user) or _has_acl(path)
    )


def _is_private_group(group: int, user: int) -> bool:
    """Return whether a group is the user's own, by number and name, and has no other member."""
    import grp
    import pwd  # here: with a directory service, a lookup takes milliseconds, and few need one

    try:
        account, entry = pwd.getpwuid(user), grp.getgrgid(group)
    except KeyError:  # a user or a group that this host does not know
        return False
    own = (account.pw_gid, account.pw_name) == (group, entry.gr_name)
    return own and not set(entry.gr_mem) - {account.pw_name}


def _has_acl(path: str) -> bool:
    """Return whether a file has a POSIX ACL, which may let others write a file that, by its mode,
    only the group may write.
    """
    try:
        return bool(os.getxattr(path, _ACL))
    except OSError as error:
        return error.errno not in (errno.ENODATA, errno.ENOTSUP)


def find_writers(path: str) -> str:
    """Describe the owners and modes that let others write a file, or put it there; '' if there are
    none.
    """
    file = _File(path, os.stat(path), _find_folders(path), b"")
    return _describe(file) if find_places_of_others(file.places, os.geteuid()) else ""


def find_replacers(folder: str) -> str:
    """Return why others may replace the content of `folder`; '' if only the user and root may."""
    status = os.stat(folder)
    if status.st_uid not in (0, os.geteuid()):
        return f"it belongs to {name_user(status.st_uid)}"
    by_group = status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid, os.geteuid())
    if (status.st_mode & stat.S_IWOTH or by_group) and not status.st_mode & stat.S_ISVTX:
        return "it has no sticky bit"
    return ""


def _find_folders(path: str) -> dict[str, os.stat_result]:
    folders = (os.path.dirname(os.path.abspath(path)), os.path.dirname(os.path.realpath(path)))
    return {folder: os.stat(folder) for folder in folders}


def _read(path: str) -> _File:
    """Open and read a file; raise OSError, and JaxsifError if it is not a file, such as a FIFO,
    which would make us wait.
    """
    # Before opening it, which changes the state of some devices.
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise JaxsifError(f"not a regular file: {path}", path, "put the settings into a file")
    folders = _find_folders(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        # The file was replaced: the folders are another one's.
        if not os.path.samestat(status, os.stat(os.path.realpath(path))):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)
        return _File(path, status, folders, file.read(_MOST_BYTES + 1))


def _unreadable(path: str, error: OSError) -> JaxsifError:
    reason, remedy = error.strerror, "let its owner correct its permissions"
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        reason, remedy = "it is a dangling link", "correct the link"
    return JaxsifError(f"cannot read {path}: {reason}", path, f"{remedy}, or remove it")


def _describe(file: _File) -> str:
    """Return 'owner other, mode 0644; folder /tmp: owner root, mode 1777'."""
    folders = (f"folder {name}: {_owner_and_mode(status)}" for name, status in file.folders.items())
    return "; ".join([_owner_and_mode(file.status), *folders])


def _owner_and_mode(status: os.stat_result) -> str:
    return f"owner {name_user(status.st_uid)}, mode {stat.S_IMODE(status.st_mode):04o}"


def name_user(uid: int) -> str:
    """Return the name of a user, or the user ID if this host knows no name for it."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _advise(file: _File) -> str:
    """Suggest how to make the file's settings take effect."""
    import shlex

    name = f"export JAXSIF_CONFIG={shlex.quote(file.path)}"
    if any(status.st_uid != os.geteuid() for status in file.places.values()):
        return f"read it, then copy it to a folder of your own, or {name}"
    writable = find_places_of_others(file.places, os.geteuid())
    return f"{shlex.join(['chmod', 'go-w', *writable])}, or {name}"
