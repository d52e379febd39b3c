"""What all tasks of a step do: groups of tasks that do the same, as text and as JSON.

Two tasks do the same when the kinds of their states and the user's own frames are equal. The text
has at most 25 lines for any number of tasks: the largest group comes first, and the odd ones last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from jaxsif.errors import count_of, list_tasks, name_tasks, render_span
from jaxsif.watch.sight import NO_BOX, STALE, BoxState, Frame, Sight
from jaxsif.watch.states import COLLECTIVE, UNKNOWN, WAITING, State, describe_state, own_frames

_MOST_GROUPS = 20  # in a text
MOST_NODES = 4  # by name
_LONGEST_WORDS, _LONGEST_PLACE = 60, 60  # letters of a column
_QUIET = 2.0  # seconds without computing after which the count of a loop stands still
# Of words such as 'has ended, and waits for the others'.
_VERBS = re.compile(r"(^|, and (?=waits|holds|has))(\w+)")
_PLURALS = {"is": "are", "has": "have"}


class TaskGroup(NamedTuple):
    """Tasks that do the same."""

    state: State
    frames: tuple[Frame, ...]  # the user's own, innermost first
    sights: tuple[Sight, ...]  # by task

    @property
    def first(self) -> Sight:
        """Return what was seen of the first task."""
        return self.sights[0]

    @property
    def turns(self) -> tuple[int, int] | None:
        """Return the fewest and the most iterations of the loop; None without a loop."""
        counts = [box.turns for box in self.counting]
        return (min(counts), max(counts)) if counts else None

    @property
    def counting(self) -> list[BoxState]:
        """Return the boxes of tasks that count a loop."""
        return [one.box for one in self.sights if one.box.loop]

    @property
    def tasks(self) -> list[int]:
        """Return the numbers of the tasks, sorted."""
        return [sight.task for sight in self.sights]

    @property
    def size(self) -> int:
        """Return the number of tasks."""
        return len(self.sights)

    @property
    def waits(self) -> bool:
        """Return whether the tasks wait for other tasks."""
        return self.state.kind in WAITING

    @property
    def is_known(self) -> bool:
        """Return whether anybody knows what the tasks do."""
        return self.state.kind != UNKNOWN

    @property
    def nodes(self) -> list[str]:
        """Return the names of the nodes, in the order of the tasks."""
        return list(dict.fromkeys(sight.node for sight in self.sights))

    @property
    def place(self) -> str:
        """Return where the tasks are, such as 'train.py:41 step'."""
        frame = next(iter(self.frames or self.first.frames), None)
        return frame.place if frame else self.first.command


class Picture(NamedTuple):
    """What all tasks of a step do."""

    groups: tuple[TaskGroup, ...]  # the largest first
    silent: tuple[str, ...] = ()  # nodes that did not answer
    unseen: int = 0  # tasks of which nothing is known, beside those of silent nodes
    note: str = ""  # what else is known

    @property
    def size(self) -> int:
        """Return the number of tasks that were seen."""
        return _count_tasks(self.groups)

    @property
    def waiting(self) -> list[TaskGroup]:
        """Return the groups of tasks that wait for others."""
        return [group for group in self.groups if group.waits]

    @property
    def odd(self) -> tuple[TaskGroup, ...]:
        """Return the groups that keep the others waiting; () where that cannot be told.

        Tasks that wait for others are kept waiting by those that do not. Where all wait, it is the
        smaller half that is somewhere else, and of two halves the one that does not wait in a
        collective, or is behind. A state that is not known tells nothing, and a task that was not
        seen may be the odd one.
        """
        others = self._list_others()
        is_clear = len(others) < len(self.groups) and all(group.is_known for group in others)
        is_few = 2 * _count_tasks(others) <= self.size
        return others if is_clear and is_few and not self.is_partial else ()

    @property
    def is_partial(self) -> bool:
        """Return whether there are tasks that nobody has seen, but for what they say themselves."""
        has_said = any(sight.pid == 0 for sight in list_sights(self.groups))
        return bool(self.silent or self.unseen or has_said)

    def _list_others(self) -> tuple[TaskGroup, ...]:
        """Return the groups that do not wait. Where all wait, return all but the one waited in; ()
        where that may be any of several.
        """
        others = tuple(group for group in self.groups if not group.waits)
        if others:
            return others
        loops = {sight.box.loop for sight in list_sights(self.groups)}
        rank = partial(_rank_odd, counts_alike=len(loops) == 1)
        ranks = sorted(map(rank, self.groups))
        is_clear = ranks[-1:] != ranks[-2:-1]
        return tuple(sorted(self.groups, key=rank)[:-1]) if is_clear else ()


def list_sights(groups: Iterable[TaskGroup]) -> Iterator[Sight]:
    """Return what was seen of all tasks of these groups."""
    return (sight for group in groups for sight in group.sights)


def _count_tasks(groups: Iterable[TaskGroup]) -> int:
    return sum(group.size for group in groups)


def _turns_of(sight: Sight) -> int:
    return sight.box.turns


def _rank_odd(group: TaskGroup, counts_alike: bool) -> tuple[int, bool, int]:
    """Return what sorts the group to the end that others wait in; iterations tell that where all
    tasks count those of the same loop.
    """
    behind = min(map(_turns_of, group.sights)) if counts_alike else 0
    return group.size, group.state.kind == COLLECTIVE, behind


def make_picture(sights: Iterable[Sight], silent: Iterable[str] = (), unseen: int = 0) -> Picture:
    """Return the picture of a step; of several sights of a task, the last counts."""
    by_task = {sight.task: sight for sight in sights}
    found: dict[tuple[str, tuple[Frame, ...]], tuple[State, list[Sight]]] = {}
    for _, sight in sorted(by_task.items()):
        state = describe_state(sight)
        key = (state.kind, own_frames(sight.frames) or sight.frames)
        found.setdefault(key, (state, []))[1].append(sight)
    groups = [
        TaskGroup(state, own_frames(frames), tuple(alike))
        for (_, frames), (state, alike) in found.items()
    ]
    if len(groups) == 1:
        groups = _split(groups[0])
    return Picture(tuple(sorted(groups, key=_rank)), tuple(sorted(set(silent))), unseen)


def _rank(group: TaskGroup) -> tuple[int, bool, int]:
    return -group.size, not group.waits, group.first.task


def _split(group: TaskGroup) -> list[TaskGroup]:
    """Return groups by the number of iterations, where nothing else tells waiting tasks apart.

    While tasks move, their observers have counted at different times. A loop that is over may have
    had another number of iterations in each task.
    """
    loops = {sight.box.loop for sight in group.sights}
    if not group.waits or len(loops) != 1 or not all(map(_stands, group.sights)):
        return [group]
    by_turns = groupby(sorted(group.sights, key=_turns_of), _turns_of)
    return [group._replace(sights=tuple(sights)) for _, sights in by_turns]


def _stands(sight: Sight) -> bool:
    """Return whether a task is in a turn of its loop, and its count stands still."""
    return sight.box.inside and sight.box.quiet >= _QUIET


def render_text(picture: Picture, title: str) -> list[str]:
    """Return at most 25 lines of text, under a title such as 'step 12.0'."""
    shown = picture.groups[:_MOST_GROUPS]
    rows = [_render_row(group) for group in shown]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = [_render_title(picture, title), *(_align(row, widths) for row in rows)]
    left = picture.groups[_MOST_GROUPS:]
    if left:
        largest = count_of(left[0].size, "task")
        lines.append(f"  {count_of(len(left), 'other group')}, the largest of {largest}")
    if picture.silent:
        lines.append(f"  no answer from {list_nodes(picture.silent)}")
    if picture.unseen:
        lines.append(f"  nothing is known of {count_of(picture.unseen, 'other task')}")
    odd = sorted(sight.task for sight in list_sights(picture.odd))
    if odd:
        keeps = conjugate("keeps", len(odd))
        lines.append(f"  likely: {name_tasks(odd)} {keeps} the others waiting")
    if picture.note:
        lines.append(f"  {picture.note}")
    return lines


def _render_title(picture: Picture, title: str) -> str:
    nodes = {sight.node for sight in list_sights(picture.groups)}
    there = f"{count_of(picture.size, 'task')} on {count_of(len(nodes), 'node')}"
    return f"{title}: {there}" if picture.groups else f"{title}: no task was found"


def _render_row(group: TaskGroup) -> tuple[str, ...]:
    count = group.size
    words = conjugate(group.state.words, count)[:_LONGEST_WORDS]
    number, noun = count_of(count, "task").split()
    nodes = f" on {', '.join(group.nodes)}" if len(group.nodes) <= MOST_NODES else ""
    place = group.place[-_LONGEST_PLACE:]
    return number, noun, words, place, _render_turns(group), f"{name_tasks(group.tasks)}{nodes}"


def _align(row: Sequence[str], widths: Sequence[int]) -> str:
    count, *others = row
    cells = (f"{text:{width}}" for text, width in zip(others, widths[1:]))
    who, words, *rest = cells
    return f"  {count:>{widths[0]}} {who} {words}  {'  '.join(rest)}".rstrip()


def _render_turns(group: TaskGroup) -> str:
    """Return 'iteration 12044 of the loop at train.py:38'; '' without a loop.

    An observer that cannot write any more has counted up to a second too few.
    """
    turns = group.turns
    if turns is None:
        return ""
    loops = {box.loop for box in group.counting}
    at = f" of the loop at {loops.pop().rpartition('/')[2]}" if len(loops) == 1 else ""
    number = render_span(*turns)
    later = " or later" if all(one.age > STALE for one in group.sights) else ""
    return f"iteration {number}{later}{at}"[:_LONGEST_PLACE]


def list_nodes(nodes: Sequence[str]) -> str:
    """Return the names of the first few nodes, and how many others there are."""
    left = len(nodes) - MOST_NODES
    others = f" and {count_of(left, 'other node')}" if left > 0 else ""
    return f"{', '.join(nodes[:MOST_NODES])}{others}"


def conjugate(words: str, count: int) -> str:
    """Return words such as 'waits in a collective' as they are said of this many tasks."""
    if count == 1:
        return words
    return _VERBS.sub(lambda found: found[1] + _pluralize(found[2]), words)


def _pluralize(verb: str) -> str:
    return _PLURALS.get(verb, verb.removesuffix("s"))


def render_json(picture: Picture, step: str) -> dict[str, Any]:
    """Return the picture as values of JSON.

    step     the step, as it was asked for
    tasks    the number of tasks that were seen
    silent   the names of nodes that did not answer
    unseen   the number of tasks of which nothing is known, beside those of silent nodes
    groups   the largest first, each with
      count, tasks     how many, and which: '0-8,10'
      nodes            their names
      kind, words      what they do: a stable word, and a text that may change
      odd              whether they keep the others waiting
      frames           the user's own, innermost first: [file, line, function]
      stack            all frames of the first task's main thread
      loop, turns      FILE:LINE of the user's loop, and [fewest, most] iterations; or null
      native           the compiled function that names a collective, or ''
      members          each task with node, pid, state, call, descriptor, file, threads, main_cpu,
                       cpu (CPU seconds a second), read, written (bytes, or -1), answered, age, box
    """
    odd = set(map(id, picture.odd))
    return {
        "step": step,
        "tasks": picture.size,
        "silent": list(picture.silent),
        "unseen": picture.unseen,
        "groups": [{**_describe_group(group), "odd": id(group) in odd} for group in picture.groups],
    }


def _describe_group(group: TaskGroup) -> Mapping[str, Any]:
    return {
        "count": group.size,
        "tasks": list_tasks(group.tasks, 1 << 30),
        "nodes": group.nodes,
        "kind": group.state.kind,
        "words": group.state.words,
        "frames": list(map(list, group.frames)),
        "stack": list(map(list, group.first.frames)),
        "loop": next((box.loop for box in group.counting), None),
        "turns": group.turns and list(group.turns),
        "native": next((one.native for one in group.sights if one.native), ""),
        "members": list(map(_describe_member, group.sights)),
    }


def _describe_member(sight: Sight) -> Mapping[str, Any]:
    fields = sight._asdict()
    for common in ("frames", "native", "gpu"):
        del fields[common]
    return {**fields, "box": None if sight.box == NO_BOX else sight.box._asdict()}
