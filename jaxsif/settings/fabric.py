"""The profile of a fabric, the network between nodes: its parent, its settings, and its
requirements for each node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jaxsif.errors import JaxsifError
from jaxsif.settings.config import nearest
from jaxsif.settings.options import Setting
from jaxsif.settings.read import parse_env
from jaxsif.task import contract
from jaxsif.text import shorten

# The variables that describe it to jaxsif/task/start.sh.
NAME = contract.FABRIC
NEEDS = contract.FABRIC_NEEDS
LIBRARIES = contract.FABRIC_LIBRARIES

# A user sets a variable by its name, or for the container only.
_ENVIRONMENT = ("", "APPTAINERENV_", "SINGULARITYENV_")
# Patterns of values that neither a shell nor the runtime's --bind splits, each with a description
# and a hint.
_WORDS = "leave out spaces, commas and colons; use * and ? as wildcards"
_PATH = (re.compile(r"/[\w./*?\[\]+@~-]+"), "an absolute path", f"begin it with /; {_WORDS}")
_INTERFACE = (re.compile(r"[\w.*?\[\]@-]+"), "the name of an interface", _WORDS)
_BIND = (re.compile(r"(?s)\s*[^:\s].*"), "SRC[:DEST[:OPTS]]", "name the folder on the node first")
_PATTERNS = {"devices": _PATH, "libraries": _PATH, "interfaces": _INTERFACE, "binds": _BIND}
_NONE = Setting((), "")


class Fabric(NamedTuple):
    """A profile with all that it inherits."""

    name: str
    # Binds, libraries, devices, interfaces: of the nearest profile that has them.
    lists: Mapping[str, Setting]
    # A variable's name -> NAME=VALUE, of the nearest profile that has it.
    env: Mapping[str, Setting]

    def items(self, key: str) -> tuple[str, ...]:
        """Return the items of a list; empty if no profile has that list."""
        return tuple(self.lists.get(key, _NONE).value)

    def needs(self) -> tuple[str, ...]:
        """Return patterns of the paths that each node must have."""
        return self.items("devices") + tuple(
            f"/sys/class/net/{name}" for name in self.items("interfaces")
        )


def resolve_fabric(chosen: Setting, profiles: Mapping[str, Setting]) -> Fabric:
    """Return the chosen profile; raise JaxsifError if it, or one that it inherits, is missing or
    invalid.
    """
    lists: dict[str, Setting] = {}
    env: dict[str, Setting] = {}
    for name in reversed(find_lineage(chosen, profiles)):
        keys, path, _ = profiles[name]
        for key, value in keys.items():
            source = f"profile.{name}.{key} in {path}"
            if key == "env":
                env.update((pair.partition("=")[0], Setting(pair, source)) for pair in value)
            elif key != "inherits":
                _check_patterns(key, value, source)
                lists[key] = Setting(value, source)
    return Fabric(chosen.value, lists, env)


def find_lineage(chosen: Setting, profiles: Mapping[str, Setting]) -> list[str]:
    """Return the names of a profile, of the profile that it inherits, and so on; raise JaxsifError
    if any is missing or inherits itself.
    """
    names: list[str] = []
    name, source, _ = chosen
    while name is not None:
        if name not in profiles:
            # Not `none`, which would turn the fabric off for a mistyped name, nor one that inherits
            # this one.
            hint = nearest(name, [one for one in profiles if one not in ("none", *names)])
            raise JaxsifError(f"no fabric profile {shorten(name)!r}", source, hint)
        if name in names:
            circle = " -> ".join([*names[names.index(name) :], name])
            raise JaxsifError(
                f"a fabric profile inherits from itself: {shorten(circle)}",
                source,
                "give one of them another name",
            )
        names.append(name)
        keys, path, _ = profiles[name]
        name, source = keys.get("inherits"), f"profile.{name}.inherits in {path}"
    return names


def _check_patterns(key: str, values: Iterable[str], source: str) -> None:
    """Raise JaxsifError for a value that the list `key` does not take."""
    pattern, words, hint = _PATTERNS[key]
    for value in values:
        if not pattern.fullmatch(value):
            raise JaxsifError(f"not {words}: {shorten(value)!r}", source, hint)


def find_variables(
    fabric: Fabric, given: Mapping[str, str], environ: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the variables that the profile sets, and a note on each variable for which the user
    has another value; the user's is kept.

    `given` holds the variables of --env.
    """
    variables = {}
    notes = []
    for pair, source, _ in fabric.env.values():
        ((name, value),) = parse_env([pair], environ, source)
        own = (environ[way + name] for way in _ENVIRONMENT if way + name in environ)
        stands = given.get(name, next(own, None))
        if stands is None:
            variables[name] = value
        elif stands != value:
            notes.append(f"keeping your {name}={stands} ({source} sets {value})")
    return variables, tuple(notes)


def shim_variables(fabric: Fabric, folders: Iterable[str]) -> dict[str, str]:
    """Return the variables for start.sh: the profile's name, the paths that the node must have, and
    the folders of its libraries.

    The variables are set even if empty: otherwise, a run inside a task of another run would use
    that run's values.
    """
    return {NAME: fabric.name, NEEDS: " ".join(fabric.needs()), LIBRARIES: ":".join(folders)}
