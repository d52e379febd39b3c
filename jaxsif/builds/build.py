"""Build an image: a base system from mmdebstrap, locked wheels by uv, one tested SIF, whole or not
at all.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from jaxsif import process
from jaxsif.builds.ahead import write_note, written_ahead
from jaxsif.builds.assemble import add_base, add_parts, pack_parts, read_system, write_image
from jaxsif.builds.base import base_path, make_base
from jaxsif.builds.cache import prune
from jaxsif.builds.host_settings import BUILD_FOLDER, CACHE_FOLDER, host_variables, write_settings
from jaxsif.builds.recipe import Recipe
from jaxsif.builds.revision import Revision, find_revision
from jaxsif.errors import HostError
from jaxsif.files import fast_folder
from jaxsif.images.file import open_image
from jaxsif.images.squashfs import MKSQUASHFS
from jaxsif.installation import LIBRARY
from jaxsif.runtime import Runtime

_ROOM = 2 << 30  # bytes: several times what the engine unpacks and packs of an own base system
_UNCHANGED = "unchanged"  # in BUILD_FOLDER: the base's files that %post left as they were
Show = Callable[[str], None]  # a line of progress, for people


@dataclass(frozen=True)
class BuildOptions:
    """How to build."""

    runtime: Runtime
    output: Path  # folder of finished images
    cache: Path  # folder of base systems and wheels
    base: str | None  # a docker:// address or a local image to build on; None makes a Debian system
    force: bool  # also when the image is there, made of the same inputs


def build_image(
    recipe: Recipe, options: BuildOptions, environ: Mapping[str, str], show: Show
) -> Path:
    """Build the image unless it is there, made of the same inputs; return its path. Raises
    JaxsifError.
    """
    target = options.output / recipe.name
    inputs = target.with_suffix(".sif.inputs")  # the digest of what the image beside it was made of
    for folder in (options.output, options.cache):
        folder.mkdir(parents=True, exist_ok=True)
    revision = find_revision(recipe.root, recipe.inputs, environ)
    digest = recipe.digest(options.base or "", *MKSQUASHFS, *map(str, revision))
    if not options.force and target.exists() and inputs.exists() and inputs.read_text() == digest:
        show(f"{target} is up to date")
        return target
    begin = time.monotonic()

    def show_timed(line: str) -> None:
        show(f"{time.monotonic() - begin:6.1f} s  {line}")

    show(f"building {target}")
    try:
        with (
            TemporaryDirectory(".build", dir=options.output) as scratch,
            TemporaryDirectory(".build", dir=options.cache) as stage,
            TemporaryDirectory(
                ".jaxsif", dir=scratch if options.base else fast_folder(_ROOM, scratch)
            ) as system,
        ):
            build = _Build(
                recipe, options, revision, Path(scratch), Path(stage), system, environ, show_timed
            )
            build.run()
            inputs.unlink(missing_ok=True)
            build.image.replace(target)
            inputs.write_text(digest)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        where = f"{options.output} or {options.cache}"
        raise HostError(
            f"no space is left to build {recipe.name}", where, "make room, or --output, --cache"
        ) from error
    show_timed(f"{target}: {target.stat().st_size / 1e6:.0f} MB")
    return target


@dataclass(frozen=True)
class _Build:
    """One build."""

    recipe: Recipe
    options: BuildOptions
    revision: Revision
    scratch: Path  # beside the image: the engine's files
    stage: Path  # in the cache: what the build sees as BUILD_FOLDER
    system: str  # in memory where that has room: the engine's root file system, of many small files
    environ: Mapping[str, str]
    show: Show

    @property
    def image(self) -> Path:
        """The new image, before it is in its place."""
        return self.scratch / self.recipe.name

    @property
    def engine_image(self) -> Path:
        """The image as the engine leaves it: no files of the base, links in place of the wheels'."""
        return self.scratch / "engine.sif"

    def run(self) -> None:
        """Everything, up to the tested image."""
        cache, block, created = self.options.cache, self.recipe.block, self.revision.created
        note = cache / f"last-{self.recipe.flavour}.json"
        with written_ahead(self.image, note) as ahead:
            base = self._run_engine()
            system = read_system(self.engine_image)
            packed = pack_parts(system.root, cache, block, self.stage)
            self.show(f"compressed {packed} parts, writing the image")
            add_parts(system.root, cache, block, created)
            if base:
                add_base(system.root, base, (self.stage / _UNCHANGED).read_bytes().splitlines())
            write_image(self.image, system, self.engine_image, created, ahead())
        write_note(note, self.image, system.root, self.stage)
        prune(cache, time.time())
        self.show("running the test of the image")
        self._engine("a", self.options.runtime.test_argv(self.image.name, "jax"))

    def _run_engine(self) -> Path | None:
        """Make the engine's image; return the base system that it is built on, if that is our own."""
        recipe, cache = self.recipe, self.options.cache
        host = host_variables(self.environ)
        self._fill_stage(host)
        base = None if self.options.base else self._own_base(host)
        # The engine writes the addresses of base and files into the image: short ones, from a
        # folder of links.
        for name in ("containers", "jaxsif", "LICENSE"):
            (self.scratch / name).symlink_to(recipe.root / name)
        (self.scratch / _UNCHANGED).symlink_to(self.stage / _UNCHANGED)
        self._engine("w", self._build_argv(base))
        for folder in (self.stage / "compiled").iterdir():
            folder.replace(cache / "compiled" / folder.name)
        return base

    def _fill_stage(self, host: Mapping[str, str]) -> None:
        for folder in (
            self.stage / "cache",
            self.stage / "compiled",
            self.options.cache / "compiled",
        ):
            folder.mkdir(exist_ok=True)
        for name in ("uv", _UNCHANGED):
            (self.stage / name).touch()
        write_settings(self.stage, host)
        shutil.copyfile(self.recipe.lock, self.stage / "lock.txt")
        shutil.copyfile(self.recipe.root / "containers/compile.py", self.stage / "compile.py")

    def _own_base(self, host: Mapping[str, str]) -> Path:
        """The base system of the flavour's packages, from the cache or made now."""
        packages, block = self.recipe.packages, self.recipe.block
        base = base_path(packages, block, self.options.cache)
        if base.exists():
            base.touch()
        else:
            with self._wheels_beside(host):
                make_base(base, packages, block, self.environ, self.show)
        return base

    def _build_argv(self, base: Path | None) -> tuple[str, ...]:
        recipe = self.recipe
        bootstrap, source = self._base_arguments(base)
        arguments = {
            **dict(recipe.arguments),
            "BOOTSTRAP": bootstrap,
            "FROM": source,
            "JAX_VERSION": recipe.jax_version,
            "CUDA_VERSION": recipe.cuda_version,
            "CUDNN_VERSION": recipe.version("cudnn"),
            "NCCL_VERSION": recipe.version("nccl"),
            "REVISION": self.revision.commit,
            "CREATED": self.revision.date,
        }
        # Labels in place of the engine's own; the finished image is tested.
        options = ["--force", "--notest"]
        binds = [
            f"{self.stage}:{BUILD_FOLDER}",
            f"{self.options.cache}:{CACHE_FOLDER}",
            f"{find_uv(self.environ)}:{BUILD_FOLDER}/uv",
        ]
        # One compressor a core; mksquashfs takes one core from the engine otherwise.
        squashfs = [*MKSQUASHFS, "-b", recipe.block, "-processors", str(os.cpu_count() or 1)]
        if base:
            squashfs += ["-ef", _UNCHANGED]
        options += ["--mksquashfs-args", " ".join(squashfs)]
        definition = str(recipe.definition.relative_to(recipe.root))
        return self.options.runtime.build_argv(
            self.engine_image.name, definition, binds, arguments, options
        )

    def _engine(self, mode: str, argv: Sequence[str]) -> None:
        """Run the engine in `scratch`; raises HostError with the end of what it said if it fails."""
        environ = {
            **self.environ,
            "APPTAINER_TMPDIR": self.system,
            "SINGULARITY_TMPDIR": self.system,
        }
        log = self.options.output / f"{self.recipe.name}.log"
        status = process.run_logged(
            argv, environ, str(log), str(self.scratch), self._progress, mode
        )
        if status:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-10:])
            name = self.recipe.name
            raise HostError(
                f"the build of {name} failed:",
                str(log),
                "correct what it names, and run it again",
                tail,
            )

    @contextmanager
    def _wheels_beside(self, host: Mapping[str, str]) -> Iterator[None]:
        """Download and unpack the locked wheels into the cache while the body of the `with` makes
        the base system.

        Nothing of it is needed but the cache; whatever is wrong with a wheel, the build itself will
        say.
        """
        target = self.options.cache / "uv"
        argv = [
            str(find_uv(self.environ)),
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--require-hashes",
            "--no-build",
        ]
        argv += [
            "--link-mode=hardlink",
            f"--target={self.stage / 'wheels'}",
            f"--requirements={self.recipe.lock}",
        ]
        # For the image's Python and system, whatever this host has.
        argv += ["--python-version=3.13", f"--python-platform={self.recipe.machine}-manylinux_2_28"]
        settings = {**host, "UV_CACHE_DIR": str(target)}
        with process.beside(
            argv, {**self.environ, **settings}, str(self.options.cache / "wheels.log")
        ) as wait:
            yield
            self.show("waiting for the wheels")
            wait()

    def _base_arguments(self, base: Path | None) -> tuple[str, str]:
        """Bootstrap and From of the definition file."""
        agent, separator, source = str(base or self.options.base).partition("://")
        if separator:
            return agent, source
        image = Path(agent).resolve()
        if not image.is_dir():
            open_image(str(image), "--base").close()  # the engine would wait for a FIFO
        (self.scratch / image.name).symlink_to(image)
        return "localimage", image.name

    def _progress(self, line: str) -> None:
        """Of the engine's many lines, those that begin a stage or complain."""
        if line.startswith("INFO:"):
            text = line[5:].strip()
            if not text.startswith(_UNSAID):
                self.show(text[0].lower() + text[1:])
        elif (
            line.startswith(("WARNING:", "ERROR:", "FATAL:")) and "While bind mounting" not in line
        ):
            self.show(line)


# Lines of the engine that tell a person nothing, or worry them without need.
_UNSAID = (
    "User not listed",
    "The %post section",
    "Copying",
    "Non-gzip squashfs",
    "Build complete",
    "Adding ",
    "fuse2fs",
    "gocryptfs",
)


def find_uv(environ: Mapping[str, str]) -> Path:
    """uv's executable: the launcher's own, the one beside this Python, or that on the PATH; raises
    HostError.
    """
    own = os.path.join(LIBRARY, "bin")  # lib/bin of an installation
    path = os.pathsep.join([own, os.path.dirname(sys.executable), environ.get("PATH", os.defpath)])
    found = shutil.which("uv", path=path)
    if not found:
        raise HostError("uv is not installed here", "PATH", "python3 -m pip install uv")
    return Path(found)
