"""Byte-compile the installed wheels in a build. Arguments: site-packages, what is kept already, what is to be kept.

A wheel that is linked from uv's cache is compiled once, and what is kept of it is linked, too. The files are never
checked against their sources, so that a start need not look at these; a read-only image cannot change.
"""

from __future__ import annotations

import hashlib
import importlib.util
import multiprocessing
import os
import py_compile
import sys
from pathlib import Path


def compile_some(jobs: list[tuple[Path, Path]]) -> None:
    """Compile sources to files; one that this Python cannot read is left to fail when it is imported."""
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    for source, compiled in jobs:
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


def compiled_path(source: Path) -> Path:
    """Where Python looks for what a source is compiled to."""
    return Path(importlib.util.cache_from_source(str(source)))


def main(site: Path, kept: Path, new: Path) -> None:
    """Compile what is not kept, several files at once; link what is kept into `site`."""
    wheels = find_wheels(site)
    jobs = [[(source, compiled_path(source)) for source in wheels.pop(site, [])]]
    links = []
    for wheel, sources in wheels.items():
        inputs = [sys.version, Path(__file__).read_text(), str(wheel), *map(str, sources)]
        name = hashlib.sha256("\n".join(inputs).encode()).hexdigest()
        if not (kept / name).exists():
            (new / name).mkdir(parents=True)
            new_jobs = [(source, new / name / str(number)) for number, source in enumerate(sources)]
            jobs += [new_jobs[at : at + 25] for at in range(0, len(new_jobs), 25)]
        links += [(source, Path(name, str(number))) for number, source in enumerate(sources)]
    # A process for a few files of one wheel, always the same ones: what a file becomes depends, in rare cases, on what
    # its process compiled before.
    with multiprocessing.get_context("fork").Pool(maxtasksperchild=1) as pool:
        pool.map(compile_some, jobs, chunksize=1)
    for source, file in links:
        if (kept / file).exists() or (new / file).exists():
            place = compiled_path(source)
            place.parent.mkdir(exist_ok=True)
            place.symlink_to(kept / file)  # where the build puts what is new


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
