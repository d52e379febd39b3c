"""Split a Dockerfile into instructions, refuse some, and convert the others.

https://docs.docker.com/reference/dockerfile/
"""

from __future__ import annotations

import os
import platform
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jaxsif.builds.definition import (
    FOLDER,
    Converted,
    Refusal,
    number_lines,
    refuse_invisible,
)
from jaxsif.builds.dockerfile_rules import (
    HEREDOC,
    IN_TMP,
    OLD_LABEL,
    VARIABLE,
    find_reason,
    find_remarks,
    read_list,
    split_arguments,
    split_pairs,
)
from jaxsif.builds.shell_words import BELOW_TMP, find_emptied


class Instruction(NamedTuple):
    """One instruction, on one line."""

    line: int  # where it begins
    word: str  # in capitals
    text: str  # the rest
    origin: str = ""  # of COPY: the stage or image that it copies from; '' is the recipe's folder
    mode: str = ""  # of COPY and ADD: what --chmod sets, in octal digits

    @property
    def options(self) -> str:
        """The leading options, with the blanks between and after them."""
        found = re.match(r"(?:--\S+ +)*", self.text)
        assert found is not None
        return found[0]

    def split_options(self) -> tuple[str, Instruction]:
        """Return the leading options that change nothing here, and the instruction without them."""
        pattern = _IGNORED.get(self.word)
        if not pattern:
            return "", self
        others, text = re.sub(pattern, "", self.options), self.text[len(self.options) :]
        ignored = " ".join(map(str.strip, re.findall(pattern, self.options)))
        return ignored, self._replace(text=others + text)

    def refuse(self, reason: str) -> Refusal:
        """Return the refusal of this instruction, with its reason."""
        options = f"--from={self.origin} " if self.origin else ""
        options += f"--chmod={self.mode} " if self.mode else ""
        return Refusal(self.line, f"{self.word} {options}{self.text}".strip(), reason)


# Field -> the instructions with its option, and the option; modes that are not octal are refused.
_OPTIONS_IN_FIELDS = {
    "origin": (("COPY",), r"--from=(\S+)"),
    "mode": (("COPY", "ADD"), r"--chmod=([0-7]{3,4})"),
}
# Instruction -> options that are only about the build, or about owners: a container runs as whoever
# starts it.
_IGNORED = {
    "RUN": r"--mount=type=cache\S* +",
    **dict.fromkeys(("COPY", "ADD"), r"--(?:chown=\S+|link) +"),
}
# Lists of folders that a Dockerfile extends: they have a value in the base with JAX, too.
_OF_BASE = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
_DOWNLOAD = (  # in our image, which has no curl
    "/opt/jax/bin/python -Ic 'import sys, urllib.request as web; web.urlretrieve(*sys.argv[1:])'"
)
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}  # a name of the kernel -> Docker's
_DROPPED = {
    "EXPOSE": "is left out: a container uses the host's network",
    "VOLUME": "is left out: bind a folder with --bind",
    "STOPSIGNAL": "is left out: signals reach the program",
    "MAINTAINER": "is left out: use LABEL instead",
    "HEALTHCHECK": "is left out: it is for Docker's daemon",
}


def split_instructions(text: str) -> Iterator[Instruction]:
    """Yield the instructions, each joined into one line, without comments and without the bodies of
    here-documents.
    """
    numbered = number_lines(text)
    for number, line in numbered:
        joined = line
        while joined.rstrip().endswith("\\") or _is_comment(joined):
            joined = "" if _is_comment(joined) else joined.rstrip()[:-1]
            following = next(
                ((at, more) for at, more in numbered if more.strip() and not _is_comment(more)),
                None,
            )
            if following is None:
                break
            number = number if joined.strip() else following[0]
            joined += following[1]
        word, *rest = joined.split(None, 1) or [""]
        if word:
            instruction = Instruction(number, word.upper(), "".join(rest).strip())
            _skip_heredoc(instruction, numbered)
            yield _take_options(instruction)


def _is_comment(line: str) -> bool:
    return line.lstrip(" \t").startswith("#")


def _skip_heredoc(instruction: Instruction, lines: Iterator[tuple[int, str]]) -> None:
    if instruction.word in ("RUN", "COPY", "ADD"):
        for end in HEREDOC.findall(instruction.text):
            next((line for _, line in lines if line.strip() == end), None)


def _take_options(instruction: Instruction) -> Instruction:
    """Move the options of COPY and ADD that have fields from the text into these, and write their
    lists as words.
    """
    for field, (words, pattern) in _OPTIONS_IN_FIELDS.items():
        found = re.match(rf"((?:--\S+ +)*?){pattern} +", instruction.text)
        if found and instruction.word in words:
            text = found[1] + instruction.text[found.end() :]
            values: dict[str, Any] = {"text": text, field: found[2]}
            instruction = instruction._replace(**values)
    if instruction.word in ("COPY", "ADD"):
        paths = read_list(instruction.text[len(instruction.options) :])
        if paths and not re.search(r"\s", "".join(paths)):
            return instruction._replace(text=instruction.options + " ".join(paths))
    return instruction


def check_instructions(instructions: Sequence[Instruction], text: str) -> list[Refusal]:
    """Find the lines that cannot be converted, in order; `instructions` are those in use, and
    `text` is the whole recipe.
    """
    refused = []
    escape = re.match(r"(?:#.*\n)*#\s*escape\s*=\s*`", text)
    if escape:
        line = escape[0].count("\n") + 1
        return [Refusal(line, "# escape=`", "changes the line-continuation character: use \\")]
    stages = [instruction for instruction in instructions if instruction.word == "FROM"]
    for instruction in instructions:
        reason = find_reason(instruction.word, instruction.split_options()[1].text)
        if stages and instruction.word != "ARG" and instruction.line < stages[0].line:
            reason = "comes before FROM"
        if reason:
            refused.append(instruction.refuse(reason))
    if not stages:
        refused.append(Refusal(1, "", "has no FROM"))
    lines = (instruction for instruction in number_lines(text) if not _is_comment(instruction[1]))
    return refuse_invisible(lines, refused)


def read_arguments(instructions: Sequence[Instruction]) -> dict[str, str]:
    """Return the values of the ARGs before the first FROM, which FROM may use."""
    state = _State(is_pulled=False)
    for instruction in instructions:
        if instruction.word == "ARG":
            state.add(instruction)
    return {name: value for name, value in state.args.items() if value is not None}


def expand(
    text: str,
    values: Mapping[str, str | None],
    keeps: Callable[[str], bool] = lambda name: False,
    unset: str | None = None,
) -> str:
    """Return a text in which the variables that have a value are expanded, and ${NAME-WORD},
    ${NAME+WORD}, ${NAME:-WORD} and ${NAME:+WORD}, unless NAME is not in `values` and `keeps`
    leaves it to a shell. `unset` takes the place of variables whose value is None.
    """

    def find(found: re.Match[str]) -> str:
        plain, braced, operator, word = found.groups()
        name = plain or braced
        value = values.get(name)
        if operator is None:
            value = unset if value is None and name in values else value
            return found[0] if value is None else value
        word = expand(word, values, keeps, unset)
        if braced not in values and keeps(braced):
            return f"${{{braced}{operator}{word}}}"
        has_value = bool(value) if ":" in operator else value is not None
        if "+" in operator:
            return word if has_value else ""
        return (value or "") if has_value else word

    return VARIABLE.sub(find, text)


def convert_instructions(
    instructions: Sequence[Instruction], is_pulled: bool = False
) -> tuple[Converted, list[Refusal]]:
    """Convert the instructions of a stage that passed `check_instructions`; also return refusals
    of those that use a variable without a value. A stage that is pulled keeps its own base.
    """
    state = _State(is_pulled)
    for instruction in instructions:
        state.add(instruction)
    return state.finish(), state.refused


class _Start(NamedTuple):
    """The program of a CMD or ENTRYPOINT."""

    words: list[str]
    is_of_shell: bool


_NOTHING = _Start([], False)


class _State:
    """The image after the instructions so far."""

    def __init__(self, is_pulled: bool) -> None:
        self.is_pulled = is_pulled
        self.base = ""
        self.args: dict[str, str | None] = _read_platform()
        self.heads: dict[str, str | None] = {}  # ARG before FROM, for ARG without a value
        self.set: dict[str, str] = {}  # by ENV, which ARG does not override
        self.files: list[tuple[str, str]] = []
        self.copied: list[tuple[str, str, str]] = []
        self.post: list[str] = []
        self.environment: list[str] = []
        self.labels: list[str] = []
        self.workdir = ""
        self.shell = ["/bin/sh", "-c"]
        self.start: dict[str, _Start] = {}
        self.has_own_command = False  # CMD in this stage, not only in one that it is based on
        self.notes: list[str] = []
        self.refused: list[Refusal] = []

    def add(self, instruction: Instruction) -> None:
        """Apply an instruction."""
        ignored, instruction = instruction.split_options()
        if ignored:
            self.note(instruction, f"{ignored} is left out: it changes nothing here")
        if instruction.word in _DROPPED:
            self.note(instruction, f"{instruction.word} {_DROPPED[instruction.word]}")
        else:
            for remark in find_remarks(instruction.word, instruction.text):
                self.note(instruction, remark)
            getattr(self, f"_add_{instruction.word.lower()}")(instruction)

    def note(self, instruction: Instruction, text: str) -> None:
        """Add a note about an instruction."""
        self.notes.append(f"line {instruction.line}: {text}")

    def finish(self) -> Converted:
        """Return the parts of the definition."""
        words = [shlex.join(command) for command in self._find_start()]
        move = [f'cd "{self.workdir}" || exit'] if self.workdir and words else []
        return Converted(
            base=self.base,
            files=tuple(self.files),
            copied=tuple(self.copied),
            post=_indent(self.post),
            environment=_indent(self.environment),
            labels=_indent(self.labels),
            runscript=_indent([*move, f"exec {' '.join(words)}"] if words else []),
            notes=tuple(self.notes),
        )

    def _find_start(self) -> list[list[str]]:
        """Find the default program; an ENTRYPOINT in shell form takes no words from CMD."""
        entry, command = (self.start.get(word, _NOTHING) for word in ("ENTRYPOINT", "CMD"))
        found = (entry, _NOTHING if entry.is_of_shell else command)
        return [part.words for part in found if part.words]

    def _read_start(self, text: str) -> _Start:
        """Return the words of a list or, for any other text, those of the shell that runs it."""
        words = read_list(text)
        return _Start([*self.shell, text] if words is None else words, words is None)

    def _expand(self, text: str) -> str:
        """Return a text for a shell, with the values of ARG, which do not exist at run time."""
        return expand(text, self.args, self._is_of_shell, unset="")

    def _is_of_shell(self, name: str) -> bool:
        """Return whether a shell in the image may know a variable."""
        return name in self.set or self._is_of_base(name)

    def _is_of_base(self, name: str) -> bool:
        """Return whether the base may set a variable."""
        return bool(self.base) and (self.is_pulled or name in _OF_BASE)

    def _expand_value(self, text: str, unset: str | None = None) -> str:
        """Return a text with the values of ARG and ENV, as far as they are known here."""
        return expand(text, {**self.args, **self.set}, self._is_of_base, unset)

    def _expand_target(self, instruction: Instruction, path: str) -> str:
        """Expand ARG and ENV in a path in the image, and check the result. The shell of the build
        knows the other variables of a pulled image.
        """
        values = {"HOME": "/root", **self.args, **self.set}
        expanded = expand(path, values, self._is_of_base)
        unknown = _references(expanded)
        if self.is_pulled:
            unknown &= self.args.keys()
        self._check(instruction, unknown, find_reason("WORKDIR", expanded))
        return expanded

    def _expand_source(self, instruction: Instruction, source: str) -> str:
        """Expand ARG and ENV in a path to copy from, and check the result."""
        expanded = expand(source, {**self.args, **self.set})
        reason = find_reason(instruction.word, f"{expanded} /") if expanded else "copies nothing"
        if instruction.origin and not os.path.normpath(expanded).strip("./*"):
            reason = "copies a whole image: name the folders to copy"
        self._check(instruction, _references(expanded), reason)
        return expanded

    def _check(self, instruction: Instruction, unknown: set[str], reason: str = "") -> None:
        """Refuse an instruction for a variable without a value, or for a reason."""
        for name in sorted(unknown):
            reason = f"uses {name}, which has no value: give it one with ARG {name}=VALUE"
        if reason:
            self.refused.append(instruction.refuse(reason))

    def _add_from(self, instruction: Instruction) -> None:
        self.has_own_command = False
        for option in re.findall(r"--platform=\S+", instruction.text):
            self.note(instruction, f"{option} is left out: the image is for this machine")
        if self.base:  # of a stage that is based on an earlier one
            return
        base = next(word for word in instruction.text.split() if not word.startswith("--"))
        self.base = self._expand(base)
        what = "is replaced by Debian with its own Python and packages"
        if self.is_pulled:
            what = "is pulled from its registry by the build: only what is copied from it is used"
        self.note(instruction, f"FROM {self.base} {what}")
        # An ARG before FROM is only for FROM.
        self.heads, self.args = self.args, {}
        self.post.clear()

    def _add_run(self, instruction: Instruction) -> None:
        self._note_folder(instruction)
        for command, folders in find_emptied(instruction.text, self.workdir or "/"):
            what = (
                f"'{command}' empties {' and '.join(folders)}, the host's while an image is built"
            )
            self.refused.append(instruction.refuse(f"{what}: remove this command"))
        self.post.append(shlex.join([*self.shell, instruction.text]))

    def _add_shell(self, instruction: Instruction) -> None:
        self.shell = read_list(instruction.text) or self.shell

    def _add_arg(self, instruction: Instruction) -> None:
        for name, value in self._find_values(instruction):
            if name in self.set:
                self.note(instruction, f"ARG {name} is left out: ENV already sets it")
            else:
                self.post.append(f'export {name}="{self._expand(value)}"')
                self.args[name] = self._expand_value(value, unset="")

    def _find_values(self, instruction: Instruction) -> list[tuple[str, str]]:
        """Return the names and values of an ARG; a name without a value keeps its earlier value, or
        takes the value from before FROM.
        """
        known, found = {**self.heads, **self.args}, []
        for name, value in split_arguments(instruction.text):
            if value is not None:
                found.append((name, value))
            elif (before := known.get(name)) is not None:
                found.append((name, before))
            elif self.base and name not in self.set:
                self.args[name] = None
                self.note(instruction, f"ARG {name} has no value")
        return found

    def _add_env(self, instruction: Instruction) -> None:
        pairs = [  # an ARG without a value stays one in paths
            (name, self._expand(value), self._expand_value(value))
            for name, value in split_pairs(instruction.text)
        ]
        for number, (name, value, path) in enumerate(pairs):
            if _references(value).intersection(before for before, *_ in pairs[:number]):
                self.refused.append(
                    instruction.refuse(
                        "refers to a variable that it sets itself: set that one in an ENV before"
                    )
                )
            self.args.pop(name, None)
            self.set[name] = path
            line = f'export {name}="{value}"'
            self.post.append(line)
            if name == "HOME":  # later instructions have its value, as of an ARG
                self.args[name] = self._expand(path)
                self.note(instruction, "ENV HOME is left out: a container has the user's own home")
            else:
                self.environment.append(line)

    def _add_label(self, instruction: Instruction) -> None:
        if self.is_pulled:  # only files are taken from it
            return
        old = OLD_LABEL.fullmatch(instruction.text)
        pairs = [(old[1], old[2].replace('"', ""))] if old else split_pairs(instruction.text)
        for name, value in pairs:
            expanded = self._expand_value(value, unset="")
            self._check(instruction, _references(expanded))
            self.labels.append(f"{name} {expanded}")

    def _add_workdir(self, instruction: Instruction) -> None:
        self._note_folder(instruction, instruction.text)
        path = self._expand_target(instruction, instruction.text)
        self.workdir = path if path.startswith(("/", "$")) else f"{self.workdir}/{path}"
        self.post.append(f'mkdir -p "{self.workdir}" && cd "{self.workdir}"')
        self._note_tmp(instruction, self.workdir)

    def _note_folder(self, instruction: Instruction, path: str = "") -> None:
        """Note the first instruction that is relative to the unknown folder of a pulled image."""
        text = "is relative to /, not to the image's own folder: begin with an absolute WORKDIR"
        is_known = not self.is_pulled or self.workdir or path.startswith(("/", "$"))
        if not is_known and not any(note.endswith(text) for note in self.notes):
            self.note(instruction, text)

    def _note_tmp(self, instruction: Instruction, path: str) -> None:
        if f"{path}/".startswith(BELOW_TMP):
            self.note(instruction, IN_TMP)

    def _add_copy(self, instruction: Instruction) -> None:
        *sources, target = instruction.text.split()
        self._note_folder(instruction, target)
        target = self._expand_target(instruction, target)
        place = f"{FOLDER}/{instruction.line}"
        mode = f" {instruction.mode}" if instruction.mode else ""
        for source in sources:
            path = self._expand_source(instruction, source)
            if _is_all(path):  # Docker also takes what is hidden, and the content of folders
                path = os.path.dirname(path) or "."
                inner = os.path.basename(os.path.normpath(path))
                inner = "all" if inner in ("", ".") else inner
                self.post.append(f'copy {place}/{inner} "{target}"{mode}')
            if "://" in path:
                if self.is_pulled:  # which may lack Python
                    reason = "adds a URL in a pulled stage: download it with RUN"
                    self.refused.append(instruction.refuse(reason))
                name = path.partition("?")[0].rpartition("/")[2]
                self.post.append(f'mkdir -p {place} && {_DOWNLOAD} "{path}" {place}/{name}')
            elif instruction.origin:
                path = os.path.normpath(f"/{path.lstrip('/')}")
                self.copied.append((instruction.origin, path, f"{place}/"))
            else:
                self.files.append((path.lstrip("/") or ".", f"{place}/"))
        self.post.append(f'copy {place} "{target}"{mode}')
        if instruction.mode and instruction.mode[-1] < "4":
            self.note(instruction, "only root can read these files, and users are not root")
        self._note_tmp(instruction, os.path.join(self.workdir, target))

    _add_add = _add_copy

    def _add_user(self, instruction: Instruction) -> None:
        """Leave the user out: builds run as root, and containers as whoever starts them."""
        if instruction.text.partition(":")[0] not in ("root", "0"):
            what = f"USER {instruction.text} is left out: a container runs as whoever starts it"
            self.note(instruction, what)

    def _add_cmd(self, instruction: Instruction) -> None:
        self.start["CMD"] = self._read_start(instruction.text)
        self.has_own_command = True

    def _add_entrypoint(self, instruction: Instruction) -> None:
        self.start["ENTRYPOINT"] = self._read_start(instruction.text)
        if not self.has_own_command:
            self.start.pop("CMD", None)
        text = "ENTRYPOINT runs only if no command is given: a command replaces it"
        self.note(instruction, f"{text}, as jaxsif run requires")


def _indent(lines: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"    {line}" for line in lines)


def _references(value: str) -> set[str]:
    names = set[str]()
    for found in VARIABLE.finditer(value):
        names |= {found[1] or found[2], *_references(found[4] or "")}
    return names


def _read_platform() -> dict[str, str | None]:
    """Return the ARGs that Docker's builder knows, of this machine."""
    machine = platform.machine()
    name = _MACHINES.get(machine, machine)
    parts = {"PLATFORM": f"linux/{name}", "OS": "linux", "ARCH": name, "VARIANT": ""}
    return {f"{at}{part}": parts[part] for at in ("TARGET", "BUILD") for part in parts}


def _is_all(path: str) -> bool:
    return set(os.path.basename(path)) == {"*"}
