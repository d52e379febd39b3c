"""What is wanted in a layer: lines as in pip's requirement files, kept as given, so that the layer
can be made again.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from jaxsif.errors import JaxsifError, told_as
from jaxsif.foreign import read_given

_IN_FILE = "-r may be given several times; variables such as UV_DEFAULT_INDEX name an index"
_AS_ARGUMENT = "PACKAGE, such as 'optax>=0.2'"


def read_requirements(files: Sequence[str], packages: Sequence[str]) -> tuple[str, ...]:
    """Return the requirements of files and of the command line; raises JaxsifError for other lines,
    and where none is.
    """
    found = [
        _check(line, path.parent, str(path), _IN_FILE)
        for path in map(Path, files)
        for line in _read_lines(path)
    ]
    found += [_check(one, Path(), "the command line", _AS_ARGUMENT) for one in packages]
    if not found:
        raise JaxsifError(
            "no requirements", ", ".join(files) or "the command line", "name packages, or -r FILE"
        )
    return tuple(dict.fromkeys(found))


def _read_lines(path: Path) -> list[str]:
    """Return the lines of a requirement file, without comments; raises JaxsifError."""
    with told_as(JaxsifError(f"cannot read requirements {path}", "-r", "check its path")):
        text = read_given(str(path), "file of requirements", "-r").replace("\\\n", " ")
    lines = (" ".join(f" {line}".partition(" #")[0].split()) for line in text.splitlines())
    return list(filter(None, lines))


def _check(requirement: str, folder: Path, where: str, hint: str) -> str:
    """Return a requirement, with the path of a wheel from the root, so that it holds anywhere;
    raises JaxsifError for an option.
    """
    if requirement.startswith("-"):
        raise JaxsifError(f"not a requirement: {requirement}", where, hint)
    return str((folder / requirement).resolve()) if _is_wheel(requirement) else requirement


def _is_wheel(requirement: str) -> bool:
    return requirement.endswith(".whl") and "://" not in requirement


def write_requirements(requirements: Sequence[str], folder: Path, seen_as: str) -> None:
    """Write requirements.txt, and hashes.txt with those that have hashes, into `folder`; wheels are
    copied beside. Raises JaxsifError for a wheel that is not there.

    `seen_as` is the folder's path in the container.
    """
    lines = []
    for one in requirements:
        if _is_wheel(one):
            wheel = Path(one)
            if not wheel.is_file():
                raise JaxsifError(f"wheel not found: {wheel}", "requirements", "check its path")
            shutil.copyfile(wheel, folder / wheel.name)
            one = f"{seen_as}/{wheel.name}"
        lines.append(f"{one}\n")
    (folder / "requirements.txt").write_text("".join(lines))
    (folder / "hashes.txt").write_text("".join(line for line in lines if "--hash" in line))
