"""A tree of files -> one compressed squashfs file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from jaxsif import process
from jaxsif.errors import HostError
from jaxsif.layers.workspace import no_space, run, tail
from jaxsif.runtime import Runtime

# As the cpu image: small blocks start faster.
_SQUASHFS = ("-comp", "zstd", "-Xcompression-level", "3", "-b", "128K")


def find_mksquashfs(runtime: Runtime, environ: Mapping[str, str]) -> str:
    """Return mksquashfs, which the runtime needs too, from the PATH, the folders of root's programs
    or the runtime's own; raises HostError.
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
    """Pack `tree` into `target`, readable for everybody; it will hide the files `hidden` of what it
    lies over. Raises HostError.
    """
    process.output("chmod", "--recursive", "ug-s,u=rwX,go=rX", str(tree))
    # A character device 0/0 is what an overlay takes for "not there".
    devices = "".join(f'"{path.lstrip("/")}" c 0644 0 0 0 0\n' for path in hidden)
    (tree.parent / "devices").write_text(devices)
    processors = str(min(8, len(os.sched_getaffinity(0))))  # of a login node, only a few
    argv = [mksquashfs, str(tree), str(target), *_SQUASHFS, "-all-root", "-no-xattrs", "-noappend"]
    argv += ["-quiet", "-no-progress", "-processors", processors]
    argv += ["-pf", str(tree.parent / "devices")]
    full = no_space(target.parents[1], "remove what is not needed there")
    status, lines = run(argv, environ, tree.parent, full)
    if status:
        raise HostError("mksquashfs failed:", mksquashfs, "see its messages", tail(lines))
