"""`jaxsif bench startup`: where the seconds of a start go, for several ways of starting in turn."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from itertools import product
from statistics import median
from typing import Any

from jaxsif.bench.kinds import STARTUP_PHASES, find_others
from jaxsif.bench.results import Record
from jaxsif.bench.runner import Bench
from jaxsif.errors import HostError, JaxsifError
from jaxsif.files import scratch_folder
from jaxsif.screen import note

# Options of `jaxsif run`, whatever a jaxsif.toml says; and each variant's changes to them.
_NODE = {"containers": "node", "stage": False, "compile_cache": False}
VARIANTS: dict[str, dict[str, Any]] = {
    "node": _NODE,
    "task": {**_NODE, "containers": "task"},
    "stage": {**_NODE, "stage": True},
    "cache": {**_NODE, "compile_cache": True},  # two runs with a new folder
}
_READY = ("launch", "container", "python", "import")  # a task's phases before it waits for others


def parse_variants(text: str, in_job: bool) -> tuple[list[str], list[str]]:
    """Return the named variants, and those of them that cannot run here; raise JaxsifError for an
    unknown one.
    """
    names = text.split(",")
    unknown = find_others(names, VARIANTS)
    if unknown:
        hint = "some of " + ",".join(VARIANTS)
        raise JaxsifError(f"no variant {unknown[0]!r}", "--variants", hint)
    usable = names if in_job else find_others(names, ("stage",))
    if not usable:
        hint = "run it in a job, such as one from salloc: stage needs the job's nodes"
        raise JaxsifError("nothing to measure", "--variants", hint)
    return usable, find_others(names, usable)


def measure(bench: Bench, variants: Sequence[str], rounds: int, depth: int) -> int:
    """Run each variant once in each round; return the exit status."""
    for number, variant in product(range(1, rounds + 1), variants):
        status = _measure_variant(bench, variant, number, depth)
        if status:
            return status
    return 0


def _measure_variant(bench: Bench, variant: str, number: int, depth: int) -> int:
    options = VARIANTS[variant]
    if variant != "cache":
        return _start(bench, variant, number, depth, options)
    # All nodes must see it.
    with scratch_folder(os.getcwd(), ".jaxsif-cache-") as cache:
        options = {**options, "compile_cache_folder": cache}
        try:
            first = _start(bench, "cache, run 1", number, depth, options)
        except HostError as error:
            if cache in error.what:
                error.where = f"the current folder: {os.getcwd()}"
                error.hint = "run this in a folder that all nodes see"
            raise
        return first or _start(bench, "cache, run 2", number, depth, options)


def _start(bench: Bench, variant: str, number: int, depth: int, options: Mapping[str, Any]) -> int:
    label = {"record": "task", "variant": variant, "round": number}
    before = len(bench.records)
    status = bench.run(
        "startup.py",
        f"--began={time.time()}",
        f"--depth={depth}",
        refine=lambda record: {**label, **record},
        **options,
    )
    if status == 0:
        tasks = bench.records[before:]
        bench.add(summarize(tasks))
        note(describe_last(tasks))
    return status


def summarize(tasks: Sequence[Record]) -> Record:
    """Return a start as a whole: medians over its tasks, and the slowest task's time."""
    return {
        "record": "start",
        "variant": tasks[0]["variant"],
        "round": tasks[0]["round"],
        **{phase: round(median(task[phase] for task in tasks), 4) for phase in STARTUP_PHASES},
        "total": max(task["total"] for task in tasks),
    }


def describe_last(tasks: Sequence[Record]) -> str:
    """Describe the last task, for which the others waited, and its slowest phase."""
    ready = [sum(task[phase] for phase in _READY) for task in tasks]
    slowest, fastest = max(ready), min(ready)
    last = tasks[ready.index(slowest)]
    excess = {phase: last[phase] - median(task[phase] for task in tasks) for phase in _READY}
    phase = max(excess, key=lambda name: excess[name])
    return (
        f"last to reach initialize: task {last['task']} on {last['node']},"
        f" {slowest:.2f} s after the command started, {slowest - fastest:.2f} s after the first;"
        f" {phase}: {excess[phase]:.2f} s more than the median"
    )
