"""jaxsif config: each setting, its value, and what set it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jaxsif.config import TABLES, Config, Setting, candidates, nearest, read_config, read_profiles, resolve
from jaxsif.errors import JaxsifError, printable
from jaxsif.fabric import resolve_fabric
from jaxsif.options import OPTIONS
from jaxsif.slurm import Allocation

DESCRIPTION = """\
Show what `jaxsif run` would take here from variables and files: key, value, and what set it.

Values are written as in a jaxsif.toml. Standard error names the files that were read, and those that would be.

examples:
  jaxsif config                   all settings
  jaxsif config run.stage         one of them, or a table: run, policy, profile
  jaxsif config profile.ib        a profile of a fabric, with what it inherits
"""


class Row(NamedTuple):
    """A line of the table."""

    key: str
    value: Any  # None where nothing sets it
    source: str


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `jaxsif config`."""
    parser.add_argument("key", nargs="?", metavar="KEY", help="this one only, or those of this table")
    parser.add_argument("--json", action="store_true", help="print JSON")


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the table."""
    folder = os.getcwd()
    config = read_config(environ, folder)
    rows = _choose(arguments.key, list(_rows(config, environ)), config)
    files = {path: os.path.isfile(path) for path in candidates(environ, folder)}
    if arguments.json:
        told = [{"path": path, "read": there} for path, there in files.items()]
        print(json.dumps({"settings": [row._asdict() for row in rows], "files": told}, indent=1))
        return 0
    for line in render(rows):
        print(printable(line))
    for path, there in files.items() if not arguments.key else ():
        print(f"jaxsif: {'read' if there else 'not there:'} {printable(path)}", file=sys.stderr)
    return 0


def _rows(config: Config, environ: Mapping[str, str]) -> Iterator[Row]:
    """All settings, in the order of --help."""
    found = resolve({}, environ, config, in_job=Allocation.from_environ(environ) is not None)
    for option in OPTIONS:
        setting = found.get(option.key, Setting(None, ""))
        yield Row(f"run.{option.key}", *setting)
    for key in (f"policy.{key}" for key in TABLES["policy"]):
        of_files = [
            Row(key, policy.value, f"{key} in {policy.source}") for name, policy in config.policies if name == key
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
    chosen = [row for row in rows if row.key in (key, f"run.{key}") or row.key.startswith(f"{key}.")]
    if not chosen:
        raise JaxsifError(f"no setting {key}", "jaxsif config", nearest(key, [row.key for row in rows]))
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
    """A value as in TOML, whose strings, numbers, switches and lists are JSON's; of a profile, which keys it has."""
    if isinstance(value, dict):
        return ", ".join(f"inherits {value[key]}" if key == "inherits" else key for key in value)
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)
