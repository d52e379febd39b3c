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
