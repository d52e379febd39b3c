"""How long an image takes to build, and how large it is: cold, the plain way, and after one package has changed.

    build/venv/bin/python tests/bench/image.py [--flavour NAME] [--package NAME] [--pause S]

Three builds of this clone, one after the other, in a folder below build/ that is removed in the end, of up to 12 GB for
CUDA: with nothing cached, and an older version of the package in the lock; the plain way, which is debootstrap, pip and
the engine's defaults (plain.def); and with the lock as it is, by the cache that the first build has left.

exit status: 0; 1 when a build fails
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jaxsif import process
from jaxsif.bench.kinds import BYTES, SECONDS, TEXT, Field, render_heading, render_row
from jaxsif.builds.build import find_uv
from jaxsif.builds.host_settings import apt_mirror, host_variables, write_settings
from jaxsif.builds.recipe import Recipe, read_recipe
from jaxsif.errors import JaxsifError
from jaxsif.runtime import require_runtime

SOURCE = Path(__file__).resolve().parents[2]
PLAIN = "tests/bench/plain.def"
WHAT = {"cpu": "jax"}  # flavour -> what pip installs, where that is not jax[FLAVOUR]
# ext4 without a journal does not take the inodes of deleted files again before a minute is over (recently_deleted in
# fs/ext4/ialloc.c), and looks for another one so long that each new file takes a millisecond.
PAUSE = 65  # seconds
COLUMNS = (Field("flavour", TEXT), Field("way", TEXT), Field("time", SECONDS), Field("size", BYTES))


class Build(NamedTuple):
    """A build that is over."""

    flavour: str
    way: str
    time: float  # seconds
    size: int  # bytes of the image


class Bench(NamedTuple):
    """What is built, and where."""

    flavour: str
    package: str  # the one that changes
    pause: int  # seconds before each build, in which the disk comes to rest
    runtime: str
    work: Path  # an empty folder
    environ: Mapping[str, str]

    def run(self) -> Iterator[Build]:
        """Build, one after the other."""
        yield self.build("cold", self.write_older_source())
        yield self.build_plain()
        yield self.build(f"{self.package} changed", SOURCE)

    def write_older_source(self) -> Path:
        """Return a copy of the sources, with a lock in which the package has an older version."""
        source = self.work / "source"
        for name in ("containers", "jaxsif"):
            shutil.copytree(SOURCE / name, source / name)
        shutil.copy(SOURCE / "LICENSE", source)
        recipe = read_recipe(source, self.flavour)
        older = self.work / "older.txt"
        older.write_text(f"{self.package}<{find_version(recipe, self.package)}\n")
        argv = [str(find_uv(self.environ)), "pip", "compile", "--quiet", "--generate-hashes", "--python-version=3.13"]
        argv += [f"--python-platform={recipe.machine}-manylinux_2_28", f"--constraints={older}"]
        argv += [f"--output-file={recipe.lock}", f"{source}/containers/locks/{self.flavour}.in"]
        self.check("lock", argv, host_variables(self.environ))
        return source

    def build(self, way: str, source: Path) -> Build:
        """Run `jaxsif image build`, always with the same cache."""
        output = self.work / way.replace(" ", "-")
        argv = [sys.executable, "-m", "jaxsif", "image", "build", f"--flavour={self.flavour}", f"--source={source}"]
        argv += [f"--output={output}", f"--cache={self.work}/cache"]
        seconds = self.measure(way, argv, {"PYTHONPATH": str(SOURCE)})
        return Build(self.flavour, way, seconds, next(output.glob("*.sif")).stat().st_size)

    def build_plain(self) -> Build:
        """Build the plain way."""
        image = self.work / f"plain-{self.flavour}.sif"
        argv, variables = plain_argv(self.flavour, self.runtime, image, self.environ)
        return Build(self.flavour, "plain", self.measure("plain", argv, variables), image.stat().st_size)

    def measure(self, way: str, argv: Sequence[str], variables: Mapping[str, str]) -> float:
        """Return the seconds that a build takes."""
        print(f"{self.flavour}, {way}: waits {self.pause} s for the disk, then builds", file=sys.stderr, flush=True)
        os.sync()
        time.sleep(self.pause)
        begin = time.perf_counter()
        self.check(way, argv, variables)
        return time.perf_counter() - begin

    def check(self, what: str, argv: Sequence[str], variables: Mapping[str, str]) -> None:
        """Run a command that must succeed."""
        lines: list[str] = []
        environ = {**self.environ, **variables}
        if process.run_logged(argv, environ, str(self.work / "log"), str(SOURCE), lines.append):
            sys.exit("\n".join([f"{what} of {self.flavour} failed:", *lines[-12:]]))


def main() -> None:
    """Build, and print what that took."""
    options = parse_options(sys.argv[1:])
    find_version(read_recipe(SOURCE, options.flavour), options.package)  # before hours of building
    runtime = require_runtime(os.environ).command
    folder = SOURCE / "build"
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-image-", dir=folder) as work:
        show(Bench(options.flavour, options.package, options.pause, runtime, Path(work), os.environ).run())


def parse_options(argv: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flavour", default="cuda12", help="a file of containers/flavours, without .args (cuda12)")
    parser.add_argument("--package", default="numpy", metavar="NAME", help="the package that changes (numpy)")
    parser.add_argument("--pause", type=int, default=PAUSE, metavar="S", help=f"seconds before each build ({PAUSE})")
    return parser.parse_args(argv)


def show(builds: Iterator[Build]) -> None:
    """Print each build when it is over, and the ratios that count."""
    print(render_heading(COLUMNS), flush=True)
    done = []
    for build in builds:
        print(render_row(build._asdict(), COLUMNS), flush=True)
        done.append(build)
    print("\n".join(summarize(*done)))


def summarize(cold: Build, plain: Build, again: Build) -> list[str]:
    """Return the ratios that count."""
    size = cold.size / plain.size
    return [
        f"cold: 1/{plain.time / cold.time:.1f} of the plain way's time, {size:.2f} of its size",
        f"{again.way}: 1/{cold.time / again.time:.1f} of the cold time",
    ]


def plain_argv(flavour: str, runtime: str, image: Path, environ: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return what builds the image the plain way, without a cache, and the variables to add for that."""
    stage = image.parent / "stage"
    stage.mkdir(exist_ok=True)
    write_settings(stage, host_variables(environ))
    argv = [runtime, "build", "--bind", f"{stage}:/mnt"]
    argv += ["--build-arg", f"WHAT={WHAT.get(flavour, f'jax[{flavour}]')}", "--build-arg", f"MIRROR={apt_mirror()}"]
    return [*argv, str(image), str(SOURCE / PLAIN)], {"APPTAINER_TMPDIR": str(image.parent)}


def find_version(recipe: Recipe, package: str) -> str:
    """Return the locked version of a package; end the program where there is none."""
    version = re.search(rf"^{re.escape(package)}==(\S+)", recipe.lock.read_text(), re.MULTILINE)
    if not version:
        sys.exit(f"no {package} in {recipe.lock}")
    return version[1]


if __name__ == "__main__":
    try:
        main()
    except JaxsifError as error:
        sys.exit(error.render())
