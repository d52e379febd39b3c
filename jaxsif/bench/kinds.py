"""What the benchmarks measure: the records of their results, field by field.

A record is a line of results.jsonl, such as {"record": "link", "from": "node1", "to": "node2",
"bandwidth": 9.1e8}. Its kind, an entry of KINDS, says which fields tell it from others, and which
are measured. Tables, comparisons and CSV files are made from that. Units are those of SI: seconds,
bytes, bytes per second.
"""

from __future__ import annotations

from typing import NamedTuple

# What a field is to comparisons: what joins the records of two results, what is judged, what is
# only shown.
KEY, LOWER, HIGHER, SHOWN = "key", "lower is better", "higher is better", "shown"
# How a field is printed, see units.py.
TEXT, COUNT, SECONDS, BYTES, RATE = "text", "count", "seconds", "bytes", "bytes per second"
NUMBER, FLOPS, SHARE = "number", "floating-point operations per second", "a part of 1"


class Field(NamedTuple):
    """A field of a record."""

    name: str
    form: str
    role: str = SHOWN

    @property
    def heading(self) -> str:
        """Return the name as tables show it."""
        return self.name.replace("_", " ")


Kind = tuple[Field, ...]

# What a start consists of, in the words of inside/startup.py.
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
_PHASE_FIELDS = tuple(Field(phase, SECONDS) for phase in STARTUP_PHASES)

# Benchmark -> the kinds of its records.
KINDS: dict[str, dict[str, Kind]] = {
    "collectives": {
        "operation": (
            Field("operation", TEXT, KEY),
            Field("size", BYTES, KEY),
            Field("time", SECONDS, LOWER),
            Field("algorithm_bandwidth", RATE),
            Field("bus_bandwidth", RATE),
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
            Field("examples_per_second", NUMBER),
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
            Field("total", SECONDS, LOWER),
        ),
        "task": (
            Field("variant", TEXT, KEY),
            Field("round", COUNT, KEY),
            Field("task", COUNT, KEY),
            Field("node", TEXT),
            *_PHASE_FIELDS,
            Field("total", SECONDS),
            Field("clock_ahead", SECONDS),
        ),
    },
}
# Records of these kinds are kept, and not printed.
NOT_PRINTED = ("task",)


def pick_fields(kind: Kind, *roles: str) -> list[Field]:
    """Return the fields that have one of these roles."""
    return [field for field in kind if field.role in roles]
