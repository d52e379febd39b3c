"""The profile of a fabric, the network between nodes: what it inherits, what it sets, what each
node must have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jaxsif.errors import JaxsifError
from jaxsif.limits import shorten
from jaxsif.settings.config import Setting, nearest
from jaxsif.settings.variables import parse_env

# The variables by which jaxsif/task/start.sh knows of it.
NAME = "JAXSIF_FABRIC"
NEEDS = "JAXSIF_FABRIC_NEEDS"
LIBRARIES = "JAXSIF_FABRIC_LIBRARIES"

# A user sets a variable by its name, or for the container only.
_ENVIRONMENT = ("", "APPTAINERENV_", "SINGULARITYENV_")
# Patterns that neither a shell nor the runtime's --bind takes apart, of paths and of interfaces.
_PATH = re.compile(r"/[\w./*?\[\]+@~-]+")
_INTERFACE = re.compile(r"[\w.*?\[\]@-]+")
_PATTERNS = {"devices": _PATH, "libraries": _PATH, "interfaces": _INTERFACE}


class Fabric(NamedTuple):
    """A profile with all that it inherits."""

    name: str
    # Binds, libraries, devices, interfaces: of the nearest profile that has them.
    lists: Mapping[str, Setting]
    # A variable's name -> NAME=VALUE, of the nearest profile that has it.
    env: Mapping[str, Setting]

    def items(self, key: str) -> tuple[str, ...]:
        """What a list has; nothing where no profile has the list."""
        return tuple(self.lists[key].value) if key in self.lists else ()

    def needs(self) -> tuple[str, ...]:
        """Patterns of paths that must be on each node."""
        return self.items("devices") + tuple(
            f"/sys/class/net/{name}" for name in self.items("interfaces")
        )


def resolve_fabric(chosen: Setting, profiles: Mapping[str, Setting]) -> Fabric:
    """The profile that was chosen; raises JaxsifError for one that is not there, or that is not
    whole.
    """
    lists: dict[str, Setting] = {}
    env: dict[str, Setting] = {}
    for name in reversed(find_lineage(chosen, profiles)):
        keys, path = profiles[name]
        for key, value in keys.items():
            setting = Setting(value, f"profile.{name}.{key} in {path}")
            if key in _PATTERNS:
                _check_patterns(_PATTERNS[key], setting)
            if key == "env":
                env.update(
                    (pair.partition("=")[0], Setting(pair, setting.source)) for pair in value
                )
            elif key != "inherits":
                lists[key] = setting
    return Fabric(chosen.value, lists, env)


def find_lineage(chosen: Setting, profiles: Mapping[str, Setting]) -> list[str]:
    """The names of a profile, of the one that it inherits, and so on; raises JaxsifError for one
    that is not there.
    """
    names: list[str] = []
    name, source = chosen
    while name is not None:
        if name not in profiles:
            raise JaxsifError(
                f"no fabric profile {shorten(name)!r}", source, nearest(name, profiles)
            )
        if name in names:
            circle = " -> ".join([*names[names.index(name) :], name])
            raise JaxsifError(
                f"a fabric profile inherits itself: {shorten(circle)}",
                source,
                "give one of them another name",
            )
        names.append(name)
        keys, path = profiles[name]
        name, source = keys.get("inherits"), f"profile.{name}.inherits in {path}"
    return names


def _check_patterns(pattern: re.Pattern[str], setting: Setting) -> None:
    for one in setting.value:
        if not pattern.fullmatch(one):
            kind = "an absolute path" if pattern is _PATH else "the name of an interface"
            raise JaxsifError(
                f"not {kind}: {shorten(one)!r}",
                setting.source,
                "* and ? stand for others; no blank, comma or colon",
            )


def find_variables(
    fabric: Fabric, given: Mapping[str, str], environ: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables that the profile sets, and notes on those for which the user has another value,
    which stands.

    `given` are those of --env.
    """
    variables = {}
    notes = []
    for pair, source in fabric.env.values():
        ((name, value),) = parse_env([pair], environ, source)
        own = given.get(name, _first(environ, (prefix + name for prefix in _ENVIRONMENT)))
        if own is None:
            variables[name] = value
        elif own != value:
            notes.append(f"{name}={own} of yours stands, and not {value} of {source}")
    return variables, tuple(notes)


def _first(environ: Mapping[str, str], names: Iterable[str]) -> str | None:
    return next((environ[name] for name in names if name in environ), None)


def shim_variables(fabric: Fabric, folders: Iterable[str]) -> dict[str, str]:
    """What start.sh is told: the profile's name, what must be on the node, and where its libraries
    are.

    Set also when empty: a run in a task of another run would take that one's.
    """
    return {NAME: fabric.name, NEEDS: " ".join(fabric.needs()), LIBRARIES: ":".join(folders)}
