"""Figures -> text for people, and sizes as people write them -> bytes."""

from __future__ import annotations

import re
from typing import Any

from jaxsif.bench.kinds import BYTES, COUNT, FLOPS, NUMBER, RATE, SECONDS, SHARE, TEXT, Field
from jaxsif.errors import JaxsifError

_FACTOR = 4  # from one size to the next
_PREFIXES = {"": 0, "K": 1, "M": 2, "G": 3}


def render_value(value: Any, form: str) -> str:
    """A figure with its unit; '-' where nothing is known."""
    if value is None:
        return "-"
    if form == SECONDS:
        return render_seconds(value)
    if form == BYTES:
        return render_bytes(value)
    if form == RATE:
        return render_rate(value)
    if form == FLOPS:
        return f"{value / 1e12:.3g} TFLOP/s" if value >= 1e12 else f"{value / 1e9:.3g} GFLOP/s"
    if form == SHARE:
        return f"{value:.1%}"
    return f"{value:,.0f}" if form == NUMBER else str(value)


def render_seconds(value: float) -> str:
    """Such as '12.3 us', '4.56 ms', '7.89 s'."""
    if value < 1e-3:
        return f"{value * 1e6:.1f} us"
    return f"{value * 1e3:.2f} ms" if value < 1 else f"{value:.2f} s"


def render_bytes(value: float) -> str:
    """Such as '64 KiB'."""
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} GiB"


def render_rate(value: float) -> str:
    """Such as '12.3 GB/s', in powers of ten, as networks are rated."""
    for unit in ("B/s", "kB/s", "MB/s"):
        if value < 1000:
            return f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.2f} GB/s"


def render_heading(kind: tuple[Field, ...]) -> str:
    """The first line of a table of such records."""
    return "  ".join(_justify(field.heading, field) for field in kind).rstrip()


def render_row(record: dict[str, Any], kind: tuple[Field, ...]) -> str:
    """A record, as a line below this heading."""
    return "  ".join(
        _justify(render_value(record.get(field.name), field.form), field) for field in kind
    ).rstrip()


def _justify(text: str, field: Field) -> str:
    width = max(len(field.heading), {TEXT: 12, COUNT: 6}.get(field.form, 11))
    return text.ljust(width) if field.form in (TEXT, COUNT) else text.rjust(width)


def parse_bytes(text: str, source: str) -> int:
    """The bytes of '4096', '64KiB', '64K', '1GiB'; raises JaxsifError."""
    found = re.fullmatch(r"(\d+)([KMG]?)(?:i?B)?", text.strip())
    if not found or not int(found[1]):
        raise JaxsifError(f"not a size: {text!r}", source, "such as 4096, 64KiB or 1GiB")
    return int(found[1]) << (10 * _PREFIXES[found[2]])


def parse_sizes(text: str, source: str) -> tuple[int, ...]:
    """The sizes of '1KiB,1MiB', or of '1KiB-1GiB', each four times the one before it; raises
    JaxsifError.
    """
    first, dash, last = text.partition("-")
    if not dash:
        return tuple(parse_bytes(word, source) for word in text.split(","))
    size, end = parse_bytes(first, source), parse_bytes(last, source)
    if size > end:
        raise JaxsifError(
            f"not a range of sizes: {text!r}", source, "the smaller one first, such as 1KiB-1GiB"
        )
    sizes = []
    while size <= end:
        sizes.append(size)
        size *= _FACTOR
    return tuple(sizes)
