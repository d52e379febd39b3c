"""Completion for bash."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from jaxsif.help.describe import SWITCH, Command, Program
from jaxsif.help.words import (
    fill,
    find_given,
    find_verbs,
    list_first_words,
    list_flags,
    list_options,
)

_TEMPLATE = """\
# jaxsif's completion for bash; `jaxsif completion bash` wrote it.

_jaxsif_layers() {
    local file
    for file in "${XDG_DATA_HOME:-$HOME/.local/share}"/jaxsif/layers/*.json; do
        file=${file##*/}
        echo "${file%.json}"
    done
}

_jaxsif() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
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
    """The script."""
    verbs = {
        group: " ".join(one.name[1] for one in commands)
        for group, commands in find_verbs(program).items()
    }
    words = {
        "GROUPS": ["|".join(program.groups)],
        "FIRST": [shlex.quote(" ".join([*list_first_words(program), "--help", "--version"]))],
        "VERBS": [
            f"        {group}) verbs={shlex.quote(words)} ;;" for group, words in verbs.items()
        ],
        "COMMANDS": [line for command in program.commands for line in _render_command(command)],
    }
    return fill(_TEMPLATE, words)


def _render_command(command: Command) -> Iterator[str]:
    yield f"    {shlex.quote(' '.join(command.name))})"
    yield f"        options={shlex.quote(' '.join(list_flags(command)))}"
    yield "        case $before in"
    for option in list_options(command):
        if option.kind != SWITCH:
            values = f" values={shlex.quote(' '.join(option.choices))}" if option.choices else ""
            yield f"        {'|'.join(option.flags)}) kind={option.kind}{values} ;;"
    given = find_given(command)
    if given:
        values = f"values={shlex.quote(' '.join(given.choices))}; " if given.choices else ""
        yield f"        *) [[ $word == -* ]] || {{ {values}kind={given.kind}; }} ;;"
    yield "        esac"
    yield "        ;;"
