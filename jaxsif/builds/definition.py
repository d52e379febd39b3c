"""A definition file of somebody else's, and which of its lines cannot go on top of another image.

https://apptainer.org/docs/user/latest/definition_files.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from spython.main.parse.parsers import SingularityParser

from jaxsif.builds.converted import (
    PARENT_MATCHES,
    TMP_IS_SHARED,
    Converted,
    Refusal,
    finds_parent,
    number_lines,
    refuse_invisible,
)
from jaxsif.builds.shell_words import empties_tmp

_HEADER = re.compile(r"([A-Za-z]+)\s*:\s*(.*)")
_SECTION = re.compile(r"\s*%(\w+)\s*(.*)")  # also an indented one, as the engine reads it
_KNOWN = ("files", "post", "environment", "labels", "runscript", "test", "help")
_REASONS = {
    "setup": "runs on the host: do by %post what it does",
    "pre": "runs on the host: do by %post what it does",
    "arguments": "has build arguments: write their values",
    "startscript": "is for instances: start the program by exec in one",
}
_HEAD = ("bootstrap", "from")


class Section(NamedTuple):
    """A section of the file; the head has no name."""

    line: int  # where it begins
    name: str
    words: str  # behind the name
    lines: tuple[tuple[int, str], ...]  # of its body, with their numbers


class _Parser(SingularityParser):  # type: ignore[misc]
    """spython's parser, which keeps what it would write into a script or take for a comment."""

    def _run(self, lines: list[str]) -> None:
        self.recipe[self.active_layer].cmd = lines

    def _test(self, lines: list[str]) -> None:
        self.recipe[self.active_layer].test = lines

    def _comments(self, lines: list[str]) -> None:
        self.recipe[self.active_layer].comments = lines

    def _env(self, lines: list[str]) -> None:
        self.recipe[self.active_layer].environ = lines


def split_sections(text: str) -> list[Section]:
    """Return the head and the sections of a definition file."""
    sections = [Section(1, "", "", ())]
    for number, line in number_lines(text):
        found = _SECTION.match(line)
        if found:
            sections.append(
                Section(number, found[1].lower(), found[2].partition("#")[0].strip(), ())
            )
        else:
            last = sections.pop()
            sections.append(last._replace(lines=(*last.lines, (number, line))))
    return sections


def check_sections(sections: list[Section], text: str) -> list[Refusal]:
    """Return what would be wrong on top of our image, in the order of the lines."""
    refused = [*_check_head(sections[0])]
    for one in sections[1:]:
        refused += _check_section(one)
    return refuse_invisible(number_lines(text), refused)


def _check_head(head: Section) -> Iterator[Refusal]:
    seen: set[str] = set()
    for number, line in head.lines:
        found = _HEADER.match(line)
        word = found[1].lower() if found else ""
        if word in seen or word == "stage":
            yield Refusal(number, line, "begins a stage: write a file with one stage")
        elif word not in _HEAD and line.strip() and not line.startswith("#"):
            yield Refusal(number, line, "is not taken over: take it out")
        seen.add(word)
        seen.discard("")
    if "bootstrap" not in seen:
        yield Refusal(1, "", "has no Bootstrap")


def _check_section(one: Section) -> Iterator[Refusal]:
    title = f"%{one.name} {one.words}".strip()
    if one.name not in _KNOWN:
        yield Refusal(one.line, title, _REASONS.get(one.name, "is not taken over: take it out"))
    elif one.words:
        yield Refusal(one.line, title, "has words behind its name: take them out")
    for number, line in one.lines:
        if re.search(r"\{\{.*\}\}", line):
            yield Refusal(number, line.strip(), "has a build argument: write its value")
        elif re.match(r"bootstrap\s*:", line, re.IGNORECASE):
            yield Refusal(number, line, "begins a stage: write a file with one stage")
        elif one.name == "files" and line.strip():
            yield from _check_copy(number, line.strip())
        elif one.name == "post" and empties_tmp(line):
            yield Refusal(number, line.strip(), TMP_IS_SHARED)


def _check_copy(number: int, line: str) -> Iterator[Refusal]:
    if re.search(r"[\"'\\`$(){};&|<>]", line):  # the runtime has a shell read the path
        yield Refusal(number, line, "has a path with special letters: rename it")
    elif finds_parent(line.split()[0]):
        yield Refusal(number, line, PARENT_MATCHES)


def convert_definition(sections: list[Section]) -> Converted:
    """Return the parts of a file that `check_sections` lets through."""
    head = {
        found[1].lower(): found[2]
        for _, line in sections[0].lines
        if (found := _HEADER.match(line))
    }
    recipe = parse_sections(sections[1:])
    notes = ["the runscript runs where no command is given"] if recipe.cmd else []
    return Converted(
        base=head.get("from", head["bootstrap"]),
        files=tuple(map(_split_files, filter(str.strip, recipe.files))),
        post=_texts(recipe.install),
        environment=_texts(recipe.environ),
        labels=_texts(recipe.labels),
        runscript=_texts(recipe.cmd or ()),
        test=_texts(recipe.test or ()),
        help=_texts(recipe.comments),
        notes=tuple(notes),
    )


def parse_sections(sections: list[Section]) -> Any:
    """Return spython's recipe; its own reader of files would strip each line, and trip over the
    word bootstrap.
    """
    parser = _Parser(None, load=False)
    for one in sections:
        parser._get_mapping(one.name)([line for _, line in one.lines])
    return parser.recipe["spython-base"]


def _texts(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the lines as they are, which here-documents need, without empty ones around."""
    return tuple("\n".join(lines).strip("\n").splitlines())


def _split_files(line: str) -> tuple[str, str]:
    source, *target = line.split()
    return source, (target or [source])[0]
