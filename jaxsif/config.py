"""What is set where: files of site, user and project, variables, the command line; each value with its source."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from jaxsif.errors import JaxsifError
from jaxsif.options import LIST, OPTIONS, PATH, Option, check_value, read_variable

NAME = "jaxsif.toml"
_POLICY = (Option("--signed-by", LIST, "", ""), Option("--digests", LIST, "", ""))
# A later file's value replaces an earlier one's; of [policy], all files are obeyed.
_TABLES = {
    "policy": {option.key: option for option in _POLICY},
    "run": {option.key: option for option in OPTIONS},
}


class Setting(NamedTuple):
    """A value, and what says so."""

    value: Any
    source: str


class Config(NamedTuple):
    """What the files say."""

    settings: Mapping[str, Setting]  # 'run.stage' -> the last file's
    policies: tuple[tuple[str, Setting], ...]  # ('policy.digests', …) of every file, in order


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
                settings[name] = Setting(value, f"{name} in {path}")
    return Config(settings, tuple(policies))


def resolve(said: Mapping[str, Any], environ: Mapping[str, str], config: Config, in_job: bool) -> dict[str, Setting]:
    """Each option of `jaxsif run` that something sets, by its key: the command line, else a variable, else a file.

    `said` has what the command line says, by field; None where it says nothing. What asks for a job counts in a job
    only when the command line says it. Raises JaxsifError for a variable that is not of the option's kind.
    """
    found = {}
    for option in OPTIONS:
        value = said.get(option.field)
        if value is None and in_job and option.of_job:
            continue
        setting = Setting(value, option.flag) if value is not None else _find_setting(option, environ, config)
        if setting:
            found[option.key] = setting
    return found


def resolve_image(said: str | None, environ: Mapping[str, str], named_by: str = "--image") -> Setting | None:
    """The image's path as for `jaxsif run`, for the commands that have no other of its options."""
    if said is not None:
        return Setting(said, named_by)
    image = next(option for option in OPTIONS if option.key == "image")
    return _find_setting(image, environ, read_config(environ, os.getcwd()))


def _find_setting(option: Option, environ: Mapping[str, str], config: Config) -> Setting | None:
    if environ.get(option.variable):
        return Setting(read_variable(option, environ[option.variable]), f"{option.variable} (environment)")
    default = None if option.default is None else Setting(option.default, "default")
    return config.settings.get(f"run.{option.key}", default)


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
        if table not in _TABLES or not isinstance(keys, dict):
            raise JaxsifError(f"no table [{table}] in {path}", path, _nearest(table, list(_TABLES)))
        for key, value in keys.items():
            if key not in _TABLES[table]:
                raise JaxsifError(f"no setting {table}.{key} in {path}", path, _nearest(key, list(_TABLES[table])))
            option = _TABLES[table][key]
            value = check_value(option, value, f"{table}.{key}", path)
            found[f"{table}.{key}"] = os.path.join(os.path.dirname(path), value) if option.kind == PATH else value
    return found


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
