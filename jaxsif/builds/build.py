"""Build an image: a base system from mmdebstrap, locked wheels installed by uv, one tested SIF
file; all or nothing.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from jaxsif import process
from jaxsif.builds.assemble import add_base, add_parts, pack_parts, read_system, write_image
from jaxsif.builds.base import base_path, make_base
from jaxsif.builds.host_settings import BUILD_FOLDER, CACHE_FOLDER, host_variables, write_settings
from jaxsif.builds.messages import end_of, timed, when_full
from jaxsif.builds.recipe import Recipe, Revision, find_revision
from jaxsif.errors import HostError, JaxsifError, Notify
from jaxsif.files import MEMORY, fast_folder, remove_abandoned, scratch_folder
from jaxsif.images.file import find_root, open_image
from jaxsif.images.squashfs import MKSQUASHFS
from jaxsif.installation import LIBRARY
from jaxsif.runtime import Runtime

_ROOM = 2 << 30  # bytes: several times the engine's files for a base system made here
_KEPT = 30 * 24 * 3600  # seconds since the last build that used a cached file
_SCRATCH, _SYSTEM = ".build-", ".jaxsif-"  # prefixes of folder names
_UNCHANGED = "unchanged"  # in BUILD_FOLDER: list of the base's files that %post did not change
# The engine's lines that do not help, or cause needless worry.
_UNSAID = (
    *("User not listed", "The %post section", "Copying", "Non-gzip squashfs", "Build complete"),
    *("Adding ", "fuse2fs", "gocryptfs"),
)


@dataclass(frozen=True)
class BuildOptions:
    """How to build."""

    runtime: Runtime  # apptainer, or its path
    output: Path  # folder of finished images
    cache: Path  # folder of base systems and wheels
    base: str | None  # a docker:// address or a local image to build on; None makes a Debian system
    force: bool  # even if the image exists, made from the same inputs


def build_image(
    recipe: Recipe, options: BuildOptions, environ: Mapping[str, str], notify: Notify
) -> Path:
    """Build the image, unless it exists and was made from the same inputs; return its path. Raise
    JaxsifError.
    """
    target = options.output / recipe.name
    inputs = target.with_suffix(".sif.inputs")  # the digest of the inputs of the image beside it
    for folder in (options.output, options.cache):
        folder.mkdir(parents=True, exist_ok=True)
    revision = find_revision(recipe.root, recipe.inputs, environ, notify)
    digest = recipe.digest(options.base or "", *MKSQUASHFS, *map(str, revision))
    is_made = target.exists() and inputs.exists() and inputs.read_text() == digest
    if is_made and not options.force and _is_whole(target, notify):
        notify(f"{target} is up to date")
        return target
    show_timed = timed(notify)
    notify(f"building {target}")
    with _scratch_folders(recipe, options) as (scratch, stage, system):
        build = _Build(recipe, options, revision, scratch, stage, system, environ, show_timed)
        build.run()
        inputs.unlink(missing_ok=True)
        build.image.replace(target)
        inputs.write_text(digest)
    show_timed(f"{target}: {target.stat().st_size / 1e6:.0f} MB")
    return target


def _is_whole(image: Path, notify: Notify) -> bool:
    """Return whether an image has a valid header and all its bytes; if not, report why."""
    try:
        find_root(str(image))
    except JaxsifError as error:
        notify(f"{error.what}: building it again")
        return False
    return True


@contextmanager
def _scratch_folders(recipe: Recipe, options: BuildOptions) -> Iterator[tuple[Path, Path, str]]:
    """Yield `scratch`, `stage` and `system` of a `_Build`, removed at the end; raise HostError for
    a full disk.
    """
    where = f"{options.output} or {options.cache}"
    hint = "free some space, or pass --output or --cache"
    with (
        when_full(HostError(f"no space left to build {recipe.name}", where, hint)),
        scratch_folder(str(options.output), _SCRATCH) as scratch,
        scratch_folder(str(options.cache), _SCRATCH) as stage,
        _system_folder(scratch, options) as system,
    ):
        yield Path(scratch), Path(stage), system


def _system_folder(scratch: str, options: BuildOptions) -> AbstractContextManager[str]:
    """Choose the folder for `system`, after freeing the memory of killed builds."""
    remove_abandoned(MEMORY, _SYSTEM)
    place = scratch if options.base else fast_folder(_ROOM, scratch)
    return scratch_folder(place, _SYSTEM)


@dataclass(frozen=True)
class _Build:
    """One build, in the stages of `run`."""

    recipe: Recipe
    options: BuildOptions
    revision: Revision
    scratch: Path  # beside the image: the engine's files
    stage: Path  # in the cache: BUILD_FOLDER in the build's container
    system: str  # in memory if there is room: the engine's root file system, many small files
    environ: Mapping[str, str]
    notify: Notify

    @property
    def image(self) -> Path:
        """The new image, before it is moved to its final path."""
        return self.scratch / self.recipe.name

    @property
    def engine_image(self) -> Path:
        """The engine's image: it lacks the base's files, and has links into the cache."""
        return self.scratch / "engine.sif"

    @property
    def own_base(self) -> Path:
        """The base system of the flavour's packages, in the cache; not used with --base."""
        return base_path(self.recipe.packages, self.recipe.block, self.options.cache)

    def run(self) -> None:
        """Make and test the image; leave it in `scratch`."""
        host = host_variables(self.environ)
        self._fill_stage(host)
        if not self.options.base:
            self._make_base(host)
        self._link_sources()
        self._engine("w", self._build_argv(self._link_base()))
        keep_compiled(self.stage, self.options.cache)
        self._assemble()
        prune(self.options.cache, time.time())
        self.notify("testing the image")
        self._engine("a", self.options.runtime.test_argv(self.image.name, "jax"))

    def _fill_stage(self, host: Mapping[str, str]) -> None:
        """Put the inputs and outputs of %post into `stage`."""
        for name in ("cache", "compiled"):
            (self.stage / name).mkdir()
        for name in ("uv", _UNCHANGED):
            (self.stage / name).touch()
        write_settings(self.stage, host)
        shutil.copyfile(self.recipe.lock, self.stage / "lock.txt")
        shutil.copyfile(self.recipe.root / "containers/compile.py", self.stage / "compile.py")

    def _make_base(self, host: Mapping[str, str]) -> None:
        """Make the base system with the flavour's packages, unless the cache has it."""
        if self.own_base.exists():
            self.own_base.touch()
            return
        packages, block = self.recipe.packages, self.recipe.block
        with self._wheels_beside(host):
            make_base(self.own_base, packages, block, self.environ, self.notify)

    @contextmanager
    def _wheels_beside(self, host: Mapping[str, str]) -> Iterator[None]:
        """Download and unpack the locked wheels into the cache while the body of the `with` makes
        the base system.

        This only fills the cache; the build itself reports a bad wheel.
        """
        argv = [
            *(str(find_uv(self.environ)), "pip", "install", "--quiet", "--no-deps"),
            *("--require-hashes", "--no-build", "--link-mode=hardlink"),
            *(f"--target={self.stage / 'wheels'}", f"--requirements={self.recipe.lock}"),
            # For the image's Python and system, not this host's.
            *("--python-version=3.13", f"--python-platform={self.recipe.machine}-manylinux_2_28"),
        ]
        environ = {**self.environ, **host, "UV_CACHE_DIR": str(self.options.cache / "uv")}
        with process.beside(argv, environ, str(self.options.cache / "wheels.log")) as wait:
            yield
            self.notify("waiting for the wheels")
            wait()

    def _link_sources(self) -> None:
        """Link the files of %files, and the list of `_UNCHANGED`, into `scratch`: the engine writes
        their paths into the image, and these paths are the same on every host.
        """
        for name in ("containers", "LICENSE"):
            (self.scratch / name).symlink_to(self.recipe.root / name)
        (self.scratch / "jaxsif").symlink_to(self.recipe.package)
        (self.scratch / _UNCHANGED).symlink_to(self.stage / _UNCHANGED)

    def _link_base(self) -> tuple[str, str]:
        """Return the definition file's Bootstrap and From, and link a local base into `scratch`;
        raise JaxsifError for a file that is not an image.
        """
        agent, separator, source = (self.options.base or str(self.own_base)).partition("://")
        if separator:
            return agent, source
        image = Path(agent).resolve()
        option = "--base, or BASE of make image"
        if not image.exists():
            name = re.sub(r"^(\w+:/|docker:)?/*", "", agent)
            hint = f"correct the path, or name an image in a registry: docker://{name}"
            raise JaxsifError(f"image not found: {agent}", option, hint)
        if not image.is_dir():
            open_image(str(image), option).close()  # the engine would wait for a FIFO
        (self.scratch / image.name).symlink_to(image)
        return "localimage", image.name

    def _build_argv(self, base: tuple[str, str]) -> tuple[str, ...]:
        """Make the engine's command line for `base`, which is Bootstrap and From."""
        recipe = self.recipe
        arguments = {
            **recipe.arguments,
            "BOOTSTRAP": base[0],
            "FROM": base[1],
            "JAX_VERSION": recipe.jax_version,
            "CUDA_VERSION": recipe.cuda_version,
            "CUDNN_VERSION": recipe.version("cudnn"),
            "NCCL_VERSION": recipe.version("nccl"),
            "REVISION": self.revision.commit,
            "CREATED": self.revision.date,
        }
        binds = [
            f"{self.stage}:{BUILD_FOLDER}",
            f"{self.options.cache}:{CACHE_FOLDER}",
            f"{find_uv(self.environ)}:{BUILD_FOLDER}/uv",
        ]
        # One compressor for each core; by default, the engine gives mksquashfs only one.
        squashfs = [*MKSQUASHFS, "-b", recipe.block, "-processors", str(os.cpu_count() or 1)]
        if not self.options.base:
            squashfs += ["-ef", _UNCHANGED]
        # Labels in place of the engine's own; the finished image is tested.
        options = ("--force", "--notest", "--mksquashfs-args", " ".join(squashfs))
        definition = str(recipe.definition.relative_to(recipe.root))
        return self.options.runtime.build_argv(
            self.engine_image.name, definition, binds, arguments, options
        )

    def _assemble(self) -> None:
        """Write the image: the engine's image with the files of the base and the cache."""
        cache, block, created = self.options.cache, self.recipe.block, self.revision.created
        system = read_system(self.engine_image)
        packed = pack_parts(system.root, cache, block, self.stage)
        self.notify(f"compressed {packed} parts, writing the image")
        add_parts(system.root, cache, block, created)
        if not self.options.base:
            unchanged = (self.stage / _UNCHANGED).read_bytes().splitlines()
            add_base(system.root, self.own_base, unchanged)
        write_image(self.image, system, self.engine_image, created)

    def _engine(self, mode: str, argv: Sequence[str]) -> None:
        """Run the engine in `scratch`; raise HostError with the end of its log if the engine
        fails.
        """
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
            raise HostError(
                f"the build of {self.recipe.name} failed:",
                str(log),
                "fix what it reports, and run it again",
                end_of(log, 10),
            )

    def _progress(self, line: str) -> None:
        """Show only those of the engine's many lines that begin a stage or complain."""
        if line.startswith("INFO:"):
            text = line[5:].strip()
            if not text.startswith(_UNSAID):
                self.notify(text[:1].lower() + text[1:])
        elif (
            line.startswith(("WARNING:", "ERROR:", "FATAL:")) and "While bind mounting" not in line
        ):
            self.notify(line)


def keep_compiled(stage: Path, cache: Path) -> None:
    """Move the files that %post compiled from `stage` into the cache."""
    kept = cache / "compiled"
    kept.mkdir(exist_ok=True)
    for folder in (stage / "compiled").iterdir():
        try:
            folder.replace(kept / folder.name)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:  # another build has kept the same
                raise


def prune(cache: Path, now: float) -> None:
    """Remove files that no build has used for a long time; uv keeps the downloaded wheels."""
    for pattern in ("base-*.sqfs", "packed/*", "compiled/*"):
        for path in cache.glob(pattern):
            if now - path.stat().st_mtime > _KEPT:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def find_uv(environ: Mapping[str, str]) -> Path:
    """Find uv's executable: the launcher's own, the one beside this Python, or the one on the PATH;
    raise HostError.
    """
    own = os.path.join(LIBRARY, "bin")  # lib/bin of an installation
    path = os.pathsep.join([own, os.path.dirname(sys.executable), environ.get("PATH", os.defpath)])
    found = shutil.which("uv", path=path)
    if not found:
        raise HostError("uv is not installed here", "PATH", "python3 -m pip install uv")
    return Path(found)
