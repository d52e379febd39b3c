"""Lock files: what each flavour's wish list means, every package with its version and hashes, as uv
resolves it.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jaxsif import process
from jaxsif.builds.build import find_uv
from jaxsif.builds.host_settings import host_variables
from jaxsif.builds.recipe import check_flavour, lock_path, parse_arguments, read_flavours
from jaxsif.errors import HostError, JaxsifError

PLATFORMS = ("x86_64", "aarch64")


class LockOptions(NamedTuple):
    """How to resolve."""

    upgrade: bool = False  # to the newest versions, instead of keeping what is locked
    jax: str | None = None  # this version of JAX
    python: str = "3.13"


class Lock(NamedTuple):
    """A lock as it is, and as it was resolved now."""

    path: Path
    old: str
    new: str


def select_flavours(root: Path, flavour: str | None) -> list[str]:
    """`flavour`, or all of them; raises JaxsifError for one that does not say what it wants."""
    if flavour:
        check_flavour(root, flavour)
    flavours = [flavour] if flavour else read_flavours(root)
    for name in flavours:
        wanted = root / f"containers/locks/{name}.in"
        if not wanted.exists():
            raise JaxsifError(
                f"flavour {name} has no {wanted}", "--flavour", "a line in it, such as jax[cuda12]"
            )
    return flavours


def resolve_locks(
    root: Path,
    flavours: Sequence[str],
    platforms: Sequence[str],
    options: LockOptions,
    environ: Mapping[str, str],
) -> list[Lock]:
    """Resolve them all and write nothing; raises JaxsifError where one cannot be resolved."""
    with tempfile.TemporaryDirectory(prefix="jaxsif-lock-") as scratch:
        return [
            _resolve(root, flavour, platform, options, Path(scratch), environ)
            for flavour in flavours
            for platform in platforms
        ]


def _resolve(
    root: Path,
    flavour: str,
    platform: str,
    options: LockOptions,
    scratch: Path,
    environ: Mapping[str, str],
) -> Lock:
    path = lock_path(root, flavour, platform)
    copy = scratch / path.name
    if path.exists():
        shutil.copyfile(path, copy)  # what uv finds here, it keeps
    status = process.run_logged(
        _uv_argv(find_uv(environ), flavour, platform, options, copy),
        # It would look for the Python to resolve for, and need not have it.
        {**environ, **host_variables(environ), "UV_PYTHON_DOWNLOADS": "never"},
        str(scratch / "log"),
        str(root),
        lambda _line: None,
    )
    if status:
        said = (scratch / "log").read_text(errors="replace").strip()
        wanted = str(path.parent / f"{flavour}.in")
        raise HostError(
            f"cannot resolve {path.name}:",
            wanted,
            "correct what it names; no lock was changed",
            said,
        )
    return Lock(path, path.read_text() if path.exists() else "", copy.read_text())


def _uv_argv(
    uv: Path, flavour: str, platform: str, options: LockOptions, output: Path
) -> list[str]:
    argv = [str(uv), "pip", "compile", "--quiet", "--generate-hashes", "--only-binary", ":all:"]
    argv += ["--python-version", options.python, "--python-platform", f"{platform}-manylinux_2_28"]
    # Neither paths nor indexes of this host stand in a lock.
    argv += ["--no-emit-index-url", "--custom-compile-command", f"make lock FLAVOUR={flavour}"]
    argv += ["--upgrade"] if options.upgrade else []
    argv += ["--upgrade-package", f"jax=={options.jax}"] if options.jax else []
    return [*argv, "--output-file", str(output), f"containers/locks/{flavour}.in"]


def write_locks(locks: Sequence[Lock]) -> None:
    """Write the changed ones beside their places, then rename them."""
    changed = [lock for lock in locks if lock.new != lock.old]
    partial = [lock.path.with_suffix(".txt.new") for lock in changed]
    try:
        for lock, path in zip(changed, partial):
            path.write_text(lock.new)
        for lock, path in zip(changed, partial):
            path.replace(lock.path)
    finally:
        for path in partial:
            path.unlink(missing_ok=True)


def read_pins(text: str) -> list[tuple[str, str]]:
    """Each package with its version; a package whose version depends on the Python has several."""
    return re.findall(r"^([A-Za-z0-9][\w.-]*)==(\S+)", text, re.MULTILINE)


def parse_lock(text: str) -> dict[str, str]:
    """Package -> version."""
    return dict(read_pins(text))


def render_changes(lock: Lock) -> Iterator[str]:
    """A line for each package that is new, gone or of another version."""
    old, new = parse_lock(lock.old), parse_lock(lock.new)
    for name in sorted({*old, *new}):
        if name not in old:
            yield f"added    {name} {new[name]}"
        elif name not in new:
            yield f"removed  {name} {old[name]}"
        elif old[name] != new[name]:
            yield f"changed  {name} {old[name]} -> {new[name]}"
    if old == new and lock.old != lock.new:
        yield "the same versions, with other hashes or comments"


def render_drivers(root: Path, flavours: Sequence[str], locks: Sequence[Lock]) -> Iterator[str]:
    """A table: flavour, JAX, and the driver that the host must have at least."""
    yield f"{'flavour':<10} {'JAX':<12} driver of the host"
    for flavour in flavours:
        own = {lock_path(root, flavour, platform) for platform in PLATFORMS}
        versions = {parse_lock(lock.new).get("jax", "none") for lock in locks if lock.path in own}
        driver = dict(parse_arguments(root / f"containers/flavours/{flavour}.args")).get(
            "MIN_DRIVER"
        )
        yield f"{flavour:<10} {', '.join(sorted(versions)):<12} {f'{driver} or newer' if driver else 'none'}"
