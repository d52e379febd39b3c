"""Run a plan to its end, and tell the first cause when it fails."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from jaxsif.diagnose.reports import ReportFilter
from jaxsif.launch.children import Ended, Reader, run
from jaxsif.launch.program import suggest
from jaxsif.plan.plan import Plan


class Outcome(NamedTuple):
    """How a step ended, and what its tasks and the launcher said."""

    ended: Ended
    seen: ReportFilter
    rewritten: bool  # the image's file was written to meanwhile


def run_step(plan: Plan, stdout: Reader | None = None) -> Outcome:
    """Start the step and wait for its end; raises HostError where it cannot start.

    `stdout` makes what reads the tasks' standard output, which is ours without it.
    """
    seen = ReportFilter(plan.nonces, plan.layout.ntasks, plan.asked.label)
    before = _content_of(plan)
    children = plan.launcher.children(plan, plan.started_environ, seen, stdout)
    ended = run(children, _import_culprit, seen.interrupt)
    after = _content_of(plan)
    # A new file of that name leaves running programs the old one.
    same_file = bool(before and after and before[0] == after[0])
    return Outcome(ended, seen, same_file and before != after)


def diagnose(
    plan: Plan, outcome: Outcome, note: Callable[[str], None], verbose: bool = False
) -> int:
    """Return 0, or 128 + N for a signal to us; raise JaxsifError with the first cause of a failure.

    `note` is told where tasks were that a signal to us has ended; with `verbose`, of their compile
    cache, too.
    """
    from jaxsif.diagnose.culprit import find_failure
    from jaxsif.diagnose.facts import End
    from jaxsif.diagnose.places import describe_places
    from jaxsif.diagnose.remarks import describe_alone, describe_cache

    ended, seen = outcome.ended, outcome.seen
    changed = plan.container.path if plan.container and outcome.rewritten else ""
    end = End(
        ended.status,
        plan.launcher,
        plan.layout.ntasks,
        ended.interrupted,
        ended.killed,
        changed,
    )
    failure = find_failure(end, seen.reports, seen.errors, seen.barriers)
    lines = [describe_cache(seen.reports)] if verbose else []
    if failure is None:
        describe = describe_places if ended.interrupted else describe_alone
        lines.append(describe(seen.reports))
    for line in filter(None, lines):
        note(line)
    if failure is None:
        return 128 + ended.interrupted if ended.interrupted else 0
    if plan.redirected and not seen.reports:
        failure.hint = (
            "see the files of --output and --error in --srun-args, to which the tasks have written"
        )
    failure.hint = failure.hint or suggest(plan.asked.command, failure, seen.errors)
    raise failure


def _import_culprit() -> None:
    """Import it while the tasks start: its patterns take milliseconds."""
    import jaxsif.diagnose.culprit
    import jaxsif.diagnose.remarks  # noqa: F401


def _content_of(plan: Plan) -> tuple[int, ...] | None:
    """Return the number of an image's file and what changes when it is written to, None without."""
    if plan.container is None:
        return None
    try:
        found = os.stat(plan.container.path)
    except OSError:
        return None  # it is gone, and programs that have it open go on
    return (found.st_ino, found.st_size, found.st_mtime_ns)
