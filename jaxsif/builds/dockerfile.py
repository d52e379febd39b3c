"""A Dockerfile as instructions, which of them cannot be converted, and what spython makes of the
others.

https://docs.docker.com/reference/dockerfile/
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from spython.main.parse.parsers import DockerParser

from jaxsif.builds.converted import (
    EMPTIES_TMP,
    FOLDER,
    TMP_IS_SHARED,
    Converted,
    Refusal,
    copy_line,
)
from jaxsif.foreign import parse_json

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_REFERENCE = rf"\$(?:{_NAME}|\{{{_NAME}\}})"
_LETTER = r"[^\s\"'\\`$]"  # of a value that no shell would change between double quotes
_QUOTED = rf"\"(?:[^\"\\`$]|{_REFERENCE})*\"|'[^'\\`$\"]*'"
_VALUE = rf"(?:{_QUOTED}|(?:{_LETTER}|{_REFERENCE})*(?:[^\s\"'\\`$=]|{_REFERENCE}))"
_KEY = r"[A-Za-z_][A-Za-z0-9_.-]*"  # of a label
_PAIRS = rf"{_NAME}={_VALUE}(?: +{_NAME}={_VALUE})*"
_OLD_PAIR = rf"{_NAME} +(?:[^\s\"'\\`$=]|{_REFERENCE})+"
_PATH = rf"(?:[\w./+@%,:~-]|{_REFERENCE})+"
_SOURCE = r"[\w./+@%,*?-]+"
# In a word of its own, as Docker's builder finds it.
_HEREDOC = re.compile(r"(?:^|\s)\d*<<-?[\"']?([A-Za-z_]\w*)")
_VARIABLE = re.compile(rf"\$(?:({_NAME})|\{{({_NAME})\}})")


class Instruction(NamedTuple):
    """One instruction, on one line."""

    line: int  # where it begins
    word: str  # in capitals
    text: str  # what follows

    def refuse(self, reason: str) -> Refusal:
        """Return that it cannot be converted, and why."""
        return Refusal(self.line, f"{self.word} {self.text}".strip(), reason)


class Guard(NamedTuple):
    """What an instruction must not be."""

    fits: Callable[[str], object]  # true or false, of its text
    reason: str


def _has(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern).search


def _is_not(pattern: str) -> Callable[[str], object]:
    whole = re.compile(pattern)
    return lambda text: not whole.fullmatch(text)


def _read_list(text: str) -> list[str] | None:
    """Return the strings of a JSON list; None for another text."""
    try:
        found = parse_json(text)
    except ValueError:
        return None
    is_list = isinstance(found, list) and all(isinstance(one, str) for one in found)
    return found if is_list else None


def _is_bad_list(text: str) -> bool:
    """Return whether a text begins as a list, and is none of strings."""
    return text.startswith("[") and _read_list(text) is None


def _has_section(text: str) -> bool:
    """Return whether a word of a list, decoded, could begin a section or a build argument."""
    return any(re.search(r"[\r\n]|\{\{", word) for word in _read_list(text) or [])


_ANY = _has("")
_HAS_HEREDOC = Guard(_HEREDOC.search, "has a here-document: write the commands with && and \\")
_HAS_OPTION = Guard(_has("^--"), "has an option that definition files lack: take it out")
_PAIRS_ALONE = Guard(
    _is_not(_PAIRS),
    'is not NAME=VALUE, with blanks and = at its end in "", and no \\, ` or $( in it',
)
_TEMPLATE = Guard(_has(r"\{\{"), "has {{, a build argument in definition files: write it otherwise")
_COPIES = (
    _HAS_OPTION,
    _HAS_HEREDOC,
    Guard(_has(r"^\["), "is a list: write the paths with blanks between them"),
    Guard(
        _is_not(rf"{_SOURCE}(?: +{_SOURCE})* +{_PATH}"),
        "has a path with special letters: rename it",
    ),
    Guard(_has(r"(?:^|/)\*+(?:/\S*)? "), "copies hidden files too in Docker: name the folder"),
    Guard(_has(r"(?:^|[ /])\.\.(?:[ /]|$)"), "has .. in a path: Docker sees one folder alone"),
)
_STARTS = (
    Guard(_is_bad_list, "is no list of strings: write it as JSON"),
    Guard(_has_section, "has a line break or {{ in a word: start a script"),
)
_RULES: dict[str, tuple[Guard, ...]] = {
    "FROM": (
        Guard(_has(r"\$"), "names the image by a variable: write the name"),
        _HAS_OPTION,
    ),
    "RUN": (
        Guard(_has("^--"), "has an option of Docker's builder, such as --mount: take it out"),
        Guard(_has(r"^\["), "is a list: write the command as for a shell"),
        _HAS_HEREDOC,
        Guard(EMPTIES_TMP.search, TMP_IS_SHARED),
    ),
    "COPY": _COPIES,
    "ADD": (
        Guard(_has(r"://|^git@"), "adds an address: download it by RUN"),
        Guard(
            _has(r"\.(?:tar|tgz|gz|bz2|xz|zst) "),
            "unpacks an archive: write COPY, and unpack it by RUN",
        ),
        *_COPIES,
    ),
    "ARG": (
        Guard(_is_not(rf"{_NAME}=.*"), "has no value: write NAME=VALUE"),
        _PAIRS_ALONE,
    ),
    "ENV": (Guard(_is_not(f"(?:{_PAIRS}|{_OLD_PAIR})"), _PAIRS_ALONE.reason),),
    "LABEL": (
        Guard(_is_not(rf"{_KEY}={_VALUE}(?: +{_KEY}={_VALUE})*"), _PAIRS_ALONE.reason),
        Guard(_has(r"\$"), "has a variable: write its value"),
    ),
    "WORKDIR": (Guard(_is_not(_PATH), "has a path with special letters: rename it"),),
    "USER": (
        Guard(
            _is_not("root|0|root:root|0:0"),
            "has no meaning, a container's user is who starts it: take it out",
        ),
    ),
    "CMD": _STARTS,
    "ENTRYPOINT": _STARTS,
    "SHELL": (Guard(_ANY, "changes the shell of what follows: call it by name in RUN"),),
    "ONBUILD": (Guard(_ANY, "is for images on top of this one: take it out"),),
    "HEALTHCHECK": (Guard(_ANY, "has no meaning without Docker's daemon: take it out"),),
    "EXPOSE": (),
    "VOLUME": (),
    "STOPSIGNAL": (),
    "MAINTAINER": (),
}
_DROPPED = {
    "EXPOSE": "is left out: a container has the host's network",
    "VOLUME": "is left out: bind a folder with --bind",
    "STOPSIGNAL": "is left out: signals reach the program",
    "MAINTAINER": "is left out: LABEL would tell it",
}


def split_instructions(text: str) -> Iterator[Instruction]:
    """Yield the instructions, each joined to one line; comments are dropped, and what a
    here-document holds.
    """
    numbered = iter(enumerate(text.splitlines(), 1))
    for number, line in numbered:
        joined = line
        while joined.rstrip().endswith("\\") or _is_comment(joined):
            joined = "" if _is_comment(joined) else joined.rstrip()[:-1]
            following = next(((at, more) for at, more in numbered if not _is_blank(more)), None)
            if following is None:
                break
            number = number if joined.strip() else following[0]
            joined += following[1]
        word, *rest = joined.split(None, 1) or [""]
        if word:
            instruction = Instruction(number, word.upper(), "".join(rest).strip())
            _skip_heredoc(instruction, numbered)
            yield instruction


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _is_blank(line: str) -> bool:
    return not line.strip() or _is_comment(line)


def _skip_heredoc(instruction: Instruction, lines: Iterator[tuple[int, str]]) -> None:
    if instruction.word in ("RUN", "COPY", "ADD"):
        for end in _HEREDOC.findall(instruction.text):
            next((line for _, line in lines if line.strip() == end), None)


def check_instructions(instructions: Sequence[Instruction], text: str) -> list[Refusal]:
    """Return what spython would convert wrongly, in the order of the lines."""
    refused = []
    if re.match(r"(?:#.*\n)*#\s*escape\s*=\s*`", text):
        refused.append(Refusal(1, "# escape=`", "changes the letter that joins lines: write \\"))
    stages = [one for one in instructions if one.word == "FROM"]
    for one in instructions:
        rules = _RULES.get(one.word, (Guard(_ANY, "is no instruction of a Dockerfile"),))
        reasons = [rule.reason for rule in (*rules, _TEMPLATE) if rule.fits(one.text)]
        if one in stages[1:]:
            reasons = ["begins a second stage: write a file with one stage"]
        refused += map(one.refuse, reasons[:1])
    return refused if stages else [*refused, Refusal(1, "", "has no FROM")]


def convert_dockerfile(instructions: Sequence[Instruction]) -> tuple[Converted, list[Refusal]]:
    """Return what instructions that `check_instructions` lets through do, and those whose variables
    have no value at run time.
    """
    state = _State()
    for one in instructions:
        state.add(one)
    return state.finish(), state.refused


def parse_alone(instruction: Instruction) -> Any:
    """Return spython's recipe of one instruction: in a whole file it loses their order."""
    parser = DockerParser(None, load=False)
    parser.lines = [f"{instruction.word} {instruction.text}"]
    (recipe,) = parser.parse().values()
    return recipe


class _State:
    """What the instructions so far have made of the image."""

    def __init__(self) -> None:
        self.base = ""
        self.args: dict[str, str] = {}
        self.files: list[tuple[str, str]] = []
        self.post: list[str] = []
        self.environment: list[str] = []
        self.labels: list[str] = []
        self.workdir = ""
        self.start: dict[str, Any] = {}  # CMD, ENTRYPOINT -> a list, or a text for a shell
        self.notes: list[str] = []
        self.refused: list[Refusal] = []

    def add(self, one: Instruction) -> None:
        """Take an instruction over."""
        if one.word in _DROPPED:
            self.notes.append(f"line {one.line}: {one.word} {_DROPPED[one.word]}")
        else:
            getattr(self, f"_add_{one.word.lower()}")(one)

    def finish(self) -> Converted:
        """Return the parts of the definition."""
        words = [_render_command(command) for command in self._find_start()]
        move = [f'cd "{self.workdir}"'] if self.workdir and words else []
        return Converted(
            base=self.base,
            files=tuple(self.files),
            post=_indent(self.post),
            environment=_indent(self.environment),
            labels=_indent(self.labels),
            runscript=_indent([*move, f"exec {' '.join(words)}"] if words else []),
            notes=tuple(self.notes),
        )

    def _find_start(self) -> list[Any]:
        """Return what starts without a command; an ENTRYPOINT for a shell takes no words of CMD."""
        entry, command = self.start.get("ENTRYPOINT"), self.start.get("CMD")
        found = (entry, None if isinstance(entry, str) else command)
        return [part for part in found if part]

    def _expand(self, one: Instruction) -> Instruction:
        """Return the instruction with the values of ARG, which are not there at run time."""
        values = self.args
        text = _VARIABLE.sub(lambda found: values.get(found[1] or found[2], found[0]), one.text)
        return one._replace(text=text)

    def _add_from(self, one: Instruction) -> None:
        self.base = parse_alone(one).fromHeader.strip()
        self.args.clear()  # those before it are for FROM alone

    def _add_run(self, one: Instruction) -> None:
        command = " ".join(parse_alone(one).install)
        self.post.append(f"/bin/sh -c {shlex.quote(command)}")

    def _add_arg(self, one: Instruction) -> None:
        for pair in parse_alone(self._expand(one)).install:
            name, value = _split_pair(pair)
            self.args[name] = value
            self.post.append(f'export {name}="{value}"')

    def _add_env(self, one: Instruction) -> None:
        pairs = [_split_pair(pair) for pair in parse_alone(self._expand(one)).environ]
        for number, (name, value) in enumerate(pairs):
            if _references(value).intersection(before for before, _ in pairs[:number]):
                self.refused.append(
                    one.refuse("refers to a variable that it sets: write two of it")
                )
            self.args.pop(name, None)
            self.environment.append(f'export {name}="{value}"')
        self.post += self.environment[-len(pairs) :]

    def _add_label(self, one: Instruction) -> None:
        pairs = map(_split_pair, DockerParser(None, load=False).parse_env([one.text]))
        self.labels += (f"{name} {value}" for name, value in pairs)

    def _add_workdir(self, one: Instruction) -> None:
        path = parse_alone(self._expand(one)).workdir
        self.workdir = path if path[0] in "/$" else f"{self.workdir}/{path}"
        self.post.append(f'mkdir -p "{self.workdir}" && cd "{self.workdir}"')

    def _add_copy(self, one: Instruction) -> None:
        *sources, target = self._expand(one).text.split()
        place = f"{FOLDER}/{one.line}"
        self.files += ((source.lstrip("/") or ".", f"{place}/") for source in sources)
        self.post.append(copy_line(place, target))
        if target.startswith("/tmp"):
            self.notes.append(f"line {one.line}: what is in /tmp will not be in the image")

    _add_add = _add_copy

    def _add_user(self, one: Instruction) -> None:
        """Take over nothing: builds run as root."""

    def _add_cmd(self, one: Instruction) -> None:
        self.start["CMD"] = parse_alone(one).cmd

    def _add_entrypoint(self, one: Instruction) -> None:
        self.start["ENTRYPOINT"] = parse_alone(one).entrypoint
        self.notes.append(
            f"line {one.line}: ENTRYPOINT runs where no command is given: "
            "a command takes its place, as jaxsif run needs"
        )


def _indent(lines: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"    {line}" for line in lines)


def _split_pair(pair: str) -> tuple[str, str]:
    """Return name and value of NAME=VALUE, without quotes around the value."""
    name, _, value = pair.partition("=")
    return name, value[1:-1] if value[:1] in ("'", '"') else value


def _references(value: str) -> set[str]:
    return {plain or braced for plain, braced in _VARIABLE.findall(value)}


def _render_command(command: str | list[str]) -> str:
    """Return the words of a shell for a list, and for a text the shell that reads it."""
    return shlex.join(command if isinstance(command, list) else ["/bin/sh", "-c", command])
