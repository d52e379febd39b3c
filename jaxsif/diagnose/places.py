"""Where tasks were when something ended them, in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile

from jaxsif.diagnose.reports import Report, by_task
from jaxsif.errors import enclose, name_tasks

MOST_PLACES = 4  # in one line
OUTSIDE = ("cancelled", "interrupted")  # events: somebody ended the whole run
_AT_END = "the end of the program"


def describe_places(reports: Sequence[Report], who: str = "tasks") -> str:
    """Return where tasks, called `who`, were when something ended them, the fewest first; '' where
    none has said it.
    """
    before = until_outside(reports)
    # Of an exception, before the exit.
    where = {report.task: report.where for report in reports if report.where}
    where.update(dict.fromkeys(by_task(before, "end"), _AT_END))
    exits = by_task(before, "exit")
    ended = [task for task in sorted(exits.keys() - where.keys()) if not exits[task].status]
    lines = (
        enclose(f"{who} were at ", _describe_where(where)),
        f"{name_tasks(ended)} had ended with exit status 0" if ended else "",
    )
    return "; ".join(filter(None, lines))


def describe_box(end: Report) -> str:
    """Return what the task of an exit did a moment before: 'it was in iteration 40 of the loop at
    train.py:16'; '' where that is not known.
    """
    if not end.box:
        return ""
    turns, quiet, places = end.box.split(" ", 2)
    loop, _, where = (place.rpartition("/")[2] for place in places.partition("|"))
    told = (
        enclose(f"in iteration {turns} of the loop at ", loop),
        enclose("at ", where, f" for {float(quiet):.0f} s"),
    )
    return enclose("it was ", ", ".join(filter(None, told)))


def until_outside(reports: Sequence[Report]) -> list[Report]:
    """Return the reports until something outside ended the run: what tasks say after that is its
    consequence.
    """
    return list(takewhile(lambda report: report.event not in OUTSIDE, reports))


def group_tasks(where: Mapping[int, str]) -> list[tuple[str, list[int]]]:
    """Return each place with the tasks that were there, the fewest first."""
    places: dict[str, list[int]] = {}
    for task, place in where.items():
        places.setdefault(place, []).append(task)
    return sorted(places.items(), key=lambda item: len(item[1]))


def list_few(names: Sequence[str], most: int, count: int, other: str = "more") -> str:
    """Return the first `most` of `names`, and how many `other` ones there are of `count` in all."""
    shown = names[:most]
    left = count - len(shown)
    return ", ".join(shown) + (f" and {left} {other}" if left > 0 else "")


def _describe_where(where: Mapping[int, str]) -> str:
    """Return each place with the numbers of its tasks."""
    places = group_tasks(dict(sorted(where.items())))
    shown = [f"{place} ({name_tasks(tasks)})" for place, tasks in places]
    return list_few(shown, MOST_PLACES, len(shown), "other places")
