"""jaxsif config: each setting, its value, and what set it."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jaxsif import trust
from jaxsif.commands.run import note
from jaxsif.errors import JaxsifError
from jaxsif.job.allocation import Allocation
from jaxsif.screen import add_json, print_json, print_table
from jaxsif.settings.config import (
    NAME,
    NOTHING,
    TABLES,
    Config,
    Setting,
    allowed_list,
    find_files,
    nearest,
    parse_files,
    parse_settings,
    read_profiles,
    resolve,
)
from jaxsif.settings.fabric import resolve_fabric
from jaxsif.settings.options import OPTIONS
from jaxsif.settings.schema import build_schema
from jaxsif.settings.variables import check_variables

DESCRIPTION = """\
Show the settings of `jaxsif run` in this folder: key, value and source.

Values are written as in a jaxsif.toml. Standard error names the files that
jaxsif read, and those that it did not. jaxsif reads a project's file that
others may have written only after you allow it.

examples:
  jaxsif config                   all settings
  jaxsif config run.stage         one setting, or a table: run, policy, profile
  jaxsif config profile.ib        a fabric profile, with all that it inherits
  jaxsif config --schema          the JSON Schema of a jaxsif.toml, for editors
  jaxsif config --allow FILE      show what a project's file sets, and allow it
"""


class Row(NamedTuple):
    """A line of the table."""

    key: str
    value: Any  # None where nothing sets it
    source: str


def add_options(parser: argparse.ArgumentParser) -> None:
    """Give a parser the options of `jaxsif config`."""
    parser.add_argument("key", nargs="?", metavar="KEY", help="only this setting, or this table")
    add_json(parser)
    parser.add_argument(
        "--schema", action="store_true", help="print the JSON Schema of a jaxsif.toml, for editors"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--allow",
        metavar="FILE",
        help="show what a jaxsif.toml sets, and allow it until it changes",
    )
    which.add_argument("--disallow", metavar="FILE", help="no longer allow FILE")


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the table, or change what is allowed."""
    if arguments.schema:
        print_json(build_schema())
        return 0
    change = arguments.allow or arguments.disallow
    if not change:
        _show(arguments.key, arguments.json, environ)
        return 0
    if arguments.key or arguments.json:
        raise JaxsifError(
            "--allow and --disallow take neither KEY nor --json", "jaxsif config", "leave them out"
        )
    apply = _allow if arguments.allow else _disallow
    apply(_find_path(change), environ)
    return 0


def _show(key: str | None, as_json: bool, environ: Mapping[str, str]) -> None:
    """Print the rows of a key or a table, all without one, and the files that were looked at."""
    for line in check_variables(environ):
        note(line)
    files = find_files(environ, os.getcwd())
    config = parse_files(files)
    rows = _choose(key, list(_rows(config, environ)), config)
    seen = [*files.own, *files.above]
    allowed = trust.read_allowed(allowed_list(environ))
    if as_json:
        settings = [row._asdict() for row in rows]
        read = [{"path": f.path, "read": f.state == trust.READ, "state": f.state} for f in seen]
        print_json({"settings": settings, "files": read, "allowed": allowed})
        return
    print_table(list(map(render, rows)), environ)
    if key:  # of one setting, only what is wrong
        seen, allowed = [file for file in seen if file.error], {}
    for file in seen:
        note(_describe(file))
    for path, digest in allowed.items():
        note(f"allowed: {path} {digest}")


def _describe(file: trust.Candidate) -> str:
    """Return what became of a file, and why."""
    if file.error:
        return f"{file.state}: {file.error.what} ({file.error.where}); {file.error.hint}"
    return f"read {file.path}" if file.state == trust.READ else f"{file.state}: {file.path}"


def _allow(path: str, environ: Mapping[str, str]) -> None:
    found = trust.read_own(path)
    if found.state == trust.ABSENT:
        raise JaxsifError(f"no such file: {path}", "--allow", "correct the path")
    # First, for what cannot be read is not allowed; and these very settings, should the file change
    # meanwhile.
    settings = parse_settings(found.content, path)
    trust.allow(path, found.content, allowed_list(environ))
    rows = [
        Row(f"{table}.{key}", value, "")
        for table, keys in settings.items()
        for key, value in keys.items()
    ]
    print_table(list(map(render, rows)), environ)
    note(
        f"{path} counts now, until it changes;"
        f" to no longer allow it: jaxsif config --disallow {path}"
    )


def _disallow(path: str, environ: Mapping[str, str]) -> None:
    trust.disallow(path, allowed_list(environ))
    note(f"{path} is no longer allowed")


def _find_path(file: str) -> str:
    """Return the path by which runs find a file; a folder stands for the file in it."""
    path = os.path.abspath(os.path.join(file, NAME) if os.path.isdir(file) else file)
    if os.path.basename(path) != NAME:
        raise JaxsifError(
            f"not a {NAME}: {file}", "--allow or --disallow", f"name a file {NAME}, or its folder"
        )
    return os.path.join(os.path.realpath(os.path.dirname(path)), NAME)


def _rows(config: Config, environ: Mapping[str, str]) -> Iterator[Row]:
    """Return all settings, in the order of --help."""
    found = resolve({}, environ, config, in_job=Allocation.from_environ(environ) is not None)
    for option in OPTIONS:
        yield Row(f"run.{option.key}", *found.get(option.key, NOTHING))
    for key in TABLES["policy"]:
        name = f"policy.{key}"
        of_files = [
            Row(name, policy.value, f"{name} in {policy.source}")
            for of_key, policy in config.policies
            if of_key == name
        ]
        yield from of_files or [Row(name, None, "")]
    for name, profile in read_profiles(config).items():
        yield Row(f"profile.{name}", *profile)


def _choose(key: str | None, rows: list[Row], config: Config) -> list[Row]:
    """Return the rows of a key, a table or a profile; raise JaxsifError where there are none."""
    if key is None:
        return rows
    if key.startswith("profile."):
        return _profile_rows(key, config)
    wanted = (f"{key}.", f"run.{key}.")
    chosen = [row for row in rows if f"{row.key}.".startswith(wanted)]
    if not chosen:
        raise JaxsifError(
            f"no setting {key}", "jaxsif config", nearest(key, [row.key for row in rows])
        )
    return chosen


def _profile_rows(key: str, config: Config) -> list[Row]:
    fabric = resolve_fabric(Setting(key.partition(".")[2], "jaxsif config"), read_profiles(config))
    settings = [*(("env", setting) for setting in fabric.env.values()), *fabric.lists.items()]
    return [Row(f"{key}.{name}", *setting) for name, setting in settings]


def render(row: Row) -> tuple[str, str, str]:
    """Return the cells of a row."""
    return row.key, _text(row.value), row.source


def _text(value: Any) -> str:
    """Return a value as in TOML, whose strings, numbers, switches and lists are JSON's; of a
    profile, which keys it has.
    """
    if value is None:
        return "not set"
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return ", ".join(f"inherits {value[key]}" if key == "inherits" else key for key in value)
