"""The parsers of the command line -> what completion and man pages tell of it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import NamedTuple

# What an argument is.
SWITCH, TEXT, FILE, LAYER, PROGRAM = "switch", "text", "path", "layer", "program"
_PATHS = {"PATH", "FILE", "FOLDER", "IMAGE", "A", "B", "SRC[:DEST[:OPTS]]"}  # metavars


class Argument(NamedTuple):
    """An option, or what is given without one."""

    flags: tuple[str, ...]  # empty for what is given without
    kind: str
    metavar: str
    help: str
    choices: tuple[str, ...]
    many: bool  # may be given several times
    group: str  # its heading in --help; '' for argparse's own


class Command(NamedTuple):
    """One command, such as `jaxsif image build`."""

    name: tuple[str, ...]
    summary: str  # one line
    usage: str
    description: str  # of which examples are a part
    epilog: str
    arguments: tuple[Argument, ...]


class Program(NamedTuple):
    """All of them."""

    description: str
    groups: Mapping[str, str]  # such as image -> one line of help
    commands: tuple[Command, ...]


def describe_command(
    name: tuple[str, ...], summary: str, parser: argparse.ArgumentParser
) -> Command:
    """What the parser of a command tells."""
    arguments = tuple(
        _describe_argument(
            name,
            action,
            "" if group in (parser._positionals, parser._optionals) else group.title or "",
        )
        for group in parser._action_groups
        for action in group._group_actions
    )
    usage = parser.usage or " ".join(["jaxsif", *name, "[OPTIONS]", *_positionals(parser)])
    return Command(name, summary, usage, parser.description or "", parser.epilog or "", arguments)


def _describe_argument(name: tuple[str, ...], action: argparse.Action, group: str) -> Argument:
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    many = isinstance(action, argparse._AppendAction) or action.nargs in ("*", "+")
    return Argument(
        flags=tuple(action.option_strings),
        kind=_kind(name, action, metavar),
        metavar="{" + ",".join(action.choices) + "}" if action.choices else metavar,
        help=""
        if action.help in (None, argparse.SUPPRESS)
        else str(action.help).replace("%%", "%"),
        choices=tuple(action.choices or ()),
        many=many,
        group=group,
    )


def _kind(name: tuple[str, ...], action: argparse.Action, metavar: str) -> str:
    if action.nargs == 0:
        return SWITCH
    if action.nargs == argparse.REMAINDER:
        return PROGRAM
    if "--layer" in action.option_strings or (
        name[0] == "layer" and name[1] != "create" and metavar == "NAME"
    ):
        return LAYER
    return FILE if metavar in _PATHS else TEXT


def _positionals(parser: argparse.ArgumentParser) -> list[str]:
    forms: dict[int | str | None, str] = {None: "{}", "?": "[{}]", "*": "[{}...]", "+": "{}..."}
    found = [action for action in parser._actions if not action.option_strings]
    return [
        forms[action.nargs].format(action.metavar or "|".join(action.choices or ()))
        for action in found
    ]
