"""A recipe of somebody else's as the parts of a definition file on top of an image with JAX."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from glob import has_magic
from typing import Any, NamedTuple

from jaxsif.errors import JaxsifError

FOLDER = "/.jaxsif-copy"  # in the image while it is built: what %files brings

PARENT_MATCHES = "has a pattern that also finds ..: name the files"
TMP_IS_SHARED = "empties /tmp, which is the host's while an image is built: take it out"


class Refusal(NamedTuple):
    """A line that cannot be converted."""

    line: int
    text: str
    reason: str


class Converted(NamedTuple):
    """The parts of a definition file, as lines."""

    base: str  # the image that the recipe is for
    files: tuple[
        tuple[str, str], ...
    ] = ()  # path on the host, relative to the recipe; in the image
    post: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    runscript: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    help: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what is left out or differs


def number_lines(text: str) -> Iterator[tuple[int, str]]:
    """Return the lines of a recipe with their numbers, as Docker splits it: no other character
    breaks a line.
    """
    return enumerate((line.removesuffix("\r") for line in text.split("\n")), 1)


def find_invisible(text: str) -> str:
    """Return what is wrong with the first character that is neither printable nor a tab, or stands
    for bytes that are no text; '' where none is so.
    """
    for letter in text:
        if letter == "\ufffd" or not (letter == "\t" or letter.isprintable()):
            return f"has an invisible character (U+{ord(letter):04X})"
    return ""


def finds_parent(source: str) -> bool:
    """Return whether a path has a pattern such as .*, by which a shell finds .. too."""
    parts = (part for part in source.split("/") if part.startswith(".") and has_magic(part))
    return any(fnmatchcase("..", part) for part in parts)


def refuse_invisible(lines: Iterable[tuple[int, str]], refused: Sequence[Refusal]) -> list[Refusal]:
    """Return what is refused, and of the other numbered lines those with an invisible character: to
    some reader it ends the line, or parts words.
    """
    others = {one.line for one in refused}
    hidden = [
        Refusal(number, line.strip(" \t"), f"{reason}: take it out")
        for number, line in lines
        if number not in others and (reason := find_invisible(line))
    ]
    return sorted([*refused, *hidden])


# As Docker copies: a folder's content, and into a folder that is there.
_COPY = """\
copy() {
    for one in "$1"/* "$1"/.[!.]*; do
        [ -e "$one" ] || continue
        case $2 in */ | . | ..) mkdir -p "$2" ;; *) mkdir -p "$(dirname "$2")" ;; esac
        if [ -d "$one" ]; then mkdir -p "$2" && cp -a "$one/." "$2"; else cp -a "$one" "$2"; fi
    done
    rm -rf "$1"
}"""
_PIP = """\
if ! command -v pip >/dev/null; then
    apt-get -qq update && apt-get -qq install -y --no-install-recommends python3-pip
    /usr/bin/python3 -m pip --quiet --python "$(command -v python)" install pip
fi"""
# The runtime sources no %environment while it builds.
_START = "export PATH=/opt/jax/bin:$PATH\ncd /"
_ARGUMENTS = (
    'if [ "$#" -gt 0 ]; then exec "$@"; fi'  # jaxsif run gives its command to the runscript
)


def copy_line(place: str, target: str) -> str:
    """Return the line of %post that brings what %files has put into `place` to `target`."""
    return f'copy {place} "{target}"'


def is_for_copy(target: str) -> bool:
    """Return whether %files brings something for a COPY of a Dockerfile, and not to its place."""
    return target.startswith(FOLDER)


def render_definition(converted: Converted, name: str, folder: str, image: str) -> str:
    """Return a definition file on top of `image`; `folder` is that of the recipe `name`."""
    head = f"# {name} (FROM {converted.base}) by jaxsif image convert, on top of an image with JAX."
    sections = {
        "files": [_render_file(folder, *pair) for pair in converted.files],
        "post": _render_post(converted.post),
        "environment": converted.environment,
        "labels": converted.labels,
        "runscript": _render_runscript(converted.runscript),
        "test": converted.test,
        "help": converted.help,
    }
    lines = [head, "Bootstrap: localimage", f"From: {image}"]
    _check_body(lines)
    for section, found in sections.items():
        if found:
            _check_body(found)
            lines += ["", f"%{section}", *found]
    return "\n".join(lines) + "\n"


def _check_body(parts: Sequence[str]) -> None:
    """Raise JaxsifError for a line that a reader could take for a section: it can run on the
    host.
    """
    for line in "\n".join(parts).splitlines():
        if line.lstrip().startswith("%"):
            raise JaxsifError(f"cannot convert a line that begins with %: {line.strip()}")


def _render_file(folder: str, source: str, target: str) -> str:
    """Return a line of %files; the content of the recipe's folder itself is a folder there."""
    if is_for_copy(target) and os.path.basename(source.rstrip("/")) in ("", "."):
        return f"    {os.path.normpath(os.path.join(folder, source))}/. {target}all"
    return f"    {os.path.join(folder, source)} {target}"


def _render_post(lines: Sequence[str]) -> list[str]:
    text = "\n".join(lines)
    needs = {_COPY: f"copy {FOLDER}", _PIP: "pip"}
    before = [_START, *(script for script, word in needs.items() if word in text)]
    after = [f"    rm -rf {FOLDER}"] if _COPY in before else []
    return [textwrap.indent("\n".join(before), "    "), *lines, *after] if lines else []


def _render_runscript(lines: Sequence[str]) -> list[str]:
    shebang = [line for line in lines[:1] if line.startswith("#!")]
    return [*shebang, f"    {_ARGUMENTS}", *lines[len(shebang) :]] if lines else []


def converted_as_json(
    converted: Converted | None, definition: str | None, refused: Iterable[Refusal]
) -> dict[str, Any]:
    """Return the parts, the whole, and what was refused; null where something was."""
    parts = dict.fromkeys(Converted._fields) if converted is None else converted._asdict()
    return {
        **parts,
        "definition": definition,
        "refused": [one._asdict() for one in refused],
    }
