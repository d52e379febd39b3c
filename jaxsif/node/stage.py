"""Have an image on this node's own disk; `jaxsif run --stage` starts it once on each node of the job.

    stage.py check FOLDER DIGEST
    stage.py place FOLDER DIGEST IMAGE BROUGHT
    stage.py clean FOLDER BROUGHT

It prints one JSON object: the node, what there is, how long it took. An image is unpacked where there is unsquashfs
and room for it, so that nothing stands between the programs and the files; otherwise the SIF file is kept. Beside it,
a list of all its files with sizes and times of change tells later whether it is still what was put there.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../.."))
from jaxsif.errors import HostError, JaxsifError
from jaxsif.imagefile import digest, find_root, staged_path

_MARGIN = 64 << 20  # bytes to leave free


def own_folder(folder: str) -> str:
    """This user's folder below `folder`, made if it is not there; raises HostError for one that others can change."""
    path = os.path.dirname(staged_path(folder, ""))
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise HostError(f"not a folder of this user alone: {path}", folder, "remove it") from None
    return path


def list_files(path: str) -> Iterator[str]:
    """A line for each file below `path`, or for `path` itself: name, kind, size, times of change."""
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode):
        yield f".\t{status.st_mode} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}\n"
        return
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(os.path.join(path, folder)) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                status = entry.stat(follow_symlinks=False)
                name = os.path.join(folder, entry.name)
                yield f"{name!a}\t{status.st_mode} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}\n"
                if entry.is_dir(follow_symlinks=False):
                    folders.append(name)


def find_damage(place: str) -> str | None:
    """Why the image at `place` cannot be used; None when it is as it was put there."""
    try:
        with open(f"{place}.list") as file:
            expected = file.readlines()
        found = list(list_files(place))
    except FileNotFoundError:
        return "absent"
    if found == expected:
        return None
    changed = sorted({line.split("\t")[0] for line in set(expected) ^ set(found)})
    return f"damaged: {len(changed)} file(s) changed, such as {changed[0]}"


def check(folder: str, name: str) -> dict[str, object]:
    """What there is, and how much room."""
    damage = find_damage(staged_path(folder, name))
    return {"damage": damage, "free": shutil.disk_usage(own_folder(folder)).free}


def place(folder: str, name: str, image: str, brought: str) -> dict[str, object]:
    """Put it there, unless it is; from the file `brought` of sbcast, else from `image` on the shared disk."""
    target, folder = staged_path(folder, name), own_folder(folder)
    brought = os.path.join(folder, brought)
    with _alone(folder):
        try:
            damage = find_damage(target)
            if damage:
                _place(brought if _is_image(brought, name) else image, name, target)
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
def _alone(folder: str) -> Iterator[None]:
    """Several runs may stage at once; what is half made when nobody else is here, nobody will finish."""
    with open(os.path.join(folder, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        long_ago = time.time() - 3600  # whoever sent that is gone, with the job
        for entry in os.scandir(folder):
            left = entry.name.endswith(".sif") and entry.stat(follow_symlinks=False).st_mtime < long_ago
            if left or entry.name.endswith(".new"):
                _remove(entry.path)
        yield


def _is_image(path: str, name: str) -> bool:
    try:
        return digest(path) == name
    except (HostError, FileNotFoundError):  # cut short, or not brought at all
        return False


def _place(image: str, name: str, target: str) -> None:
    if not _is_image(image, name):
        raise HostError(f"what is here has not the digest {name}: {image}", image, "copy or build it again")
    partial = f"{target}.new"
    for path in (f"{target}.list", target):
        _remove(path)
    try:
        if not _unpack(image, partial):
            _keep_file(image, partial)
        os.rename(partial, target)
        with open(f"{target}.list.new", "w") as file:
            file.writelines(list_files(target))
        os.rename(f"{target}.list.new", f"{target}.list")
    except BaseException:
        for path in (partial, target, f"{target}.list.new"):
            _remove(path)
        raise


def _unpack(image: str, target: str) -> bool:
    """True when it is unpacked; False where there is no room, or no unsquashfs that can do it (from 4.4 on it can)."""
    unsquashfs = shutil.which("unsquashfs")
    if not unsquashfs:
        return False
    offset = str(find_root(image).offset)
    listing = subprocess.run([unsquashfs, "-lln", "-offset", offset, image], capture_output=True, check=False)
    files = [line.split() for line in listing.stdout.splitlines() if line.startswith((b"-r", b"l", b"d"))]
    needed = sum(4096 + (int(words[2]) if words[0].startswith(b"-") else 0) for words in files)  # in blocks of a disk
    if listing.returncode or needed > _free(os.path.dirname(target)):
        return False
    argv = [unsquashfs, "-quiet", "-no-progress", "-no-xattrs", "-dest", target, "-offset", offset, image]
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
        raise HostError(f"no room in {folder}: {_megabytes(size)} needed, {_megabytes(_free(folder))} free")
    shutil.copyfile(image, target)


def _free(folder: str) -> int:
    return shutil.disk_usage(folder).free - _MARGIN


def _megabytes(number: int) -> str:
    return f"{max(number, 0) / 1e6:.0f} MB"


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        for folder, _, _ in os.walk(path):
            os.chmod(folder, 0o700)  # images of some systems have folders that their owner cannot write
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def main(verb: str, folder: str, *arguments: str) -> None:
    """Run one verb and print what came of it."""
    begin = time.monotonic()
    verbs: dict[str, Callable[..., dict[str, object]]] = {"check": check, "place": place, "clean": clean}
    try:
        found = verbs[verb](folder, *arguments)
    except JaxsifError as error:
        found = {"error": error.what}
    except OSError as error:
        found = {"error": f"{error.strerror}: {error.filename or folder}"}
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    print(json.dumps({"node": node, **found, "seconds": round(time.monotonic() - begin, 2)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
