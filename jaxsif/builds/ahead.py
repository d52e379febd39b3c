"""The big files of the last image of a flavour, written for the next one while the engine still
runs.

Most are in the next one, too, in the same places; `squashfs_writer` writes those that are not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

from jaxsif.builds.squashfs_writer import BIG, copy_data, place_data
from jaxsif.foreign import parse_json
from jaxsif.images.file import find_root
from jaxsif.images.squashfs import Data, Node

Places = dict[Data, int]  # where data are in a file


@contextmanager
def written_ahead(image: Path, note: Path) -> Iterator[Callable[[], Places]]:
    """Write into `image` while the body of the `with` runs; what it yields waits for the end, and
    tells what is where.

    What the cache has no more is left out.
    """
    places = {data: place for data, place in _read(note).items() if Path(data.path).exists()}
    unwanted = Event()

    def copy() -> Places:
        with image.open("wb") as out:
            copy_data(out, places, lambda: not unwanted.is_set())
        return places

    with ThreadPoolExecutor(1) as pool:
        copied = pool.submit(copy)
        try:
            yield copied.result
        finally:
            unwanted.set()


def _read(note: Path) -> Places:
    """What the note of the last build says; nothing where there is none, or one that was cut short."""
    try:
        entries = parse_json(note.read_text(errors="replace"))
    except (FileNotFoundError, ValueError):
        return {}
    if not isinstance(entries, list) or not all(map(_is_entry, entries)):
        return {}
    return {Data(path, start, tuple(blocks)): place for path, start, blocks, place in entries}


def _is_entry(entry: Any) -> bool:
    kinds = [type(value) for value in entry] if isinstance(entry, list) else []
    if kinds != [str, int, list, int]:
        return False
    _, start, blocks, place = entry
    return min(start, place) >= 0 and all(isinstance(block, int) and block >= 0 for block in blocks)


def write_note(note: Path, image: Path, root: Node, scratch: Path) -> None:
    """Note for the next build what big data this image, whose file system is `root`, has where."""
    begin = find_root(str(image)).offset
    big = [[*data, begin + place] for data, place in place_data(root).items() if data.length >= BIG]
    partial = scratch / note.name
    partial.write_text(json.dumps(big))
    partial.replace(note)
