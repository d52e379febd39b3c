"""`jaxsif bench startup`: where the seconds of a start go, in ways of starting that take turns."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from jaxsif.bench.kinds import STARTUP_PHASES
from jaxsif.bench.results import Record
from jaxsif.bench.runner import Bench, note
from jaxsif.errors import JaxsifError

# Options of `jaxsif run`, whatever a jaxsif.toml says; and what each variant changes of them.
_NODE = {"containers": "node", "stage": False, "compile_cache": False}
VARIANTS: dict[str, dict[str, Any]] = {
    "node": _NODE,
    "task": {**_NODE, "containers": "task"},
    "stage": {**_NODE, "stage": True},
    "cache": {**_NODE, "compile_cache": True},  # two runs with a new folder
}
_READY = ("launch", "container", "python", "import")  # what a task does before it waits for others


def parse_variants(text: str, in_job: bool) -> tuple[list[str], list[str]]:
    """Variants by their names, and those of them that cannot be here; raises JaxsifError for an
    unknown one.
    """
    names = text.split(",")
    for name in names:
        if name not in VARIANTS:
            raise JaxsifError(f"no variant {name!r}", "--variants", "some of " + ",".join(VARIANTS))
    missing = [name for name in names if name == "stage" and not in_job]
    if missing == names:
        raise JaxsifError(
            "nothing to measure",
            "--variants",
            "in a job, such as one of salloc: stage needs its nodes",
        )
    return [name for name in names if name not in missing], missing


def measure(bench: Bench, variants: Sequence[str], rounds: int, depth: int) -> int:
    """Run each variant once in each round; returns the exit status."""
    for number in range(1, rounds + 1):
        for variant in variants:
            status = _measure_variant(bench, variant, number, depth)
            if status:
                return status
    return 0


def _measure_variant(bench: Bench, variant: str, number: int, depth: int) -> int:
    options = VARIANTS[variant]
    if variant != "cache":
        return _start(bench, variant, number, depth, options)
    # All nodes must see it.
    with tempfile.TemporaryDirectory(prefix=".jaxsif-cache-", dir=os.getcwd()) as cache:
        options = {**options, "compile_cache_folder": cache}
        first = _start(bench, "cache, run 1", number, depth, options)
        return first or _start(bench, "cache, run 2", number, depth, options)


def _start(bench: Bench, variant: str, number: int, depth: int, options: dict[str, Any]) -> int:
    tasks: list[Record] = []

    def refine(record: Record) -> Record:
        tasks.append({"record": "task", "variant": variant, "round": number, **record})
        return tasks[-1]

    status = bench.run(
        "startup.py",
        f"--began={time.time()}",
        f"--depth={depth}",
        refine=refine,
        show=False,
        **options,
    )
    if status == 0:
        bench.add(summarize(tasks))
        note(describe_last(tasks))
    return status


def summarize(tasks: Sequence[Record]) -> Record:
    """A start as a whole: medians over its tasks, and the slowest task's time."""
    phases = {phase: round(median(task[phase] for task in tasks), 4) for phase in STARTUP_PHASES}
    total = max(task["total"] for task in tasks)
    return {
        "record": "start",
        "variant": tasks[0]["variant"],
        "round": tasks[0]["round"],
        **phases,
        "total": total,
    }


def describe_last(tasks: Sequence[Record]) -> str:
    """Which task the others waited for, and what kept it."""
    ready = [sum(task[phase] for phase in _READY) for task in tasks]
    last, first = tasks[ready.index(max(ready))], min(ready)
    excess = {phase: last[phase] - median(task[phase] for task in tasks) for phase in _READY}
    phase = max(excess, key=lambda name: excess[name])
    told = f"last to reach initialize: task {last['task']} on {last['node']}, {max(ready):.2f} s after the command"
    return f"{told}, {max(ready) - first:.2f} s after the first; {phase}: {excess[phase]:.2f} s more than the median"
