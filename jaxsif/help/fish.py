"""Completion for fish."""

from __future__ import annotations

from collections.abc import Iterator

from jaxsif.help.describe import FILE, LAYER, SWITCH, Argument, Command, Program
from jaxsif.help.words import fill, find_given, list_first_words, list_options

_TEMPLATE = """\
# jaxsif's completion for fish; `jaxsif completion fish` wrote it.

function __jaxsif_at --description 'whether these words are the command that is typed'
    set -l words (commandline --tokenize --current-process --cut-at-cursor)
    contains -- -- $words; and return 1
    set -l last (math (count $argv) + 1)
    test (count $words) -ge $last; and test "$words[2..$last]" = "$argv"
end

function __jaxsif_begins --description 'whether these words are all that is typed'
    set -l words (commandline --tokenize --current-process --cut-at-cursor)
    test "$words[2..]" = "$argv"
end

function __jaxsif_behind --description 'whether the program is being typed'
    contains -- -- (commandline --tokenize --current-process --cut-at-cursor)
end

function __jaxsif_program --description 'completes it'
    set -l words (commandline --tokenize --current-process --cut-at-cursor)
    set -l rest $words[(math (contains --index -- -- $words) + 1)..]
    complete --do-complete (string join ' ' -- (string escape -- $rest) (commandline --current-token))
end

function __jaxsif_layers
    set -l data $XDG_DATA_HOME ~/.local/share
    string replace --regex '.*/(.*)\\.json$' '$1' $data[1]/jaxsif/layers/*.json
end

complete --command jaxsif --no-files
complete --command jaxsif --condition __jaxsif_behind --arguments '(__jaxsif_program)'
@COMMANDS@
"""


def render_fish(program: Program) -> str:
    """The script."""
    begins: list[tuple[tuple[str, ...], str, str]] = [
        ((), word, text) for word, text in list_first_words(program).items()
    ]
    begins += [
        (one.name[:1], one.name[1], one.summary) for one in program.commands if len(one.name) == 2
    ]
    words = [
        f"complete --command jaxsif --condition {_quote(' '.join(('__jaxsif_begins', *typed)))}"
        f" --arguments {word} --description {_quote(text)}"
        for typed, word, text in begins
    ]
    commands = [line for command in program.commands for line in _render_command(command)]
    return fill(_TEMPLATE, {"COMMANDS": words + commands})


def _render_command(command: Command) -> Iterator[str]:
    at = f"complete --command jaxsif --condition '__jaxsif_at {' '.join(command.name)}'"
    for option in list_options(command):
        kinds = ["--short-option " if len(flag) == 2 else "--long-option " for flag in option.flags]
        names = " ".join(kind + flag.lstrip("-") for kind, flag in zip(kinds, option.flags))
        yield f"{at} {names}{_value(option)} --description {_quote(option.help)}"
    given = find_given(command)
    if given and (given.choices or given.kind in (FILE, LAYER)):
        # Without what is said of an option's value.
        yield at + _value(given).replace(" --exclusive", "").replace(" --require-parameter", "")


def _value(argument: Argument) -> str:
    if argument.kind == SWITCH:
        return ""
    if argument.choices:
        return f" --exclusive --arguments {_quote(' '.join(argument.choices))}"
    if argument.kind == LAYER:
        return " --exclusive --arguments '(__jaxsif_layers)'"
    return " --require-parameter --force-files" if argument.kind == FILE else " --exclusive"


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
