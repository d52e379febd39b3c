"""Convert a Dockerfile into a definition file on top of an image with JAX."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from jaxsif.builds.definition import (
    Converted,
    Refusal,
    find_invisible,
    render_definition,
)
from jaxsif.builds.dockerfile import check_instructions, split_instructions
from jaxsif.builds.dockerfile_stages import (
    check_stages,
    convert_stage,
    find_unused,
    select_stages,
    split_stages,
)
from jaxsif.errors import JaxsifError
from jaxsif.foreign import read_text
from jaxsif.text import count_of, printable

_DEFINING = {"FROM", "ARG", "ENV", "SHELL", "#"}  # what the meaning of later lines depends on
_IS_DEFINITION = re.compile(r"^bootstrap\s*:", re.IGNORECASE | re.MULTILINE)


class Conversion(NamedTuple):
    """The result of a conversion."""

    stages: tuple[Converted, ...]  # the last becomes the image; none if a line was refused
    definition: str | None
    refused: tuple[Refusal, ...]

    def notes(self) -> list[str]:
        """Return the notes of all stages, each once: stages may share their base."""
        return list(dict.fromkeys(note for one in self.stages for note in one.notes))


def convert_file(path: str, image: str, target: str = "", context: str = "") -> Conversion:
    """Convert a file, or its stage `target`, on top of `image`; COPY reads from the folder
    `context`, else from the file's own. Raise JaxsifError if it is a definition file, has an
    unusable path or no such stage, HostError if it is too large or not a regular file, and OSError
    if it cannot be read.
    """
    if context and not os.path.isdir(context):
        raise JaxsifError(f"folder not found: {context}", "--context", "check its path")
    text = read_text(path, "Dockerfile", "FILE").removeprefix("\ufeff")
    if _IS_DEFINITION.search(text):
        hint = f'write "Bootstrap: localimage" and "From: {image}" at its top by hand'
        raise JaxsifError(f"{path} is a definition file, not a Dockerfile", "FILE", hint)
    stages, refused = _convert_stages(text, target)
    folder = os.path.abspath(context or os.path.dirname(path))
    refused += _find_links(folder, stages, text, {one.line for one in refused})
    if refused:
        return Conversion((), None, tuple(sorted(set(refused))))
    name = os.path.basename(path)
    _check_name(name, "FILE")
    _check_name(image, "--image")
    for one in stages:
        _check_folder(folder, one, "--context" if context else "FILE")
    stages = [_check_files(folder, one) for one in stages]
    return Conversion(tuple(stages), render_definition(stages, name, folder, image), ())


def _convert_stages(text: str, target: str) -> tuple[list[Converted], list[Refusal]]:
    instructions = list(split_instructions(text))
    stages = split_stages(instructions)
    if not stages:
        return [], check_instructions(instructions, text)
    selected = select_stages(stages, target)
    used = {instruction for one in selected for instruction in one.instructions}
    refused = [*check_instructions(sorted(used), text), *check_stages(stages, selected)]
    if not _DEFINING.isdisjoint(one.text.partition(" ")[0].upper() for one in refused):
        return [], refused
    lines = {one.line for one in refused}
    converted = []
    for one in selected:
        # RUN depends on each WORKDIR, whose refusal is the same again.
        kept = (at for at in one.instructions if at.line not in lines or at.word == "WORKDIR")
        found, others = convert_stage(one._replace(instructions=tuple(kept)))
        converted.append(found)
        refused += others
    last = converted.pop()
    unused = find_unused(stages, used)
    # Only the last stage runs.
    earlier = [one._replace(environment=(), labels=(), runscript=()) for one in converted]
    return [*earlier, last._replace(notes=(*last.notes, *unused))], refused


def _check_name(name: str, source: str) -> None:
    """Raise JaxsifError for a name that would not fit on one line at the top of the definition."""
    reason = find_invisible(name)
    if reason:
        raise JaxsifError(f"{name!r} {reason}", source, "rename it")


def _check_folder(folder: str, converted: Converted, source: str) -> None:
    """Raise JaxsifError for a folder that %files cannot name: the runtime parses its lines like a
    shell.
    """
    if converted.files and not re.fullmatch(r"[\w./+@%,=-]+", folder):
        raise JaxsifError(
            f"cannot copy from {folder!r}: its name has characters that are special to a shell",
            source,
            "rename the folder",
        )


def _check_files(folder: str, converted: Converted) -> Converted:
    """Leave out patterns that match no file, as Docker does; add notes about these, and about
    missing files.
    """
    files, notes = [], list[str]()
    for source, target in converted.files:
        is_there = glob.glob(os.path.join(glob.escape(folder), source))
        notes += _note_broken(folder, is_there, os.path.basename(target.rstrip("/")))
        may_lack = glob.has_magic(source)
        if is_there or not may_lack:
            files.append((source, target))
        if not is_there:
            rest = "is left out: no file matches it" if may_lack else "does not exist yet"
            notes.append(f"{source} {rest}")
    if os.path.exists(f"{folder}/.dockerignore"):
        notes.append(".dockerignore is ignored: COPY copies everything")
    return converted._replace(files=tuple(files), notes=(*converted.notes, *notes))


def _note_broken(folder: str, paths: Sequence[str], line: str) -> Iterator[str]:
    """Yield a note about the first link at or below `paths` that leads nowhere."""
    all_paths = (pair for path in paths for pair in _walk(path))
    broken = ((one, real) for one, real in all_paths if not os.path.exists(one))
    for one, real in islice(broken, 1):
        leads = f"{os.path.relpath(one, folder)} points to {real}"
        yield f"line {line}: {leads}, which does not exist: apptainer build would stop there"


def _find_links(
    folder: str, stages: Iterable[Converted], text: str, others: Container[int]
) -> Iterator[Refusal]:
    """Yield the lines but `others` that would copy something from outside the recipe's folder
    through a link, such as one to ~/.ssh in a stranger's recipe: the runtime copies with cp -L,
    which follows links in folders, too.
    """
    for source, target in (pair for one in stages for pair in one.files):
        line = int(os.path.basename(target.rstrip("/")))
        pattern = os.path.join(glob.escape(folder), source)
        found = next(filter(None, (find_escape(one, folder) for one in glob.glob(pattern))), "")
        if found and line not in others:
            reason = (
                f"{os.path.relpath(found, folder)} points to {os.path.realpath(found)}, outside the"
                " folder: replace it with a copy, or remove it"
            )
            yield Refusal(line, text.split("\n")[line - 1].strip(), reason)


def find_escape(path: str, folder: str) -> str:
    """Find the link at or under `path` that points outside `folder`, or return ''. Links within
    `folder` are followed; raise OSError for a folder that cannot be read.
    """
    root = os.path.realpath(folder)
    outside = (one for one, real in _walk(path) if os.path.commonpath([real, root]) != root)
    return next(outside, "")


def _walk(path: str) -> Iterator[tuple[str, str]]:
    """Yield a path and each folder and link below it, each with its real path; a folder is entered
    once, and after it.
    """
    waiting, seen = [path], set()
    while waiting:
        one = waiting.pop()
        real = os.path.realpath(one)
        yield one, real
        if real not in seen and os.path.isdir(real):
            with os.scandir(one) as entries:
                waiting += [e.path for e in entries if e.is_symlink() or e.is_dir()]
        seen.add(real)


def refuse(path: str, refused: Sequence[Refusal]) -> JaxsifError:
    """Make the error that names each line that cannot be converted."""
    places = ((one, f"{path}:{one.line}") for one in refused)
    lines = (": ".join(filter(None, (at, one.text[:60], one.reason))) for one, at in places)
    return JaxsifError(
        f"cannot convert {count_of(len({one.line for one in refused}), 'line')} of {path}",
        "FILE",
        "change the lines named above, and convert again",
        "\n".join(map(printable, lines)),
    )
