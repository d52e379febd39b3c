"""Build an image: a base system from mmdebstrap, locked wheels by uv, one compressed SIF, whole or not at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from jaxsif import process
from jaxsif.errors import HostError
from jaxsif.images.base import ensure_base
from jaxsif.images.hostsettings import BUILD_FOLDER, host_variables, write_settings
from jaxsif.images.recipe import Recipe

# Level 3 packs in about a third of level 6's time, see docs/image.md. The block size is the flavour's.
_SQUASHFS = ("-comp", "zstd", "-Xcompression-level", "3")

Show = Callable[[str], None]  # a line of progress, for people


@dataclass(frozen=True)
class BuildOptions:
    """How to build."""

    runtime: str  # apptainer, or its path
    output: Path  # folder of finished images
    cache: Path  # folder of base systems and downloaded wheels
    base: str | None  # a docker:// address or a local image to build on; None makes a Debian system
    force: bool  # also when the image is there, made of the same inputs


def build_image(recipe: Recipe, options: BuildOptions, environ: Mapping[str, str], show: Show) -> Path:
    """Build the image unless it is there, made of the same inputs; return its path. Raises JaxsifError."""
    target = options.output / recipe.name
    inputs = target.with_suffix(".sif.inputs")  # the digest of what the image beside it was made of
    digest = recipe.digest(options.base or "", *_SQUASHFS)
    if not options.force and target.exists() and inputs.exists() and inputs.read_text() == digest:
        show(f"{target} is up to date")
        return target
    begin = time.monotonic()

    def show_timed(line: str) -> None:
        show(f"{time.monotonic() - begin:6.1f} s  {line}")

    options.output.mkdir(parents=True, exist_ok=True)
    show(f"building {target}")
    with tempfile.TemporaryDirectory(prefix=".build-", dir=options.output) as scratch:
        partial = Path(scratch) / recipe.name
        _build(recipe, options, Path(scratch), partial, environ, show_timed)
        inputs.unlink(missing_ok=True)
        partial.replace(target)
        inputs.write_text(digest)
    show_timed(f"{target}: {target.stat().st_size / 1e6:.0f} MB")
    return target


def _build(
    recipe: Recipe, options: BuildOptions, scratch: Path, partial: Path, environ: Mapping[str, str], show: Show
) -> None:
    stage = scratch / "stage"
    (stage / "cache").mkdir(parents=True)
    wheels = _wheel_cache(options)
    wheels.mkdir(parents=True, exist_ok=True)
    write_settings(stage, environ)
    shutil.copyfile(recipe.lock, stage / "lock.txt")
    shutil.copy(find_uv(environ), stage / "uv")
    with _wheels_beside(recipe, options, scratch, environ, show):
        bootstrap, source = _base_arguments(recipe, options, scratch, show)
    # The engine writes the addresses of base and files into the image: short ones, from a folder of links.
    for name in ("containers", "jaxsif", "LICENSE"):
        (scratch / name).symlink_to(recipe.root / name)
    arguments = {
        **dict(recipe.arguments),
        "BOOTSTRAP": bootstrap,
        "FROM": source,
        "JAX_VERSION": recipe.jax_version,
        "CUDA_VERSION": recipe.cuda_version,
        "REVISION": _revision(recipe.root),
        "CREATED": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    argv = [options.runtime, "build"]
    argv += ["--bind", f"{stage}:{BUILD_FOLDER}", "--bind", f"{wheels}:{BUILD_FOLDER}/cache"]
    argv += [option for name, value in arguments.items() for option in ("--build-arg", f"{name}={value}")]
    # One compressor a core; mksquashfs takes one core from the engine otherwise.
    argv += ["--mksquashfs-args", " ".join([*_SQUASHFS, "-b", recipe.block, "-processors", str(os.cpu_count() or 1)])]
    argv += [partial.name, str(recipe.definition.relative_to(recipe.root))]
    # The engine unpacks below TMPDIR, and a /tmp in memory is small.
    temporary = {"APPTAINER_TMPDIR": str(scratch), "SINGULARITY_TMPDIR": str(scratch)}
    log = options.output / f"{recipe.name}.log"
    status = process.run_logged(
        argv, {**environ, **temporary}, str(log), str(scratch), lambda line: _progress(line, show)
    )
    if status:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-10:])
        raise HostError(f"the build of {recipe.name} failed:\n{tail}", str(log), "mend what it names, and run it again")


def _wheel_cache(options: BuildOptions) -> Path:
    return options.cache / "uv"


@contextmanager
def _wheels_beside(
    recipe: Recipe, options: BuildOptions, scratch: Path, environ: Mapping[str, str], show: Show
) -> Iterator[None]:
    """Download and unpack the locked wheels into the cache while the body of the `with` makes the base system.

    Nothing of it is needed but the cache; whatever is wrong with a wheel, the build itself will say.
    """
    argv = [str(find_uv(environ)), "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--no-build"]
    argv += ["--link-mode=hardlink", f"--target={scratch / 'wheels'}", f"--requirements={recipe.lock}"]
    # For the image's Python and system, whatever this host has.
    argv += ["--python-version=3.13", "--python-platform=x86_64-manylinux_2_28"]
    settings = {**host_variables(environ), "UV_CACHE_DIR": str(_wheel_cache(options))}
    with process.beside(argv, {**environ, **settings}, str(options.cache / "wheels.log")) as wait:
        yield
        show("waiting for the wheels")
        wait()
    shutil.rmtree(scratch / "wheels", ignore_errors=True)


# Lines of the engine that tell a person nothing, or worry them without need.
_UNSAID = ("User not listed", "The %post section", "Copying", "Non-gzip squashfs", "Build complete")


def _progress(line: str, show: Show) -> None:
    """Of the engine's many lines, those that begin a stage or complain."""
    if line.startswith("INFO:"):
        text = line[5:].strip()
        if not text.startswith(_UNSAID):
            show(text[0].lower() + text[1:])
    elif line.startswith(("WARNING:", "ERROR:", "FATAL:")) and "While bind mounting" not in line:
        show(line)


def _base_arguments(recipe: Recipe, options: BuildOptions, scratch: Path, show: Show) -> tuple[str, str]:
    """Bootstrap and From of the definition file."""
    agent, separator, source = (options.base or "").partition("://")
    if separator:
        return agent, source
    base = Path(options.base).resolve() if options.base else ensure_base(recipe.packages, options.cache, show)
    (scratch / base.name).symlink_to(base)
    return "localimage", base.name


def find_uv(environ: Mapping[str, str]) -> Path:
    """uv's executable: the launcher's own, the one beside this Python, or that on the PATH; raises HostError."""
    own = str(Path(__file__).resolve().parents[2] / "bin")  # lib/bin of an installation
    path = os.pathsep.join([own, os.path.dirname(sys.executable), environ.get("PATH", os.defpath)])
    found = shutil.which("uv", path=path)
    if not found:
        raise HostError("uv is not installed here", "PATH", "python3 -m pip install uv")
    return Path(found)


def _revision(root: Path) -> str:
    """The source revision, with '-dirty' behind it when the tree differs; 'unknown' where git does not tell."""
    try:
        return process.output("git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40").strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"  # no git, no checkout, or a checkout without a commit
