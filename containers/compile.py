"""Byte-compile the installed wheels in a build. Arguments: site-packages, what is kept already, what is to be kept.

A wheel that is linked from uv's cache is compiled once: what is kept of it is copied the next time. The files are
never checked against their sources, so that a start need not look at these; a read-only image cannot change.
"""

from __future__ import annotations

import hashlib
import importlib.util
import multiprocessing
import os
import py_compile
import shutil
import sys
from pathlib import Path


def compile_one(job: tuple[Path, Path]) -> None:
    """Compile a source to a file; one that this Python cannot read is left to fail when it is imported."""
    source, compiled = job
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    try:
        py_compile.compile(str(source), cfile=str(compiled), doraise=True, invalidation_mode=mode)
    except py_compile.PyCompileError as error:
        sys.stderr.write(f"not compiled: {error.msg.strip()}\n")


def find_wheels(site: Path) -> dict[Path, list[Path]]:
    """The sources below `site`, by the folder of uv's cache that they are linked from, `site` for all others."""
    wheels: dict[Path, list[Path]] = {}
    for source in sorted(site.rglob("*.py")):
        depth = len(source.relative_to(site).parts)
        target = Path(os.readlink(source)) if source.is_symlink() else source
        wheels.setdefault(target.parents[depth - 1], []).append(source)
    return wheels


def main(site: Path, kept: Path, new: Path) -> None:
    """Compile what is not kept, several files at once; copy all into `site`."""
    jobs, copies = [], []
    for wheel, sources in find_wheels(site).items():
        inputs = [sys.version, Path(__file__).read_text(), str(wheel), *map(str, sources)]
        name = hashlib.sha256("\n".join(inputs).encode()).hexdigest()
        folder = kept / name
        if wheel == site or not folder.exists():
            folder = new / name
            folder.mkdir(parents=True)
            jobs += [(source, folder / str(number)) for number, source in enumerate(sources)]
        copies += [(folder / str(number), source) for number, source in enumerate(sources)]
    # A process for each: what a file becomes depends, in rare cases, on what its process compiled before.
    with multiprocessing.get_context("fork").Pool(maxtasksperchild=1) as pool:
        pool.map(compile_one, jobs, chunksize=1)
    for compiled, source in copies:
        if compiled.exists():
            place = Path(importlib.util.cache_from_source(str(source)))
            place.parent.mkdir(exist_ok=True)
            shutil.copyfile(compiled, place)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
