"""Faults in drawn tasks at drawn iterations, and what jaxsif said of them: the table of docs/faults.md.

    build/venv/bin/python tests/bench/faults.py SEEDS

Each fault and each harmless habit of tests/cluster/programs/drill.py runs with SEEDS seeds in the cluster in a box. The
exit status is 1 where a fault was not named, or a habit was called a hang; the page then says so, too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests/cluster")]

from drills import (  # noqa: E402
    BUSY,
    ENDED,
    FAULTS,
    HABITS,
    HANG,
    LARGE,
    NEVER,
    OVER,
    SAID,
    SHAPE,
    Case,
    Told,
    check_blame,
    drill,
    stop,
)
from harness import Cluster  # noqa: E402

AT_ONCE = 3  # runs
PAGE = REPOSITORY / "docs/faults.md"
TITLE = """\
# Faults, and the report of each

`make drills` writes this page. A program with 4 tasks on 2 nodes sums in a loop. One task has a fault, in an iteration;
both are drawn at random. The task records what it does, and the drill compares that with the report of
`jaxsif run --hang-timeout 5`: the task, its node, its line, its loop and iteration, and what it does there. The seconds
are from the fault to the report, the least and the most of {seeds} runs. *Ended* is one more run, of 16 tasks on 4
nodes, with `--on-hang=stop`. *Named* counts the runs in which the whole report was right.

The default of `--hang-timeout` is 60 s: then the first line comes 55 s later, and the word *hang* after 5 minutes. A
task that computes for ever is called a hang, and ended, only with `--busy-timeout`, here 20 s.
[hangs.md](hangs.md) has the rule.

## Faults

| one task | report | named | told after | called a hang after | 16 tasks: ended after |
|---|---|---|---|---|---|
"""
HARMLESS = """
## Habits that are no fault

| one task, or all | report | called a hang | told after | over after |
|---|---|---|---|---|
"""
WORDS = {
    "skip": "skips one sum, and comes to its end before the others",
    "leave": "leaves the loop",
    "end": "ends with `sys.exit()`",
    "at-exit": "sleeps in an `atexit` handler",
    "sleep": "sleeps",
    "own-lock": "waits for a lock that it holds itself",
    "other-lock": "waits for a lock that another thread holds",
    "pipe": "reads from a pipe into which nobody writes",
    "fifo": "opens a FIFO that nobody writes to",
    "file-lock": "waits for the lock of a file",
    "spin": "computes for ever, in Python",
    "hold": "computes for ever in C, and no other thread can run",
    "stop": "is stopped by SIGSTOP",
    "stdin": "waits for input from the terminal",
    "evaluate": "task 0 alone evaluates the model for 20 s",
    "compile": "one task compiles a long program",
    "checkpoint": "task 0 alone saves for 20 s",
    "late-batch": "the first batch of one task is 20 s late",
    "all-slow": "all are slow alike: 8 s an iteration",
}


def is_named(told: Told, *titles: str) -> bool:
    """Return whether all that is said of the task under these titles is what its record says."""
    try:
        for title in titles:
            check_blame(told, title)
    except (AssertionError, StopIteration) as error:
        print(error, file=sys.stderr)
        return False
    return True


def seconds(all_told: Iterable[Told], pattern: str) -> str:
    """Return the least and the most seconds to a line; what is missing counts as never."""
    found = [told.seconds_to(pattern) if told.find(pattern) else float("inf") for told in all_told]
    if min(found) == float("inf"):
        return "never"
    most = "never" if max(found) == float("inf") else f"{max(found):.0f} s"
    return most if f"{min(found):.0f} s" == most else f"{min(found):.0f} to {most}"


def render_fault(kind: str, all_told: Sequence[Told], large: Told) -> tuple[str, bool]:
    """Return a row, and whether all is well."""
    named = [*(is_named(told, SAID, HANG) for told in all_told), is_named(large, SAID)]
    words = FAULTS[kind].format(folder="FOLDER")
    row = f"| {WORDS[kind]} | {words} | {sum(named)} of {len(named)} "
    row += f"| {seconds(all_told, SAID)} | {seconds(all_told, HANG)} | {seconds([large], ENDED)} |"
    return row, all(named) and large.status == 124


def render_habit(kind: str, all_told: Sequence[Told]) -> tuple[str, bool]:
    """Return a row, and whether all is well."""
    hangs = sum(bool(told.find(HANG)) for told in all_told)
    titles = [line.text for told in all_told for line in told.find(SAID)]
    said = titles[0].removeprefix("jaxsif: ").partition(" for ")[0].rstrip(",") if titles else "nothing"
    if any(told.find(BUSY) for told in all_told):
        said = "tasks have been waiting for others to compile, load or save"
    row = f"| {WORDS[kind]} | {said} | {hangs} of {len(all_told)} "
    return row + f"| {seconds(all_told, SAID)} | {seconds(all_told, OVER)} |", hangs == 0


def main() -> int:
    seeds, run = int(sys.argv[1]), partial(drill, Cluster())
    cases = [
        Case(kind, (*SHAPE, *stop(kind)[1:]), HANG if kind in FAULTS else NEVER, number=seed)
        for kind in WORDS
        for seed in range(seeds)
    ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        told = dict(zip(cases, pool.map(run, cases)))
    large = {kind: run(Case(kind, (*LARGE, *stop(kind)))) for kind in FAULTS}

    def of_kind(kind: str) -> list[Told]:
        return [one for case, one in told.items() if case.kind == kind]

    faults = [render_fault(kind, of_kind(kind), large[kind]) for kind in WORDS if kind in FAULTS]
    habits = [render_habit(kind, of_kind(kind)) for kind in WORDS if kind in HABITS]
    tables = ["\n".join(row for row, _ in rows) + "\n" for rows in (faults, habits)]
    PAGE.write_text(TITLE.format(seeds=seeds) + tables[0] + HARMLESS + tables[1])
    print(PAGE.read_text())
    return 0 if all(is_well for _, is_well in (*faults, *habits)) else 1


if __name__ == "__main__":
    sys.exit(main())
