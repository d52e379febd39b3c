"""Results as text: a table, the worst first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jaxsif.doctor.result import OK, UNKNOWN_STATE, CheckResult, fold_nodes
from jaxsif.text import count_of, enclose

HEADING = ("STATE", "CHECK", "WHOSE", "WHERE", "FINDING")


def render_rows(results: Sequence[CheckResult]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of all findings, each with its remedy below."""
    for result in results:
        if result.state == OK or (result.state == UNKNOWN_STATE and not result.nodes):
            continue
        where = fold_nodes(result.nodes) or "-"
        yield result.state, result.check, result.whose, where, result.evidence
        if result.remedy:
            yield "", "", "", "", f"  try: {result.remedy}"


def render_rest(results: Sequence[CheckResult]) -> Iterator[str]:
    """Yield the lines below the table: the number of checks that are ok, and the unknown ones."""
    good = sum(result.state == OK for result in results)
    yield f"{count_of(good, 'check')} {'is' if good == 1 else 'are'} ok"
    dark = [result for result in results if result.state == UNKNOWN_STATE and not result.nodes]
    if dark:
        yield "unknown: " + "; ".join(f"{result.check} ({result.evidence})" for result in dark)


def render_line(result: CheckResult) -> str:
    """Return a finding as one line."""
    where = enclose(" on ", fold_nodes(result.nodes))
    remedy = enclose("; try: ", result.remedy)
    return f"{result.state}: {result.check}{where}: {result.evidence}{remedy}"
