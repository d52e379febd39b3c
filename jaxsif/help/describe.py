"""A model of the command line, built from its parsers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import NamedTuple

# The kinds of arguments.
SWITCH, TEXT, FILE, LAYER = "switch", "text", "path", "layer"
# By metavar; if it has a meaning in one command only, by the command's words and the metavar.
_KINDS = {
    **dict.fromkeys(("PATH", "FILE", "FOLDER", "IMAGE", "A", "B", "SRC[:DEST[:OPTS]]"), FILE),
    **dict.fromkeys(("layer show NAME", "layer update NAME", "layer remove NAME"), LAYER),
}


class Argument(NamedTuple):
    """An option or a positional argument."""

    flags: tuple[str, ...]  # empty for a positional argument
    kind: str
    metavar: str
    help: str
    choices: tuple[str, ...]
    many: bool  # may be given several times


class Command(NamedTuple):
    """One command, such as `jaxsif image build`."""

    name: tuple[str, ...]
    summary: str  # one line
    arguments: tuple[Argument, ...]
    runs_program: bool  # takes one with its arguments, after the options

    @property
    def options(self) -> list[Argument]:
        """The arguments that begin with a dash."""
        return [argument for argument in self.arguments if argument.flags]

    @property
    def positional(self) -> Argument | None:
        """The first positional argument; if there are several, all are of the same kind."""
        return next((argument for argument in self.arguments if not argument.flags), None)


class Program(NamedTuple):
    """All commands."""

    groups: Mapping[str, str]  # such as image -> one line of help
    commands: tuple[Command, ...]

    @property
    def first_words(self) -> dict[str, str]:
        """The words that may come first, with their lines of help."""
        return {**self._find_verbs(), **self.groups}

    @property
    def verbs(self) -> dict[str, dict[str, str]]:
        """The words that may come after each group, with their lines of help."""
        return {group: self._find_verbs(group) for group in self.groups}

    def _find_verbs(self, *group: str) -> dict[str, str]:
        """Return the last words of the commands in a group, or of those outside any group."""
        return {
            command.name[-1]: command.summary
            for command in self.commands
            if command.name[:-1] == group
        }


def describe_command(
    name: tuple[str, ...], summary: str, parser: argparse.ArgumentParser
) -> Command:
    """Describe the parser of a command."""
    arguments = tuple(
        _describe_argument(name, part)
        for group in parser._action_groups
        for action in group._group_actions
        if action.nargs != argparse.REMAINDER
        for part in getattr(action, "parts", (action,))  # of an action for many options
    )
    nargs = [action.nargs for action in parser._get_positional_actions()]
    return Command(name, summary, arguments, runs_program=argparse.REMAINDER in nargs)


def _describe_argument(name: tuple[str, ...], action: argparse.Action) -> Argument:
    choices = tuple(action.choices or ())
    metavar = str(action.metavar or action.dest.upper())
    return Argument(
        flags=tuple(action.option_strings),
        kind=_find_kind(name, action, metavar),
        metavar="{" + ",".join(choices) + "}" if choices else metavar,
        help=(action.help or "").replace("%%", "%"),
        choices=choices,
        many=isinstance(action, argparse._AppendAction) or action.nargs in ("*", "+"),
    )


def _find_kind(name: tuple[str, ...], action: argparse.Action, metavar: str) -> str:
    if action.nargs == 0:
        return SWITCH
    if "--layer" in action.option_strings:
        return LAYER
    return _KINDS.get(" ".join((*name, metavar)), _KINDS.get(metavar, TEXT))
