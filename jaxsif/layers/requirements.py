"""What is wanted in a layer: lines as in pip's requirement files, kept as given, so that it can be
made anew.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from jaxsif.errors import JaxsifError


def read_requirements(files: Sequence[str], packages: Sequence[str]) -> tuple[str, ...]:
    """The requirements of files and of the command line; raises JaxsifError for other lines, and
    where none is.
    """
    found = [one for path in files for one in _read_file(Path(path))]
    found += [_absolute(one, Path()) for one in packages]
    for one in packages:
        if one.startswith("-"):
            raise JaxsifError(
                f"not a requirement: {one}", "the command line", "PACKAGE, such as 'optax>=0.2'"
            )
    if not found:
        raise JaxsifError(
            "no requirements", ", ".join(files) or "the command line", "name packages, or -r FILE"
        )
    return tuple(dict.fromkeys(found))


def _read_file(path: Path) -> list[str]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise JaxsifError(
            f"cannot read requirements {path}: {reason}", "-r", "check its path"
        ) from error
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        one = " ".join((" " + line).split(" #")[0].split())
        if one.startswith("-"):
            raise JaxsifError(
                f"not a requirement: {one}",
                str(path),
                "-r may be given several times; variables such as UV_DEFAULT_INDEX name an index",
            )
        if one:
            found.append(_absolute(one, path.parent))
    return found


def _absolute(requirement: str, folder: Path) -> str:
    """Paths of wheels from the root, so that they hold anywhere."""
    if requirement.endswith(".whl") and "://" not in requirement:
        return str((folder / requirement).resolve())
    return requirement


def write_requirements(requirements: Sequence[str], folder: Path, seen_as: str) -> None:
    """Write requirements.txt, and hashes.txt with those that have hashes, into `folder`; wheels are
    copied beside.

    `seen_as` is the folder's path in the container.
    """
    lines = []
    for one in requirements:
        if one.endswith(".whl") and "://" not in one:
            wheel = Path(one)
            if not wheel.is_file():
                raise JaxsifError(f"wheel not found: {wheel}", "requirements", "check its path")
            shutil.copyfile(wheel, folder / wheel.name)
            one = f"{seen_as}/{wheel.name}"
        lines.append(f"{one}\n")
    (folder / "requirements.txt").write_text("".join(lines))
    (folder / "hashes.txt").write_text("".join(line for line in lines if "--hash" in line))
