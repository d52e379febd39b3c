"""What all of the shells' scripts are made of."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from jaxsif.help.describe import PROGRAM, Argument, Command, Program


def fill(template: str, words: Mapping[str, Sequence[str]]) -> str:
    """The template, with lines for each @NAME@."""
    return re.sub("@([A-Z]+)@", lambda found: "\n".join(words[found[1]]), template)


def find_verbs(program: Program) -> dict[str, list[Command]]:
    """The commands of each group, such as image."""
    return {
        group: [one for one in program.commands if one.name[0] == group] for group in program.groups
    }


def list_first_words(program: Program) -> dict[str, str]:
    """What may stand first, with its line of help."""
    single = {one.name[0]: one.summary for one in program.commands if len(one.name) == 1}
    return {**single, **program.groups}


def list_options(command: Command) -> list[Argument]:
    """What begins with a dash."""
    return [argument for argument in command.arguments if argument.flags]


def list_flags(command: Command) -> list[str]:
    """All names of options."""
    return [flag for option in list_options(command) for flag in option.flags]


def find_given(command: Command) -> Argument | None:
    """What stands without an option; where there are several, all are of one kind."""
    given = [
        argument
        for argument in command.arguments
        if not argument.flags and argument.kind != PROGRAM
    ]
    return given[0] if given else None
