"""A tree of files -> one compressed squashfs file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from jaxsif import process
from jaxsif.errors import HostError
from jaxsif.layers.container import NO_SPACE, no_space, tail
from jaxsif.runtime import Runtime

# As the cpu image: small blocks start faster.
_SQUASHFS = ("-comp", "zstd", "-Xcompression-level", "3", "-b", "128K")


def find_mksquashfs(runtime: Runtime, environ: Mapping[str, str]) -> str:
    """mksquashfs, which the runtime needs too, from the PATH, the folders of root's programs or the
    runtime's own.
    """
    executable = shutil.which(runtime.command, path=environ.get("PATH")) or runtime.command
    prefix = Path(os.path.realpath(executable)).parents[1]
    own = [str(prefix / f"libexec/{name}/bin") for name in ("apptainer", "singularity")]
    folders = [environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin", *own]
    found = shutil.which("mksquashfs", path=os.pathsep.join(folders))
    if not found:
        raise HostError(
            "mksquashfs is not on the PATH",
            "PATH",
            "install squashfs-tools, or load the module that has it",
        )
    return found


def pack(
    mksquashfs: str, tree: Path, hidden: Sequence[str], target: Path, environ: Mapping[str, str]
) -> None:
    """Pack `tree` into `target`; it will hide the files `hidden` of what it lies over."""
    # A character device 0/0 is what an overlay takes for "not there".
    devices = "".join(f'"{path.lstrip("/")}" c 0644 0 0 0 0\n' for path in hidden)
    (tree.parent / "devices").write_text(devices)
    processors = str(min(8, len(os.sched_getaffinity(0))))  # of a login node, only a few
    argv = [
        mksquashfs,
        str(tree),
        str(target),
        *_SQUASHFS,
        "-all-root",
        "-no-xattrs",
        "-noappend",
        "-quiet",
    ]
    argv += ["-no-progress", "-processors", processors, "-pf", str(tree.parent / "devices")]
    lines: list[str] = []
    status = process.run_logged(
        argv, environ, str(tree.parent / "log"), str(tree.parent), lines.append
    )
    if status and any(word in line for word in NO_SPACE for line in lines):
        raise no_space(target.parents[1], "remove what is not needed there")
    if status:
        raise HostError("mksquashfs failed:", mksquashfs, "see its messages", tail(lines))
