"""Settings from the files of site, user and project, from variables, and from the command line,
each with its source.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from itertools import repeat
from types import MappingProxyType
from typing import Any, NamedTuple

from jaxsif import installation, trust
from jaxsif.errors import JaxsifError, Notify
from jaxsif.files import user_folder
from jaxsif.job.srun_options import BARE, BY_FLAG, MAYBE, OWN, REFUSED
from jaxsif.settings.options import (
    DEFAULTS,
    DIGESTS,
    LIST,
    OPTIONAL_PATH,
    OPTIONS,
    PATH,
    TEXT,
    Option,
    Rank,
    Setting,
    check_value,
    read_variable,
)
from jaxsif.task import contract
from jaxsif.text import enclose, printable, shorten
from jaxsif.trust import Candidate

NAME = "jaxsif.toml"
_PREFIX = "JAXSIF_"
CONFIG = "JAXSIF_CONFIG"  # names a settings file
# Variables that a user sets and that are not options; modules set the third one, too.
_OF_USERS = (CONFIG, "JAXSIF_RUNTIME", "JAXSIF_IMAGES", contract.INDEPENDENT)
_OF_MODULES = ("JAXSIF_HOME",)
_SIMILAR = 0.75  # from 0 to 1; a name that is at least this similar counts as a typo
_MOST_NAMES = 10  # that a line of an error lists
_PROFILE_LISTS = ("env", "binds", "libraries", "devices", "interfaces")
_PROFILE = "[profile.NAME]"  # the title of such a table
# Table -> key -> the values that it takes. A later file's value or whole profile replaces an
# earlier one's; the [policy] tables of all files apply.
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
    "doctor": {"checks": Option("--checks", PATH, "", "the folder of a site's own checks")},
}


class Files(NamedTuple):
    """The files that may count, in order; a later one takes precedence."""

    # Those of this installation, the host and the user, and the one that JAXSIF_CONFIG names.
    own: tuple[Candidate, ...]
    # In the current folder and above: those that are ignored, then the project's.
    above: tuple[Candidate, ...]


class Config(NamedTuple):
    """The content of the files."""

    settings: Mapping[str, Setting]  # 'run.stage' -> the last file's value
    policies: tuple[tuple[str, Setting], ...]  # ('policy.digests', …) of every file, in order
    # Profiles of fabrics, by name: key -> value, and the file.
    profiles: Mapping[str, Setting] = MappingProxyType({})
    project: str = ""  # the path of the project's file
    notes: tuple[str, ...] = ()  # on files and variables that do not count
    checks: tuple[Setting, ...] = ()  # folders of the site's and the user's own checks

    def of_project(self, settings: Mapping[str, Setting], profiles: Iterable[str]) -> list[str]:
        """Return the names that the project's file sets, among the options in `settings`, the
        policies, and these profiles.
        """
        counted = [(f"run.{key}", setting) for key, setting in settings.items()]
        named = [
            *((name, setting) for name, setting in counted if setting is self.settings.get(name)),
            *self.policies,
            *((f"profile.{name}", self.profiles[name]) for name in profiles),
        ]
        return [name for name, setting in named if setting.rank == Rank.PROJECT]


def staff_files() -> tuple[str, ...]:
    """Return the files that the staff of a site write: this installation's, and the host's."""
    site = installation.SITE_FOLDER
    return (*([os.path.join(site, NAME)] if site else []), f"/etc/jaxsif/{NAME}")


def builtin_profiles() -> str:
    """Return the file of the fabric profiles that come with jaxsif."""
    return os.path.join(installation.PACKAGE, "settings/fabrics.toml")


def find_files(environ: Mapping[str, str], folder: str) -> Files:
    """Return the settings files for a command in `folder`; raise JaxsifError if one is not a file.

    The project's file is the nearest one in `folder` or above it, unless that is already one of the
    other files. A file that JAXSIF_CONFIG names replaces the project's, and counts as the user's
    own.
    """
    users = os.path.join(user_folder(environ, "XDG_CONFIG_HOME"), "jaxsif", NAME)
    own = dict.fromkeys([*staff_files(), users])
    if environ.get(CONFIG):
        return Files((*map(trust.read_own, own), _read_named(environ[CONFIG])), ())
    real = set(map(os.path.realpath, own))
    found = list(trust.find_project(NAME, folder))
    above = [file for file in found if os.path.realpath(file.path) not in real]
    if not found:
        above.append(Candidate(os.path.join(folder, NAME), trust.ABSENT))
    return Files(tuple(map(trust.read_own, own)), tuple(above))


def _read_named(name: str) -> Candidate:
    """Read the file that JAXSIF_CONFIG names. Its path must be absolute: a relative one would name
    a different file in each folder.
    """
    path = os.path.expanduser(name)
    file = trust.read_own(path)
    if os.path.isabs(path) and file.state == trust.READ:
        return file
    what = (
        f"no such file: {path}" if os.path.isabs(path) else f"not an absolute path: {shorten(name)}"
    )
    raise JaxsifError(what, f"{CONFIG} (environment)", f"{CONFIG}=/FOLDER/FILE, or unset {CONFIG}")


def read_config(environ: Mapping[str, str], folder: str) -> Config:
    """Return all settings for a command in `folder`; raise JaxsifError for an unknown setting or
    variable, and for a file that others may have written.
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
    """Return the settings in the files that were read; raise JaxsifError for unknown settings."""
    settings: dict[str, Setting] = {}
    policies: list[tuple[str, Setting]] = []
    profiles: dict[str, Setting] = {}
    checks: list[Setting] = []
    project, notes = "", []
    staff = staff_files()
    own = [(file, Rank.SITE if file.path in staff else Rank.USER) for file in files.own]
    above = zip(files.above, repeat(Rank.PROJECT))
    for (path, state, content, _), rank in (*own, *above):
        if state == trust.IGNORED:
            notes.append(f"ignored: {path}: others may write in {os.path.dirname(path)}")
        elif state == trust.READ and rank == Rank.PROJECT:
            project = path
        tables = parse_settings(content, path)
        for key, value in tables.get("run", {}).items():
            settings[f"run.{key}"] = Setting(value, f"run.{key} in {path}", rank)
        for key, value in tables.get("policy", {}).items():
            policies.append((f"policy.{key}", Setting(value, path, rank)))
        for name, keys in tables.get("profile", {}).items():
            profiles[name] = Setting(keys, path, rank)
        for folder in tables.get("doctor", {}).values():
            if rank == Rank.PROJECT:  # it would run programs outside of the container
                what = f"a project's file cannot set doctor.checks: {path}"
                raise JaxsifError(what, path, "set it in your own file")
            checks.append(Setting(folder, f"doctor.checks in {path}", rank))
    return Config(settings, tuple(policies), profiles, project, tuple(notes), tuple(checks))


def read_profiles(config: Config) -> dict[str, Setting]:
    """Return the profiles in the files and those that come with jaxsif, by name."""
    builtin = parse_files(Files((trust.read_own(builtin_profiles()),), ()))
    return {**builtin.profiles, **config.profiles}


def resolve_image(
    path: str | None,
    environ: Mapping[str, str],
    notify: Notify,
    named_by: str = "--image",
) -> Setting | None:
    """Return the image's path as `jaxsif run` finds it, or None; for commands without the other
    options of `jaxsif run`. `path` is from the command line.
    """
    if path is not None:
        return Setting(os.path.expanduser(path), named_by, Rank.COMMAND_LINE)
    config = read_config(environ, os.getcwd())
    for line in config.notes:
        notify(printable(line))
    return find_setting(TABLES["run"]["image"], environ, config)


def find_setting(option: Option, environ: Mapping[str, str], config: Config) -> Setting | None:
    """Return the value of an option from its variable, or else from the files, or else its default;
    raise JaxsifError if the variable's value is not of the option's kind.
    """
    if environ.get(option.variable):
        value = read_variable(option, environ[option.variable])
        return Setting(value, f"{option.variable} (environment)", Rank.VARIABLE)
    default = DEFAULTS.get(option.key)
    return config.settings.get(
        f"run.{option.key}", None if default is None else Setting(default, "default")
    )


def parse_settings(content: bytes, path: str) -> dict[str, dict[str, Any]]:
    """Return the settings of a file as table -> key -> value; raise JaxsifError for unknown
    settings.
    """
    if not content:
        return {}
    from jaxsif.settings.tomlfile import parse_toml

    found: dict[str, dict[str, Any]] = {}
    for table, keys in parse_toml(content, path).items():
        known = table in TABLES
        if not isinstance(keys, dict):
            hint = f"a table [{table}]" if known else _suggest_table(table, "[run]")
            raise JaxsifError(f"{shorten(table)} is not a table", path, hint)
        if not known:
            raise JaxsifError(f"unknown table [{shorten(table)}]", path, nearest(table, TABLES))
        read = _READERS.get(table, _read_key)
        found[table] = {key: read(table, key, value, path) for key, value in keys.items()}
    return found


_FOR_USERS = ("--", "pass --", "leave out --", "unset ")  # begin remedies


def address_staff(error: JaxsifError) -> None:
    """Tell the user to ask site staff where a mistake in the site's file, which the user may not
    write, is the cause. A setting that only conflicts with the request is no mistake: its remedy is
    an option.
    """
    *others, last = error.where.split("; ")
    key, _, path = last.rpartition(" in ")
    of_nodes = key in ("run.binds", "run.image", "run.log-dir") or key.startswith("profile.")
    is_refused = others[:1] in (["srun"], ["sbatch"], ["mpirun"])
    requesters = others[1:] if is_refused else others
    is_only_here = all(one.endswith(f" in {path}") for one in requesters)
    is_refused = is_refused and is_only_here
    is_mistake = error.exit_code == JaxsifError.exit_code or not key or of_nodes or is_refused
    has_option = key != "run.srun-args" and error.hint.startswith(_FOR_USERS)
    is_conflict = has_option and not (requesters and is_only_here)
    if is_mistake and not is_conflict:
        error.hint = for_staff(error.hint, last)


def is_of_site(source: str) -> bool:
    """Return whether a source, a file or 'KEY in FILE', is a file of site staff."""
    return source.rpartition(" in ")[2] in staff_files()


def for_staff(hint: str, source: str) -> str:
    """Return the remedy for a mistake in `source`, which may be a file or 'KEY in FILE'; if that is
    the site's, and this user may not write it, tell the user to ask site staff.
    """
    if not _needs_staff(source) or "site staff" in hint:
        return hint
    return f"ask site staff to correct it{enclose(' (', hint, ')')}"


def tell_staff(hint: str, source: str) -> str:
    """Return the remedy, an option that avoids a mistake in `source`; if that is for site staff to
    correct, ask the user to tell them, too.
    """
    return f"{hint}; tell site staff" if _needs_staff(source) else hint


def _needs_staff(source: str) -> bool:
    """Return whether a source is a file of site staff that this user may not write."""
    path = source.rpartition(" in ")[2]
    places = (path, os.path.dirname(path))
    return is_of_site(source) and not any(os.access(one, os.W_OK) for one in places)


def _suggest_table(key: str, default: str = "") -> str:
    """Suggest the table that has a key, else `default`; or return ''."""
    table = next((name for name in ("run", *TABLES) if key in TABLES[name]), "")
    title = _PROFILE if table == "profile" else enclose("[", table, "]")
    return enclose("put the line under ", title or default)


def _read_profile(table: str, name: str, keys: object, path: str) -> dict[str, Any]:
    """Return the settings in a profile's table as key -> value."""
    title = f"{table}.{shorten(name)}"
    if not isinstance(keys, dict):
        hint = f"put the line under {_PROFILE}" if name in TABLES[table] else f"a table [{title}]"
        raise JaxsifError(f"unknown setting {title}", path, hint)
    is_taken = name == "none" and path != builtin_profiles()
    if is_taken or not name.replace("-", "_").isidentifier():
        no_profile = "choose another name: --fabric none uses no profile"
        hint = no_profile if is_taken else "letters, digits, - and _"
        raise JaxsifError(f"not a valid profile name: {shorten(name)!r}", path, hint)
    return {key: _read_key(title, key, value, path) for key, value in keys.items()}


def _suggest_srun(key: str, value: object) -> str:
    """Return the line for a key that is an option of srun, or ''."""
    if key == "profile":  # srun has an option of this name
        return 'fabric = "NAME", for the table [profile.NAME]'
    option = BY_FLAG.get(f"--{key}")
    if option is None or option.handled in (OWN, REFUSED):
        return ""
    if value is False:
        return "leave it out"
    is_bare = option.value == BARE or (option.value == MAYBE and value is True)
    return f'srun-args = ["{option.flag}{"" if is_bare else "=VALUE"}"]'


def _read_key(title: str, key: str, value: object, path: str) -> Any:
    """Return the value of a key; raise JaxsifError if the table with this title has no such key."""
    options = TABLES[title.partition(".")[0]]
    if key not in options:
        hint = _suggest_table(key) or (_suggest_srun(key, value) if title == "run" else "")
        if title == "run" and key in _ONLY_OPTIONS:
            hint = f"leave it out: --{key} is only for the command line"
        what = f"unknown setting {title}.{shorten(key)}"
        raise JaxsifError(what, path, hint or nearest(key, options))
    checked = check_value(options[key], value, f"{title}.{key}", path)
    if checked and options[key].kind in (PATH, OPTIONAL_PATH):
        return resolve(_expand(checked, f"{title}.{key}", path), path)
    if key == "stage-folder":
        return _expand(checked, f"{title}.{key}", path)
    if key == "binds":
        binds = (_expand(bind, f"{title}.{key}", path) for bind in checked)
        return [_resolve_binds(bind, path) for bind in binds]
    return checked


def _expand(text: str, name: str, path: str) -> str:
    """Return a path with the user's home in place of ~; raise JaxsifError for a variable in it."""
    if "$" in text:
        hint = "write the path without $, which jaxsif does not expand; ~/ is each user's home"
        raise JaxsifError(f"{name} has a variable: {shorten(text)}", path, hint)
    return os.path.expanduser(text)


def resolve(path: str, file: str) -> str:
    """Return the absolute path that `path` in a settings file stands for: relative to the file's
    folder, or below the user's home after ~/.
    """
    return os.path.join(os.path.dirname(file), os.path.expanduser(path))


def _resolve_binds(text: str, file: str) -> str:
    """Return binds, separated by commas, with absolute paths; those without a path, which are
    refused later, and further options of a bind stay as they are.
    """
    if "\\" in text:  # which makes a comma or colon a part of a path
        return text
    parts = (part.strip() for part in text.split(","))
    no_path = f"|:.*|{BIND_OPTION}"
    return ",".join(one if re.fullmatch(no_path, one) else resolve(one, file) for one in parts)


# For tables whose keys hold tables, not values.
_READERS = {"profile": _read_profile}


_LISTER = "jaxsif run --help, most of whose options are keys"


# What follows a comma in a bind, and is another option of it, not another bind.
BIND_OPTION = "ro|rw|(image-src|id)=.*"  # a pattern
_OTHER_NAMES = {"log-folder": "log-dir", "time-limit": "time"}
_ONLY_OPTIONS = ("check", "dry-run", "explain", "verbose")


def nearest(name: str, known: Iterable[str], lister: str = _LISTER) -> str:
    """Suggest a name for an unknown one; if there are many, only the command that lists them."""
    import difflib

    known = tuple(known)
    name = _OTHER_NAMES.get(name, name)
    close = difflib.get_close_matches(name, known, 1)
    if close:
        return f"{close[0]}?"
    if len(known) > _MOST_NAMES:
        return lister
    return "one of " + ", ".join(known)


def check_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return a warning for each variable JAXSIF_… that nothing reads; raise JaxsifError for one
    that resembles the name of a setting.

    Inside a task, return no warnings: the run that started the task has checked the variables, and
    may have set some that only another version knows.
    """
    names = [name for name, value in environ.items() if name.startswith(_PREFIX) and value]
    if not names or contract.STEP in environ:
        return ()
    known = {option.variable for option in OPTIONS}.union(_OF_USERS, _OF_MODULES)
    known.update(value for value in vars(contract).values() if isinstance(value, str))
    unknown = sorted(set(names) - known)
    for name in unknown:
        near = _find_near(name)
        if near:
            what = f"no setting uses the variable {name}"
            raise JaxsifError(what, f"{name} (environment)", f"{near}?")
    return tuple(f"warning: no setting uses the variable {name}" for name in unknown)


def _find_near(name: str) -> str:
    """Return the variable that was probably meant: that of the option with this name, or the
    nearest one.
    """
    from difflib import get_close_matches  # here: 5 ms, and few runs have such a name

    by_flag = {_PREFIX + one.flag[2:].replace("-", "_").upper(): one.variable for one in OPTIONS}
    if name in by_flag:
        return by_flag[name]
    endings = {one.removeprefix(_PREFIX): one for one in (*by_flag.values(), *_OF_USERS)}
    found = get_close_matches(name.removeprefix(_PREFIX), endings, 1, _SIMILAR)
    return endings[found[0]] if found else ""
