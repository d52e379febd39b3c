"""Compare two results of the same benchmark, and find figures that got worse."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxsif.bench.collectives import find_slow_nodes, render_blame
from jaxsif.bench.kinds import (
    HIGHER,
    KEY,
    LOWER,
    Field,
    Kind,
    find_others,
    pick_fields,
    render_value,
)
from jaxsif.bench.results import Record, Results
from jaxsif.errors import JaxsifError

Key = tuple[Any, ...]  # of a record: its kind, and the values of its keys

_SAME = (
    *("nodes", "processes", "devices", "platform", "device", "model"),
    *("launcher", "image", "digest", "jax", "jaxsif"),
)


class Change(NamedTuple):
    """A figure in both results."""

    key: Key
    field: Field
    old: float
    new: float

    @property
    def ratio(self) -> float:
        """Return the new figure divided by the old one."""
        return self.new / self.old

    def is_worse(self, tolerance: float) -> bool:
        """Return whether the figure is worse by more than this fraction of the old figure."""
        if self.field.role == HIGHER:
            return self.ratio < 1 - tolerance
        return self.ratio > 1 + tolerance


def check_benchmark(old: Results, name: str, source: str) -> None:
    """Raise JaxsifError unless the older results are from this benchmark."""
    if old.header["bench"] != name:
        raise JaxsifError(
            f"results of different benchmarks: {old.header['bench']} and {name}",
            source,
            "compare results of the same benchmark",
        )


def compare(old: Results, new: Results) -> list[Change]:
    """Return all judged figures that both results have; raise JaxsifError if there are none."""
    check_benchmark(old, new.header["bench"], str(old.file))
    before, now = _find_judged(old), _find_judged(new)
    changes = [
        Change(key, field, before[key][field.name], record[field.name])
        for key, record in now.items()
        if key in before
        for field in pick_fields(new.kinds[key[0]], LOWER, HIGHER)
        if before[key][field.name] and record[field.name] is not None
    ]
    if not changes:
        raise JaxsifError(
            f"nothing to compare: no record in {new.file} has a counterpart in the older results",
            str(old.file),
            "measure with the same options",
        )
    return changes


def _find_judged(results: Results) -> dict[Key, Record]:
    """Return the records that have figures to judge, by their keys."""
    judged = {}
    for record in results.records:
        kind = results.kinds[record["record"]]
        if pick_fields(kind, LOWER, HIGHER):
            key = (record["record"], *(record[field.name] for field in pick_fields(kind, KEY)))
            judged[key] = record
    return judged


def render_comparison(old: Results, new: Results, tolerance: float) -> tuple[list[str], bool]:
    """Render a table of all figures, and the nodes with slower links; return the lines, and whether
    a figure is worse or missing, as when one is for another node or size.
    """
    changes = compare(old, new)
    worse = [change for change in changes if change.is_worse(tolerance)]
    missing = find_others(_find_judged(old), _find_judged(new))
    lines = [f"{'':32}  {'old':>14}  {'new':>14}  new/old"]
    lines += [_render_change(change, new.kinds, tolerance) for change in changes]
    lines += _render_differences(old, new)
    lines += _render_slow_nodes(changes, tolerance)
    count = f"{len(worse)} of {len(changes)} figures are"
    if not worse:
        count = f"none of the {len(changes)} figures is"
    lines.append(f"{count} worse than before by more than {tolerance:.0%}")
    if missing:
        example = _render_name(missing[0], old.kinds)
        lines.append(f"{len(missing)} older figures, such as {example}, have no newer counterpart")
    return lines, bool(worse or missing)


def comparison_as_json(old: Results, new: Results, tolerance: float) -> dict[str, Any]:
    """Return all figures that both results have, and the older ones without a newer counterpart."""
    changes = compare(old, new)
    missing = find_others(_find_judged(old), _find_judged(new))
    figures = [
        {
            **_describe_key(change.key, new.kinds),
            "figure": change.field.name,
            "old": change.old,
            "new": change.new,
            "ratio": change.ratio,
            "worse": change.is_worse(tolerance),
        }
        for change in changes
    ]
    return {
        "worse": bool(missing) or any(change.is_worse(tolerance) for change in changes),
        "figures": figures,
        "missing": [_describe_key(key, old.kinds) for key in missing],
        "notes": _render_differences(old, new) + _render_slow_nodes(changes, tolerance),
    }


def _describe_key(key: Key, kinds: dict[str, Kind]) -> dict[str, Any]:
    keys = {field.name: value for field, value in zip(pick_fields(kinds[key[0]], KEY), key[1:])}
    return {"record": key[0], "keys": keys}


def _render_differences(old: Results, new: Results) -> list[str]:
    """Render notes on other differences, and on incomplete results."""
    pairs = [(name, old.header.get(name), new.header.get(name)) for name in _SAME]
    lines = [
        f"note: {name} differs: {before} before, now {now}"
        for name, before, now in pairs
        if before != now
    ]
    incomplete = [results for results in (old, new) if not results.header.get("complete")]
    return lines + [f"note: not complete: {results.file}" for results in incomplete]


def _render_slow_nodes(changes: list[Change], tolerance: float) -> list[str]:
    """Render the nodes whose links got slower."""
    # At most 1: a chance improvement must not make the others look worse.
    links = {
        (change.key[1], change.key[2]): min(change.ratio, 1.0)
        for change in changes
        if change.key[0] == "link"
    }
    return render_blame(find_slow_nodes(links, tolerance))


def _render_change(change: Change, kinds: dict[str, Kind], tolerance: float) -> str:
    name = f"{_render_name(change.key, kinds)} {change.field.heading}"
    old, new = (render_value(value, change.field.form) for value in (change.old, change.new))
    ratio = f"{change.ratio:.2f}" if 0.1 <= change.ratio < 1000 else f"{change.ratio:.2g}"
    mark = "  worse" if change.is_worse(tolerance) else ""
    return f"{name:32}  {old:>14}  {new:>14}  {ratio:>7}{mark}"


def _render_name(key: Key, kinds: dict[str, Kind]) -> str:
    fields = pick_fields(kinds[key[0]], KEY)
    return " ".join(render_value(value, field.form) for value, field in zip(key[1:], fields))
