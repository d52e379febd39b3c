"""Keep an image on this node's own disk; `jaxsif run --stage` runs this once on each node of the
job.

    stage.py check FOLDER DIGEST
    stage.py place FOLDER DIGEST IMAGE BROUGHT
    stage.py clean FOLDER BROUGHT

It prints one JSON object: the node, the result, and the seconds it took. An image is unpacked if
there is unsquashfs and enough room, so that nothing stands between the programs and the files;
otherwise the SIF file is kept. A list of all the image's files, kept beside it, shows later whether
the image is unchanged, which `restore` checks in a task.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../.."))
from jaxsif.errors import FolderTakenError, HostError, JaxsifError
from jaxsif.files import check_space, find_room, make_private, remove_tree
from jaxsif.images.file import digest, find_root, staged_path
from jaxsif.node.copies import find_damage, hold, list_files
from jaxsif.task.contract import REPORT, render_report
from jaxsif.trust import find_replacers, name_user

_MARGIN = 64 << 20  # bytes to leave free
_UNUSED = 30 * 24 * 3600  # seconds since its last use after which a copy may be removed


def own_folder(folder: str) -> str:
    """Return this user's folder under `folder`; make it if it does not exist.

    Raise FolderTakenError if it belongs to others, or they may put another folder in its place.
    """
    path = os.path.dirname(staged_path(folder, ""))
    why = find_replacers(folder)
    if why:
        raise FolderTakenError(
            f"others may replace what is in {folder}: {why}",
            folder,
            "set run.stage-folder to another folder",
        )
    if not make_private(path):
        status = os.lstat(path)
        kind = f"{stat.filemode(status.st_mode)} {name_user(status.st_uid)}"
        what = f"not a folder private to this user: {path} ({kind})"
        raise FolderTakenError(what, folder, "remove it")
    return path


def check(folder: str, name: str) -> dict[str, object]:
    """Check the copy and the free space; if there is no intact copy, remove other images that are
    unused.
    """
    target, folder = staged_path(folder, name), own_folder(folder)
    hold(target)  # before the check, until this process ends
    damage, removed = find_damage(target), 0
    if damage:
        with suppress(BlockingIOError), _alone(folder, fcntl.LOCK_NB):
            removed = sum(map(_remove_if_unused, glob.glob(f"{glob.escape(folder)}/*.list")))
    return {"damage": damage, "free": find_room(folder), "removed": removed}


def place(folder: str, name: str, image: str, brought: str = "") -> dict[str, object]:
    """Put the image into the folder, unless it is already there: from the file `brought` by sbcast,
    or else from `image` on the shared disk.
    """
    target, folder = staged_path(folder, name), own_folder(folder)
    brought = brought and os.path.join(folder, brought)
    with _alone(folder):
        try:
            damage = find_damage(target)
            if damage:
                _place(_find_source((brought, image), name), target)
        finally:
            _remove(brought)
    return {"damage": damage, "unpacked": os.path.isdir(target)}


def clean(folder: str, brought: str) -> dict[str, object]:
    """Remove the leftovers of an interrupted run."""
    folder = own_folder(folder)
    with _alone(folder):
        _remove(os.path.join(folder, brought))
    return {}


@contextmanager
def _alone(folder: str, how: int = 0) -> Iterator[None]:
    """Keep other runs out of the folder; remove the leftovers of interrupted ones.

    Raise BlockingIOError if another run holds the folder and `how` is fcntl.LOCK_NB.
    """
    with open(os.path.join(folder, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | how)
        long_ago = time.time() - 3600  # the sender of older files is gone, with its job
        for entry in os.scandir(folder):
            left = (
                entry.name.endswith(".sif")
                and entry.stat(follow_symlinks=False).st_mtime < long_ago
            )
            if left or entry.name.endswith(".new"):
                _remove(entry.path)
        yield


def _remove_if_unused(path: str) -> bool:
    """Remove the image with the list at `path`, unless a process holds it or has used it in the
    last 30 days; return whether it was removed.
    """
    try:
        with open(
            path, "r+", opener=lambda _, flags: os.open(path, flags | os.O_NOFOLLOW)
        ) as listed:
            fcntl.flock(listed, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(listed.fileno()).st_mtime > time.time() - _UNUSED:
                return False
            # Remove the list last: without it, nobody would find the rest.
            _remove(path.removesuffix(".list"), path)
    except OSError:
        # It is held, or has files that cannot be removed, which must not prevent a run of another
        # image.
        return False
    return True


def _find_source(paths: Sequence[str], name: str) -> str:
    """Return the first file that is the image: not truncated, changed or missing."""
    for path in paths:
        with suppress(HostError, FileNotFoundError):
            if digest(path) == name:
                return path
    raise HostError(
        f"no file here has the digest {name}: {paths[-1]}",
        paths[-1],
        "copy or build it again",
    )


def _place(image: str, target: str) -> None:
    partial, listed, partial_list = f"{target}.new", f"{target}.list", f"{target}.list.new"
    _remove(listed, target)
    try:
        if not _unpack(image, partial):
            _keep_file(image, partial)
        os.rename(partial, target)
        with open(partial_list, "wb") as file:
            file.writelines(list_files(target))
        os.rename(partial_list, listed)
    except BaseException:
        _remove(partial, target, partial_list)
        raise


def _unpack(image: str, target: str) -> bool:
    """Unpack the image; return False if there is no room, or no unsquashfs that can do it (4.4 or
    later).
    """
    unsquashfs = shutil.which("unsquashfs")
    if not unsquashfs:
        return False
    at = ("-offset", str(find_root(image).offset))
    listing = subprocess.run([unsquashfs, "-lln", *at, image], capture_output=True, check=False)
    files = [line for line in listing.stdout.splitlines() if line.startswith((b"-r", b"l", b"d"))]
    # In disk blocks; the third word is the size.
    needed = sum(4096 + int(line.split()[2]) for line in files)
    if listing.returncode or needed + _MARGIN > find_room(os.path.dirname(target)):
        return False
    options = ("-quiet", "-no-progress", "-no-xattrs", "-dest", target, *at)
    unpacking = subprocess.run([unsquashfs, *options, image], capture_output=True, check=False)
    if unpacking.returncode:
        _remove(target)  # such as from an image with devices, which an ordinary user cannot make
    return not unpacking.returncode


def _keep_file(image: str, target: str) -> None:
    folder = os.path.dirname(target)
    if os.path.dirname(image) == folder:
        os.rename(image, target)
        return
    check_space(folder, os.path.getsize(image) + _MARGIN)
    shutil.copyfile(image, target)


def _remove(*paths: str) -> None:
    """Remove files and folders, if they exist."""
    for path in paths:
        if os.path.isdir(path) and not os.path.islink(path):
            remove_tree(path)  # images of some systems have folders that their owner cannot write
        elif os.path.lexists(path):
            os.unlink(path)


def restore(target: str, name: str, image: str) -> None:
    """Restore the image if it has changed, before this task starts a container; if that fails, end
    the task.
    """
    hold(target)  # inherited by the runtime, which stays beside the program
    damage = find_damage(target)
    if not damage:
        return
    begin = time.monotonic()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # leave nothing half done
    found = _answer(place, os.path.dirname(os.path.dirname(target)), name, image)
    if "error" in found:
        refuse(f"cannot stage the image on {found['node']}: {found['error']}")
    hold(target)
    if found["damage"]:  # else another task was faster
        took = time.monotonic() - begin
        print(
            f"jaxsif: the image on {found['node']} was {damage}; restaged in {took:.1f} s",
            file=sys.stderr,
        )


def refuse(problem: str, hint: str = "") -> NoReturn:
    """End this task in the same way as jaxsif/task/failure.py."""
    prefixes = ("APPTAINERENV_", "SINGULARITYENV_")
    nonces = "".join(os.environ.get(prefix + REPORT, "") for prefix in prefixes)
    line = f"{problem}\n".encode(errors="backslashreplace")
    if nonces:
        task, node = int(os.environ["SLURM_PROCID"]), os.environ["SLURMD_NODENAME"]
        fields = {"task": task, "node": node, "event": "refused", "text": problem, "hint": hint}
        line = render_report(nonces.partition(":")[0], fields)
    sys.stderr.buffer.write(line)
    sys.stderr.flush()
    os._exit(125)


def _answer(
    verb: Callable[..., Mapping[str, object]], folder: str, *arguments: str
) -> dict[str, object]:
    begin = time.monotonic()
    try:
        found = verb(folder, *arguments)
    except JaxsifError as error:
        found = {"error": error.what, "taken": isinstance(error, FolderTakenError)}
    except OSError as error:
        found = {"error": f"{error.strerror}: {error.filename or folder}"}
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    return {"node": node, **found, "seconds": round(time.monotonic() - begin, 2)}


if __name__ == "__main__":
    _VERBS: Mapping[str, Callable[..., Mapping[str, object]]] = {
        "check": check,
        "place": place,
        "clean": clean,
    }
    print(json.dumps(_answer(_VERBS[sys.argv[1]], *sys.argv[2:])))
