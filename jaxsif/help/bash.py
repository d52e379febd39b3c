"""Completion for bash."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from jaxsif.help.describe import SWITCH, Argument, Command, Program
from jaxsif.help.words import fill

_TEMPLATE = """\
# jaxsif's completion for bash; `jaxsif completion bash` wrote it.

_jaxsif_layers() {
    local file
    for file in "${XDG_DATA_HOME:-$HOME/.local/share}"/jaxsif/layers/*.json; do
        [ -f "$file" ] || continue
        file=${file##*/}
        echo "${file%.json}"
    done
}

_jaxsif() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local command=${COMP_WORDS[1]}
    local options='' verbs='' values='' kind='' index
    # Readline takes --image=PATH for three words.
    if [ "$word" = = ]; then
        word=''
    elif [ "$before" = = ]; then
        before=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    case $command in @GROUPS@) command="$command ${COMP_WORDS[2]}" ;; esac
    COMPREPLY=()
    for ((index = 2; index < COMP_CWORD; index++)); do
        [ "${COMP_WORDS[index]}" = -- ] || continue
        compopt -o filenames
        if ((index == COMP_CWORD - 1)); then kind=-c; else kind=-f; fi
        mapfile -t COMPREPLY < <(compgen $kind -- "$word")
        return
    done
    if ((COMP_CWORD == 1)); then
        verbs=@FIRST@
    elif ((COMP_CWORD == 2)); then
        case ${COMP_WORDS[1]} in
@VERBS@
        esac
    fi
    case $command in
@COMMANDS@
    esac
    if [ -n "$verbs" ]; then
        values=$verbs
    elif [ -z "$kind" ] && [[ $word == -* ]]; then
        values=$options
    elif [ "$kind" = layer ]; then
        values=$(_jaxsif_layers)
    elif [ "$kind" = path ]; then
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return
    fi
    mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word")
}

complete -F _jaxsif jaxsif
"""


def render_bash(program: Program) -> str:
    """Return the script."""
    first = [*program.first_words, "--help", "--version"]
    words = {
        "GROUPS": ["|".join(program.groups)],
        "FIRST": [_quote(first)],
        "VERBS": [f"        {group}) verbs={_quote(v)} ;;" for group, v in program.verbs.items()],
        "COMMANDS": [line for command in program.commands for line in _render_command(command)],
    }
    return fill(_TEMPLATE, words)


def _quote(words: Iterable[str]) -> str:
    return shlex.quote(" ".join(words))


def _render_command(command: Command) -> Iterator[str]:
    yield f"    {_quote(command.name)})"
    yield f"        options={_quote(flag for option in command.options for flag in option.flags)}"
    yield "        case $before in"
    for option in command.options:
        if option.kind != SWITCH:
            yield f"        {'|'.join(option.flags)}) {_assign(option)} ;;"
    if command.given:
        yield f"        *) [[ $word == -* ]] || {{ {_assign(command.given)}; }} ;;"
    yield "        esac"
    yield "        ;;"


def _assign(argument: Argument) -> str:
    values = f" values={_quote(argument.choices)}" if argument.choices else ""
    return f"kind={argument.kind}{values}"
