"""What a run tells beside a failure: of the compile cache, of what this JAX has not, and of tasks
that computed alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxsif.diagnose.reports import Report, by_task, of_event
from jaxsif.errors import enclose
from jaxsif.task.contract import INDEPENDENT


def describe_cache(reports: Sequence[Report]) -> str:
    """Return what JAX's compile cache was good for, in all tasks together; '' where none has asked
    it.
    """
    counts = [
        (report.requests, report.hits, report.hits > 0, report.saved, report.written)
        for report in of_event(reports, "cache")
    ]
    if not counts:
        return ""
    requests, hits, tasks, saved, written = map(sum, zip(*counts))
    return (
        f"compile cache: {hits} of {requests} programs from it, in {tasks} of {len(counts)}"
        f" task(s), {saved:.0f} s of compiling saved; {written} new"
    )


def describe_missing(reports: Sequence[Report]) -> str:
    """Return which names of JAX's own were looked for and not found; '' where all are there."""
    texts = dict.fromkeys(report.text for report in of_event(reports, "missing"))
    names = ", ".join(texts)
    return enclose("this JAX has no ", names, ": jaxsif goes without what needs it")


def describe_alone(reports: Sequence[Report]) -> str:
    """Return the warning that several tasks computed with JAX, and none was connected to another;
    '' where one was.
    """
    alone = by_task(reports, "alone")
    if len(alone) < 2 or by_task(reports, "end"):
        return ""
    return (
        f"warning: {len(alone)} tasks ran JAX, and none called jax.distributed.initialize(): each"
        f" computed on its own; if that is meant, pass --env {INDEPENDENT}=1"
    )
