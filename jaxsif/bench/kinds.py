"""The records of the benchmarks, field by field, and as rows of a table.

A record is a line of results.jsonl, such as {"record": "link", "from": "node1", "to": "node2",
"bandwidth": 9.1e8}. Its kind, an entry of KINDS, says which fields distinguish it from others, and
which are measured. Tables, comparisons and CSV files are made from that. Units are SI units:
seconds, bytes, bytes per second.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, NamedTuple, TypeVar

# The role of a field in comparisons: it joins the records of two results, is judged, or is only
# shown.
KEY, LOWER, HIGHER, SHOWN = "key", "lower is better", "higher is better", "shown"
# How a field is printed, see _UNITS.
TEXT, COUNT, SECONDS, BYTES, RATE = "text", "count", "seconds", "bytes", "bytes per second"
HUNDREDTHS = "seconds, to the nearest hundredth"
NUMBER, FLOPS, SHARE = "number", "floating-point operations per second", "fraction"


class Field(NamedTuple):
    """A field of a record."""

    name: str
    form: str
    role: str = SHOWN
    symbol: str = ""  # a shorter name, for tables

    @property
    def heading(self) -> str:
        """Return the name as tables show it."""
        return self.symbol or self.name.replace("_", " ")


Kind = tuple[Field, ...]

# The phases of a start, as inside/startup.py names them.
STARTUP_PHASES = (
    "launch",
    "container",
    "python",
    "import",
    "initialize",
    "devices",
    "compile",
    "collective",
)
_PHASE_FIELDS = tuple(Field(phase, HUNDREDTHS) for phase in STARTUP_PHASES)

# Benchmark -> the kinds of its records.
KINDS: dict[str, dict[str, Kind]] = {
    "collectives": {
        "operation": (
            Field("operation", TEXT, KEY),
            Field("size", BYTES, KEY),
            Field("time", SECONDS, LOWER),
            Field("algorithm_bandwidth", RATE, symbol="algbw"),
            Field("bus_bandwidth", RATE, symbol="busbw"),
            Field("iterations", COUNT),
        ),
        "link": (
            Field("from", TEXT, KEY),
            Field("to", TEXT, KEY),
            Field("size", BYTES, KEY),
            Field("bandwidth", RATE, HIGHER),
            Field("latency", SECONDS),
        ),
        "memory": (
            Field("process", COUNT, KEY),
            Field("node", TEXT),
            Field("host_memory", BYTES),
            Field("device_memory", BYTES),
        ),
    },
    "train": {
        "run": (
            Field("mode", TEXT, KEY),
            Field("processes", COUNT, KEY),
            Field("devices", COUNT, KEY),
            Field("batch", COUNT, KEY),
            Field("step_time", SECONDS, LOWER),
            Field("examples_per_second", NUMBER, symbol="examples/s"),
            Field("flops", FLOPS),
            Field("share_of_peak", SHARE),
            Field("efficiency", SHARE),
            Field("memory", BYTES, LOWER),
        ),
    },
    "startup": {
        "start": (
            Field("variant", TEXT, KEY),
            Field("round", COUNT, KEY),
            *_PHASE_FIELDS,
            Field("total", HUNDREDTHS, LOWER),
        ),
        "task": (
            Field("variant", TEXT, KEY),
            Field("round", COUNT, KEY),
            Field("task", COUNT, KEY),
            Field("node", TEXT),
            *_PHASE_FIELDS,
            Field("total", HUNDREDTHS),
            Field("clock_ahead", SECONDS),
        ),
    },
}
# Records of these kinds are kept, and not printed.
NOT_PRINTED = ("task",)


def pick_fields(kind: Kind, *roles: str) -> list[Field]:
    """Return the fields that have one of these roles."""
    return [field for field in kind if field.role in roles]


Name = TypeVar("Name")

# Form of a field -> its units, each with its size, and the format of a number of them. A figure is
# shown in the largest unit that it reaches. Networks are rated in powers of ten.
_UNITS: dict[str, tuple[tuple[float, str], ...]] = {
    SECONDS: ((1e-6, "{:.1f} us"), (1e-3, "{:.2f} ms"), (1, "{:.2f} s")),
    HUNDREDTHS: ((1, "{:.2f} s"),),
    BYTES: ((1, "{:.4g} B"), (2**10, "{:.4g} KiB"), (2**20, "{:.4g} MiB"), (2**30, "{:.4g} GiB")),
    RATE: ((1, "{:.1f} B/s"), (1e3, "{:.1f} kB/s"), (1e6, "{:.1f} MB/s"), (1e9, "{:.2f} GB/s")),
    FLOPS: ((1e9, "{:.3g} GFLOP/s"), (1e12, "{:.3g} TFLOP/s")),
    NUMBER: ((1, "{:,.0f}"),),
    SHARE: ((1, "{:.1%}"),),
}
_GAP = "  "  # between columns, and before a continuation line
# The least width of columns; the first two are left-aligned.
_WIDTHS = {TEXT: 14, COUNT: 6, SECONDS: 9, HUNDREDTHS: 7, BYTES: 9, RATE: 10, FLOPS: 11}


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
    """Render the heading of a table of such records, as wide as `width`."""
    return _join((_justify(field.heading, field) for field in kind), width)


def render_row(record: dict[str, Any], kind: Iterable[Field], width: int = 0) -> str:
    """Render a record as a row under this heading."""
    texts = ((render_value(record.get(field.name), field.form), field) for field in kind)
    return _join((_justify(text, field) for text, field in texts), width)


def _join(cells: Iterable[str], width: int) -> str:
    """Join the cells into one line, or into lines of at most `width` columns unless that is 0."""
    lines = [""]
    for cell in cells:
        if width and len(lines[-1]) + len(cell) > width:
            lines.append(_GAP)
        lines[-1] += cell + _GAP
    return "\n".join(map(str.rstrip, lines))


def _justify(text: str, field: Field) -> str:
    width = max(len(field.heading), _WIDTHS.get(field.form, 0))
    return text.ljust(width) if field.form in (TEXT, COUNT) else text.rjust(width)


def find_others(names: Iterable[Name], known: Container[Name]) -> list[Name]:
    """Return the names that are not known, in their order."""
    return [name for name in names if name not in known]
