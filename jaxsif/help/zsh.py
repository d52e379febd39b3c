"""Completion for zsh."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from jaxsif.help.describe import FILE, LAYER, PROGRAM, SWITCH, Argument, Command, Program
from jaxsif.help.words import fill, find_given, find_verbs, list_first_words, list_options

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
    """The script."""
    verbs = {
        group: {one.name[1]: one.summary for one in commands}
        for group, commands in find_verbs(program).items()
    }
    words = {
        "GROUPS": ["    " + "|".join(program.groups)],
        "FIRST": _words(list_first_words(program)),
        "VERBS": [
            "\n".join([f"            {group}) verbs=(", *_words(words), "            ) ;;"])
            for group, words in verbs.items()
        ],
        "COMMANDS": [line for command in program.commands for line in _render_command(command)],
    }
    return fill(_TEMPLATE, words)


def _words(words: dict[str, str]) -> list[str]:
    return [f"            {shlex.quote(f'{word}:{text}')}" for word, text in words.items()]


def _render_command(command: Command) -> Iterator[str]:
    yield f"    {shlex.quote(' '.join(command.name))})"
    yield " \\\n            ".join(["        _arguments -S :", *map(shlex.quote, _specs(command))])
    yield "        ;;"


def _specs(command: Command) -> Iterator[str]:
    for option in list_options(command):
        text = option.help.translate({ord(letter): f"\\{letter}" for letter in "[]:"})
        for flag in option.flags:
            equals = "=" if option.kind != SWITCH and flag.startswith("--") else ""
            value = "" if option.kind == SWITCH else f":{_message(option)}:{_action(option)}"
            yield f"{'*' if option.many else ''}{flag}{equals}[{text}]{value}"
    given = find_given(command)
    if any(argument.kind == PROGRAM for argument in command.arguments):
        yield "*:: :_normal"
    elif given:
        yield f"*:{_message(given)}:{_action(given)}"


def _message(argument: Argument) -> str:
    return argument.metavar.replace(":", "\\:")


def _action(argument: Argument) -> str:
    if argument.choices:
        return f"({' '.join(argument.choices)})"
    return {FILE: "_files", LAYER: "_jaxsif_layers"}.get(argument.kind, " ")
