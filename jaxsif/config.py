"""The settings in files: a site's, a user's, a project's jaxsif.toml; each value with the file that it came from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from jaxsif.errors import JaxsifError

NAME = "jaxsif.toml"
_LIST, _STRING, _BOOLEAN = "a list of strings", "a string", "true or false"
# Table and key -> what its value is. A later file's value replaces an earlier one's; of [policy], all files are obeyed.
_KEYS = {
    "policy": {"signed-by": _LIST, "digests": _LIST},
    "run": {"image": _STRING, "layers": _LIST, "stage": _BOOLEAN, "stage-folder": _STRING},
}


class Setting(NamedTuple):
    """A value, and the file that says so."""

    value: Any
    source: str


class Config(NamedTuple):
    """What the files say."""

    settings: Mapping[str, Setting]  # 'run.stage' -> the last file's
    policies: tuple[tuple[str, Setting], ...]  # ('policy.digests', …) of every file, in order

    def get(self, name: str) -> Any:
        """The value of 'table.key', or None."""
        return self.settings[name].value if name in self.settings else None

    def source(self, name: str) -> str:
        """The file that 'table.key' came from."""
        return self.settings[name].source

    def path(self, name: str) -> tuple[str, str] | None:
        """The file or folder that 'table.key' names, as from its file's folder, and where it says so; or None."""
        if name not in self.settings:
            return None
        value, source = self.settings[name]
        return os.path.join(os.path.dirname(source), value), f"{name} in {source}"


def find_files(environ: Mapping[str, str], folder: str) -> tuple[str, ...]:
    """The files that there are, site's first: of this installation, of the host, of the user, of the project.

    The project's is the nearest one in `folder` or above it.
    """
    here = os.path.dirname(os.path.realpath(__file__))
    site = os.path.normpath(os.path.join(here, "../../..", NAME))  # PREFIX/jaxsif/VERSION/lib/jaxsif
    personal = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", "/"), ".config")
    candidates = [site, f"/etc/jaxsif/{NAME}", os.path.join(personal, "jaxsif", NAME)]
    while True:
        if os.path.isfile(os.path.join(folder, NAME)):
            candidates.append(os.path.join(folder, NAME))
            break
        if folder == os.path.dirname(folder):
            break
        folder = os.path.dirname(folder)
    return tuple(dict.fromkeys(path for path in candidates if os.path.isfile(path)))


def read_config(environ: Mapping[str, str], folder: str) -> Config:
    """All settings for a command in `folder`; raises JaxsifError for what is no setting."""
    settings: dict[str, Setting] = {}
    policies: list[tuple[str, Setting]] = []
    for path in find_files(environ, folder):
        for name, value in _read_file(path).items():
            if name.startswith("policy."):
                policies.append((name, Setting(value, path)))
            else:
                settings[name] = Setting(value, path)
    return Config(settings, tuple(policies))


def _read_file(path: str) -> dict[str, Any]:
    """'table.key' -> value."""
    toml = _toml()
    with open(path, "rb") as file:
        try:
            tables = toml.load(file)
        except (toml.TOMLDecodeError, UnicodeDecodeError) as error:
            raise JaxsifError(f"cannot read {path}: {error}", path, "see https://toml.io") from error
    found = {}
    for table, keys in tables.items():
        if table not in _KEYS or not isinstance(keys, dict):
            raise JaxsifError(f"no table [{table}] in {path}", path, _nearest(table, list(_KEYS)))
        for key, value in keys.items():
            if key not in _KEYS[table]:
                raise JaxsifError(f"no setting {table}.{key} in {path}", path, _nearest(key, list(_KEYS[table])))
            expected = _KEYS[table][key]
            if not _is_a(value, expected):
                raise JaxsifError(f"{table}.{key} is not {expected} in {path}", path, f"{key} = …, {expected}")
            found[f"{table}.{key}"] = value
    return found


def _is_a(value: object, expected: str) -> bool:
    if expected == _LIST:
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    return isinstance(value, str if expected == _STRING else bool)


def _toml() -> Any:
    """Python's own reader from 3.11 on, tomli before; imported here, since most runs have no file to read."""
    try:
        return import_module("tomllib")
    except ImportError:
        return import_module("tomli")


def _nearest(name: str, known: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, 1)
    return f"{close[0]}?" if close else "one of " + ", ".join(known)
