"""Convert a Dockerfile or a definition file into a definition on top of an image with JAX."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from spython.logger import bot
from spython.logger.message import QUIET

from jaxsif.builds.converted import (
    Converted,
    Refusal,
    find_invisible,
    is_for_copy,
    render_definition,
)
from jaxsif.builds.definition import check_sections, convert_definition, split_sections
from jaxsif.builds.dockerfile import check_instructions, convert_dockerfile, split_instructions
from jaxsif.errors import JaxsifError, count_of, printable
from jaxsif.foreign import read_text

_IS_DEFINITION = re.compile(r"^bootstrap\s*:", re.IGNORECASE | re.MULTILINE)


class Conversion(NamedTuple):
    """What came of a file."""

    converted: Converted | None  # None where a line was refused
    definition: str | None
    refused: tuple[Refusal, ...]


def convert_file(path: str, image: str) -> Conversion:
    """Return what came of a file, on top of `image`; raise HostError for what is no small file, and
    OSError.
    """
    text = read_text(path, "recipe", "FILE").removeprefix("\ufeff")
    with _without_messages():
        converted, refused = _convert(text)
    if refused:
        return Conversion(None, None, tuple(sorted(refused)))
    folder = os.path.dirname(os.path.abspath(path))
    name = os.path.basename(path)
    _check_name(name, "FILE")
    _check_name(image, "--image")
    _check_folder(folder, converted)
    outside = tuple(_find_links(folder, converted, text))
    if outside:
        return Conversion(None, None, tuple(sorted(outside)))
    converted = _check_files(folder, converted)
    definition = render_definition(converted, name, folder, image)
    return Conversion(converted, definition, ())


def _check_name(name: str, source: str) -> None:
    """Raise JaxsifError for a name that would not stand on one line of the definition's head."""
    reason = find_invisible(name)
    if reason:
        raise JaxsifError(f"{name!r} {reason}", source, "rename it")


def _check_folder(folder: str, converted: Converted) -> None:
    """Raise JaxsifError for a folder that %files cannot name: the runtime reads its lines as a
    shell does.
    """
    if converted.files and not re.fullmatch(r"[\w./+@%,=-]+", folder):
        raise JaxsifError(
            f"cannot copy from {folder!r}: its name has letters that mean something to a shell",
            "FILE",
            "rename the folder",
        )


def _check_files(folder: str, converted: Converted) -> Converted:
    """Leave out a Dockerfile's patterns that match no file, as Docker does; note that, and what is
    not there.
    """
    files, notes = [], []
    for source, target in converted.files:
        is_there = glob.glob(os.path.join(glob.escape(folder), source))
        may_lack = glob.has_magic(source) and is_for_copy(target)
        if is_there or not may_lack:
            files.append((source, target))
        if not is_there:
            rest = "is left out: no file has such a name" if may_lack else "is not there yet"
            notes.append(f"{source} {rest}")
    if os.path.exists(f"{folder}/.dockerignore"):
        notes.append(".dockerignore is not obeyed: COPY takes all that is there")
    return converted._replace(files=tuple(files), notes=(*converted.notes, *notes))


def _find_links(folder: str, converted: Converted, text: str) -> Iterator[Refusal]:
    """Yield the lines that would copy something from outside of the recipe's folder by a link, such
    as a stranger's one to ~/.ssh: the runtime copies by cp -L, which follows links in folders too.

    A definition file may name a path outside; whoever reads it sees that.
    """
    for source, target in converted.files:
        path = os.path.normpath(os.path.join(folder, source))
        if not (is_for_copy(target) or _is_below(path, folder)):
            continue
        pattern = os.path.join(glob.escape(folder), source)
        found = next(filter(None, (find_escape(one, folder) for one in glob.glob(pattern))), "")
        if found:
            line = _find_line(text, source, target)
            reason = (
                f"{os.path.relpath(found, folder)} leads to {os.path.realpath(found)}, out of the"
                " folder: put a copy in its place, or take it out"
            )
            yield Refusal(line, text.split("\n")[line - 1].strip(), reason)


def find_escape(path: str, folder: str) -> str:
    """Return `path`, or what is below it, if links lead from there out of `folder`; '' where none
    does. Links within `folder` are followed; raise OSError for a folder that cannot be read.
    """
    root = os.path.realpath(folder)
    waiting, seen = [path], set()
    while waiting:
        one = waiting.pop()
        real = os.path.realpath(one)
        if not _is_below(real, root):
            return one
        if real not in seen and os.path.isdir(real):
            with os.scandir(one) as entries:
                waiting += [e.path for e in entries if e.is_symlink() or e.is_dir()]
        seen.add(real)
    return ""


def _is_below(path: str, folder: str) -> bool:
    return os.path.commonpath([path, folder]) == folder


def _find_line(text: str, source: str, target: str) -> int:
    """Return the number of the line that copies `source`."""
    if is_for_copy(target):
        return int(os.path.basename(target.rstrip("/")))
    lines = (line for one in split_sections(text) if one.name == "files" for line in one.lines)
    return next(number for number, line in lines if line.split()[:1] == [source])


def _convert(text: str) -> tuple[Converted, Sequence[Refusal]]:
    nothing = Converted("")
    if _IS_DEFINITION.search(text):
        sections = split_sections(text)
        refused = check_sections(sections, text)
        return (nothing, refused) if refused else (convert_definition(sections), ())
    instructions = list(split_instructions(text))
    refused = check_instructions(instructions, text)
    return (nothing, refused) if refused else convert_dockerfile(instructions)


@contextmanager
def _without_messages() -> Iterator[None]:
    """Have spython print nothing of a file's text in the body."""
    before, bot.level = bot.level, QUIET
    try:
        yield
    finally:
        bot.level = before


def refuse(path: str, refused: Sequence[Refusal]) -> JaxsifError:
    """Return the error that names each line which cannot be converted."""
    lines = (f"{path}:{one.line}: {one.text[:60]}: {one.reason}" for one in refused)
    return JaxsifError(
        f"cannot convert {count_of(len(refused), 'line')} of {path}",
        "FILE",
        "change what is named, and convert again",
        "\n".join(map(printable, lines)),
    )
