"""Completion for bash and zsh."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from jaxsif.help.describe import FILE, LAYER, SWITCH, Argument, Command, Program

_BASH = """\
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
    """Render the script for bash."""
    words = {
        "GROUPS": ["|".join(program.groups)],
        "FIRST": [_quote([*program.first_words, "--help", "--version"])],
        "VERBS": [f"        {group}) verbs={_quote(v)} ;;" for group, v in program.verbs.items()],
        "COMMANDS": [
            line for command in program.commands for line in _render_bash_command(command)
        ],
    }
    return _fill(_BASH, words)


def _quote(words: Iterable[str]) -> str:
    return shlex.quote(" ".join(words))


def _render_bash_command(command: Command) -> Iterator[str]:
    yield f"    {_quote(command.name)})"
    yield f"        options={_quote(flag for option in command.options for flag in option.flags)}"
    yield "        case $before in"
    for option in command.options:
        if option.kind != SWITCH:
            yield f"        {'|'.join(option.flags)}) {_render_kind(option)} ;;"
    if command.positional:
        yield f"        *) [[ $word == -* ]] || {{ {_render_kind(command.positional)}; }} ;;"
    yield "        esac"
    yield "        ;;"


def _render_kind(argument: Argument) -> str:
    values = f" values={_quote(argument.choices)}" if argument.choices else ""
    return f"kind={argument.kind}{values}"


_ZSH = """\
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

# Without compinit there is no compdef, and the module is loaded all the same.
if [ "$funcstack[1]" = _jaxsif ]; then
    _jaxsif "$@"
elif (( $+functions[compdef] )); then
    compdef _jaxsif jaxsif
fi
"""


def render_zsh(program: Program) -> str:
    """Render the script for zsh."""
    words = {
        "GROUPS": ["    " + "|".join(program.groups)],
        "FIRST": _list_words(program.first_words),
        "VERBS": [
            "\n".join([f"            {group}) verbs=(", *_list_words(verbs), "            ) ;;"])
            for group, verbs in program.verbs.items()
        ],
        "COMMANDS": [line for command in program.commands for line in _render_zsh_command(command)],
    }
    return _fill(_ZSH, words)


def _list_words(words: dict[str, str]) -> list[str]:
    return [f"            {shlex.quote(f'{word}:{text}')}" for word, text in words.items()]


def _render_zsh_command(command: Command) -> Iterator[str]:
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
    elif command.positional:
        yield f"*{_value(command.positional)}"


_ESCAPES = str.maketrans({"[": r"\[", "]": r"\]", ":": r"\:"})
_ACTIONS = {FILE: "_files", LAYER: "_jaxsif_layers"}


def _value(argument: Argument) -> str:
    """Render an argument's value: its name, and the action that completes it."""
    action = _ACTIONS.get(argument.kind, " ")
    if argument.choices:
        action = f"({' '.join(argument.choices)})"
    message = argument.metavar.replace(":", r"\:")
    return f":{message}:{action}"


def _fill(template: str, words: Mapping[str, Sequence[str]]) -> str:
    """Put lines in place of each @NAME@."""
    return re.sub("@([A-Z]+)@", lambda match: "\n".join(words[match[1]]), template)
