"""jaxsif config: each setting, its value, and what set it."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jaxsif import trust
from jaxsif.commands.run import note
from jaxsif.errors import JaxsifError, printable
from jaxsif.job.allocation import Allocation
from jaxsif.settings.config import (
    NAME,
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

DESCRIPTION = """\
Show what `jaxsif run` would take here from variables and files: key, value, and what set it.

Values are written as in a jaxsif.toml. Standard error names the files that were read, and those that would be. A
project's file that others may have written counts only once you allow what is in it.

examples:
  jaxsif config                   all settings
  jaxsif config run.stage         one of them, or a table: run, policy, profile
  jaxsif config profile.ib        a profile of a fabric, with what it inherits
  jaxsif config --allow FILE      show what a project's file sets, and have it count from now on
"""


class Row(NamedTuple):
    """A line of the table."""

    key: str
    value: Any  # None where nothing sets it
    source: str


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `jaxsif config`."""
    parser.add_argument(
        "key", nargs="?", metavar="KEY", help="this one only, or those of this table"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--allow",
        metavar="FILE",
        help="show what a jaxsif.toml sets, and have it count as it is now",
    )
    which.add_argument("--disallow", metavar="FILE", help="no longer allow FILE")


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the table, or change what is allowed."""
    if arguments.allow or arguments.disallow:
        if arguments.key or arguments.json:
            raise JaxsifError(
                "--allow and --disallow take neither KEY nor --json",
                "jaxsif config",
                "leave them out",
            )
        (_allow if arguments.allow else _disallow)(arguments.allow or arguments.disallow, environ)
        return 0
    folder = os.getcwd()
    files = find_files(environ, folder)
    config = parse_files(files)
    rows = _choose(arguments.key, list(_rows(config, environ)), config)
    allowed = trust.read_allowed(allowed_list(environ))
    if arguments.json:
        told = [
            {"path": path, "read": state == trust.READ, "state": state}
            for path, state, *_ in sum(files, ())
        ]
        print(
            json.dumps(
                {"settings": [row._asdict() for row in rows], "files": told, "allowed": allowed},
                indent=1,
            )
        )
        return 0
    for line in render(rows):
        print(printable(line))
    for file in sum(files, ()):
        if file.error or not arguments.key:
            note(printable(_describe(file)))
    for path, digest in allowed.items() if not arguments.key else ():
        note(printable(f"allowed: {path} {digest}"))
    return 0


def _describe(file: trust.Candidate) -> str:
    """What became of a file, and why."""
    if file.error:
        return f"{file.state}: {file.error.what} ({file.error.where}); {file.error.hint}"
    return f"read {file.path}" if file.state == trust.READ else f"{file.state}: {file.path}"


def _allow(file: str, environ: Mapping[str, str]) -> None:
    path = _find_path(file)
    found = trust.read_own(path)
    if found.state == trust.ABSENT:
        raise JaxsifError(f"no such file: {path}", "--allow", "correct the path")
    # First, for what cannot be read is not allowed; and these very settings, should the file change
    # meanwhile.
    settings = parse_settings(found.content, path)
    trust.allow(path, found.content, allowed_list(environ))
    for line in render([Row(key, value, "") for key, value in settings.items()]):
        print(printable(line))
    note(
        printable(
            f"{path} counts now, until it changes; to no longer allow it: jaxsif config --disallow {path}"
        )
    )


def _disallow(file: str, environ: Mapping[str, str]) -> None:
    path = _find_path(file)
    trust.disallow(path, allowed_list(environ))
    note(printable(f"{path} is no longer allowed"))


def _find_path(file: str) -> str:
    """The path by which runs find a file; a folder stands for the file in it."""
    path = os.path.abspath(os.path.join(file, NAME) if os.path.isdir(file) else file)
    if os.path.basename(path) != NAME:
        raise JaxsifError(
            f"not a {NAME}: {file}", "--allow or --disallow", f"name a file {NAME}, or its folder"
        )
    return os.path.join(os.path.realpath(os.path.dirname(path)), NAME)


def _rows(config: Config, environ: Mapping[str, str]) -> Iterator[Row]:
    """All settings, in the order of --help."""
    found = resolve({}, environ, config, in_job=Allocation.from_environ(environ) is not None)
    for option in OPTIONS:
        setting = found.get(option.key, Setting(None, ""))
        yield Row(f"run.{option.key}", *setting)
    for key in (f"policy.{key}" for key in TABLES["policy"]):
        of_files = [
            Row(key, policy.value, f"{key} in {policy.source}")
            for name, policy in config.policies
            if name == key
        ]
        yield from of_files or [Row(key, None, "")]
    for name, profile in read_profiles(config).items():
        yield Row(f"profile.{name}", profile.value, profile.source)


def _choose(key: str | None, rows: list[Row], config: Config) -> list[Row]:
    """The rows of a key or a table, or of a profile; raises JaxsifError where there are none."""
    if key is None:
        return rows
    if key.startswith("profile."):
        return list(_profile_rows(key, config))
    chosen = [
        row for row in rows if row.key in (key, f"run.{key}") or row.key.startswith(f"{key}.")
    ]
    if not chosen:
        raise JaxsifError(
            f"no setting {key}", "jaxsif config", nearest(key, [row.key for row in rows])
        )
    return chosen


def _profile_rows(key: str, config: Config) -> Iterator[Row]:
    fabric = resolve_fabric(Setting(key.partition(".")[2], "jaxsif config"), read_profiles(config))
    for setting in fabric.env.values():
        yield Row(f"{key}.env", setting.value, setting.source)
    for name, setting in fabric.lists.items():
        yield Row(f"{key}.{name}", setting.value, setting.source)


def render(rows: list[Row]) -> Iterator[str]:
    """The table's lines."""
    texts = [(row.key, _text(row.value), row.source) for row in rows]
    widths = [max((len(text[column]) for text in texts), default=0) for column in range(2)]
    for key, value, source in texts:
        yield f"{key:{widths[0]}}  {value:{widths[1]}}  {source}".rstrip()


def _text(value: Any) -> str:
    """A value as in TOML, whose strings, numbers, switches and lists are JSON's; of a profile,
    which keys it has.
    """
    if isinstance(value, dict):
        return ", ".join(f"inherits {value[key]}" if key == "inherits" else key for key in value)
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)
