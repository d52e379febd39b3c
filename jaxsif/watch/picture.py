"""What all tasks of a step do: groups of tasks that do the same, as text and as JSON.

Two tasks do the same when the kinds of their states and the user's own frames are equal. The text
has at most 25 lines for any number of tasks: the largest group comes first, and the odd ones last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jaxsif.errors import count_of, list_tasks, name_tasks, render_span
from jaxsif.watch.sight import MOST_LOOPS, NO_BOX, STALE, BoxState, Frame, Sight
from jaxsif.watch.states import SHUTDOWN, UNKNOWN, WAITING, State, describe_state, own_frames

_MOST_GROUPS = 20  # in a text
MOST_NODES = 4  # by name
_LONGEST_WORDS, _LONGEST_PLACE = 60, 60  # letters of a column
_UNCOUNTED = -1  # iterations of a loop that turns too often to count
_QUIET = 2.0  # seconds without computing after which the count of a loop stands still
# Of words such as 'has ended, and waits for the others'.
_VERBS = re.compile(r"(^|, and (?=waits|holds|has))(\w+)")
_PLURALS = {"is": "are", "has": "have", "goes": "go"}


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
    apart: frozenset[int] = frozenset()  # where all wait, the tasks that wait elsewhere
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
        """Return the groups that keep the others waiting; () where that is not known.

        A task that has ended is one, while a task that has not ended waits for others; else a task
        that waits for no other; else, where all wait, the minority by line and iteration. A state
        that is not known proves nothing, and a task that was not seen may be the odd one.
        """
        others = self._list_others()
        is_clear = len(others) < len(self.groups) and all(group.is_known for group in others)
        is_few = 2 * _count_tasks(others) <= self.size
        return others if is_clear and is_few and not self.is_partial else ()

    @property
    def is_left(self) -> bool:
        """Return whether some tasks have ended, and all that have not ended wait for others."""
        return bool(self._ended) and all(group.waits for group in self.groups)

    @property
    def _ended(self) -> tuple[TaskGroup, ...]:
        """Return the groups of tasks that have ended, while others wait; the rest where these are
        fewer.
        """
        ended, others = partition(self.groups, lambda group: group.state.kind == SHUTDOWN)
        if not any(group.waits for group in others):
            return ()
        return min(ended, others, key=_count_tasks) if ended else ()

    @property
    def is_partial(self) -> bool:
        """Return whether there are tasks that nobody has seen, but for what they say themselves."""
        has_said = any(sight.pid == 0 for sight in list_sights(self.groups))
        return bool(self.silent or self.unseen or has_said)

    def _list_others(self) -> tuple[TaskGroup, ...]:
        """Return the groups to which `odd` comes down, in its order."""
        busy = tuple(group for group in self.groups if not group.waits)
        apart = tuple(group for group in self.groups if self.apart.issuperset(group.tasks))
        return self._ended or busy or apart


def partition(
    groups: Iterable[TaskGroup], test: Callable[[TaskGroup], bool]
) -> tuple[tuple[TaskGroup, ...], tuple[TaskGroup, ...]]:
    """Return the groups that pass a test, and those that do not."""
    known = [(group, test(group)) for group in groups]
    yes, no = ([one for one, passes in known if passes is wanted] for wanted in (True, False))
    return tuple(yes), tuple(no)


def list_sights(groups: Iterable[TaskGroup]) -> Iterator[Sight]:
    """Return what was seen of all tasks of these groups."""
    return (sight for group in groups for sight in group.sights)


def _count_tasks(groups: Iterable[TaskGroup]) -> int:
    return sum(group.size for group in groups)


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
    apart = _find_minority(groups) if all(group.waits for group in groups) else frozenset()
    parts = [part for group in groups for part in _split(group, apart)]
    return Picture(
        tuple(sorted(parts, key=_rank)), tuple(sorted(set(silent))), apart, unseen=unseen
    )


def _rank(group: TaskGroup) -> tuple[int, bool, int]:
    return -group.size, not group.waits, group.first.task


def _split(group: TaskGroup, apart: frozenset[int]) -> Iterator[TaskGroup]:
    """Yield the part of a group that waits elsewhere, and the rest."""
    for is_apart in (False, True):
        sights = tuple(one for one in group.sights if (one.task in apart) is is_apart)
        if sights:
            yield group._replace(sights=sights)


def _find_minority(groups: Sequence[TaskGroup]) -> frozenset[int]:
    """Return the tasks, less than half, that are not where the others wait; none where nothing
    tells the two apart.

    Tasks that run the same program stop in the same iteration of the same loops, the outermost
    first. A task may be in another loop within an iteration, as process 0 is while it saves.
    """
    sights = list(list_sights(groups))
    majority = _compare_loops(sights)
    if majority:
        return frozenset(one.task for one, is_usual in zip(sights, majority) if not is_usual)
    # Process 0 saves and logs at lines of its own, and there it waits for its devices, and so for
    # the others. Of several other lines, each may be a consequence of one of them.
    most = max(groups, key=lambda group: group.size, default=None)
    lines = [set(group.tasks) for group in groups if group is most or 0 not in group.tasks]
    least = min(lines, key=len, default=set[int]())
    is_odd = len(lines) == 2 and 2 * len(least) < len(set[int]().union(*lines))
    return frozenset(least if is_odd else ())


def _compare_loops(sights: Sequence[Sight]) -> Sequence[bool]:
    """Return which tasks are in the loops and iterations where most are; [] where all are in the
    same, or nothing tells.
    """
    for depth in range(MOST_LOOPS if all(map(_stands, sights)) else 0):
        loops = [(*sight.box.around[depth : depth + 1], ("", _UNCOUNTED))[0] for sight in sights]
        places, turns = [place for place, _ in loops], [turns for _, turns in loops]
        if len(set(places)) > 1:
            return [] if depth else _find_majority(places, places)
        if _UNCOUNTED in turns:
            return []
        if len(set(turns)) > 1:
            return _find_most_turns(turns)
    return []


def _find_most_turns(turns: Sequence[int]) -> Sequence[bool]:
    """Return which tasks are where most are. Where tasks run ahead of their devices, an iteration
    more or less proves nothing, unless no task differs by more.
    """
    middle = sorted(turns)[len(turns) // 2]
    near = [abs(count - middle) <= 1 for count in turns]
    return _find_majority(turns, turns) if all(near) else _find_majority(near, [True])


def _find_majority(values: Sequence[object], wanted: Iterable[object]) -> Sequence[bool]:
    """Return which values are the one of `wanted` that more than half have; all where none is."""
    for value in set(wanted):
        if 2 * values.count(value) > len(values):
            return [one == value for one in values]
    return [True] * len(values)


def _stands(sight: Sight) -> bool:
    """Return whether the counts of a task are known, and stand still: while tasks move, their
    observers have counted at different times.
    """
    return sight.box != NO_BOX and sight.box.quiet >= _QUIET and sight.age <= STALE


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
                       cpu (CPU seconds a second), spent (CPU seconds), runs, read, written (bytes),
                       answered, age, box; runs and bytes are -1 where they are not known
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
    box = {**sight.box._asdict(), "around": list(map(list, sight.box.around))}
    return {**fields, "box": None if sight.box == NO_BOX else box}
