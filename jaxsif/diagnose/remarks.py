"""What a run tells beside a failure: of the compile cache, of what this JAX has not, of tasks that
computed alone, and of failures behind exit status 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxsif.diagnose.reports import MOST_ALIKE, Report, by_task, of_event
from jaxsif.errors import RunError, count_of, enclose
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


def find_hidden(reports: Sequence[Report]) -> RunError | None:
    """Return the failure of a Python with JAX that was the last one of its task, where the task
    ended with status 0 all the same; None where there is none.

    A Python that failed earlier, or without JAX, is the program's own affair: a probe, or an
    attempt that was repeated. So may the last one be, such as the last trial of a sweep: that the
    program has not handled it is not known.
    """
    ends = by_task(reports, "exit")
    last = {
        one.task: one for one in of_event(reports, "exception", "end", "success") if _is_of_jax(one)
    }
    hidden = [one for one in last.values() if one.event == "exception" and one.task in ends]
    hidden = [one for one in hidden if not ends[one.task].status and not _is_full(one, reports)]
    if not hidden:
        return None
    first = next((one for one in hidden if not one.consequence), hidden[0])
    others = enclose("; so did ", count_of(len(hidden) - 1, "other task") if hidden[1:] else "")
    what = ", ".join(filter(None, (first.text, first.where.rpartition("/")[2])))
    return RunError(
        f"{first.place}: python failed ({what}), but its command ended with status 0{others}",
        first.where,
        "if that is not meant: set -o pipefail, set -e",
        0,
    )


def _is_of_jax(report: Report) -> bool:
    return report.event != "exception" or report.jax


def _is_full(last: Report, reports: Sequence[Report]) -> bool:
    """Return whether a task has ended so many Pythons that no more of their ends are kept."""
    return [one.task for one in of_event(reports, "success")].count(last.task) >= MOST_ALIKE
