"""Results as text: a table, the worst first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from textwrap import wrap

from jaxsif.doctor.result import OK, UNKNOWN_STATE, CheckResult, fold_nodes
from jaxsif.text import count_of, enclose

HEADING = ("STATE", "CHECK", "WHOSE", "WHERE", "FINDING")
_WIDTH = 80  # columns; a longer word, such as a path, stays whole
_PLACE = 20  # columns for the names of nodes, unless one is longer
_LEAST = 24  # columns for a finding
_wrap = partial(wrap, break_long_words=False, break_on_hyphens=False)


def render_rows(results: Sequence[CheckResult]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of all findings, each with its remedy below."""
    shown = [result for result in results if result.state != OK and not _is_unchecked(result)]
    rows: list[tuple[str, ...]] = [
        (one.state, one.check, one.whose, fold_nodes(one.nodes, _PLACE) or "-") for one in shown
    ]
    width = _WIDTH - sum(2 + max(map(len, column)) for column in zip(HEADING, *rows))
    width = max(width, _LEAST)
    for result, row in zip(shown, rows):
        remedy = enclose("  try: ", result.remedy)
        for line in (*_wrap(result.evidence, width), *_wrap(remedy, width, subsequent_indent="  ")):
            yield *row, line
            row = ("",) * len(row)


def _is_unchecked(result: CheckResult) -> bool:
    return result.state == UNKNOWN_STATE and not result.nodes


def render_rest(results: Sequence[CheckResult], layout: str) -> Iterator[str]:
    """Yield the lines below the table: how many checks are ok, on which layout, and which ones lack
    facts.
    """
    good = sum(result.state == OK for result in results)
    yield f"{count_of(good, 'check')} {'is' if good == 1 else 'are'} ok{enclose(' on ', layout)}"
    lacks: dict[str, list[str]] = {}  # why -> the checks
    for result in results:
        if _is_unchecked(result):
            lacks.setdefault(result.evidence, []).append(result.check)
    if lacks:
        parts = (f"{', '.join(names)} ({why})" for why, names in lacks.items())
        yield from _wrap(f"not checked: {'; '.join(parts)}", _WIDTH)


def render_line(result: CheckResult) -> str:
    """Return a finding as one line."""
    where = enclose(" on ", fold_nodes(result.nodes))
    remedy = enclose("; try: ", result.remedy)
    return f"{result.state}: {result.check}{where}: {result.evidence}{remedy}"
