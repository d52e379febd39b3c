"""Resolve the requirements of flavours into locks with hashes, using `uv pip compile`."""

from __future__ import annotations

import itertools
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jaxsif import process
from jaxsif.builds.build import find_uv
from jaxsif.builds.host_settings import host_variables
from jaxsif.builds.recipe import check_flavour, lock_path, read_flavours
from jaxsif.errors import HostError, JaxsifError
from jaxsif.files import scratch_folder, write_files
from jaxsif.text import shorten


class LockOptions(NamedTuple):
    """How to resolve."""

    upgrade: bool = False  # to the newest versions, instead of keeping the locked ones
    jax: str | None = None  # this version of JAX
    python: str = "3.13"


class Lock(NamedTuple):
    """A lock before and after resolving."""

    path: Path
    old: str
    new: str

    @property
    def changed(self) -> bool:
        """Whether resolving has changed the lock."""
        return self.old != self.new

    @property
    def note(self) -> str:
        """The change of JAX's version, such as ', JAX 0.11.0 -> 0.12.0', or ''."""
        old, new = (re.findall(r"^jax==(\S+)", text, re.MULTILINE) for text in (self.old, self.new))
        return "" if old == new else f", JAX {''.join(old) or 'none'} -> {''.join(new)}"


def select_flavours(root: Path, flavour: str | None) -> list[str]:
    """Return `flavour`, or all flavours; raise JaxsifError for one without a file of
    requirements.
    """
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
    """Resolve all locks without writing any; raise JaxsifError if one cannot be resolved."""
    for option, version in (("--jax", options.jax), ("--python", options.python)):
        if version and not re.fullmatch(r"\d[\w.]*", version):
            hint = "give a version, such as 0.12.0; --upgrade takes the newest"
            raise JaxsifError(f"not a version: {shorten(version)!r}", option, hint)
    uv = str(find_uv(environ))
    # uv would look for the Python that it resolves for, but does not need it.
    settings = {**environ, **host_variables(environ), "UV_PYTHON_DOWNLOADS": "never"}
    locks = []
    for flavour, platform in itertools.product(flavours, platforms):
        argv = [
            *(uv, "pip", "compile", "--quiet", "--generate-hashes", "--only-binary", ":all:"),
            *("--python-version", options.python),
            *("--python-platform", f"{platform}-manylinux_2_28"),
            # A lock names neither paths nor indexes of this host.
            *("--no-emit-index-url", "--custom-compile-command", f"make lock FLAVOUR={flavour}"),
            *(["--upgrade"] if options.upgrade else []),
            *(["--upgrade-package", f"jax=={options.jax}"] if options.jax else []),
        ]
        locks.append(_resolve(lock_path(root, flavour, platform), root, flavour, argv, settings))
    return locks


def _resolve(
    path: Path, root: Path, flavour: str, argv: Sequence[str], environ: Mapping[str, str]
) -> Lock:
    """Resolve the lock at `path`; raise HostError with all of uv's output."""
    wanted = f"containers/locks/{flavour}.in"
    old = path.read_text() if path.exists() else ""
    lines: list[str] = []
    with scratch_folder(tempfile.gettempdir(), "jaxsif-lock-") as scratch:
        copy, log = Path(scratch, path.name), os.path.join(scratch, "log")
        copy.write_text(old)  # uv keeps the versions in this file
        argv = [*argv, "--output-file", str(copy), wanted]
        if process.run_logged(argv, environ, log, str(root), lines.append):
            said = "\n".join(lines).strip()
            is_old = str(copy) in said  # the lock itself is damaged
            raise HostError(
                f"cannot resolve {path.name}:",
                str(path if is_old else root / wanted),
                "fix what it reports; no lock was changed",
                said.replace(str(copy), str(path)),
            )
        return Lock(path, old, copy.read_text())


def write_locks(locks: Sequence[Lock]) -> None:
    """Write the changed locks beside their paths, then rename them."""
    write_files({str(lock.path): lock.new.encode() for lock in locks if lock.changed})
