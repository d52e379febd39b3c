"""What an image is made of: definition file, flavour, lock; and the digest that tells whether it must be made anew."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from jaxsif.errors import JaxsifError


@dataclass(frozen=True)
class Recipe:
    """One flavour's inputs, all below the folder that holds containers/ and jaxsif/."""

    root: Path  # a checkout or an installation
    flavour: str  # cpu, cuda12, …
    arguments: tuple[tuple[str, str], ...]  # build arguments of containers/flavours/<flavour>.args
    jax_version: str  # as locked

    @property
    def definition(self) -> Path:
        return self.root / "containers/jaxsif.def"

    @property
    def lock(self) -> Path:
        return self.root / f"containers/locks/{self.flavour}.txt"

    @property
    def name(self) -> str:
        """The image's file name, such as jax-0.12.0.1-cpu.sif."""
        return f"jax-{self.jax_version}-{self.flavour}.sif"

    @property
    def packages(self) -> str:
        """Debian packages of the base system, parted by blanks."""
        return dict(self.arguments)["PACKAGES"]

    def digest(self, *more: str) -> str:
        """SHA-256 over every input's name and bytes and over `more`."""
        digest = hashlib.sha256()
        flavour_file = self.root / f"containers/flavours/{self.flavour}.args"
        task_files = [path for path in sorted((self.root / "jaxsif/task").rglob("*")) if path.suffix in (".py", ".sh")]
        fixed = [self.definition, self.lock, flavour_file, self.root / "containers/check.py", self.root / "LICENSE"]
        for path in (*fixed, *task_files):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(self.root)} {len(content)}\n".encode() + content)
        for text in more:
            digest.update(f"{text}\n".encode())
        return digest.hexdigest()


def read_recipe(root: Path, flavour: str) -> Recipe:
    """The recipe of `flavour`; raises JaxsifError for an unknown flavour or a lock without JAX."""
    flavours = sorted(path.stem for path in (root / "containers/flavours").glob("*.args"))
    if not flavours:
        raise JaxsifError(f"no definition files in {root / 'containers'}", "--source", "give a jaxsif checkout")
    if flavour not in flavours:
        raise JaxsifError(f"no flavour {flavour}", "--flavour", "one of " + ", ".join(flavours))
    lines = (root / f"containers/flavours/{flavour}.args").read_text().splitlines()
    arguments = tuple(tuple(line.split("=", 1)) for line in lines if line and not line.startswith("#"))
    lock = root / f"containers/locks/{flavour}.txt"
    version = re.search(r"^jax==(\S+)", lock.read_text() if lock.exists() else "", re.MULTILINE)
    if not version:
        raise JaxsifError(f"no locked version of jax in {lock}", f"flavour {flavour}", f"make lock FLAVOUR={flavour}")
    return Recipe(root, flavour, arguments, version[1])  # type: ignore[arg-type]
