"""What is set where: files of site, user and project, variables, the command line; each value with
its source.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from jaxsif import installation, trust
from jaxsif.errors import JaxsifError, Show, printable
from jaxsif.files import user_folder
from jaxsif.limits import shorten
from jaxsif.settings.options import (
    DEFAULTS,
    DIGESTS,
    LIST,
    OPTIONS,
    PATH,
    TEXT,
    Option,
    check_value,
    read_variable,
)
from jaxsif.settings.variables import check_variables
from jaxsif.trust import Candidate

NAME = "jaxsif.toml"
_PROFILE_LISTS = ("env", "binds", "libraries", "devices", "interfaces")
# Table -> key -> what it takes. A later file's value replaces an earlier one's, and so does a whole
# profile; of [policy], all files are obeyed.
TABLES: dict[str, dict[str, Option]] = {
    "policy": {
        "signed-by": Option("--signed-by", LIST, "", ""),
        "digests": Option("--digests", DIGESTS, "", ""),
    },
    "profile": {
        "inherits": Option("--inherits", TEXT, "", ""),
        **{key: Option(f"--{key}", LIST, "", "") for key in _PROFILE_LISTS},
    },
    "run": {option.key: option for option in OPTIONS},
}
# The ways to say how many tasks there are.
_TASKS = ("ntasks", "ntasks-per-node", "per-node", "per-gpu")
# The ways to say how many GPUs there are.
_GPUS = ("gpus", "gpus-per-node")
# An option -> those that settle the same: of a stronger source, one of them overrules it.
RIVALS = {
    **dict.fromkeys(_TASKS, _TASKS),
    "gpus-per-task": ("per-gpu",),
    **dict.fromkeys(_GPUS, _GPUS),
}


class Setting(NamedTuple):
    """A value, and what set it."""

    value: Any
    source: str


NOTHING = Setting(None, "")  # where nothing sets it
_DEFAULTS = {key: Setting(value, "default") for key, value in DEFAULTS.items()}


class Files(NamedTuple):
    """The files that may count, in order; a later one has more weight."""

    own: tuple[Candidate, ...]  # of this installation, of the host, of the user
    # In the current folder and above: those that are ignored, then the project's.
    above: tuple[Candidate, ...]


class Config(NamedTuple):
    """What the files say."""

    settings: Mapping[str, Setting]  # 'run.stage' -> the last file's
    policies: tuple[tuple[str, Setting], ...]  # ('policy.digests', …) of every file, in order
    # Of fabrics, by name: key -> value, and the file.
    profiles: Mapping[str, Setting] = MappingProxyType({})
    project: str = ""  # the path of the project's file
    notes: tuple[str, ...] = ()  # on files and variables that do not count

    def of_project(self, settings: Mapping[str, Setting], profiles: Iterable[str]) -> list[str]:
        """Return what the project's file sets, of the options in `settings`, the policies, and
        these profiles.
        """
        sources = [
            *((f"run.{key}", setting.source) for key, setting in settings.items()),
            *((key, policy.source) for key, policy in self.policies),
            *((f"profile.{name}", self.profiles[name].source) for name in profiles),
        ]
        project = self.project
        return [name for name, source in sources if source in (project, f"{name} in {project}")]


def staff_files() -> tuple[str, str]:
    """Return the files that the staff of a site write: of this installation, and of the host."""
    return os.path.join(installation.SITE_FOLDER, NAME), f"/etc/jaxsif/{NAME}"


def builtin_profiles() -> str:
    """Return the file of the fabric profiles that come with jaxsif."""
    return os.path.join(installation.PACKAGE, "settings/fabrics.toml")


def personal_folder(environ: Mapping[str, str]) -> str:
    """Return the folder of the user's own settings."""
    return os.path.join(user_folder(environ, "XDG_CONFIG_HOME"), "jaxsif")


def allowed_list(environ: Mapping[str, str]) -> str:
    """Return the file that has the projects' files that the user allows."""
    return os.path.join(personal_folder(environ), "allowed.json")


def find_files(environ: Mapping[str, str], folder: str) -> Files:
    """Return the files of settings for a command in `folder`; raise JaxsifError for one that is no
    file.

    The project's is the nearest one in `folder` or above it, unless that is one of the others.
    """
    own = dict.fromkeys([*staff_files(), os.path.join(personal_folder(environ), NAME)])
    real = [os.path.realpath(path) for path in own]
    found = list(trust.find_project(NAME, folder, allowed_list(environ)))
    above = [file for file in found if os.path.realpath(file.path) not in real]
    if not found:
        above.append(Candidate(os.path.join(folder, NAME), trust.ABSENT))
    return Files(tuple(map(trust.read_own, own)), tuple(above))


def read_config(environ: Mapping[str, str], folder: str) -> Config:
    """Return all settings for a command in `folder`; raise JaxsifError for what is no setting, also
    among the variables, and for a file that others may have written.
    """
    notes = check_variables(environ)
    files = find_files(environ, folder)
    for file in files.above:
        if file.state == trust.REFUSED:
            assert file.error is not None
            raise file.error
    config = parse_files(files)
    return config._replace(notes=(*notes, *config.notes))


def parse_files(files: Files) -> Config:
    """Return what the files that were read say; raise JaxsifError for what is no setting."""
    settings: dict[str, Setting] = {}
    policies: list[tuple[str, Setting]] = []
    profiles: dict[str, Setting] = {}
    for path, _, content, _ in (*files.own, *files.above):
        tables = parse_settings(content, path)
        for key, value in tables.get("run", {}).items():
            settings[f"run.{key}"] = Setting(value, f"run.{key} in {path}")
        for key, value in tables.get("policy", {}).items():
            policies.append((f"policy.{key}", Setting(value, path)))
        for name, keys in tables.get("profile", {}).items():
            profiles[name] = Setting(keys, path)
    project = "".join(file.path for file in files.above if file.state == trust.READ)
    notes = (
        f"ignored: {file.path}: others may write in {os.path.dirname(file.path)}"
        for file in files.above
        if file.state == trust.IGNORED
    )
    return Config(settings, tuple(policies), profiles, project, tuple(notes))


def read_profiles(config: Config) -> dict[str, Setting]:
    """Return the profiles of the files, and those that come with jaxsif, by name."""
    path = builtin_profiles()
    builtin = parse_files(Files((trust.read_own(path),), ()))
    return {**builtin.profiles, **config.profiles}


def resolve(
    said: Mapping[str, Any],
    environ: Mapping[str, str],
    config: Config,
    in_job: bool,
    fixed: Container[str] = (),
) -> dict[str, Setting]:
    """Return each option of `jaxsif run` that something sets, by its key: as the command line says,
    else a variable, else a file.

    `said` has what the command line says, by field; None where it says nothing. What asks for a job
    counts in a job only when the command line says it, and so do the options `fixed`, by their
    keys. Of the ways to say how many tasks there are, only those of the strongest source count.
    Raise JaxsifError for a variable that is not of the option's kind.
    """
    found: dict[str, Setting | None] = {}
    for option in OPTIONS:
        only_said = option.key in fixed or (in_job and option.of_job)
        if said.get(option.field) is not None:
            found[option.key] = Setting(said[option.field], option.flag)
        elif not (only_said or _is_overruled(option, said, environ)):
            found[option.key] = _find_setting(option, environ, config)
    return {key: setting for key, setting in found.items() if setting}


def _is_overruled(option: Option, said: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """Return whether something stronger than a file, or than a variable, sets a rival of an option
    that the command line does not set.
    """
    own = _strength(option, said, environ)
    rivals = [TABLES["run"][key] for key in RIVALS.get(option.key, ())]
    return any(_strength(rival, said, environ) > own for rival in rivals)


def _strength(
    option: Option, said: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[bool, bool]:
    """Return whether the command line asks for an option, and whether its variable does: more is
    stronger, and (False, False) is left to the files.
    """
    return bool(said.get(option.field)), bool(environ.get(option.variable))


def resolve_image(
    said: str | None,
    environ: Mapping[str, str],
    show: Show,
    named_by: str = "--image",
) -> Setting | None:
    """Return the image's path as for `jaxsif run`, for the commands that have no other of its
    options; None where nothing names it.
    """
    if said is not None:
        return Setting(os.path.expanduser(said), named_by)
    config = read_config(environ, os.getcwd())
    for line in config.notes:
        show(printable(line))
    return _find_setting(TABLES["run"]["image"], environ, config)


def _find_setting(option: Option, environ: Mapping[str, str], config: Config) -> Setting | None:
    if environ.get(option.variable):
        value = read_variable(option, environ[option.variable])
        return Setting(value, f"{option.variable} (environment)")
    return config.settings.get(f"run.{option.key}", _DEFAULTS.get(option.key))


def parse_settings(content: bytes, path: str) -> dict[str, dict[str, Any]]:
    """Return table -> key -> value of a file; raise JaxsifError for what is no setting."""
    if not content:
        return {}
    from jaxsif.settings.tomlfile import parse_toml

    found: dict[str, dict[str, Any]] = {}
    for table, keys in parse_toml(content, path).items():
        if table not in TABLES or not isinstance(keys, dict):
            raise JaxsifError(
                f"no table [{shorten(table)}] in {path}", path, nearest(table, TABLES)
            )
        read = _READERS.get(table, _read_key)
        found[table] = {key: read(table, key, value, path) for key, value in keys.items()}
    return found


def _read_profile(table: str, name: str, keys: object, path: str) -> dict[str, Any]:
    """Return key -> value of a profile's table."""
    title = f"{table}.{shorten(name)}"
    if not isinstance(keys, dict):
        raise JaxsifError(f"no setting {title} in {path}", path, f"a table [{title}]")
    if not name.replace("-", "_").isidentifier():
        raise JaxsifError(
            f"not a name for a profile: {shorten(name)!r}", path, "letters, digits, - and _"
        )
    return {key: _read_key(title, key, value, path) for key, value in keys.items()}


def _read_key(title: str, key: str, value: object, path: str) -> Any:
    """Return the value of a key, which must be one of those of the table with this title."""
    options = TABLES[title.partition(".")[0]]
    if key not in options:
        raise JaxsifError(
            f"no setting {title}.{shorten(key)} in {path}", path, nearest(key, options)
        )
    checked = check_value(options[key], value, f"{title}.{key}", path)
    if options[key].kind != PATH:
        return checked
    return os.path.join(os.path.dirname(path), os.path.expanduser(checked))


# Of the tables whose keys are not values.
_READERS = {"profile": _read_profile}


def nearest(name: str, known: Iterable[str]) -> str:
    """Return what to try in place of a name that is not known."""
    import difflib

    known = tuple(known)
    close = difflib.get_close_matches(name, known, 1)
    return f"{close[0]}?" if close else "one of " + ", ".join(known)
