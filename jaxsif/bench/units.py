"""Figures -> text for tables, and sizes and lists as users write them -> values."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from typing import Any, TypeVar

from jaxsif.bench.kinds import BYTES, COUNT, FLOPS, NUMBER, RATE, SECONDS, SHARE, TEXT, Field
from jaxsif.errors import JaxsifError
from jaxsif.limits import read_number, shorten

Name = TypeVar("Name")

_FACTOR = 4  # from one size to the next
_PREFIXES = {"": 0, "K": 1, "M": 2, "G": 3}
# Form of a field -> its units, as the size of a unit, and how a number of them is printed. A figure
# is given in the largest unit that it reaches. Networks are rated in powers of ten.
_UNITS: dict[str, tuple[tuple[float, str], ...]] = {
    SECONDS: ((1e-6, "{:.1f} us"), (1e-3, "{:.2f} ms"), (1, "{:.2f} s")),
    BYTES: ((1, "{:.4g} B"), (2**10, "{:.4g} KiB"), (2**20, "{:.4g} MiB"), (2**30, "{:.4g} GiB")),
    RATE: ((1, "{:.1f} B/s"), (1e3, "{:.1f} kB/s"), (1e6, "{:.1f} MB/s"), (1e9, "{:.2f} GB/s")),
    FLOPS: ((1e9, "{:.3g} GFLOP/s"), (1e12, "{:.3g} TFLOP/s")),
    NUMBER: ((1, "{:,.0f}"),),
    SHARE: ((1, "{:.1%}"),),
}
_GAP = "  "  # between columns, and before a further line of a row
_WIDTHS = {TEXT: 12, COUNT: 6}  # of columns that begin at the left


def render_value(value: Any, form: str) -> str:
    """Return a figure with its unit; '-' for None."""
    if value is None:
        return "-"
    if form not in _UNITS:
        return str(value)
    units = _UNITS[form]
    size, text = max((unit for unit in units if unit[0] <= value), default=units[0])
    return text.format(value / size)


def render_heading(kind: Iterable[Field], width: int = 0) -> str:
    """Return what is above a table of such records, as wide as `width`."""
    return _join((_justify(field.heading, field) for field in kind), width)


def render_row(record: dict[str, Any], kind: Iterable[Field], width: int = 0) -> str:
    """Return a record, below this heading."""
    texts = ((render_value(record.get(field.name), field.form), field) for field in kind)
    return _join((_justify(text, field) for text, field in texts), width)


def _join(cells: Iterable[str], width: int) -> str:
    """Return the cells in a line; in several of `width` columns where that is not 0."""
    lines = [""]
    for cell in cells:
        if width and len(lines[-1]) + len(cell) > width:
            lines.append(_GAP)
        lines[-1] += cell + _GAP
    return "\n".join(map(str.rstrip, lines))


def _justify(text: str, field: Field) -> str:
    width = max(len(field.heading), _WIDTHS.get(field.form, 11))
    return text.ljust(width) if field.form in _WIDTHS else text.rjust(width)


def parse_bytes(text: str, source: str) -> int:
    """Return the bytes of '4096', '64KiB', '64K', '1GiB'; raise JaxsifError."""
    found = re.fullmatch(r"([0-9]+)([KMG]?)(?:i?B)?", text.strip())
    number = read_number(found[1]) if found else None
    if not found or not number:
        raise JaxsifError(
            f"not a size: {shorten(text)!r}", source, "write it as 4096, 64KiB or 1GiB"
        )
    return number << (10 * _PREFIXES[found[2]])


def parse_sizes(text: str, source: str) -> tuple[int, ...]:
    """Return the bytes of '1KiB,1MiB', or of '1KiB-1GiB', each four times the one before it; raise
    JaxsifError.
    """
    first, dash, last = text.partition("-")
    if not dash:
        return tuple(parse_bytes(word, source) for word in text.split(","))
    size, end = parse_bytes(first, source), parse_bytes(last, source)
    if size > end:
        raise JaxsifError(
            f"not a range of sizes: {shorten(text)!r}",
            source,
            "begin with the smaller one, such as 1KiB-1GiB",
        )
    sizes = []
    while size <= end:
        sizes.append(size)
        size *= _FACTOR
    return tuple(sizes)


def find_others(names: Iterable[Name], known: Container[Name]) -> list[Name]:
    """Return the names that are not known, in their order."""
    return [name for name in names if name not in known]
