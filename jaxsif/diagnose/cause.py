"""The facts of a failure by which `jaxsif run --max-restarts` decides; only such runs need them."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from jaxsif.diagnose.facts import KILLED, NO_REPORT, End, Facts, match_symptoms
from jaxsif.diagnose.reports import Report, ReportFilter, of_event, parse_status
from jaxsif.diagnose.symptoms import BROKEN_GPU, OUT_OF_MEMORY
from jaxsif.errors import Cause, Fault

BUS_ERROR, GPU_ERROR = "SIGBUS", "GPU error"  # what speaks against a node
_MEMORY = ("memory",)  # marks all failures for lack of memory
# What differs between two failures that are the same: numbers and addresses.
_VARYING = re.compile(r"0[xX][0-9a-fA-F]+|\d+")


def complete_cause(known: Cause, end: End, seen: ReportFilter) -> Cause:
    """Complete the cause of a failure from the reports of the tasks."""
    facts = Facts(end, seen.reports, seen.errors, seen.barriers)
    if known == Cause():
        known = _describe_culprit(facts)
    fault = Fault.OUTSIDE if end.interrupted else known.fault
    turns, reached = find_turns(seen.reports), find_reached(facts)
    return known._replace(fault=fault, turns=turns, reached=reached)


def _describe_culprit(facts: Facts) -> Cause:
    """Return the cause of the first failure of a task; an empty one for a mere consequence."""
    end, memory = facts.culprit, _MEMORY if facts.find(OUT_OF_MEMORY) else ()
    if end is NO_REPORT or (end is facts.first and facts.first_follows):
        return Cause(mark=memory)
    last = facts.find_last(end)
    evidence = BUS_ERROR if end.status == 128 + signal.SIGBUS else ""
    if any(match_symptoms([BROKEN_GPU], [last.text])):
        evidence = GPU_ERROR
    nodes = (end.node,) if end.node else ()
    return Cause(nodes=nodes, evidence=evidence, mark=memory or _mark(end, last))


def _mark(end: Report, last: Report) -> tuple[str, ...]:
    """Return what is equal for failures that are the same: the text of the exception without
    numbers and its line; of a killed task, its iteration; () if neither is known.
    """
    words, where = _VARYING.sub("#", last.text), last.where or end.where
    status = parse_status(end.box)
    if end.status == KILLED and not words and status:  # by the kernel, or by somebody
        words, where = status.turns, status.loop
    return (str(end.status), words, where) if where else ()


def find_turns(reports: Sequence[Report]) -> tuple[int, ...]:
    """Return the iterations of the loops, the outermost first, of the task that got farthest; ()
    if no task that failed has reported any.
    """
    return max(map(_parse_turns, of_event(reports, "exit")), default=())


def find_reached(facts: Facts) -> tuple[int, ...]:
    """Return the iterations of the task that failed first, or else of the one that got least far:
    the others may have dispatched more steps, which wait for that task; () if not reported.
    """
    culprit = facts.culprit
    follows = culprit is facts.first and facts.first_follows
    return min(map(_parse_turns, facts.events["exit"] if follows else [culprit]), default=())


def _parse_turns(end: Report) -> tuple[int, ...]:
    """Return the iterations of the loops around a task's last line or, if that line is after its
    last loop, of that loop.
    """
    status = parse_status(end.box)
    if status is None:
        return ()
    known = status.around or ((status.turns,) if status.loop else ())
    return tuple(int(count) for count in known if count)
