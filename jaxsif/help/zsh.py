"""Completion for zsh."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from jaxsif.help.describe import FILE, LAYER, SWITCH, Argument, Command, Program
from jaxsif.help.words import fill

_TEMPLATE = """\
#compdef jaxsif
# jaxsif's completion for zsh; `jaxsif completion zsh` wrote it.

_jaxsif_layers() {
    local -a names=("${XDG_DATA_HOME:-$HOME/.local/share}"/jaxsif/layers/*.json(N:t:r))
    _describe layer names
}

_jaxsif() {
    local -a verbs
    if ((CURRENT == 2)); then
        verbs=(
@FIRST@
        )
        _describe command verbs
        return
    fi
    shift words
    ((CURRENT--))
    local name=$words[1]
    case $name in
@GROUPS@)
        if ((CURRENT == 2)); then
            case $name in
@VERBS@
            esac
            _describe verb verbs
            return
        fi
        shift words
        ((CURRENT--))
        name+=" $words[1]"
        ;;
    esac
    case $name in
@COMMANDS@
    esac
}

if [ "$funcstack[1]" = _jaxsif ]; then _jaxsif "$@"; else compdef _jaxsif jaxsif; fi
"""


def render_zsh(program: Program) -> str:
    """Return the script."""
    words = {
        "GROUPS": ["    " + "|".join(program.groups)],
        "FIRST": _list_words(program.first_words),
        "VERBS": [
            "\n".join([f"            {group}) verbs=(", *_list_words(verbs), "            ) ;;"])
            for group, verbs in program.verbs.items()
        ],
        "COMMANDS": [line for command in program.commands for line in _render_command(command)],
    }
    return fill(_TEMPLATE, words)


def _list_words(words: dict[str, str]) -> list[str]:
    return [f"            {shlex.quote(f'{word}:{text}')}" for word, text in words.items()]


def _render_command(command: Command) -> Iterator[str]:
    yield f"    {shlex.quote(' '.join(command.name))})"
    yield " \\\n            ".join(["        _arguments -S :", *map(shlex.quote, _specs(command))])
    yield "        ;;"


def _specs(command: Command) -> Iterator[str]:
    for option in command.options:
        many = "*" if option.many else ""
        value = "" if option.kind == SWITCH else _value(option)
        for flag in option.flags:
            equals = "=" if value and flag.startswith("--") else ""
            yield f"{many}{flag}{equals}[{option.help.translate(_ESCAPES)}]{value}"
    if command.runs_program:
        yield "*:: :_normal"
    elif command.given:
        yield f"*{_value(command.given)}"


_ESCAPES = str.maketrans({"[": r"\[", "]": r"\]", ":": r"\:"})
_ACTIONS = {FILE: "_files", LAYER: "_jaxsif_layers"}


def _value(argument: Argument) -> str:
    """Return what stands for an argument's value: its name, and what completes it."""
    action = _ACTIONS.get(argument.kind, " ")
    if argument.choices:
        action = f"({' '.join(argument.choices)})"
    message = argument.metavar.replace(":", r"\:")
    return f":{message}:{action}"
