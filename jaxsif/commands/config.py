"""jaxsif config: each setting, its value and its source."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jaxsif import trust
from jaxsif.commands import JSON, all_of, argument
from jaxsif.errors import JaxsifError
from jaxsif.job.allocation import Allocation
from jaxsif.screen import note, print_json, print_table
from jaxsif.settings.config import (
    TABLES,
    Config,
    check_variables,
    find_files,
    nearest,
    parse_files,
    read_profiles,
)
from jaxsif.settings.fabric import resolve_fabric
from jaxsif.settings.options import NOTHING, OPTIONS, Setting
from jaxsif.settings.read import resolve
from jaxsif.settings.schema import build_schema

DESCRIPTION = """\
Show the settings of `jaxsif run` in this folder: key, value and source.

Values are written as in a jaxsif.toml. Standard error lists the files that
jaxsif read, and those that it ignored. If others may have written a project's
file, jaxsif reads it only if JAXSIF_CONFIG names it.

examples:
  jaxsif config                   all settings
  jaxsif config run.stage         one setting, or a table: run, policy, profile
  jaxsif config profile.ib        a fabric profile, with everything it inherits
  jaxsif config --schema          the JSON Schema for jaxsif.toml, for editors
"""


class Row(NamedTuple):
    """A line of the table."""

    key: str
    value: Any  # None if nothing sets it
    source: str


add_options = all_of(
    argument("key", nargs="?", metavar="KEY", help="only this setting, or this table"),
    JSON,
    argument(
        "--schema", action="store_true", help="print the JSON Schema for jaxsif.toml, for editors"
    ),
)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """Print the table."""
    if arguments.schema:
        print_json(build_schema())
    else:
        _show(arguments.key, arguments.json, environ)


def _show(key: str | None, as_json: bool, environ: Mapping[str, str]) -> None:
    """Print the rows of a key or a table, or else all rows; then the files that were checked."""
    note(*check_variables(environ))
    files = find_files(environ, os.getcwd())
    config = parse_files(files)
    rows = _choose(key, list(_rows(config, environ)), config)
    candidates = [*files.own, *files.above]
    if as_json:
        read = [
            {"path": f.path, "read": f.state == trust.READ, "state": f.state} for f in candidates
        ]
        print_json({"settings": [row._asdict() for row in rows], "files": read})
        return
    print_table(list(map(render, rows)), environ)
    if key:  # for one setting, only the problems
        candidates = [file for file in candidates if file.error]
    note(*map(_describe, candidates))


def _describe(file: trust.Candidate) -> str:
    """Describe the state of a file, and its error."""
    if file.error:
        return f"{file.state}: {file.error.what} ({file.error.where}); {file.error.hint}"
    return f"read {file.path}" if file.state == trust.READ else f"{file.state}: {file.path}"


def _rows(config: Config, environ: Mapping[str, str]) -> Iterator[Row]:
    """Return all settings, in the order of --help."""
    found = resolve({}, environ, config, in_job=Allocation.from_environ(environ) is not None)
    for option in OPTIONS:
        yield Row(f"run.{option.key}", *found.get(option.key, NOTHING)[:2])
    for key in TABLES["policy"]:
        name = f"policy.{key}"
        of_files = [
            Row(name, policy.value, f"{name} in {policy.source}")
            for of_key, policy in config.policies
            if of_key == name
        ]
        yield from of_files or [Row(name, None, "")]
    for folder in config.checks or (NOTHING,):
        yield Row("doctor.checks", *folder[:2])
    for name, profile in read_profiles(config).items():
        yield Row(f"profile.{name}", *profile[:2])


def _choose(key: str | None, rows: list[Row], config: Config) -> list[Row]:
    """Return the rows of a key, a table or a profile; raise JaxsifError if there are none."""
    if key is None:
        return rows
    if key.startswith("profile."):
        return _profile_rows(key, config)
    chosen = [row for row in rows if f"{row.key}.".startswith((f"{key}.", f"run.{key}."))]
    if not chosen:
        raise JaxsifError(
            f"unknown setting {key}",
            "jaxsif config",
            nearest(key, [row.key for row in rows], "jaxsif config lists the keys"),
        )
    return chosen


def _profile_rows(key: str, config: Config) -> list[Row]:
    fabric = resolve_fabric(Setting(key.partition(".")[2], "jaxsif config"), read_profiles(config))
    env: dict[str, list[str]] = {}  # of each profile in the lineage
    for pair, source, _ in fabric.env.values():
        env.setdefault(source, []).append(pair)
    rows = [Row(f"{key}.env", pairs, source) for source, pairs in env.items()]
    return [*rows, *(Row(f"{key}.{name}", *one[:2]) for name, one in fabric.lists.items())]


def render(row: Row) -> tuple[str, str, str]:
    """Return the cells of a row."""
    return row.key, _text(row.value), row.source


def _text(value: Any) -> str:
    """Return a value as in TOML, whose strings, numbers, booleans and lists are those of JSON; for
    a profile, return its keys.
    """
    if value is None:
        return "not set"
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return ", ".join(f"inherits {value[key]}" if key == "inherits" else key for key in value)
