"""What the tests of builds share: a build on this machine, and the sources for one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from harness import HERE

REPOSITORY = HERE.parents[1]
CACHE = REPOSITORY / "build/cache"


def build(
    source: Path, output: Path, *options: str, cache: Path = CACHE, umask: int = 0o022, **variables: str
) -> subprocess.Popen[str]:
    """`jaxsif image build` as the Makefile calls it, on this machine."""
    tools = "" if shutil.which("apptainer") or shutil.which("singularity") else f"{HERE}/bin:"
    argv = [REPOSITORY / "build/venv/bin/jaxsif", "image", "build", "--flavour", "cpu"]
    return subprocess.Popen(
        [*argv, "--source", source, "--output", output, "--cache", cache, *options],
        env={**os.environ, "PATH": f"{tools}{os.environ['PATH']}", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        umask=umask,
    )


def copy_source(target: Path) -> Path:
    """The part of the clone that an image is made of, to change it."""
    for name in ("containers", "jaxsif"):
        shutil.copytree(REPOSITORY / name, target / name)
    shutil.copy(REPOSITORY / "LICENSE", target)
    return target


def link_bases(cache: Path) -> Path:
    """A cache with the base systems alone, and all else still to be fetched."""
    cache.mkdir(parents=True)
    for base in CACHE.glob("base-*.sqfs"):
        (cache / base.name).hardlink_to(base)
    return cache
