"""Requirements of a layer -> packages that it needs and the image lacks, found by running uv in the
image.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from jaxsif.errors import HostError, JaxsifError, raise_as
from jaxsif.foreign import read_given
from jaxsif.layers.project import parse_project
from jaxsif.layers.workspace import SEEN_AS, Workspace, name_paths, tail

_ADDED = re.compile(r"^ \+ ([\w.-]+)((?:==| @ )\S+)(?: \(from (\S+)\))?$", re.MULTILINE)
_REMOVED = re.compile(r"^ - ([\w.-]+)(?:==| @ )\S+", re.MULTILINE)
_SUMMARY = re.compile(r"^Would (?:install (\d+) package|make no changes)", re.MULTILINE)
# uv's messages about a server that does not answer or is temporarily unavailable; a 404 is the
# request's fault.
_NO_NETWORK = re.compile(
    r"client error \(Connect\)|dns error|operation timed out"
    r"|HTTP status (server error|client error \(429)"
)
_LOCAL_WHEEL = re.compile(r"(?:[\w.-]+ *@ *)?file://(/.+\.whl)")
_PIN = re.compile(r"(?<![\w.-])([\w.-]+)==([^\s,]*[^\s,.])")


class Resolution(NamedTuple):
    """uv's plan for the image."""

    install: dict[str, str]  # package -> the requirement for exactly this version
    replaced: tuple[str, ...]  # packages of the image that would be removed


def parse_plan(lines: Sequence[str]) -> Resolution:
    """Return the plan that `uv pip install --dry-run` prints; raise HostError if the plan cannot be
    read.

    uv's JSON has the version of each package, but not the address of a wheel that was given by
    address.
    """
    text = "\n".join(lines)
    install = {
        name: f"{name} @ {address}" if address else f"{name}{version}"
        for name, version, address in _ADDED.findall(text)
    }
    summary = _SUMMARY.search(text)
    if not summary or len(install) != int(summary[1] or 0):
        raise HostError("cannot read uv's output:", "uv", "use another version of uv", tail(lines))
    return Resolution(install, tuple(_REMOVED.findall(text)))


def resolve(
    container: Workspace, image: dict[str, Any], allow_replace: Sequence[str]
) -> Resolution:
    """Return the packages to install for requirements.txt; raise JaxsifError if they conflict with
    the image's.
    """
    kept = {
        name: version for name, version in image["packages"].items() if name not in allow_replace
    }
    constraints = "".join(f"{name}=={version}\n" for name, version in kept.items())
    (container.scratch / "constraints.txt").write_text(constraints)
    files = [
        f"--constraint={SEEN_AS}/constraints.txt",
        f"--requirements={SEEN_AS}/requirements.txt",
    ]
    status, lines = container.run(*uv_install(image), "--dry-run", *files)
    if status:
        raise explain(name_paths(lines, container.names), kept)
    return parse_plan(lines)


def explain(
    lines: Sequence[str], kept: Mapping[str, str], where: str = "requirements"
) -> JaxsifError:
    """Convert uv's explanation of why there is no plan into an error that names the conflicting
    packages of the image; `where` names the place of the requirements.
    """
    pins = dict.fromkeys(_PIN.findall("\n".join(lines)))
    named = [name for name, version in pins if kept.get(name) == version]
    reason = tail(lines)
    if named:
        packages = ", ".join(f"{name} {kept[name]}" for name in named)
        remedy = " ".join(f"--allow-replace {name}" for name in named)
        return JaxsifError(
            f"the requirements conflict with {packages} of the image:",
            where,
            f"ask for other versions, or let the layer have its own: {remedy}",
            reason,
        )
    if _NO_NETWORK.search(reason):
        return HostError(
            "the package index cannot be reached:",
            where,
            "run it on a host with network access; for a proxy or an index, see docs/build.md",
            reason,
        )
    return JaxsifError("cannot resolve the requirements:", where, "fix what it reports", reason)


def uv_install(image: Mapping[str, Any]) -> list[str]:
    """Return the start of uv's command line."""
    # The image's Python may belong to a distribution, which forbids changes; the layer's packages
    # go to a separate folder.
    options = ["--break-system-packages", "--no-build", "--color", "never", "--no-progress"]
    return [f"{SEEN_AS}/uv", "pip", "install", "--python", image["executable"], *options]


_IN_FILE = "-r may be given several times; variables such as UV_DEFAULT_INDEX name an index"
_AS_ARGUMENT = "PACKAGE, such as 'optax>=0.2'"


def read_requirements(files: Sequence[str], packages: Sequence[str]) -> tuple[str, ...]:
    """Return the requirements from files and the command line; raise JaxsifError for any other
    line, and if there are no requirements.
    """
    requirements = [
        _check(line, path.parent, str(path), _IN_FILE)
        for path in map(Path, files)
        for line in _read_lines(path)
    ]
    requirements += [
        _check(package, Path(), "the command line", _AS_ARGUMENT) for package in packages
    ]
    if not requirements:
        raise JaxsifError(
            "no requirements", ", ".join(files) or "the command line", "name packages, or -r FILE"
        )
    return tuple(dict.fromkeys(requirements))


def _read_lines(path: Path) -> list[str]:
    """Return the lines of a requirements file, without comments; raise JaxsifError."""
    with raise_as(JaxsifError(f"cannot read requirements {path}", "-r", "check its path")):
        text = read_given(str(path), "requirements file", "-r").replace("\\\n", " ")
    lines = (" ".join(f" {line}".partition(" #")[0].split()) for line in text.splitlines())
    return list(filter(None, lines))


def _check(requirement: str, folder: Path, where: str, hint: str) -> str:
    """Return a requirement, with an absolute path for a wheel or a project, so that it is valid
    anywhere; raise JaxsifError for an option.
    """
    project = parse_project(requirement, folder, where)
    if project:
        return project.requirement
    if requirement.startswith("-"):
        raise JaxsifError(f"not a requirement: {requirement}", where, hint)
    by_address = _LOCAL_WHEEL.fullmatch(requirement)
    requirement = unquote(by_address[1]) if by_address else requirement
    return str((folder / requirement).resolve()) if _is_wheel(requirement) else requirement


def _is_wheel(requirement: str) -> bool:
    return requirement.endswith(".whl") and "://" not in requirement


def write_requirements(requirements: Sequence[str], folder: Path) -> dict[str, str]:
    """Write all requirements into requirements.txt in `folder`, and those with hashes into
    hashes.txt, and copy wheels there; return the path of each by its name. Raise JaxsifError for a
    missing wheel.
    """
    lines, wheels = [], {}
    for requirement in requirements:
        if _is_wheel(requirement):
            wheel = Path(requirement)
            if not wheel.is_file():
                raise JaxsifError(f"wheel not found: {wheel}", "requirements", "check its path")
            shutil.copyfile(wheel, folder / wheel.name)
            requirement = f"{SEEN_AS}/{wheel.name}"
            wheels[wheel.name] = str(wheel)
        lines.append(f"{requirement}\n")
    (folder / "requirements.txt").write_text("".join(lines))
    (folder / "hashes.txt").write_text("".join(line for line in lines if "--hash" in line))
    return wheels
