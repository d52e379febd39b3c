"""The results of a benchmark: a folder with results.jsonl, results.csv and plots.

The first line of results.jsonl is the header: what was measured, where, and with what. A record is
each line below.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from jaxsif.bench.kinds import HIGHER, KINDS, LOWER, Field, Kind
from jaxsif.errors import JaxsifError
from jaxsif.foreign import parse_json

LINES, TABLE = "results.jsonl", "results.csv"
Record = dict[str, Any]


class Results(NamedTuple):
    """What a benchmark has measured."""

    header: Record
    records: list[Record]
    file: Path  # results.jsonl

    @property
    def kinds(self) -> dict[str, Kind]:
        """The kinds of its records."""
        return KINDS[self.header["bench"]]


def read_results(path: str, source: str) -> Results:
    """The results of a folder, or of its results.jsonl; raises JaxsifError."""
    file = Path(path, LINES) if os.path.isdir(path) else Path(path)
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise JaxsifError(
            f"cannot read results {file}: {reason}", source, "a folder of jaxsif bench"
        ) from error
    parsed = [_parse_line(line, number, file, source) for number, line in enumerate(lines, 1)]
    if not parsed or str(parsed[0].get("bench")) not in KINDS:
        raise _broken(file, "the first line is no header", source)
    header, *records = parsed
    for number, record in enumerate(records, 2):
        kind = KINDS[header["bench"]].get(str(record.get("record")))
        missing = (
            ["record"]
            if kind is None
            else [field.name for field in kind if field.name not in record]
        )
        if missing:
            raise _broken(file, f"line {number} has no {missing[0]}", source)
        strange = [field.name for field in kind or () if not _fits(record[field.name], field)]
        if strange:
            raise _broken(file, f"line {number} has a strange {strange[0]}", source)
    return Results(header, records, file)


def _fits(value: object, field: Field) -> bool:
    if field.role in (LOWER, HIGHER):
        return value is None or (isinstance(value, (int, float)) and value >= 0)
    return value is None or isinstance(value, (str, int, float))


def _parse_line(line: str, number: int, file: Path, source: str) -> Record:
    try:
        parsed = parse_json(line)
    except ValueError as error:
        raise _broken(file, f"line {number} is no JSON", source) from error
    if not isinstance(parsed, dict):
        raise _broken(file, f"line {number} is no object", source)
    return parsed


def _broken(file: Path, reason: str, source: str) -> JaxsifError:
    return JaxsifError(f"not results of jaxsif bench: {file}: {reason}", source, "measure again")


@contextmanager
def recording(folder: Path, header: Record) -> Iterator[Results]:
    """Empty results for the body of the `with` to fill; then they are written, also when it raises.

    They are in `folder` when they are whole. Without a record, nothing is left. Raises JaxsifError
    where there is one.
    """
    if folder.exists():
        raise JaxsifError(
            f"there is a folder {folder} already", "--output", "another name, or remove it"
        )
    new = folder.with_name(f".{folder.name}.{os.getpid()}.new")
    new.mkdir(parents=True)  # now, and not when all is measured and there is no place for it
    results = Results({**header, "complete": False}, [], folder / LINES)
    try:
        yield results
    finally:
        try:
            if results.records:
                _write(results, new)
                _put(new, folder)
        except JaxsifError:
            raise
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        else:
            shutil.rmtree(new, ignore_errors=True)


def _put(new: Path, folder: Path) -> None:
    """Give a folder its name; where another run has taken it meanwhile, nothing is lost."""
    try:
        new.rename(folder)
    except OSError as error:
        what = f"there is a folder {folder} by now: the results are in {new}"
        raise JaxsifError(what, "--output", "rename that one") from error


def _write(results: Results, folder: Path) -> None:
    lines = [json.dumps(record, allow_nan=False) for record in (results.header, *results.records)]
    (folder / LINES).write_text("\n".join([*lines, ""]), encoding="utf-8")
    with (folder / TABLE).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, _columns(results.records), lineterminator="\n")
        writer.writeheader()
        writer.writerows(results.records)


def _columns(records: Sequence[Record]) -> list[str]:
    """All fields, in the order in which they come."""
    return list(dict.fromkeys(name for record in records for name in record))
