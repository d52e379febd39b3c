"""The results of a benchmark: a folder with results.jsonl, results.csv and plots.

The first line of results.jsonl is the header: the benchmark, where it ran, and its versions. Each
further line is a record.
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
from jaxsif.errors import JaxsifError, Notify, raise_as
from jaxsif.foreign import parse_json, read_given

_MOST_BYTES = 1 << 26  # a record has a few hundred, and each task of `bench startup` has one
LINES, TABLE = "results.jsonl", "results.csv"
Record = dict[str, Any]


class Results(NamedTuple):
    """The measurements of a benchmark."""

    header: Record
    records: list[Record]
    file: Path  # results.jsonl

    @property
    def kinds(self) -> dict[str, Kind]:
        """Return the kinds of the results' records."""
        return KINDS[self.header["bench"]]


def read_results(path: str, source: str) -> Results:
    """Return the results in a folder, or in its results.jsonl; raise JaxsifError."""
    file = Path(path, LINES) if os.path.isdir(path) else Path(path)
    hint = "name a results folder written by jaxsif bench"
    with raise_as(JaxsifError(f"cannot read results {file}", source, hint)):
        lines = read_given(str(file), "results file", source, _MOST_BYTES).splitlines()
    foreign = JaxsifError(f"not a results file of jaxsif bench: {file}", source, "measure again")
    with raise_as(foreign, ValueError):
        return Results(*_parse_lines(lines), file)


def _parse_lines(lines: Sequence[str]) -> tuple[Record, list[Record]]:
    """Return header and records; raise ValueError naming the line."""
    parsed = [_parse_line(line, number) for number, line in enumerate(lines, 1)]
    if not parsed or str(parsed[0].get("bench")) not in KINDS:
        raise ValueError("the first line is not a header")
    header, *records = parsed
    for number, record in enumerate(records, 2):
        _check_record(record, KINDS[header["bench"]], f"line {number}")
    return header, records


def _parse_line(line: str, number: int) -> Record:
    try:
        parsed = parse_json(line)
    except ValueError as error:
        raise ValueError(f"line {number} is not JSON") from error
    if not isinstance(parsed, dict):
        raise ValueError(f"line {number} is not an object")
    return parsed


def _check_record(record: Record, kinds: dict[str, Kind], line: str) -> None:
    """Raise ValueError unless a record has all fields of its kind, each with the right type."""
    name = str(record.get("record"))
    if name not in kinds:
        raise ValueError(f"{line} has no record")
    for field in kinds[name]:
        if field.name not in record:
            raise ValueError(f"{line} has no {field.name}")
        if not _fits(record[field.name], field):
            raise ValueError(f"{line} has an invalid {field.name}")


def _fits(value: object, field: Field) -> bool:
    if value is None:
        return True
    if field.role in (LOWER, HIGHER):
        return isinstance(value, (int, float)) and value >= 0
    return isinstance(value, (str, int, float))


@contextmanager
def recording(folder: Path, header: Record, note: Notify) -> Iterator[Results]:
    """Yield empty results for the body of the `with` to fill, then write them, even if the body
    raises.

    They appear in `folder` once they are complete, and `note` gets a line about it. Without a
    record, nothing is left behind. Raise JaxsifError if the folder already exists.
    """
    if folder.exists():
        raise JaxsifError(
            f"the folder {folder} already exists", "--output", "give another name, or remove it"
        )
    new = folder.with_name(f".{folder.name}.{os.getpid()}.new")
    new.mkdir(parents=True)  # now, rather than after measuring: it may be impossible
    results = Results({**header, "complete": False}, [], folder / LINES)
    try:
        yield results
    finally:
        if results.records:
            _write(results, new)
            _rename(new, folder)
            partial = f"not complete: {len(results.records)} records"
            note(f"{'results' if results.header['complete'] else partial} in {folder}")
        else:
            shutil.rmtree(new, ignore_errors=True)


def _write(results: Results, folder: Path) -> None:
    """Write results into a folder; remove the folder if that fails."""
    header, records, _ = results
    columns = dict.fromkeys(name for record in records for name in record)
    try:
        lines = [json.dumps(record, allow_nan=False) for record in (header, *records)]
        (folder / LINES).write_text("\n".join([*lines, ""]), encoding="utf-8")
        with (folder / TABLE).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(columns), lineterminator="\n")
            writer.writeheader()
            writer.writerows(records)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):  # a full disk's error names no file
            raise OSError(error.errno, error.strerror, str(folder)) from error
        raise


def _rename(new: Path, folder: Path) -> None:
    """Rename the folder `new` to `folder`; if another run has taken that name, leave the results in
    `new`.
    """
    try:
        new.rename(folder)
    except OSError as error:
        what = f"the folder {folder} now exists: the results are in {new}"
        raise JaxsifError(what, "--output", "rename the one with the results") from error
