"""Programs with loops of all shapes, which say themselves where they are: loop_shapes.py prints, as JSON, which of them
jaxsif.task.watch.loops describes rightly, where it says nothing, and what it says wrongly. For Python 3.12 and later.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

# `# here` marks the loop in which a body waits at iteration n; `# around` the one around that, with its own number.
LOOPS = {
    "for": "for n in range(5):  # here\n    BODY",
    "for, else": "for n in range(5):  # here\n    BODY\nelse:\n    after()",
    "while": "n = -1\nwhile n < 4:  # here\n    n += 1\n    BODY",
    "while, two tests": "n = -1\nwhile n < 4 and n < 9:  # here\n    n += 1\n    BODY",
    "while true": "n = -1\nwhile True:  # here\n    n += 1\n    if n == 5:\n        break\n    BODY\nafter()",
    "nested": "for m in range(3):  # around\n    for n in range(5):  # here\n        BODY\n    after()",
    "in while true": (
        "m = -1\nwhile True:  # around\n    m += 1\n    if m == 3:\n        break\n    n = -1\n"
        "    while n < 4:  # here\n        n += 1\n        BODY"
    ),
    "last in a loop": (
        "for m in range(3):  # around\n    n = -1\n    while n < 4:  # here\n        n += 1\n        BODY"
    ),
    "function": "def run():\n    for n in range(5):  # here\n        BODY\nfor m in range(3):  # around\n    run()",
    "generator": (
        "def run():\n    for n in range(5):  # here\n        BODY\n        yield n\nlist(run())\n"
        "for x in run():\n    pass"
    ),
    "two generators": (
        "def run():\n    for n in range(5):  # here\n        BODY\n        yield n\nlist(zip(run(), run()))"
    ),
    "try": "try:\n    for n in range(5):  # here\n        BODY\nfinally:\n    after()",
    "with": "with open('/dev/null'):\n    for n in range(5):  # here\n        BODY\nafter()",
}
BODIES = {
    "plain": "wait(n)",
    "if at the end": "x = sum(len(v) for v in ([1], [2], [3]))\nif n % 3 == 1:\n    wait(n)",
    "continue": "if n % 2:\n    continue\nwait(n)",
    "continue at the end": "wait(n)\nif n % 2:\n    continue",
    "two ways": "if n % 2:\n    wait(n)\n    continue\nwait(n)\nif n == 2:\n    wait(n)\nelse:\n    wait(n)",
    "break": "if n == 3:\n    wait(n)\n    break\nx = n",
    "break at the end": "x = n\nif n == 3:\n    wait(n)\n    break",
    "try": "try:\n    wait(n)\nexcept ValueError:\n    pass",
    "except": "try:\n    raise ValueError\nexcept ValueError:\n    wait(n)\nx = n",
    "except, continue": "try:\n    raise ValueError\nexcept ValueError:\n    wait(n)\n    continue",
    "except at the end": (
        "try:\n    if n == 3:\n        raise ValueError\nexcept ValueError:\n    wait(n)\n    raise LeftError"
    ),
    "finally": "try:\n    x = n\nfinally:\n    wait(n)",
    "finally of an error": "try:\n    1 / (n - 2)\nfinally:\n    wait(n)",
    "with": "with open('/dev/null'):\n    wait(n)",
    "comprehension": "x = [wait(i, 'inner') for i in range(3)]  # inner",
    "after a comprehension": "x = [i for i in range(3)]\nwait(n)\ny = {i: i for i in range(2)}",
    "generator expression": "x = any(wait(i, 'inner') for i in range(3))  # inner",
    "function": "def call():\n    wait(n)\ncall()",
    "loop within": "for i in range(2):  # inner\n    wait(i, 'inner')\nwait(n)",
    "loop that is left": (
        "for i in range(9):  # inner\n    if i == 2:\n        wait(i, 'inner')\n        break\nwait(n)"
    ),
}
OTHERS = {
    "if at the end, first stop": (
        "for n in range(100):  # here\n    x = sum(len(v) for v in ([1], [2], [3]))\n    if n == 5:\n        wait(n)\n"
        "    x = n\n    if (n + 1) % 10 == 0:\n        wait(n)"
    ),
    "epochs": (
        "def train():\n    for m in range(3):  # around\n        for n in range(20):  # here\n            if n == 10:\n"
        "                wait(n)\n            if n % 5 == 0:\n                x = [i for i in range(4)]\ntrain()"
    ),
    "test of while": "n = 0\nwhile not wait(n) and n < 4:  # here\n    n += 1",
    "test of while, with continue": (
        "n = 0\nwhile not wait(n) and n < 4:  # here\n    n += 1\n    if n == 2:\n        continue"
    ),
    "what for asks": (
        "def items():\n    for i in range(3):  # inner\n        wait(i, 'inner')\n        yield i\n"
        "for n in items():  # here\n    wait(n)"
    ),
    "recursion": (
        "def walk(depth):\n    for n in range(3):  # here\n        wait(n)\n        if depth and n == 1:\n"
        "            walk(depth - 1)\nwalk(3)"
    ),
    "match": (
        "for n in range(4):  # here\n    match n:\n        case 1:\n            wait(n)\n        case _:\n"
        "            wait(n)"
    ),
    "in two loops": (
        "for n in range(2):  # here\n    wait(n)\nfor i in range(2):  # inner\n    wait(i, 'inner')\nafter()"
    ),
    "called by two": (
        "def run(k):\n    for n in range(k):  # here\n        wait(n)\nfor m in range(3):  # around\n"
        "    run(2)\n    run(0)\n    run(1)"
    ),
    "left and entered again": (
        "for m in range(3):  # around\n    for n in range(9):  # here\n        wait(n)\n        if n == m:\n"
        "            break"
    ),
    "async": (
        "async def run():\n    for n in range(3):  # here\n        wait(n)\n        await other()\n        wait(n)\n"
        "async def other():\n    for i in range(2):  # inner\n        wait(i, 'inner')\ndrive(run())"
    ),
}


class LeftError(Exception):
    """Ends a program in the middle of a loop."""


def list_programs() -> Iterator[tuple[str, str]]:
    """Name and source of each program."""
    for (loop, head), (body, text) in itertools.product(LOOPS.items(), BODIES.items()):
        line = next(line for line in head.splitlines() if line.strip() == "BODY")
        indent = line[: -len("BODY")]
        yield f"{loop}: {body}", head.replace(line, textwrap.indent(text, indent))
    yield from OTHERS.items()


class Judge:
    """Compares what is described with what the program says of itself."""

    def __init__(self, name: str, source: str) -> None:
        self.outcomes: list[str] = []
        self.wrong: list[str] = []
        self._name = name
        lines = source.splitlines()
        marks = ("here", "inner", "around")
        self._lines = {mark: [at for at, line in enumerate(lines, 1) if f"# {mark}" in line] for mark in marks}
        self.globals: dict[str, Any] = {"wait": self.wait, "after": self.after, "LeftError": LeftError, "drive": drive}
        self.loops: Any = None

    def _describe(self) -> dict[str, Any]:
        frame, frames = sys._getframe(2), []
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back  # type: ignore[assignment]
        return self.loops.describe(frames)  # type: ignore[no-any-return]

    def wait(self, number: int, mark: str = "here") -> bool:
        """Called by a program in this iteration of the loop with this mark."""
        found = self._describe()
        if not found.get("inside"):
            self.outcomes.append("unknown")
            return False
        line = int(found["loop"].rpartition(":")[2])
        if line in self._lines[mark]:
            self.outcomes.append("right" if found["turns"] == number else "wrong")
        else:
            self.outcomes.append("around" if self._is_around(line, mark) else "wrong")
        if self.outcomes[-1] == "wrong":
            self.wrong.append(f"{self._name}: {mark} {number}, said {found}")
        return False

    def _is_around(self, line: int, mark: str) -> bool:
        """Whether it is a loop around the one that the program means."""
        return line in self._lines["around" if mark == "here" else "here"]

    def after(self) -> None:
        """Called by a program outside of the loop with the mark 'here'."""
        found = self._describe()
        if found.get("inside") and int(found["loop"].rpartition(":")[2]) in self._lines["here"]:
            self.wrong.append(f"{self._name}: after the loop, said {found}")


def drive(coroutine: Any) -> None:
    with contextlib.suppress(StopIteration):
        while True:
            coroutine.send(None)


def run_program(name: str, source: str) -> Judge:
    try:
        from jaxsif.task.watch.loops import Loops
    except ImportError:  # in a task, whose Pythons have it by that name
        from jaxsif_task.watch.loops import Loops  # type: ignore[import-not-found, no-redef]

    judge = Judge(name, source)
    code = compile(source, "program.py", "exec")
    judge.loops = Loops()
    errors: list[Exception] = []
    judge.loops.count_in(iter(list(nest(code))), errors.append)
    with contextlib.suppress(LeftError, ZeroDivisionError):
        exec(code, judge.globals)
    judge.wrong += [f"{name}: {error!r}" for error in errors]
    return judge


def nest(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nest(constant)


def run_all() -> dict[str, Any]:
    """Run all programs; a program counts as its worst stop."""
    counts = {"right": 0, "around": 0, "unknown": 0, "wrong": 0}
    wrong, unknown = [], []
    for name, source in list_programs():
        judge = run_program(name, source)
        worst = max(judge.outcomes, key=list(counts).index) if not judge.wrong else "wrong"
        counts[worst] += 1
        wrong += judge.wrong
        unknown += [name] * (worst in ("around", "unknown"))
    return {**counts, "is wrong": wrong, "says nothing": unknown}


def judge(found: dict[str, Any]) -> None:
    """Hold what `run_all` returns against what must be."""
    assert found["is wrong"] == []
    assert found["right"] >= 200
    # Python's bytecode does not say where the body of `while True` ends.
    assert all(name.startswith("while true: ") and name.endswith(" at the end") for name in found["says nothing"])


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))
    sys.stdout.write(json.dumps(run_all(), indent=1) + "\n")
