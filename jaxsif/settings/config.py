"""What is set where: files of site, user and project, variables, the command line; each value with
its source.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from jaxsif import installation, trust
from jaxsif.errors import JaxsifError, printable
from jaxsif.limits import shorten
from jaxsif.settings.options import LIST, OPTIONS, PATH, TEXT, Option, check_value, read_variable
from jaxsif.trust import Candidate

NAME = "jaxsif.toml"
_POLICY = (Option("--signed-by", LIST, "", ""), Option("--digests", LIST, "", ""))
_PROFILE = (
    Option("--inherits", TEXT, "", ""),
    *(
        Option(f"--{name}", LIST, "", "")
        for name in ("env", "binds", "libraries", "devices", "interfaces")
    ),
)
# The ways to say how many tasks there are.
_TASKS = ("ntasks", "ntasks-per-node", "per-node", "per-gpu")
# A later file's value replaces an earlier one's, and so does a whole profile; of [policy], all
# files are obeyed.
TABLES = {
    "policy": {option.key: option for option in _POLICY},
    "profile": {option.key: option for option in _PROFILE},
    "run": {option.key: option for option in OPTIONS},
}


class Setting(NamedTuple):
    """A value, and what says so."""

    value: Any
    source: str


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
    notes: tuple[str, ...] = ()  # on files that do not count

    def of_project(self, settings: Mapping[str, Setting], profiles: Iterable[str]) -> list[str]:
        """What the project's file sets, of the options in `settings`, the policies, and these
        profiles.
        """
        of_runs = {f"run.{key}": setting.source for key, setting in settings.items()}
        return [
            *(name for name, source in of_runs.items() if source == f"{name} in {self.project}"),
            *(name for name, policy in self.policies if policy.source == self.project),
            *(f"profile.{name}" for name in profiles if self.profiles[name].source == self.project),
        ]


def staff_files() -> tuple[str, str]:
    """The files that the staff of a site write: of this installation, and of the host."""
    return os.path.join(installation.SITE_FOLDER, NAME), f"/etc/jaxsif/{NAME}"


def builtin_profiles() -> str:
    """The file of the fabric profiles that come with jaxsif."""
    return os.path.join(installation.PACKAGE, "settings/fabrics.toml")


def personal_folder(environ: Mapping[str, str]) -> str:
    """The folder of the user's own settings."""
    above = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", "/"), ".config")
    return os.path.join(above, "jaxsif")


def allowed_list(environ: Mapping[str, str]) -> str:
    """The file that has the projects' files that the user allows."""
    return os.path.join(personal_folder(environ), "allowed.json")


def find_files(environ: Mapping[str, str], folder: str) -> Files:
    """The files of settings for a command in `folder`; raises JaxsifError for one that is no file.

    The project's is the nearest one in `folder` or above it, unless that is one of the others.
    """
    own = dict.fromkeys([*staff_files(), os.path.join(personal_folder(environ), NAME)])
    found = list(trust.find_project(NAME, folder, allowed_list(environ)))
    above = [one for one in found if os.path.realpath(one.path) not in map(os.path.realpath, own)]
    if not found:
        above.append(Candidate(os.path.join(folder, NAME), trust.ABSENT))
    return Files(tuple(trust.read_own(path) for path in own), tuple(above))


def read_config(environ: Mapping[str, str], folder: str) -> Config:
    """All settings for a command in `folder`; raises JaxsifError for what is no setting, and for a
    file of others.
    """
    files = find_files(environ, folder)
    for file in files.above:
        if file.state == trust.REFUSED and file.error:
            raise file.error
    return parse_files(files)


def parse_files(files: Files) -> Config:
    """What the files that were read say; raises JaxsifError for what is no setting."""
    settings: dict[str, Setting] = {}
    policies: list[tuple[str, Setting]] = []
    profiles: dict[str, Setting] = {}
    for path, _, content, _ in (*files.own, *files.above):
        for name, value in parse_settings(content, path).items():
            if name.startswith("policy."):
                policies.append((name, Setting(value, path)))
            elif name.startswith("profile."):
                profiles[name.partition(".")[2]] = Setting(value, path)
            else:
                settings[name] = Setting(value, f"{name} in {path}")
    project = "".join(file.path for file in files.above if file.state == trust.READ)
    notes = (
        f"ignored: {file.path}: others may write in {os.path.dirname(file.path)}"
        for file in files.above
        if file.state == trust.IGNORED
    )
    return Config(settings, tuple(policies), profiles, project, tuple(notes))


def read_profiles(config: Config) -> dict[str, Setting]:
    """The profiles of the files, and those that come with jaxsif."""
    path = builtin_profiles()
    ours = {
        name.partition(".")[2]: Setting(value, path)
        for name, value in parse_settings(trust.read_own(path).content, path).items()
    }
    return {**ours, **config.profiles}


def resolve(
    said: Mapping[str, Any],
    environ: Mapping[str, str],
    config: Config,
    in_job: bool,
    fixed: Container[str] = (),
) -> dict[str, Setting]:
    """Each option of `jaxsif run` that something sets, by its key: the command line, else a
    variable, else a file.

    `said` has what the command line says, by field; None where it says nothing. What asks for a job
    counts in a job only when the command line says it, and so do the options `fixed`, by their
    keys. Of the ways to say how many tasks there are, only those of the strongest source count.
    Raises JaxsifError for a variable that is not of the option's kind.
    """
    found = {}
    for option in OPTIONS:
        value = said.get(option.field)
        passed_over = (
            option.key in fixed
            or (in_job and option.of_job)
            or _is_overruled(option, said, environ)
        )
        if value is None and passed_over:
            continue
        setting = (
            Setting(value, option.flag)
            if value is not None
            else _find_setting(option, environ, config)
        )
        if setting:
            found[option.key] = setting
    return found


def _is_overruled(option: Option, said: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """Whether something stronger says in another way how many tasks there are, or what GPUs each
    has.
    """
    others = (
        _TASKS if option.key in _TASKS else ("per-gpu",) if option.key == "gpus-per-task" else ()
    )
    ways = [other for other in OPTIONS if other.key in others]
    in_variable = any(environ.get(way.variable) for way in ways) and not environ.get(
        option.variable
    )
    return in_variable or any(said.get(way.field) for way in ways)


def resolve_image(
    said: str | None,
    environ: Mapping[str, str],
    show: Callable[[str], None],
    named_by: str = "--image",
) -> Setting | None:
    """The image's path as for `jaxsif run`, for the commands that have no other of its options."""
    if said is not None:
        return Setting(said, named_by)
    image = next(option for option in OPTIONS if option.key == "image")
    config = read_config(environ, os.getcwd())
    for line in config.notes:
        show(printable(line))
    return _find_setting(image, environ, config)


def _find_setting(option: Option, environ: Mapping[str, str], config: Config) -> Setting | None:
    if environ.get(option.variable):
        return Setting(
            read_variable(option, environ[option.variable]), f"{option.variable} (environment)"
        )
    default = None if option.default is None else Setting(option.default, "default")
    return config.settings.get(f"run.{option.key}", default)


def parse_settings(content: bytes, path: str) -> dict[str, Any]:
    """'table.key' -> value, of a file; raises JaxsifError for what is no setting."""
    if not content:
        return {}
    from jaxsif.settings.tomlfile import parse_toml

    found: dict[str, Any] = {}
    for table, keys in parse_toml(content, path).items():
        if table not in TABLES or not isinstance(keys, dict):
            raise JaxsifError(
                f"no table [{shorten(table)}] in {path}", path, nearest(table, TABLES)
            )
        if table == "profile":
            found.update(
                (f"profile.{name}", _read_profile(name, its, path)) for name, its in keys.items()
            )
        else:
            found.update(
                (f"{table}.{key}", _check(table, table, key, keys[key], path)) for key in keys
            )
    return found


def _read_profile(name: str, keys: object, path: str) -> dict[str, Any]:
    """A table of [profile]: key -> value."""
    title = f"profile.{shorten(name)}"
    if not isinstance(keys, dict):
        raise JaxsifError(f"no setting {title} in {path}", path, f"a table [{title}]")
    if not name.replace("-", "_").isidentifier():
        raise JaxsifError(
            f"not a name for a profile: {shorten(name)!r}", path, "letters, digits, - and _"
        )
    return {key: _check("profile", title, key, value, path) for key, value in keys.items()}


def _check(table: str, title: str, key: str, value: object, path: str) -> Any:
    """The value of a key, which must be one of the table's."""
    if key not in TABLES[table]:
        raise JaxsifError(
            f"no setting {title}.{shorten(key)} in {path}", path, nearest(key, TABLES[table])
        )
    option = TABLES[table][key]
    checked = check_value(option, value, f"{title}.{key}", path)
    return os.path.join(os.path.dirname(path), checked) if option.kind == PATH else checked


def nearest(name: str, known: Iterable[str]) -> str:
    """What to try in place of a name that is not known."""
    import difflib

    known = tuple(known)
    close = difflib.get_close_matches(name, known, 1)
    return f"{close[0]}?" if close else "one of " + ", ".join(known)
