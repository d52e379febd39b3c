"""Build the wheel of a project: its backend comes from the index, and runs in a container without a
network, which sees the copy of the sources and the image.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import quote

from jaxsif.errors import HostError, JaxsifError
from jaxsif.foreign import check_list, check_object, check_text, find, parse_json, read_text
from jaxsif.images.file import checksum
from jaxsif.layers import inside
from jaxsif.layers.inside import normalize
from jaxsif.layers.project import SOURCE, WORK, Project, Sources
from jaxsif.layers.resolve import explain, uv_install
from jaxsif.layers.workspace import SEEN_AS, VERSION, Workspace, name_paths, tail
from jaxsif.settings.tomlfile import parse_toml

# Of a project without pyproject.toml, and the defaults of one with it, as in PEP 517.
_LEGACY = {"requires": ["setuptools"], "build-backend": "setuptools.build_meta:__legacy__"}
_WHEEL = re.compile(r"(?P<name>[A-Za-z0-9][\w.]*)-[\w.!+]+(-\d\w*)?-[\w.]+-[\w.]+-[\w.]+\.whl")
_PURE = "-none-any.whl"
# Messages of setuptools, and of backends that look for a compiler.
_COMPILES = re.compile(
    r"^(running build_ext|building '.*' extension)"
    r"|\b(cmake|meson|ninja|rust|cargo|rustc|gcc|cc|clang)\b.*(not found|No such file)"
    r"|Unknown compiler|CMAKE_C(XX)?_COMPILER",
    re.MULTILINE | re.IGNORECASE,
)
_TOOLS = "tools"  # in the folder of the container
_BUILT = "wheel-"  # the start of the names of folders for finished wheels
_ANSWER = f"{WORK}/answer.json"
_ARE_TEXTS = check_list(1000, check_text(10_000))
_CHECK_SYSTEM = check_object(
    {"requires": _ARE_TEXTS, "build-backend": check_text(1000), "backend-path": _ARE_TEXTS}
)


def build_wheel(container: Workspace, image: Mapping[str, Any], sources: Sources) -> str:
    """Build the wheel of a project; return the requirement for this wheel. Raise JaxsifError if the
    project has no build system, the build fails, or its wheel is not pure Python.
    """
    build = _Build(container, image, sources)
    system = build.read_build_system()
    build.install_tools(system["requires"])
    answer = build.run_backend({**system, "has_all": False})
    if "requires" in answer:
        build.install_tools(answer["requires"])
        answer = build.run_backend({**system, "has_all": True})
    return build.take_wheel(str(answer.get("wheel")))


def is_built(requirement: str) -> bool:
    """Return whether a requirement is one of `build_wheel`."""
    return f" @ file://{SEEN_AS}/{_BUILT}" in requirement


class _Build(NamedTuple):
    """The build of a project, in the stages of `build_wheel`."""

    container: Workspace
    image: Mapping[str, Any]  # from inside.py
    sources: Sources

    @property
    def project(self) -> Project:
        """The project to build."""
        return self.sources.project

    @property
    def place(self) -> str:
        """The project's folder, as the user names it."""
        return os.path.join(self.project.path, self.project.subdirectory).rstrip("/")

    def read_build_system(self) -> dict[str, Any]:
        """Return the [build-system] table of pyproject.toml, with defaults; raise JaxsifError."""
        root = os.path.realpath(self.sources.folder / SOURCE)
        folder = os.path.join(root, self.project.subdirectory)
        # A link may lead anywhere.
        files = [os.path.realpath(f"{folder}/{name}") for name in ("pyproject.toml", "setup.py")]
        is_file = [path.startswith(f"{root}/") and os.path.isfile(path) for path in files]
        if not any(is_file):
            where = "there is no pyproject.toml and no setup.py"
            raise JaxsifError(f"not a project: {self.place}", where, "name the folder that has one")
        named, given = f"{self.place}/pyproject.toml", None
        if is_file[0]:
            text = read_text(files[0], "pyproject.toml")
            given = find(parse_toml(text.encode(), named), "build-system")
        table: dict[str, Any] = given if isinstance(given, dict) else {}
        system = {"backend-path": [], **_LEGACY, **table}
        if not _CHECK_SYSTEM(system):
            what = f"cannot read {named}: its [build-system] table is invalid"
            raise JaxsifError(what, "requirements", "see PEP 517, https://peps.python.org/pep-0517")
        return {key: system[key] for key in ("requires", "build-backend", "backend-path")}

    def install_tools(self, requires: Sequence[str]) -> None:
        """Install the requirements of the build, from wheels; raise JaxsifError if pip fails."""
        if requires:
            target = f"--target={SEEN_AS}/{self.sources.folder.name}/{_TOOLS}"
            status, lines = self.container.run(*uv_install(self.image), target, "--", *requires)
            if status:
                lines = name_paths(lines, {})
                raise explain(lines, {}, f"build-system.requires of {self.place}")

    def run_backend(self, system: Mapping[str, Any]) -> dict[str, Any]:
        """Return the backend's answer; raise JaxsifError if the build fails."""
        folder, answer = self.sources.folder, self.sources.folder / _ANSWER
        shutil.copyfile(Path(inside.__file__), folder / "inside.py")  # the backend cannot change it
        seen = f"{SEEN_AS}/{SOURCE}/{self.project.subdirectory}".rstrip("/")
        path = [*(f"{seen}/{part}" for part in system["backend-path"]), f"{SEEN_AS}/{_TOOLS}"]
        given = {**system, "folder": seen, "path": path, "target": f"{SEEN_AS}/{WORK}"}
        words = (f"{SEEN_AS}/inside.py", "build", json.dumps(given), f"{SEEN_AS}/{_ANSWER}")
        python = (self.image["executable"], "-I")
        status, lines = self.container.run_untrusted(
            folder, WORK, os.pathsep.join(path), *python, *words
        )
        found: object = None
        if not status and answer.is_file() and not answer.is_symlink():
            with suppress(HostError, ValueError):  # too long, or not JSON
                found = parse_json(read_text(str(answer), "answer"))
        if check_text(1000)(find(found, "wheel")) or _ARE_TEXTS(find(found, "requires")):
            return cast("dict[str, Any]", found)
        failure = find(found, "failure")
        ended = [f"the build ended early, with exit status {status}"]
        lines += failure if _ARE_TEXTS(failure) else ended
        reason = tail(name_paths(lines, {SOURCE: self.project.path}))
        if _COMPILES.search("\n".join(lines)):
            raise self._not_pure("its build needs a compiler", reason)
        hint = f"export {VERSION}=1.0" if VERSION in reason else "fix what it reports"
        raise JaxsifError(f"cannot build {self.place}:", "its own build", hint, reason)

    def take_wheel(self, name: str) -> str:
        """Move the new wheel out of reach of the build; return the requirement for it. Raise
        JaxsifError.
        """
        project, made = self.project, self.sources.folder / WORK / name
        parts = _WHEEL.fullmatch(name)
        if not parts or made.is_symlink() or not made.is_file():
            what = f"cannot build {self.place}: its build produced no wheel"
            raise JaxsifError(what, "its own build", "fix its backend")
        if not name.endswith(_PURE):
            raise self._not_pure(f"its wheel is {name}")
        package = parts["name"]
        if project.name and normalize(project.name) != normalize(package):
            what = f"the package of {self.place} is {package}, not {project.name}"
            raise JaxsifError(what, "requirements", f"name {package}")
        # Another folder for each content: uv takes a file of the same path for the same wheel.
        folder = self.container.scratch / f"{_BUILT}{checksum(str(made))[:12]}"
        folder.mkdir(exist_ok=True)
        made.rename(folder / name)
        path = f"{folder.name}/{quote(name)}"
        self.container.names[path] = self.place
        return f"{package}{project.extras} @ file://{SEEN_AS}/{path}{project.marker}"

    def _not_pure(self, where: str, reason: str = "") -> JaxsifError:
        return JaxsifError(
            f"{self.place} is not pure Python{':' if reason else ''}",
            where,
            "name a wheel: pip wheel --no-deps PROJECT makes one on a machine with a compiler",
            reason,
        )
