"""What is set where: files of site, user and project, variables, the command line; each value with its source."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

from jaxsif.errors import JaxsifError
from jaxsif.options import LIST, OPTIONS, PATH, TEXT, Option, check_value, read_variable

NAME = "jaxsif.toml"
_POLICY = (Option("--signed-by", LIST, "", ""), Option("--digests", LIST, "", ""))
_PROFILE = (
    Option("--inherits", TEXT, "", ""),
    *(Option(f"--{name}", LIST, "", "") for name in ("env", "binds", "libraries", "devices", "interfaces")),
)
_TASKS = ("ntasks", "ntasks-per-node", "per-node", "per-gpu")  # the ways to say how many tasks there are
# A later file's value replaces an earlier one's, and so does a whole profile; of [policy], all files are obeyed.
TABLES = {
    "policy": {option.key: option for option in _POLICY},
    "profile": {option.key: option for option in _PROFILE},
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
    profiles: Mapping[str, Setting] = MappingProxyType({})  # of fabrics, by name: key -> value, and the file


def candidates(environ: Mapping[str, str], folder: str) -> tuple[str, ...]:
    """The files that count if they are there: of this installation, of the host, of the user, of the project.

    The project's is the nearest one in `folder` or above it.
    """
    here = os.path.dirname(os.path.realpath(__file__))
    site = os.path.normpath(os.path.join(here, "../../..", NAME))  # PREFIX/jaxsif/VERSION/lib/jaxsif
    personal = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", "/"), ".config")
    project, above = os.path.join(folder, NAME), folder
    while not os.path.isfile(os.path.join(above, NAME)) and above != os.path.dirname(above):
        above = os.path.dirname(above)
    if os.path.isfile(os.path.join(above, NAME)):
        project = os.path.join(above, NAME)
    return tuple(dict.fromkeys([site, f"/etc/jaxsif/{NAME}", os.path.join(personal, "jaxsif", NAME), project]))


def find_files(environ: Mapping[str, str], folder: str) -> tuple[str, ...]:
    """Those of `candidates` that there are."""
    return tuple(path for path in candidates(environ, folder) if os.path.isfile(path))


def read_config(environ: Mapping[str, str], folder: str) -> Config:
    """All settings for a command in `folder`; raises JaxsifError for what is no setting."""
    settings: dict[str, Setting] = {}
    policies: list[tuple[str, Setting]] = []
    profiles: dict[str, Setting] = {}
    for path in find_files(environ, folder):
        for name, value in _read_file(path).items():
            if name.startswith("policy."):
                policies.append((name, Setting(value, path)))
            elif name.startswith("profile."):
                profiles[name.partition(".")[2]] = Setting(value, path)
            else:
                settings[name] = Setting(value, f"{name} in {path}")
    return Config(settings, tuple(policies), profiles)


def read_profiles(config: Config) -> dict[str, Setting]:
    """The profiles of the files, and those that come with jaxsif."""
    path = os.path.join(os.path.dirname(os.path.realpath(__file__)), "fabrics.toml")
    ours = {name.partition(".")[2]: Setting(value, path) for name, value in _read_file(path).items()}
    return {**ours, **config.profiles}


def resolve(
    said: Mapping[str, Any], environ: Mapping[str, str], config: Config, in_job: bool, fixed: Container[str] = ()
) -> dict[str, Setting]:
    """Each option of `jaxsif run` that something sets, by its key: the command line, else a variable, else a file.

    `said` has what the command line says, by field; None where it says nothing. What asks for a job counts in a job
    only when the command line says it, and so do the options `fixed`, by their keys. Of the ways to say how many
    tasks there are, only those of the strongest source count. Raises JaxsifError for a variable that is not of the
    option's kind.
    """
    found = {}
    for option in OPTIONS:
        value = said.get(option.field)
        passed_over = option.key in fixed or (in_job and option.of_job) or _is_overruled(option, said, environ)
        if value is None and passed_over:
            continue
        setting = Setting(value, option.flag) if value is not None else _find_setting(option, environ, config)
        if setting:
            found[option.key] = setting
    return found


def _is_overruled(option: Option, said: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """Whether something stronger says in another way how many tasks there are, or what GPUs each has."""
    others = _TASKS if option.key in _TASKS else ("per-gpu",) if option.key == "gpus-per-task" else ()
    ways = [other for other in OPTIONS if other.key in others]
    in_variable = any(environ.get(way.variable) for way in ways) and not environ.get(option.variable)
    return in_variable or any(said.get(way.field) for way in ways)


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
    found: dict[str, Any] = {}
    for table, keys in tables.items():
        if table not in TABLES or not isinstance(keys, dict):
            raise JaxsifError(f"no table [{table}] in {path}", path, nearest(table, TABLES))
        if table == "profile":
            found.update((f"profile.{name}", _read_profile(name, its, path)) for name, its in keys.items())
        else:
            found.update((f"{table}.{key}", _check(table, table, key, keys[key], path)) for key in keys)
    return found


def _read_profile(name: str, keys: object, path: str) -> dict[str, Any]:
    """A table of [profile]: key -> value."""
    title = f"profile.{name}"
    if not isinstance(keys, dict):
        raise JaxsifError(f"no setting {title} in {path}", path, f"a table [{title}]")
    if not name.replace("-", "_").isidentifier():
        raise JaxsifError(f"not a name for a profile: {name!r}", path, "letters, digits, - and _")
    return {key: _check("profile", title, key, value, path) for key, value in keys.items()}


def _check(table: str, title: str, key: str, value: object, path: str) -> Any:
    """The value of a key, which must be one of the table's."""
    if key not in TABLES[table]:
        raise JaxsifError(f"no setting {title}.{key} in {path}", path, nearest(key, TABLES[table]))
    option = TABLES[table][key]
    checked = check_value(option, value, f"{title}.{key}", path)
    return os.path.join(os.path.dirname(path), checked) if option.kind == PATH else checked


def _toml() -> Any:
    """Python's own reader from 3.11 on, tomli before; imported here, since most runs have no file to read."""
    try:
        return import_module("tomllib")
    except ImportError:
        return import_module("tomli")


def nearest(name: str, known: Iterable[str]) -> str:
    """What to try in place of a name that is not known."""
    import difflib

    known = tuple(known)
    close = difflib.get_close_matches(name, known, 1)
    return f"{close[0]}?" if close else "one of " + ", ".join(known)
