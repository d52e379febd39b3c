"""Lock files: what each flavour's wish list means, every package with its version and hashes, as uv
resolves it.
"""

from __future__ import annotations

import itertools
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxsif import process
from jaxsif.builds.build import find_uv
from jaxsif.builds.host_settings import host_variables
from jaxsif.builds.recipe import check_flavour, lock_path, parse_arguments, read_flavours
from jaxsif.errors import HostError, JaxsifError
from jaxsif.files import scratch_folder, write_files
from jaxsif.images.diff import Difference, find_differences

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
    """Return `flavour`, or all of them; raises JaxsifError for one without a list of wishes."""
    flavours = [check_flavour(root, flavour)] if flavour else read_flavours(root)
    for name in flavours:
        wanted = root / f"containers/locks/{name}.in"
        if not wanted.exists():
            raise JaxsifError(
                f"flavour {name} has no {wanted}",
                "--flavour",
                "write it, with a line such as jax[cuda12]",
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
    uv = str(find_uv(environ))
    # uv would look for the Python to resolve for, and need not have it.
    settings = {**environ, **host_variables(environ), "UV_PYTHON_DOWNLOADS": "never"}
    locks = []
    for flavour, platform in itertools.product(flavours, platforms):
        argv = [uv, *_compile_options(flavour, platform, options)]
        locks.append(_resolve(lock_path(root, flavour, platform), root, flavour, argv, settings))
    return locks


def _resolve(
    path: Path, root: Path, flavour: str, argv: Sequence[str], environ: Mapping[str, str]
) -> Lock:
    """Resolve the lock at `path`; raises HostError with all that uv said."""
    wanted = f"containers/locks/{flavour}.in"
    old = path.read_text() if path.exists() else ""
    lines: list[str] = []
    with scratch_folder(tempfile.gettempdir(), "jaxsif-lock-") as scratch:
        copy, log = Path(scratch, path.name), os.path.join(scratch, "log")
        copy.write_text(old)  # what uv finds here, it keeps
        argv = [*argv, "--output-file", str(copy), wanted]
        if process.run_logged(argv, environ, log, str(root), lines.append):
            raise HostError(
                f"cannot resolve {path.name}:",
                str(root / wanted),
                "correct what it names; no lock was changed",
                "\n".join(lines).strip(),
            )
        return Lock(path, old, copy.read_text())


def _compile_options(flavour: str, platform: str, options: LockOptions) -> list[str]:
    argv = ["pip", "compile", "--quiet", "--generate-hashes", "--only-binary", ":all:"]
    argv += ["--python-version", options.python, "--python-platform", f"{platform}-manylinux_2_28"]
    # A lock names neither paths nor indexes of this host.
    argv += ["--no-emit-index-url", "--custom-compile-command", f"make lock FLAVOUR={flavour}"]
    argv += ["--upgrade"] if options.upgrade else []
    argv += ["--upgrade-package", f"jax=={options.jax}"] if options.jax else []
    return argv


def write_locks(locks: Sequence[Lock]) -> None:
    """Write the changed ones beside their places, then rename them."""
    write_files({str(one.path): one.new.encode() for one in locks if one.new != one.old})


def read_pins(text: str) -> list[tuple[str, str]]:
    """Return each package with its version; a package whose version depends on the Python has
    several.
    """
    return re.findall(r"^([A-Za-z0-9][\w.-]*)==(\S+)", text, re.MULTILINE)


def find_changes(lock: Lock) -> list[Difference]:
    """Return each package that is new, gone or of another version."""
    return find_differences(dict(read_pins(lock.old)), dict(read_pins(lock.new)))


def render_changes(lock: Lock) -> Iterator[str]:
    """Yield a line for each change."""
    changes = find_changes(lock)
    for name, old, new in changes:
        if old is None:
            yield f"added    {name} {new}"
        elif new is None:
            yield f"removed  {name} {old}"
        else:
            yield f"changed  {name} {old} -> {new}"
    if not changes and lock.old != lock.new:
        yield "the same versions, with other hashes or comments"


def lock_as_json(lock: Lock) -> dict[str, Any]:
    """Return whether a lock differs from what is there, and how."""
    changes = [{"name": name, "old": old, "new": new} for name, old, new in find_changes(lock)]
    return {"file": lock.path.name, "changed": lock.old != lock.new, "packages": changes}


class Need(NamedTuple):
    """What an image of a flavour has, and what it needs of its host."""

    flavour: str
    jax: str  # its versions, one for each platform that has another
    driver: str | None  # the oldest driver; None where it needs none


def find_needs(root: Path, flavours: Sequence[str], locks: Sequence[Lock]) -> Iterator[Need]:
    """Yield what each flavour has and needs."""
    for flavour in flavours:
        own = {lock_path(root, flavour, platform) for platform in PLATFORMS}
        versions = {
            dict(read_pins(lock.new)).get("jax", "none") for lock in locks if lock.path in own
        }
        arguments = parse_arguments(root / f"containers/flavours/{flavour}.args")
        yield Need(flavour, ", ".join(sorted(versions)), arguments.get("MIN_DRIVER"))
