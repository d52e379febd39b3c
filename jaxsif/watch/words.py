"""Describe a wait in sentences."""

from __future__ import annotations

from jaxsif.errors import enclose, name_tasks
from jaxsif.watch.picture import Picture, TaskGroup, conjugate
from jaxsif.watch.rule import Level, Verdict
from jaxsif.watch.states import DEADLOCK, STOPPED

_TITLES = {
    Level.BUSY: "tasks wait for others that compile, load or save, for {seconds:.0f} s",
    Level.WAIT: "tasks wait for {seconds:.0f} s",
    Level.HANG: "the program hangs: tasks wait for {seconds:.0f} s",
}


def describe_verdict(verdict: Verdict) -> str:
    """Return the title of a picture."""
    return _TITLES[verdict.level].format(seconds=verdict.seconds)


def describe_wait_over(seconds: float) -> str:
    """Return what is said when all tasks go on."""
    return f"the wait is over, after {seconds:.0f} s: the tasks go on"


def describe_odd(picture: Picture, seconds: float) -> tuple[str, str]:
    """Return who kept the others waiting, and where. For a task that has left the program: its last
    loop, and where the others are.
    """
    if picture.odd:
        first = picture.odd[0]
        it, words = ("it", "they")[first.size > 1], first.state.words
        who = f"{_name(first)} kept the others waiting for {seconds:.0f} s"
        return f"{who}: {it} {conjugate(words, first.size)}", _describe_place(first, picture)
    first = next(filter(_is_stuck, picture.groups), picture.groups[0])
    if len(picture.groups) > 1 or picture.unseen:
        return f"tasks have waited for {seconds:.0f} s: {_describe_group(first)}", first.place
    return f"all tasks have waited for {seconds:.0f} s: each {first.state.words}", first.place


def _is_stuck(group: TaskGroup) -> bool:
    return group.state.kind in (STOPPED, DEADLOCK)


def _describe_group(group: TaskGroup) -> str:
    return f"{_name(group)} {conjugate(group.state.words, group.size)}"


def _describe_place(group: TaskGroup, picture: Picture) -> str:
    if group.frames:
        return group.place
    box = group.first.box
    file = box.loop.rpartition("/")[2]
    loop = enclose(f"iteration {box.turns} of the loop at ", file)
    others = (f"the others are at {one.place}" for one in picture.groups if one.frames)
    return "; ".join(filter(None, (loop, next(others, ""))))


def _name(group: TaskGroup) -> str:
    if group.size == 1:
        return f"task {group.first.task} on {group.first.node}"
    return name_tasks(group.tasks)
