"""The loops of a code object, found in its bytecode (Python 3.12 and later).

A loop exists where a backward jump leads to an instruction that every path to the jump passes
through. Its body consists of all instructions on paths from that instruction to the jump, and of
those that end the loop, such as a block before `break`, as far as their source positions
distinguish them from the code after the loop. In case of doubt, an instruction is outside.
"""

from __future__ import annotations

import opcode
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import CodeType
from typing import NamedTuple, Optional

# Instructions times backward jumps; more would take over a tenth of a second.
_MOST_WORK = 100_000
_MOST_BYTES = 1 << 16  # of a code object

_OPS = opcode.opmap
_JUMPS = frozenset(opcode.hasjrel)
_BACKWARD = _OPS.get("JUMP_BACKWARD", -1)
_UNSEEN = _OPS.get("JUMP_BACKWARD_NO_INTERRUPT", -1)  # no event reports it
_FOR, _NOP = _OPS["FOR_ITER"], _OPS["NOP"]
_EXTENDED, _CACHE = _OPS["EXTENDED_ARG"], _OPS.get("CACHE", -1)
# A comprehension's result is below the iterator on the stack, so the argument is greater than 1;
# it is 1 in `f(*a, b)`.
_APPENDS = {_OPS.get(name, -1) for name in ("LIST_APPEND", "SET_ADD", "MAP_ADD")}
_ENDS = {
    _OPS.get(name, -1)
    for name in (
        *("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT"),
        *("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"),
    )
}
# A source position: first line, last line, first column, column after the last one.
_Span = tuple[Optional[int], Optional[int], Optional[int], Optional[int]]


class CodeLoop(NamedTuple):
    """One loop of a code object."""

    begin: int  # offset of its first instruction
    line: int
    jumps: frozenset[int]  # offsets of all its backward jumps
    region: frozenset[int]  # numbers of the instructions inside it
    again: frozenset[int]  # those of them that test for another iteration at its end
    is_counted: bool  # an event reports each iteration
    is_statement: bool  # not a comprehension
    is_for: bool  # which jumps back once more before it finds that it has run out


class CodeLoops:
    """The loops of a code object, and those around each instruction."""

    def __init__(self, code: CodeType) -> None:
        self._flow = _Flow(code)
        self.loops: Sequence[CodeLoop] = tuple(_find_loops(code, self._flow))

    def around(self, offset: int) -> list[CodeLoop]:
        """Return the loops that contain an instruction, the innermost first."""
        number = self._flow.number(offset)
        loops = (one for one in self.loops if number in one.region)
        return sorted(loops, key=lambda loop: len(loop.region))

    def inside(self, outer: CodeLoop) -> list[CodeLoop]:
        """Return the loops inside a loop."""
        number = self._flow.number
        return [one for one in self.loops if one != outer and number(one.begin) in outer.region]

    def asks_again(self, loop: CodeLoop, offset: int) -> bool:
        """Return whether an instruction tests, at the end of an iteration, whether another one
        follows.
        """
        return self._flow.number(offset) in loop.again


def has_loops(code: CodeType) -> bool:
    """Return whether a code object may have loops that can be counted."""
    text = code.co_code
    return len(text) <= _MOST_BYTES and _BACKWARD in text[::2]


class _Flow:
    """The instructions of a code object by number, and their possible successors."""

    def __init__(self, code: CodeType) -> None:
        self.begins: list[int] = []  # offsets
        self.offsets: list[int] = []  # the same, without EXTENDED_ARG, as in events
        self.ops: list[int] = []
        self.appends: set[int] = set()  # of comprehensions
        targets = list(self._read(code.co_code))
        places = list(code.co_positions())  # type: ignore[attr-defined]
        self.spans: list[_Span] = [places[offset // 2] for offset in self.offsets]
        self.targets = [None if to is None else self.number(to) for to in targets]
        self.handlers = self._find_handlers(code)
        self.covered: dict[int, set[int]] = {}  # by handler
        for one, handler in self.handlers.items():
            self.covered.setdefault(handler, set()).add(one)
        self._next = [self._list_next(number) for number in range(len(self.ops))]
        self._before: list[list[int]] = [[] for _ in self.ops]
        for number in range(len(self.ops)):
            for follower in self._follow(number):
                self._before[follower].append(number)

    def _read(self, code: bytes) -> Iterator[int | None]:
        """Record all instructions, and yield each one's jump target, if it has one."""
        at = argument = begin = 0
        while at < len(code):
            op, argument = code[at], argument << 8 | code[at + 1]
            here, at = at, at + 2
            if op == _EXTENDED:
                continue
            while at < len(code) and code[at] == _CACHE:
                at += 2
            if op in _APPENDS and argument > 1:
                self.appends.add(len(self.ops))
            self.begins.append(begin)
            self.offsets.append(here)
            self.ops.append(op)
            sign = -1 if op in (_BACKWARD, _UNSEEN) else 1
            yield at + sign * 2 * argument if op in _JUMPS else None
            begin, argument = at, 0

    def _find_handlers(self, code: CodeType) -> dict[int, int]:
        """Return the handler of exceptions in each instruction."""
        handlers = {}
        table = code.co_exceptiontable  # type: ignore[attr-defined]
        for begin, end, target in _parse_exceptions(table):
            first, last = self.number(begin), self.number(end - 2)
            handlers.update(dict.fromkeys(range(first, last + 1), self.number(target)))
        return handlers

    def number(self, offset: int) -> int:
        """Return the number of the instruction at an offset."""
        return bisect_right(self.begins, offset) - 1

    def _list_next(self, number: int) -> list[int]:
        target, op = self.targets[number], self.ops[number]
        follows = op not in _ENDS and number + 1 < len(self.ops)
        return [*([number + 1] if follows else []), *([] if target is None else [target])]

    def _follow(self, number: int) -> list[int]:
        handler = self.handlers.get(number)
        return self._next[number] if handler is None else [*self._next[number], handler]

    def reach(
        self, firsts: Iterable[int], but: Collection[int] = (), calm: bool = False
    ) -> set[int]:
        """Return the instructions that can be executed from `firsts` on without passing through
        `but`; with `calm`, only those executed while no exception is raised.
        """
        return _search(firsts, self._next.__getitem__ if calm else self._follow, but)

    def lead(self, sources: Iterable[int], head: int) -> set[int]:
        """Return the instructions that lead to one of the sources without passing through the head,
        and the head itself.
        """
        return _search(sources, self._before.__getitem__, [head]) | {head}

    def passes(self, number: int) -> bool:
        """Return whether the next instruction can be executed directly after this one, or after a
        jump over this one by the instruction before it.
        """
        return self.ops[number] not in _ENDS or self.targets[number - 1] == number + 1

    def is_placed(self, number: int) -> bool:
        """Return whether the source position of an instruction is known."""
        return None not in self.spans[number]

    def begin_of(self, number: int) -> tuple[int, int]:
        """Return the line and the column where an instruction begins; -1 if unknown."""
        line, _, column, _ = self.spans[number]
        return (-1 if line is None else line), (-1 if column is None else column)


def _search(
    firsts: Iterable[int], follow: Callable[[int], Iterable[int]], but: Collection[int]
) -> set[int]:
    """Find all instructions on the paths that begin at `firsts` and end before those in `but`."""
    seen: set[int] = set()
    left = list(firsts)
    while left:
        number = left.pop()
        if number not in seen and number not in but:
            seen.add(number)
            left += follow(number)
    return seen


def _parse_exceptions(table: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the begin, end and handler offsets in an exception table."""
    values: list[int] = []
    value = 0
    for byte in table:
        value = value << 6 | byte & 0x3F
        if not byte & 0x40:  # the last byte of this number
            values.append(value)
            value = 0
    for begin, length, target, _ in zip(*[iter(values)] * 4):
        yield 2 * begin, 2 * (begin + length), 2 * target


class _Cycle(NamedTuple):
    """A loop during the search; all fields are numbers of instructions."""

    head: int
    sources: frozenset[int]
    core: frozenset[int]  # all instructions on paths from the head to a source
    test: range  # before the head: the first copy of the `while` test; may be empty


def _find_loops(code: CodeType, flow: _Flow) -> Iterator[CodeLoop]:
    cycles = list(_join(flow, [_make_cycle(flow, *one) for one in _find_sources(flow).items()]))
    calm = flow.reach([0], calm=True)
    is_generator = code.co_name == "<genexpr>"
    for cycle, is_certain in cycles:
        region = _find_region(flow, cycle, [one for one, _ in cycles], calm)
        first = cycle.test.start if cycle.test else cycle.head
        own = cycle.core.difference(*(one.core for one, _ in cycles if one.core < cycle.core))
        is_seen = all(flow.ops[one] == _BACKWARD for one in cycle.sources)
        yield CodeLoop(
            begin=flow.offsets[first],
            line=_find_line(flow, cycle, first) or code.co_firstlineno,
            jumps=frozenset(flow.offsets[one] for one in cycle.sources),
            region=frozenset(region),
            again=_find_copies(flow, cycle),
            is_counted=is_certain and is_seen,
            is_statement=not is_generator and flow.appends.isdisjoint(own),
            is_for=flow.ops[cycle.head] == _FOR,
        )


def _find_sources(flow: _Flow) -> Mapping[int, set[int]]:
    """Return the backward jumps that belong to loops, by their targets."""
    jumps = [number for number, op in enumerate(flow.ops) if op in (_BACKWARD, _UNSEEN)]
    if len(jumps) * len(flow.ops) > _MOST_WORK:
        return {}
    sources: dict[int, set[int]] = {}
    reached = flow.reach([0])
    for number in jumps:
        head = flow.targets[number]
        if head is not None and number in reached and number not in flow.reach([0], [head]):
            sources.setdefault(head, set()).add(number)
    # Keep loops with a jump that an event reports: `await` has only others.
    return {
        head: found
        for head, found in sources.items()
        if any(flow.ops[one] == _BACKWARD for one in found)
    }


def _make_cycle(flow: _Flow, head: int, sources: Iterable[int]) -> _Cycle:
    core = flow.lead(sources, head)
    first = head
    if flow.ops[head] != _FOR:
        # Python 3.12 and 3.13 contain the test of `while` twice: before the loop and at its end.
        # The test of `while True` is a NOP.
        spans = {flow.spans[one] for one in core if flow.is_placed(one)}
        while first and flow.spans[first - 1] in spans and flow.passes(first - 1):
            first -= 1
    return _Cycle(head, frozenset(sources), frozenset(core), range(first, head))


def _join(flow: _Flow, cycles: Sequence[_Cycle]) -> Iterator[tuple[_Cycle, bool]]:
    """Yield each loop, and whether its iterations can be told apart. `continue` in a `while` loop
    jumps to the first copy of the loop's test, which may also be the head of a loop around it.
    """
    others = {cycle.head: cycle for cycle in cycles}
    for cycle in cycles:
        around = others.get(cycle.test.start) if cycle.test else None
        if around:
            del others[cycle.head], others[around.head]
            yield from _part(flow, cycle, around)
    yield from ((cycle, True) for cycle in others.values())


def _part(flow: _Flow, cycle: _Cycle, around: _Cycle) -> Iterator[tuple[_Cycle, bool]]:
    """Yield the loop whose test contains the head of `around`, and the loop around it, if there is
    one.
    """
    low, high = _find_extent(flow, cycle.core)
    begin = flow.begin_of(around.head)
    inner = {one for one in around.sources if low <= flow.begin_of(one) <= high}
    outer = {one for one in around.sources - inner if flow.begin_of(one) < begin}
    is_clear = inner | outer == around.sources
    if flow.ops[around.head - 1] != _NOP:  # the remains of `while True`
        outer, is_clear = set(), True
    inner = set(around.sources - outer)
    core = cycle.core | flow.lead(inner, around.head) if inner else cycle.core
    yield cycle._replace(core=core, sources=cycle.sources | inner), is_clear
    if outer:
        yield _Cycle(around.head, frozenset(outer), around.core, range(0)), is_clear


def _find_extent(flow: _Flow, core: Iterable[int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the source positions where the first and the last of these instructions begin.

    The backward jumps may have the position of the whole statement, including its `else`.
    """
    known = [one for one in core if flow.is_placed(one) and flow.ops[one] not in _ENDS]
    begins = [flow.begin_of(one) for one in known]
    return min(begins, default=(1, 0)), max(begins, default=(0, 0))


def _find_region(
    flow: _Flow, cycle: _Cycle, cycles: Sequence[_Cycle], calm: Collection[int]
) -> set[int]:
    """Return the instructions inside a loop."""
    heads = {one.head for one in cycles if cycle.head in one.core and one.head != cycle.head}
    heads -= set(cycle.test)
    near = flow.reach([cycle.head, *cycle.test[:1]], heads)
    low, high = _find_extent(flow, cycle.core)
    region = set(cycle.core).union(cycle.test)
    region |= {one for one in near if flow.is_placed(one) and low <= flow.begin_of(one) <= high}
    return region | set(_find_rest(flow, cycle, region, near, calm))


def _find_rest(
    flow: _Flow, cycle: _Cycle, region: set[int], near: set[int], calm: Collection[int]
) -> set[int]:
    """Return the instructions that end a loop after the last statement that continues it, in its
    body and in exception handlers; none for `while True`, which has no mark at its end.

    Python copies code that follows the loop into it: such code also exists elsewhere.
    """
    end = _find_end(flow, cycle, calm)
    if end is None:
        return set()
    if cycle.head not in calm:  # the whole loop handles an exception
        calm = flow.reach([cycle.head], calm=True).union(calm)
    body = set(range(cycle.head, end))
    elsewhere = {flow.spans[one] for one in calm if one not in body and one not in region}
    found = _choose_known(flow, near & body, elsewhere)
    # Several rounds: a handler may be inside another one.
    rounds = min(len(flow.covered), 4)
    for handler, covered in chain.from_iterable([sorted(flow.covered.items())] * rounds):
        # A `try` around the loop has its head, too.
        if covered <= region | found and cycle.head not in covered and handler in near:
            cold = flow.reach([handler], [cycle.head], calm=True) & near - set(calm)
            found |= _choose_known(flow, cold, elsewhere) | {handler}
    return found


def _find_end(flow: _Flow, cycle: _Cycle, calm: Collection[int]) -> int | None:
    """Return the instruction before which the body of a loop ends, or None if nothing marks it."""
    if flow.ops[cycle.head] == _FOR:
        return flow.targets[cycle.head]
    if _has_test(flow, cycle):
        return max((one for one in cycle.sources if one in calm), default=0)
    return None


def _choose_known(flow: _Flow, numbers: Iterable[int], elsewhere: Collection[_Span]) -> set[int]:
    """Return the instructions whose source position is known, and not one of `elsewhere`."""
    return {one for one in numbers if flow.is_placed(one) and flow.spans[one] not in elsewhere}


def _has_test(flow: _Flow, cycle: _Cycle) -> bool:
    return any(flow.ops[one] != _NOP for one in cycle.test)


def _find_copies(flow: _Flow, cycle: _Cycle) -> frozenset[int]:
    """Return the instructions of the second copy of a `while` test."""
    asks = {flow.spans[one] for one in cycle.test if _has_test(flow, cycle)}
    return frozenset(one for one in cycle.core if one not in cycle.test and flow.spans[one] in asks)


def _find_line(flow: _Flow, cycle: _Cycle, first: int) -> int:
    """Return the first line of a loop. For `while True`, this may be the line of the loop's
    backward jump, or else of the instruction before the loop.
    """
    lines = [flow.begin_of(first)[0]]
    if flow.ops[first] != _FOR and not _has_test(flow, cycle):
        lines += [flow.begin_of(one)[0] for one in cycle.sources]
        if first and flow.ops[first - 1] == _NOP and min(lines) == lines[0]:
            lines.append(flow.begin_of(first - 1)[0])
    return min((line for line in lines if line > 0), default=0)
