"""Completion for fish."""

from __future__ import annotations

from collections.abc import Iterator

from jaxsif.help.describe import FILE, LAYER, SWITCH, Argument, Command, Program
from jaxsif.help.words import fill

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
    set -l typed (string escape -- $rest) (commandline --current-token)
    complete --do-complete (string join ' ' -- $typed)
end

function __jaxsif_layers
    set -l data $XDG_DATA_HOME ~/.local/share
    set -l files $data[1]/jaxsif/layers/*.json
    set -q files[1]; and string replace --regex '.*/(.*)\\.json$' '$1' $files
end

complete --command jaxsif --no-files
complete --command jaxsif --condition __jaxsif_behind --arguments '(__jaxsif_program)'
@COMMANDS@
"""


def render_fish(program: Program) -> str:
    """Return the script."""
    begins = {"": program.first_words, **program.verbs}
    words = [
        f"complete --command jaxsif --condition {_quote(f'__jaxsif_begins {typed}'.rstrip())}"
        f" --arguments {word} --description {_quote(text)}"
        for typed, offered in begins.items()
        for word, text in offered.items()
    ]
    commands = [line for command in program.commands for line in _render_command(command)]
    return fill(_TEMPLATE, {"COMMANDS": words + commands})


def _render_command(command: Command) -> Iterator[str]:
    at = f"complete --command jaxsif --condition '__jaxsif_at {' '.join(command.name)}'"
    for option in command.options:
        names = " ".join(map(_name, option.flags))
        takes = _TAKES.get(option.kind, " --exclusive")
        yield f"{at} {names}{takes}{_offer(option)} --description {_quote(option.help)}"
    if command.given and _offer(command.given):
        yield at + _offer(command.given)


_TAKES = {SWITCH: "", FILE: " --require-parameter"}
_OFFERS = {FILE: " --force-files", LAYER: " --arguments '(__jaxsif_layers)'"}


def _name(flag: str) -> str:
    return f"--short-option {flag[1:]}" if len(flag) == 2 else f"--long-option {flag[2:]}"


def _offer(argument: Argument) -> str:
    """Return the option that says what is offered for an argument; '' where nothing is known."""
    if argument.choices:
        return f" --arguments {_quote(' '.join(argument.choices))}"
    return _OFFERS.get(argument.kind, "")


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
