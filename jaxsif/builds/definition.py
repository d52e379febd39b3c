"""Write a definition file on top of an image with JAX, from the parts of a Dockerfile."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from jaxsif.errors import JaxsifError

FOLDER = "/.jaxsif-copy"  # in the image while it is built: the copies of %files


class Refusal(NamedTuple):
    """A line that cannot be converted."""

    line: int
    text: str
    reason: str


class Converted(NamedTuple):
    """The parts of a definition file, as lines."""

    base: str  # the image that the recipe builds on
    files: tuple[
        tuple[str, str], ...
    ] = ()  # path on the host, relative to the recipe; path in the image
    copied: tuple[tuple[str, str, str], ...] = ()  # stage or image; path there; path in the image
    post: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    runscript: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # omissions and differences
    stage: str = ""  # its name
    is_pulled: bool = False  # the base is an image of a registry, and not replaced


def number_lines(text: str) -> Iterator[tuple[int, str]]:
    """Split a recipe into numbered lines as Docker does: only a line feed ends a line."""
    return enumerate((line.removesuffix("\r") for line in text.split("\n")), 1)


def find_invisible(text: str) -> str:
    """Describe the first character that is neither printable nor a tab, or that replaces invalid
    UTF-8; return '' if there is none.
    """
    for letter in text:
        if letter == "\ufffd" or not (letter == "\t" or letter.isprintable()):
            return f"has an invisible character (U+{ord(letter):04X})"
    return ""


def refuse_invisible(lines: Iterable[tuple[int, str]], refused: Sequence[Refusal]) -> list[Refusal]:
    """Add the lines with an invisible character to the refused ones: some programs take such a
    character for the end of a line or a word.
    """
    others = {instruction.line for instruction in refused}
    hidden = [
        Refusal(number, line.strip(" \t"), f"{reason}: remove it")
        for number, line in lines
        if number not in others and (reason := find_invisible(line))
    ]
    return sorted([*refused, *hidden])


# Like Docker: copies a folder's content, and into an existing folder, which keeps its mode. Several
# files need a folder, which Docker wants with a final /. Whoever is not root needs the x of
# folders, which a mode for files lacks. %post calls it as: copy PLACE "TARGET" [MODE]. In a
# subshell, since %post has variables of its own.
_COPY = """\
copy() (
    [ "$(ls -A "$1" | wc -l)" -lt 2 ] || set -- "$1" "$2/" ${3+"$3"}
    for one in "$1"/* "$1"/.[!.]*; do
        [ -e "$one" ] || continue
        if [ "${3-}" ]; then
            find "$one" ! -type l -exec chmod "$3" {} +
            find "$one" -type d -exec chmod a+x {} +
        fi
        if [ -d "$one" ]; then
            mode=$(stat -c %a "$2" 2>/dev/null) || mkdir -p "$2"
            cp -a "$one/." "$2"
            [ -z "$mode" ] || chmod "$mode" "$2"
        else
            case $2 in */ | . | ..) mkdir -p "$2" ;; *) mkdir -p "$(dirname "$2")" ;; esac
            cp -a "$one" "$2"
        fi
    done
    rm -rf "$1"
)"""
_INSTALL = "apt-get -qq update && apt-get -qq install -y --no-install-recommends"
_PIP = f"""\
if ! command -v pip >/dev/null; then
    {_INSTALL} python3-pip
    /usr/bin/python3 -m pip --quiet --python "$(command -v python)" install pip
fi"""
_VENV = f"""\
if ! python -c 'import ensurepip' 2>/dev/null; then
    {_INSTALL} python3-venv
fi"""
_ADDUSER = f"""\
if ! command -v adduser >/dev/null; then
    {_INSTALL} adduser
fi"""
_UV = "export UV_PYTHON=/opt/jax/bin/python"  # else uv takes Debian's own for the system's
_POETRY = "export VIRTUAL_ENV=/opt/jax"  # else poetry installs into Debian's, or a new environment
# The runtime sources no %environment while it builds.
_START = "export PATH=/opt/jax/bin:$PATH\ncd /"
_START_OF_PULLED = """\
if [ -e /.singularity.d/env/10-docker2singularity.sh ]; then
    . /.singularity.d/env/10-docker2singularity.sh
fi
cd /"""
# What our image lacks, and the words of the commands that need it.
_NEEDS = {
    _PIP: r"\bpip3?\b",
    _VENV: r"-m venv\b",
    _ADDUSER: r"\badd(?:user|group)\b",
    _POETRY: r"\bpoetry\b",
    _UV: r"\buv pip .*--system\b|UV_SYSTEM_PYTHON",
}
_ARGUMENTS = (
    'if [ "$#" -gt 0 ]; then exec "$@"; fi'  # jaxsif run gives its command to the runscript
)
_BEGINS_PART = re.compile(r"\s*(?:%|bootstrap\s*:)", re.IGNORECASE)  # a section, or a stage


def render_definition(stages: Sequence[Converted], name: str, folder: str, image: str) -> str:
    """Return a definition file that builds on `image`; `folder` is the folder of the recipe `name`.
    The last stage becomes the image.
    """
    base = stages[-1].base
    lines = [f"# {name} (FROM {base}) adapted by jaxsif image convert to an image with JAX."]
    _check_body(lines)
    for number, one in enumerate(stages):
        begin, end = ("docker", one.base) if one.is_pulled else ("localimage", image)
        _check_body([end, one.stage])
        lines += [""] * (number > 0) + [f"Bootstrap: {begin}", f"From: {end}"]
        lines += [f"Stage: {one.stage}"] * (len(stages) > 1)
        for section, found in _render_sections(one, folder).items():
            if found:
                _check_body([section, *found])
                lines += ["", f"%{section}", *found]
    return "\n".join(lines) + "\n"


def _render_sections(converted: Converted, folder: str) -> dict[str, Sequence[str]]:
    copied: dict[str, list[str]] = {}
    for stage, path, place in converted.copied:
        copied.setdefault(f"files from {stage}", []).append(f"    {path} {place}")
    return {
        "files": [_render_file(folder, *pair) for pair in converted.files],
        **copied,
        "post": _render_post(converted.post, converted.is_pulled),
        "environment": converted.environment,
        "labels": converted.labels,
        "runscript": [f"    {_ARGUMENTS}", *converted.runscript] if converted.runscript else [],
    }


def _check_body(parts: Sequence[str]) -> None:
    """Raise JaxsifError for a line that could be taken for a section, which can run on the host,
    or for the head of another stage.
    """
    for line in "\n".join(parts).splitlines():
        if _BEGINS_PART.match(line):
            begin = "%" if line.lstrip().startswith("%") else "Bootstrap:"
            raise JaxsifError(f"cannot convert a line that begins with {begin}: {line.strip()}")


def _render_file(folder: str, source: str, target: str) -> str:
    """Return a line of %files; the content of the recipe's folder itself goes into a folder in the
    image.
    """
    if os.path.basename(source.rstrip("/")) in ("", "."):
        return f"    {os.path.normpath(os.path.join(folder, source))}/. {target}all"
    return f"    {os.path.join(folder, source)} {target}"


def _render_post(lines: Sequence[str], is_pulled: bool) -> list[str]:
    text = "\n".join(lines)
    before = [_START_OF_PULLED if is_pulled else _START]
    before += [_COPY] * (f"copy {FOLDER}" in text)
    for script, word in _NEEDS.items():
        before += [script] * (not is_pulled and bool(re.search(word, text)))
    after = [f"    rm -rf {FOLDER}"] if _COPY in before else []
    return [textwrap.indent("\n".join(before), "    "), *lines, *after] if lines else []


def converted_as_json(
    stages: Sequence[Converted], definition: str | None, refused: Iterable[Refusal]
) -> dict[str, Any]:
    """Return the parts of the last stage, the earlier stages, the whole definition, and the refused
    lines; the parts and the definition are null if a line was refused.
    """
    parts = stages[-1]._asdict() if stages else dict.fromkeys(Converted._fields)
    return {
        **parts,
        "stages": [one._asdict() for one in stages[:-1]],
        "definition": definition,
        "refused": [instruction._asdict() for instruction in refused],
    }
