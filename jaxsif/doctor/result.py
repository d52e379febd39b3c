"""What a check finds, and how findings of many nodes become one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from jaxsif.text import list_tasks

OK, UNKNOWN_STATE, WARNING, FAILURE = "ok", "unknown", "warning", "failure"
STATES = (FAILURE, WARNING, UNKNOWN_STATE, OK)  # worst first
USER, NODE, SITE = "user", "node", "site"
# Checks whose numbers are measured, or each node's own address. Others', such as versions, count.
_MEASURED = ("port", "names", "links", "clocks", "space", "memory", "limits", "messages")
Key = TypeVar("Key")
Value = TypeVar("Value")


class CheckResult(NamedTuple):
    """What a check has found out."""

    state: str
    evidence: str
    remedy: str = ""
    whose: str = USER  # whose problem: USER, NODE or SITE
    nodes: tuple[str, ...] = ()
    check: str = ""  # its name; `judge` fills in this one and the next
    page: str = ""  # of the documentation


Results = Iterable[CheckResult]


def failure(evidence: str, remedy: str, whose: str, nodes: Iterable[str] = ()) -> CheckResult:
    """Return a finding that makes a run fail, or its results wrong."""
    return CheckResult(FAILURE, evidence, remedy, whose, tuple(nodes))


def warning(evidence: str, remedy: str, whose: str, nodes: Iterable[str] = ()) -> CheckResult:
    """Return a finding that may make a run fail, or slow."""
    return CheckResult(WARNING, evidence, remedy, whose, tuple(nodes))


def unknown(evidence: str, nodes: Iterable[str] = ()) -> CheckResult:
    """Return that a check could not find out anything."""
    return CheckResult(UNKNOWN_STATE, evidence, "", SITE, tuple(nodes))


def find_odd(values: Mapping[Key, Value]) -> tuple[Any, dict[Value, list[Key]]]:
    """Return the commonest of some nodes' or tasks' values, None if there are none, and the others,
    with the keys of those who have them.
    """
    common = next((value for value, _ in Counter(values.values()).most_common(1)), None)
    odd: dict[Value, list[Key]] = {}
    for name, value in values.items():
        if value != common:
            odd.setdefault(value, []).append(name)
    return common, odd


def merge(results: Iterable[CheckResult]) -> list[CheckResult]:
    """Return the results, the worst first; those that differ only in their nodes, tasks and
    measured numbers become one, with the evidence of the first.
    """
    merged: dict[tuple[str, ...], CheckResult] = {}
    for result in results:
        same = re.sub(r"\btask \d+", "task", result.evidence)
        for node in result.nodes:
            same = re.sub(rf"\b{re.escape(node)}\b", "", same)
        if result.check in _MEASURED:
            # Not those of names, such as gpu-1; with or without seconds.
            same = re.sub(r"(?<!\w)(?<!\w-)\d+(\.\d+)?(?=s?\b)", "0", same)
        key = (result.state, result.check, result.remedy, same)
        known = merged.setdefault(key, result)
        merged[key] = known._replace(nodes=tuple(dict.fromkeys((*known.nodes, *result.nodes))))
    return sorted(merged.values(), key=lambda result: STATES.index(result.state))


def fold_nodes(names: Sequence[str], most: int = 40) -> str:
    """Return the names of nodes as a list of Slurm's, such as node[1-4,7]; one of more than
    `most` characters is cut short, but after the first name.
    """

    def split(name: str) -> tuple[str, int, str]:
        """Return a name's parts: before its last number, the length of that, and after."""
        found = re.fullmatch(r"(.*?)(\d{1,9})(\D*)", name)
        return (found[1], len(found[2]), found[3]) if found else (name, 0, "")

    def number(name: str) -> int:
        return int(re.findall(r"\d{1,9}", name)[-1])

    folded = []
    for (before, width, after), group in groupby(sorted(set(names), key=split), split):
        numbers = sorted(map(number, group)) if width else []
        spans = re.split(r"(\d+)", list_tasks(numbers, most))
        text = "".join(span.zfill(width) if span.isdecimal() else span for span in spans)
        folded.append(f"{before}[{text}]{after}" if len(numbers) > 1 else f"{before}{text}{after}")
    text = ",".join(folded)
    most = max(most, max(map(len, names), default=0) + len("[..."))
    return text if len(text) <= most else f"{text[: most - 3]}..."
