"""Two results of one benchmark -> what got worse."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxsif.bench.kinds import HIGHER, KEY, LOWER, Field, Kind
from jaxsif.bench.links import Link, find_slow_nodes, render_blame
from jaxsif.bench.results import Record, Results
from jaxsif.bench.units import render_value
from jaxsif.errors import JaxsifError

_SAME = (
    "nodes",
    "processes",
    "devices",
    "platform",
    "device",
    "model",
    "launcher",
    "image",
    "digest",
    "jax",
    "jaxsif",
)


class Change(NamedTuple):
    """A figure in both results."""

    key: tuple[Any, ...]  # the record: its kind, and the values of its keys
    field: Field
    old: float
    new: float

    @property
    def ratio(self) -> float:
        """New over old."""
        return self.new / self.old

    def is_worse(self, tolerance: float) -> bool:
        """By more than this part of the old figure."""
        return (
            self.ratio < 1 - tolerance if self.field.role == HIGHER else self.ratio > 1 + tolerance
        )


def compare(old: Results, new: Results) -> list[Change]:
    """All judged figures that both have; raises JaxsifError where that is none."""
    ours, theirs = new.header["bench"], old.header["bench"]
    if ours != theirs:
        raise JaxsifError(
            f"results of different benchmarks: {theirs} and {ours}",
            str(old.file),
            "compare equal ones",
        )
    before = {_key(record, old.kinds[record["record"]]): record for record in old.records}
    changes = []
    for record in new.records:
        kind = new.kinds[record["record"]]
        key = _key(record, kind)
        if key in before:
            changes += _changes(key, kind, before[key], record)
    if not changes:
        raise JaxsifError(
            f"nothing to compare: no record of {new.file} is in the other",
            str(old.file),
            "see both",
        )
    return changes


def find_missing(old: Results, new: Results) -> list[tuple[Any, ...]]:
    """The keys of the older records that have figures to judge, and no newer record: other nodes,
    sizes left out.
    """
    now = {_key(record, new.kinds[record["record"]]) for record in new.records}
    judged = [
        record
        for record in old.records
        if any(f.role in (LOWER, HIGHER) for f in old.kinds[record["record"]])
    ]
    keys = [_key(record, old.kinds[record["record"]]) for record in judged]
    return [key for key in keys if key not in now]


def _key(record: Record, kind: Kind) -> tuple[Any, ...]:
    return (record["record"], *(record[field.name] for field in kind if field.role == KEY))


def _changes(key: tuple[Any, ...], kind: Kind, old: Record, new: Record) -> list[Change]:
    judged = [field for field in kind if field.role in (LOWER, HIGHER)]
    return [
        Change(key, field, old[field.name], new[field.name])
        for field in judged
        if old[field.name] and new[field.name] is not None
    ]


def render_comparison(old: Results, new: Results, tolerance: float) -> tuple[list[str], bool]:
    """A table of all figures, what got worse and by whose links; and whether anything did."""
    changes = compare(old, new)
    missing = find_missing(old, new)
    worse = [change for change in changes if change.is_worse(tolerance)]
    lines = [f"{'':32}  {'old':>14}  {'new':>14}  new/old"]
    lines += [_render_change(change, new.kinds, tolerance) for change in changes]
    lines += [
        f"note: other {name} than before: {_differ(old, new, name)}"
        for name in _SAME
        if _differ(old, new, name)
    ]
    lines += [
        f"note: not complete: {one.file}" for one in (old, new) if not one.header.get("complete")
    ]
    # At most 1: what got better by chance does not make the others worse.
    links: dict[Link, float] = {
        (change.key[1], change.key[2]): min(change.ratio, 1.0)
        for change in changes
        if _is_link(change)
    }
    if worse:
        lines += render_blame(find_slow_nodes(links, tolerance))
        lines.append(
            f"{len(worse)} of {len(changes)} figures are worse than before by more than {tolerance:.0%}"
        )
    else:
        lines.append(
            f"none of {len(changes)} figures is worse than before by more than {tolerance:.0%}"
        )
    if missing:
        lines.append(
            f"{len(missing)} older figures have no newer ones, such as {_render_name(missing[0], old.kinds)}"
        )
    return lines, bool(worse or missing)


def _is_link(change: Change) -> bool:
    return change.key[0] == "link" and change.field.name == "bandwidth"


def _render_change(change: Change, kinds: dict[str, Kind], tolerance: float) -> str:
    name = f"{_render_name(change.key, kinds)} {change.field.heading}"
    old, new = (render_value(value, change.field.form) for value in (change.old, change.new))
    mark = "  worse" if change.is_worse(tolerance) else ""
    return f"{name:32}  {old:>14}  {new:>14}  {_render_ratio(change.ratio):>7}{mark}"


def _render_name(key: tuple[Any, ...], kinds: dict[str, Kind]) -> str:
    keys = [field for field in kinds[key[0]] if field.role == KEY]
    return " ".join(render_value(value, field.form) for value, field in zip(key[1:], keys))


def _render_ratio(ratio: float) -> str:
    return f"{ratio:.2f}" if 0.1 <= ratio < 1000 else f"{ratio:.2g}"


def _differ(old: Results, new: Results, name: str) -> str:
    before, now = old.header.get(name), new.header.get(name)
    return "" if before == now else f"{before}, now {now}"
