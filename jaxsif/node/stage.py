"""Have an image on this node's own disk; `jaxsif run --stage` starts it once on each node of the job.

    stage.py check FOLDER DIGEST
    stage.py place FOLDER DIGEST IMAGE
    stage.py clean FOLDER DIGEST

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
from collections.abc import Iterator

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../.."))
from jaxsif.errors import HostError, JaxsifError
from jaxsif.imagefile import digest, find_root

_MARGIN = 64 << 20  # bytes to leave free


def own_folder(folder: str) -> str:
    """This user's folder below `folder`, made if it is not there; raises HostError for one that others can change."""
    path = os.path.join(folder, f"jaxsif-{os.getuid()}")
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise HostError(f"not a folder of this user alone: {path}", folder, "remove it") from None
    return path


def place_of(folder: str, name: str) -> str:
    """Where the image of digest `name` is, a folder or a file; '.sif' behind it for one that sbcast brings."""
    return os.path.join(folder, name.partition(":")[2][:16])


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
                yield f"{name!r}\t{status.st_mode} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}\n"
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
    folder = own_folder(folder)
    damage = find_damage(place_of(folder, name))
    return {"damage": damage, "free": shutil.disk_usage(folder).free}


def place(folder: str, name: str, image: str) -> dict[str, object]:
    """Put it there, unless it is; from what sbcast has brought, else from `image` on the shared disk."""
    folder = own_folder(folder)
    target = place_of(folder, name)
    brought = f"{target}.sif"
    with open(os.path.join(folder, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs of one job may come at once
        try:
            damage = find_damage(target)
            if damage:
                _place(brought if _is_image(brought, name) else image, name, target)
        finally:
            _remove(brought)
    return {"damage": damage, "unpacked": os.path.isdir(target)}


def clean(folder: str, name: str) -> dict[str, object]:
    """Remove what an interrupted run has left half."""
    target = place_of(own_folder(folder), name)
    for path in (f"{target}.sif", f"{target}.new", f"{target}.list.new"):
        _remove(path)
    return {}


def _is_image(path: str, name: str) -> bool:
    try:
        return digest(path) == name
    except (HostError, FileNotFoundError):  # cut short, or not brought at all
        return False


def _place(image: str, name: str, target: str) -> None:
    if not _is_image(image, name):
        raise HostError(f"what is here has not the digest {name}: {image}", image, "copy or build it again")
    partial = f"{target}.new"
    for path in (partial, f"{target}.list", target):
        _remove(path)
    try:
        _copy(image, partial)
        os.rename(partial, target)
        with open(f"{target}.list.new", "w") as file:
            file.writelines(list_files(target))
        os.rename(f"{target}.list.new", f"{target}.list")
    except BaseException:
        for path in (partial, target, f"{target}.list.new"):
            _remove(path)
        raise


def _copy(image: str, target: str) -> None:
    """Unpack the image where that can be done, take the file otherwise."""
    folder, offset = os.path.dirname(target), find_root(image).offset
    free = shutil.disk_usage(folder).free - _MARGIN
    unsquashfs = shutil.which("unsquashfs")
    if unsquashfs and _unpacked_size(unsquashfs, image, offset) < free:
        argv = [unsquashfs, "-quiet", "-no-progress", "-no-xattrs", "-dest", target, "-offset", str(offset), image]
        done = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise HostError(f"unsquashfs failed: {done.stderr.strip()[-200:]}", image, "see df on the node")
        return
    if os.path.dirname(image) == folder:
        os.rename(image, target)
        return
    if os.path.getsize(image) > free:
        raise HostError(f"no room in {folder}: {_megabytes(os.path.getsize(image))} needed, {_megabytes(free)} free")
    shutil.copyfile(image, target)


def _unpacked_size(unsquashfs: str, image: str, offset: int) -> int:
    """Bytes on a disk with blocks of 4 KiB."""
    argv = [unsquashfs, "-quiet", "-lln", "-offset", str(offset), image]
    listing = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    sizes = [int(line.split()[2]) if line.startswith("-") else 0 for line in listing.splitlines() if line]
    return sum(size + 4096 for size in sizes)


def _megabytes(number: int) -> str:
    return f"{max(number, 0) / 1e6:.0f} MB"


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def main(verb: str, folder: str, name: str, *image: str) -> None:
    """Run one verb and print what came of it."""
    begin = time.monotonic()
    try:
        found = {"check": check, "place": place, "clean": clean}[verb](folder, name, *image)  # type: ignore[operator]
    except JaxsifError as error:
        found = {"error": error.what}
    except OSError as error:
        found = {"error": f"{error.strerror}: {error.filename or folder}"}
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    print(json.dumps({"node": node, **found, "seconds": round(time.monotonic() - begin, 2)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
