"""How long an image takes to build, and how large it is: with nothing cached, the plain way, and
once more after one package of its lock has changed. The plain way is debootstrap, pip and the engine's
defaults (tests/bench/plain.def).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jaxsif import process
from jaxsif.bench.results import Record
from jaxsif.builds.build import find_uv
from jaxsif.builds.host_settings import apt_mirror, host_variables, write_settings
from jaxsif.builds.recipe import Recipe, read_recipe
from jaxsif.errors import HostError, JaxsifError
from jaxsif.installation import LIBRARY
from jaxsif.runtime import Runtime

_PLAIN = "tests/bench/plain.def"
_WHAT = {"cpu": "jax"}  # flavour -> what pip installs, where that is not jax[FLAVOUR]
# ext4 without a journal does not take the inodes of deleted files again before a minute is over
# (recently_deleted in fs/ext4/ialloc.c), and looks for another one so long that each new file takes
# a millisecond.
PAUSE = 65  # seconds


class Build(NamedTuple):
    """A build that is over."""

    way: str
    seconds: float
    size: int  # bytes of the image


class Builds(NamedTuple):
    """What is built, and where."""

    source: Path  # a clone
    flavour: str
    package: str  # the one that changes
    runtime: Runtime
    work: Path  # an empty folder
    environ: Mapping[str, str]
    show: Callable[[str], None]
    pause: int = PAUSE  # seconds before each build

    def run(self) -> Iterator[Build]:
        """Build, one after the other; raises HostError where one fails."""
        yield self._ours("cold", self._older_source())
        yield self._plain()
        yield self._ours(f"{self.package} changed", self.source)

    def _older_source(self) -> Path:
        """The sources, with a lock in which the package has an older version."""
        source = self.work / "source"
        for name in ("containers", "jaxsif"):
            shutil.copytree(self.source / name, source / name)
        shutil.copy(self.source / "LICENSE", source)
        recipe = read_recipe(source, self.flavour)
        older = self.work / "older.txt"
        older.write_text(f"{self.package}<{_locked_version(recipe, self.package)}\n")
        argv = [
            str(find_uv(self.environ)),
            "pip",
            "compile",
            "--quiet",
            "--generate-hashes",
            "--python-version=3.13",
        ]
        argv += [f"--python-platform={recipe.machine}-manylinux_2_28", f"--constraints={older}"]
        argv += [f"--output-file={recipe.lock}", f"{source}/containers/locks/{self.flavour}.in"]
        self._run("lock", argv, host_variables(self.environ))
        return source

    def _ours(self, way: str, source: Path) -> Build:
        """`jaxsif image build`, always with the same cache."""
        output = self.work / way.replace(" ", "-")
        argv = [
            sys.executable,
            "-m",
            "jaxsif",
            "image",
            "build",
            f"--flavour={self.flavour}",
            f"--source={source}",
        ]
        argv += [f"--output={output}", f"--cache={self.work}/cache"]
        seconds = self._timed(way, argv, {"PYTHONPATH": LIBRARY})
        return Build(way, seconds, next(output.glob("*.sif")).stat().st_size)

    def _plain(self) -> Build:
        image = self.work / f"plain-{self.flavour}.sif"
        argv, variables = plain_argv(self.source, self.flavour, self.runtime, image, self.environ)
        return Build("plain", self._timed("plain", argv, variables), image.stat().st_size)

    def _timed(self, way: str, argv: Sequence[str], variables: Mapping[str, str]) -> float:
        """Wall time in seconds."""
        self.show(f"{self.flavour}, {way}: waits {self.pause} s for the disk, then builds")
        os.sync()
        time.sleep(self.pause)
        begin = time.perf_counter()
        self._run(way, argv, variables)
        return time.perf_counter() - begin

    def _run(self, what: str, argv: Sequence[str], variables: Mapping[str, str]) -> None:
        lines: list[str] = []
        log = str(self.work / "log")
        environ = {**self.environ, **variables}
        if process.run_logged(argv, environ, log, str(self.source), lines.append):
            end = "\n".join(lines[-12:])
            raise HostError(f"{what} of {self.flavour} failed:", argv[0], "see its messages", end)


def summarize(records: Sequence[Record]) -> list[str]:
    """The ratios that count."""
    cold, plain, again = records
    size = cold["size"] / plain["size"]
    return [
        f"cold: 1/{plain['time'] / cold['time']:.1f} of the plain way's time, {size:.2f} of its size",
        f"{again['way']}: 1/{cold['time'] / again['time']:.1f} of the cold time",
    ]


def plain_argv(
    source: Path, flavour: str, runtime: Runtime, image: Path, environ: Mapping[str, str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """What builds the image the plain way, without a cache, and the variables to add for that."""
    stage = image.parent / "stage"
    stage.mkdir(exist_ok=True)
    write_settings(stage, host_variables(environ))
    arguments = {"WHAT": _WHAT.get(flavour, f"jax[{flavour}]"), "MIRROR": str(apt_mirror())}
    argv = runtime.build_argv(str(image), str(source / _PLAIN), [f"{stage}:/mnt"], arguments)
    return argv, {"APPTAINER_TMPDIR": str(image.parent)}


def check_source(source: Path, flavour: str, package: str) -> None:
    """Raise JaxsifError for a folder or a package that cannot be measured."""
    if not (source / _PLAIN).exists():
        raise JaxsifError(
            f"no {_PLAIN} in {source}",
            "--source",
            "a clone of jaxsif; an installation has no such file",
        )
    _locked_version(read_recipe(source, flavour), package)


def _locked_version(recipe: Recipe, package: str) -> str:
    version = re.search(rf"^{re.escape(package)}==(\S+)", recipe.lock.read_text(), re.MULTILINE)
    if not version:
        raise JaxsifError(f"no {package} in {recipe.lock}", "--package", "a package of that file")
    return version[1]
