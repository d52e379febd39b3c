"""The parsers of the command line -> what completion and man pages tell of it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import NamedTuple

# What an argument takes.
SWITCH, TEXT, FILE, LAYER = "switch", "text", "path", "layer"
# By the metavar; where that means something in one command alone, by the command's words and it.
_KINDS = {
    **dict.fromkeys(("PATH", "FILE", "FOLDER", "IMAGE", "A", "B", "SRC[:DEST[:OPTS]]"), FILE),
    **dict.fromkeys(("layer show NAME", "layer update NAME", "layer remove NAME"), LAYER),
}
# How a synopsis shows an argument without a flag, by its nargs.
_FORMS: Mapping[int | str | None, str] = {None: "{}", "?": "[{}]", "*": "[{}...]", "+": "{}..."}


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
    runs_program: bool  # takes one with its arguments, after the options

    @property
    def options(self) -> list[Argument]:
        """Return what begins with a dash."""
        return [argument for argument in self.arguments if argument.flags]

    @property
    def given(self) -> Argument | None:
        """Return what stands without an option; where there are several, all are of one kind."""
        return next((argument for argument in self.arguments if not argument.flags), None)


class Program(NamedTuple):
    """All of them."""

    description: str
    groups: Mapping[str, str]  # such as image -> one line of help
    commands: tuple[Command, ...]

    @property
    def first_words(self) -> dict[str, str]:
        """Return what may stand first, with its line of help."""
        return {**self._find_verbs(), **self.groups}

    @property
    def verbs(self) -> dict[str, dict[str, str]]:
        """Return what may stand after each group, with its line of help."""
        return {group: self._find_verbs(group) for group in self.groups}

    def _find_verbs(self, *group: str) -> dict[str, str]:
        """Return the last words of the commands in a group, or of those in none."""
        return {one.name[-1]: one.summary for one in self.commands if one.name[:-1] == group}


def describe_command(
    name: tuple[str, ...], summary: str, parser: argparse.ArgumentParser
) -> Command:
    """Return what the parser of a command tells."""
    headings = {parser._positionals: "", parser._optionals: ""}
    arguments = tuple(
        _describe_argument(name, part, headings.get(group, str(group.title)))
        for group in parser._action_groups
        for action in group._group_actions
        if action.nargs != argparse.REMAINDER
        for part in getattr(action, "parts", (action,))  # of an action for many options
    )
    positionals = parser._get_positional_actions()
    usage = " ".join(["jaxsif", *name, "[OPTIONS]", *map(_usage, positionals)])
    return Command(
        name,
        summary,
        usage=parser.usage or usage,
        description=str(parser.description),
        epilog=parser.epilog or "",
        arguments=arguments,
        runs_program=argparse.REMAINDER in [action.nargs for action in positionals],
    )


def _usage(action: argparse.Action) -> str:
    """Return how a synopsis shows an argument without a flag."""
    form = _FORMS.get(action.nargs, "")
    return form.format(action.metavar or "|".join(_list_choices(action)))


def _list_choices(action: argparse.Action) -> tuple[str, ...]:
    """Return the values that an argument may have; () where it may have any."""
    return tuple(action.choices or ())


def _describe_argument(name: tuple[str, ...], action: argparse.Action, group: str) -> Argument:
    choices = _list_choices(action)
    metavar = str(action.metavar or action.dest.upper())
    return Argument(
        flags=tuple(action.option_strings),
        kind=_find_kind(name, action, metavar),
        metavar="{" + ",".join(choices) + "}" if choices else metavar,
        help=(action.help or "").replace("%%", "%"),
        choices=choices,
        many=isinstance(action, argparse._AppendAction) or action.nargs in ("*", "+"),
        group=group,
    )


def _find_kind(name: tuple[str, ...], action: argparse.Action, metavar: str) -> str:
    if action.nargs == 0:
        return SWITCH
    if "--layer" in action.option_strings:
        return LAYER
    return _KINDS.get(" ".join((*name, metavar)), _KINDS.get(metavar, TEXT))
