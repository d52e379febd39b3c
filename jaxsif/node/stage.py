"""Have an image on this node's own disk; `jaxsif run --stage` starts it once on each node of the
job.

    stage.py check FOLDER DIGEST
    stage.py place FOLDER DIGEST IMAGE BROUGHT
    stage.py clean FOLDER BROUGHT

It prints one JSON object: the node, what there is, how long it took. An image is unpacked where
there is unsquashfs and room for it, so that nothing stands between the programs and the files;
otherwise the SIF file is kept. Beside it, a list of all its files tells later whether it is still
what was put there. `restore` does that in a task.
"""

from __future__ import annotations

import fcntl
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
from jaxsif.images.file import digest, find_root, staged_path
from jaxsif.node.files import find_damage, hold, is_private, list_files
from jaxsif.trust import find_replacers, name_user

_MARGIN = 64 << 20  # bytes to leave free
_UNUSED = 30 * 24 * 3600  # seconds since its last use after which a copy gives way to another image


def own_folder(folder: str) -> str:
    """This user's folder below `folder`, made if it is not there.

    Raises HostError where others may put another folder in its place, and FolderTakenError for one
    that is theirs.
    """
    path = os.path.dirname(staged_path(folder, ""))
    why = find_replacers(folder)
    if why:
        raise HostError(
            f"others may replace what is in {folder}: {why}",
            folder,
            "set run.stage-folder to another folder",
        )
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not is_private(path):
            status = os.lstat(path)
            kind = f"{stat.filemode(status.st_mode)} {name_user(status.st_uid)}"
            raise FolderTakenError(
                f"not a folder of this user alone: {path} ({kind})", folder, "remove it"
            ) from None
    return path


def check(folder: str, name: str) -> dict[str, object]:
    """What there is, and how much room; where the image is to be brought, other ones that nobody
    uses make room.
    """
    target, folder = staged_path(folder, name), own_folder(folder)
    hold(target)  # before the look, until this process ends
    damage, removed = find_damage(target), 0
    if damage:
        with suppress(BlockingIOError), _alone(folder, fcntl.LOCK_NB):
            removed = _remove_unused(folder)
    return {"damage": damage, "free": shutil.disk_usage(folder).free, "removed": removed}


def place(folder: str, name: str, image: str, brought: str = "") -> dict[str, object]:
    """Put it there, unless it is; from the file `brought` of sbcast, else from `image` on the
    shared disk.
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
    """Remove what an interrupted run has left half."""
    folder = own_folder(folder)
    with _alone(folder):
        _remove(os.path.join(folder, brought))
    return {}


@contextmanager
def _alone(folder: str, how: int = 0) -> Iterator[None]:
    """Several runs may stage at once; what is half made when nobody else is here, nobody will
    finish.

    Raises BlockingIOError when another one is here and `how` is fcntl.LOCK_NB.
    """
    with open(os.path.join(folder, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | how)
        long_ago = time.time() - 3600  # whoever sent that is gone, with the job
        for entry in os.scandir(folder):
            left = (
                entry.name.endswith(".sif")
                and entry.stat(follow_symlinks=False).st_mtime < long_ago
            )
            if left or entry.name.endswith(".new"):
                _remove(entry.path)
        yield


def _remove_unused(folder: str) -> int:
    """Remove the images that no process holds and none has used for long; return their number."""
    lists = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".list")]
    return sum(
        _remove_if_unused(path)
        for path in lists
        if os.path.isfile(path) and not os.path.islink(path)
    )


def _remove_if_unused(path: str) -> bool:
    """Whether the image with the list at `path` was removed."""
    try:
        with open(path, "r+") as listed:
            fcntl.flock(listed, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(listed.fileno()).st_mtime > time.time() - _UNUSED:
                return False
            _remove(path.removesuffix(".list"))
            _remove(path)  # last: without it, nobody would know the rest
    except OSError:
        # It is held, or has files that cannot be removed: that must not hinder a run of another
        # image.
        return False
    return True


def _find_source(paths: Sequence[str], name: str) -> str:
    """The first of the files that is the image: not cut short, nor changed, nor missing."""
    for path in paths:
        with suppress(HostError, FileNotFoundError):
            if digest(path) == name:
                return path
    raise HostError(
        f"what is here has not the digest {name}: {paths[-1]}", paths[-1], "copy or build it again"
    )


def _place(image: str, target: str) -> None:
    partial = f"{target}.new"
    for path in (f"{target}.list", target):
        _remove(path)
    try:
        if not _unpack(image, partial):
            _keep_file(image, partial)
        os.rename(partial, target)
        with open(f"{target}.list.new", "wb") as file:
            file.writelines(list_files(target))
        os.rename(f"{target}.list.new", f"{target}.list")
    except BaseException:
        for path in (partial, target, f"{target}.list.new"):
            _remove(path)
        raise


def _unpack(image: str, target: str) -> bool:
    """True when it is unpacked; False where there is no room, or no unsquashfs that can do it (from
    4.4 on it can).
    """
    unsquashfs = shutil.which("unsquashfs")
    if not unsquashfs:
        return False
    offset = str(find_root(image).offset)
    listing = subprocess.run(
        [unsquashfs, "-lln", "-offset", offset, image], capture_output=True, check=False
    )
    files = [
        line.split() for line in listing.stdout.splitlines() if line.startswith((b"-r", b"l", b"d"))
    ]
    # In blocks of a disk.
    needed = sum(4096 + (int(words[2]) if words[0].startswith(b"-") else 0) for words in files)
    if listing.returncode or needed > _free(os.path.dirname(target)):
        return False
    argv = [
        unsquashfs,
        "-quiet",
        "-no-progress",
        "-no-xattrs",
        "-dest",
        target,
        "-offset",
        offset,
        image,
    ]
    if subprocess.run(argv, capture_output=True, check=False).returncode == 0:
        return True
    _remove(target)  # as for an image with devices, which an ordinary user cannot make
    return False


def _keep_file(image: str, target: str) -> None:
    folder = os.path.dirname(target)
    if os.path.dirname(image) == folder:
        os.rename(image, target)
        return
    size = os.path.getsize(image)
    if size > _free(folder):
        raise HostError(
            f"no room in {folder}: {_megabytes(size)} needed, {_megabytes(_free(folder))} free"
        )
    shutil.copyfile(image, target)


def _free(folder: str) -> int:
    return shutil.disk_usage(folder).free - _MARGIN


def _megabytes(number: int) -> str:
    return f"{max(number, 0) / 1e6:.0f} MB"


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        for folder, _, _ in os.walk(path):
            # Images of some systems have folders that their owner cannot write.
            os.chmod(folder, 0o700)
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def restore(target: str, name: str, image: str) -> None:
    """In a task, before it starts a container: have the image as it was put there, or end the task."""
    hold(target)  # the runtime inherits that, and stays beside the program
    damage = find_damage(target)
    if not damage:
        return
    begin = time.monotonic()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # leaving nothing half
    found = _answer(place, os.path.dirname(os.path.dirname(target)), name, image)
    if "error" in found:
        refuse(f"cannot stage the image on {found['node']}: {found['error']}")
    hold(target)
    if found["damage"]:  # else another task was faster
        took = time.monotonic() - begin
        print(
            f"jaxsif: the image on {found['node']} was {damage}; put there anew in {took:.1f} s",
            file=sys.stderr,
        )


def refuse(problem: str) -> NoReturn:
    """End this task as jaxsif/task/failure.py does."""
    told = (
        os.environ.get(f"{runtime}ENV_JAXSIF_REPORT", "")
        for runtime in ("APPTAINER", "SINGULARITY")
    )
    nonce = next(filter(None, told), "").partition(":")[0]
    if nonce:
        task, node = int(os.environ["SLURM_PROCID"]), os.environ["SLURMD_NODENAME"]
        problem = f"\x1ejaxsif {nonce} " + json.dumps(
            {"task": task, "node": node, "event": "refused", "text": problem}
        )
    print(problem, file=sys.stderr, flush=True)
    os._exit(125)


def _answer(
    verb: Callable[..., Mapping[str, object]], folder: str, *arguments: str
) -> dict[str, object]:
    begin = time.monotonic()
    try:
        found = verb(folder, *arguments)
    except FolderTakenError as error:
        found = {"error": error.what, "taken": True}
    except JaxsifError as error:
        found = {"error": error.what}
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
