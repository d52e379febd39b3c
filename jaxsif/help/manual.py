"""What the parsers tell of the command line -> man pages, in the language of man(7)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jaxsif.help.describe import SWITCH, Argument, Command, Program

# What groff(7) would print as something else.
LETTERS = {
    "\\": "\\e",
    "-": "\\-",
    "`": "\\(ga",
    "~": "\\(ti",
    "^": "\\(ha",
    "'": "\\(aq",
    "…": "\\[u2026]",
}
_ESCAPES = str.maketrans(LETTERS)


def render_manual(program: Program, version: str) -> dict[str, str]:
    """Return file -> text: jaxsif.1, and a page for each command, such as jaxsif-image-build.1."""
    pages = {
        f"{_page(one)}.1": "\n".join([*_render_command(one, version), ""])
        for one in program.commands
    }
    return {"jaxsif.1": "\n".join([*_render_program(program, version), ""]), **pages}


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _page(command: Command) -> str:
    return "-".join(("jaxsif", *command.name))


def _render_program(program: Program, version: str) -> Iterator[str]:
    yield from _head("jaxsif", "JAX in Singularity/Apptainer images on Slurm clusters", version)
    yield ".SH SYNOPSIS\n.B jaxsif\n.I COMMAND\n[OPTIONS]"
    yield ".SH DESCRIPTION"
    yield _text(program.description)
    yield ".SH COMMANDS"
    for command in program.commands:
        yield f".TP\n.BR {_escape(_page(command))} (1)\n{_escape(_capital(command.summary))}."


def _render_command(command: Command, version: str) -> Iterator[str]:
    yield from _head(_page(command), command.summary, version)
    yield f".SH SYNOPSIS\n{_escape(command.usage)}"
    yield ".SH DESCRIPTION"
    yield _text(command.description)
    yield ".SH OPTIONS"
    group = ""
    for argument in command.arguments:
        if argument.group != group:
            group = argument.group
            yield f".SS {_escape(_capital(group))}"
        yield f".TP\n{_usage(argument)}\n{_escape(argument.help)}"
    if command.epilog:
        yield ".SH NOTES"
        yield _text(command.epilog)
    yield ".SH SEE ALSO\n.BR jaxsif (1)"


def _head(name: str, summary: str, version: str) -> Iterator[str]:
    yield f'.TH {_escape(name.upper())} 1 "" "jaxsif {version}" "User Commands"'
    yield f".SH NAME\n{_escape(name)} \\- {_escape(summary)}"


def _usage(argument: Argument) -> str:
    if not argument.flags:
        return f"\\fI{_escape(argument.metavar)}\\fR"
    flags = ", ".join(f"\\fB{_escape(flag)}\\fR" for flag in argument.flags)
    return flags if argument.kind == SWITCH else f"{flags} \\fI{_escape(argument.metavar)}\\fR"


def _text(text: str) -> str:
    """Return paragraphs, filled; what has indented lines, such as examples, stays as it is."""
    return "\n.PP\n".join(map(_paragraph, text.strip().split("\n\n")))


def _paragraph(text: str) -> str:
    is_fixed = "\n " in f"\n{text}"
    return f".nf\n{_escape(text)}\n.fi" if is_fixed else _escape(text)


def _escape(text: str) -> str:
    """Return text as it is: hyphens that can be copied, no line that begins as a request."""
    return re.sub(r"^\.", r"\\&.", text.translate(_ESCAPES), flags=re.MULTILINE)
