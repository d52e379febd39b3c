"""The inputs of an image: definition file, flavour, lock; their digest and their revision."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from jaxsif import process
from jaxsif.errors import JaxsifError, Notify, raise_as
from jaxsif.installation import PACKAGE, find_share
from jaxsif.limits import read_number
from jaxsif.text import shorten

_CHECKOUT = "name a jaxsif checkout with --source"


@dataclass(frozen=True)
class Recipe:
    """One flavour's inputs, under the folder that holds containers/."""

    root: Path  # a checkout, an installation, or a wheel's share
    flavour: str  # cpu, cuda12, …
    arguments: Mapping[str, str]  # build arguments of containers/flavours/<flavour>.args
    jax_version: str  # as locked
    machine: str = "x86_64"  # x86_64, aarch64

    @property
    def definition(self) -> Path:
        return self.root / "containers/jaxsif.def"

    @property
    def lock(self) -> Path:
        return lock_path(self.root, self.flavour, self.machine)

    @property
    def flavour_file(self) -> Path:
        return self.root / f"containers/flavours/{self.flavour}.args"

    @property
    def name(self) -> str:
        """The image's file name, such as jax-0.12.0.1-cpu.sif."""
        return f"jax-{self.jax_version}-{self.flavour}.sif"

    @property
    def block(self) -> str:
        """The block size of the image's squashfs, in mksquashfs's form."""
        return self.arguments.get("BLOCK", "128K")

    def version(self, package: str) -> str:
        """Return the version of one of NVIDIA's locked packages, such as cuda-runtime, or 'none' if
        the flavour does not have it.
        """
        found = re.search(rf"(?m)^nvidia-{package}(?:-cu\d+)?==([\d.]+)", self.lock.read_text())
        return found[1] if found else "none"

    @property
    def cuda_version(self) -> str:
        """The version of the locked CUDA runtime, such as 12.9, or 'none' for a flavour without
        it.
        """
        return ".".join(self.version("cuda-runtime").split(".")[:2])

    @property
    def packages(self) -> str:
        """Debian packages of the base system, separated by blanks; raise JaxsifError if the flavour
        names none.
        """
        if "PACKAGES" not in self.arguments:
            raise JaxsifError(
                f"flavour {self.flavour} names no packages",
                str(self.flavour_file),
                "add a line PACKAGES=NAME NAME…",
            )
        return self.arguments["PACKAGES"]

    @property
    def package(self) -> Path:
        """The package whose task shim goes into the image: the checkout's if there is one, else
        this launcher's own.
        """
        checkout = self.root / "jaxsif"
        return checkout if checkout.is_dir() else Path(PACKAGE)

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The files that the image is made from; last comes the folder of the task shim, which
        stands for all files in it.
        """
        names = ("check.py", "compile.py", "sbom.py")
        scripts = (self.root / "containers" / name for name in names)
        others = (self.root / "LICENSE", self.package / "task")
        return (self.definition, self.lock, self.flavour_file, *scripts, *others)

    def digest(self, *more: str) -> str:
        """Return the SHA-256 over every input's name and bytes and over `more`; raise JaxsifError
        for a missing input.
        """
        digest = hashlib.sha256()
        *files, task = self.inputs
        named = {str(path.relative_to(self.root)): path for path in files}
        shim = sorted(path for path in task.rglob("*") if path.suffix in (".py", ".sh"))
        # The same names wherever the package is: equal inputs have the same digest.
        named.update({f"jaxsif/{path.relative_to(self.package)}": path for path in shim})
        for name, path in named.items():
            with raise_as(JaxsifError(f"cannot read {path}", str(self.root), _CHECKOUT)):
                content = path.read_bytes()
            digest.update(f"{name} {len(content)}\n".encode() + content)
        digest.update("".join(f"{text}\n" for text in more).encode())
        return digest.hexdigest()


def choose_source(option: str | None) -> Path:
    """Return the folder that --source names; without it, the current folder if it is a checkout,
    else the folder that comes with this launcher. Raise HostError.
    """
    here = Path(option or ".").resolve()
    return here if option or (here / "containers/flavours").is_dir() else Path(find_share())


def lock_path(root: Path, flavour: str, machine: str) -> Path:
    """Return the path of a flavour's lock, for x86_64 or aarch64."""
    suffix = "" if machine == "x86_64" else f"-{machine}"
    return root / f"containers/locks/{flavour}{suffix}.txt"


def read_flavours(root: Path) -> list[str]:
    """Return the names of all flavours; raise JaxsifError if there are none."""
    flavours = sorted(path.stem for path in (root / "containers/flavours").glob("*.args"))
    if not flavours:
        raise JaxsifError(f"no definition files in {root / 'containers'}", str(root), _CHECKOUT)
    return flavours


def check_flavour(root: Path, flavour: str) -> str:
    """Return `flavour`; raise JaxsifError for an unknown one."""
    flavours = read_flavours(root)
    if flavour not in flavours:
        raise JaxsifError(f"no flavour {flavour}", "--flavour", "one of " + ", ".join(flavours))
    return flavour


def read_recipe(root: Path, flavour: str, machine: str = platform.machine()) -> Recipe:
    """Return the recipe of `flavour` for a machine; raise JaxsifError for an unknown flavour or a
    lock without JAX.
    """
    check_flavour(root, flavour)
    arguments = parse_arguments(root / f"containers/flavours/{flavour}.args")
    lock = lock_path(root, flavour, machine)
    version = re.search(r"^jax==(\S+)", lock.read_text() if lock.exists() else "", re.MULTILINE)
    if not version:
        raise JaxsifError(
            f"no locked version of jax in {lock}",
            f"flavour {flavour}",
            f"make lock FLAVOUR={flavour}",
        )
    return Recipe(root, flavour, arguments, version[1], machine)


def parse_arguments(path: Path) -> dict[str, str]:
    """Return NAME -> VALUE, from NAME=VALUE on each line; empty lines and those that begin with #
    are skipped.
    """
    arguments = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            name, equals, value = line.partition("=")
            if not equals:
                raise JaxsifError(
                    f"not a build argument: {line!r}",
                    f"{path}:{number}",
                    "write NAME=VALUE on each line",
                )
            arguments[name] = value
    return arguments


class Revision(NamedTuple):
    """The origin of an image."""

    # Followed by '-dirty' if the inputs differ from it; 'unknown' if git cannot find it.
    commit: str
    created: int  # seconds since 1970

    @property
    def date(self) -> str:
        """The time in ISO 8601 form."""
        return datetime.fromtimestamp(self.created, timezone.utc).isoformat(timespec="seconds")


def find_revision(
    root: Path, inputs: Sequence[Path], environ: Mapping[str, str], notify: Notify
) -> Revision:
    """Find the revision of `inputs` in the repository of `root`; SOURCE_DATE_EPOCH sets the time,
    see reproducible-builds.org. Raise JaxsifError for an invalid time.
    """
    paths = [os.path.relpath(path, root) for path in inputs]
    commit = time = changes = ""
    try:
        commit, _, time = _git(root, "log", "-1", "--format=%H %ct", "--", *paths).partition(" ")
        changes = _git(root, "status", "--porcelain", "--", *paths)
    except OSError:
        pass  # no git
    except subprocess.CalledProcessError:  # not a checkout, or one without a commit
        if _belongs_to_another(root / ".git"):
            trust = f"git config --global --add safe.directory {shlex.quote(str(root))}"
            what = f"{root} belongs to another user, so git may not trust it"
            notify(f"the image's revision is unknown: {what}; try: {trust}")
    if commit and changes:
        commit += "-dirty"
    wanted = environ.get("SOURCE_DATE_EPOCH") or time or "0"
    seconds = read_number(wanted)
    if seconds is None or seconds >= 1 << 32:
        raise JaxsifError(
            f"not a time: {shorten(wanted)}",
            "SOURCE_DATE_EPOCH",
            "give seconds since 1970, below 4294967296",
        )
    return Revision(commit or "unknown", seconds)


def _belongs_to_another(path: Path) -> bool:
    return path.exists() and path.stat().st_uid != os.geteuid()


def _git(root: Path, *arguments: str) -> str:
    return process.output("git", "-C", str(root), *arguments).strip()
