"""`jaxsif bench train`: slurm/train/train.py in its modes, and on 1, 2, 4, … processes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxsif.bench.peaks import find_peak
from jaxsif.bench.results import Record
from jaxsif.bench.runner import Bench
from jaxsif.errors import HostError, JaxsifError
from jaxsif.installation import find_data
from jaxsif.job.allocation import Allocation
from jaxsif.launch import pipeline
from jaxsif.launch.packages import find_packages
from jaxsif.layout.layout import Layout

MODES = SINGLE, SHARDED, _ = ("single", "sharded", "pmap")
WEAK, STRONG = "weak", "strong"
_NEEDED = ("flax", "optax")


class Run(NamedTuple):
    """One run of the program."""

    mode: str
    batch: int
    options: Mapping[str, Any]  # of `jaxsif run`


class Processes(NamedTuple):
    """Where processes are, and how many GPUs each has; None: Slurm does not say."""

    nodes: int
    per_node: int
    gpus: int | None
    gpu_type: str = ""  # such as 'a100:'

    @property
    def total(self) -> int:
        return self.nodes * self.per_node

    @property
    def options(self) -> dict[str, Any]:
        """Of `jaxsif run`; others that say how many processes there are would contradict them."""
        gpus = (
            {}
            if self.gpus is None
            else {"gpus_per_node": f"{self.gpu_type}{self.gpus * self.per_node}"}
        )
        others = {"ntasks": None, "per_node": False, "per_gpu": False}
        return {"nodes": self.nodes, "ntasks_per_node": self.per_node, **others, **gpus}


def find_processes(bench: Bench) -> Processes:
    """What all options together ask for; raises JaxsifError where that is not known before, or
    packages are missing.
    """
    allocation = Allocation.from_environ(bench.environ)
    prepared = pipeline.prepare(bench.said, ("python",), allocation, bench.environ, bench.note)
    container = prepared.container
    if container:
        there = find_packages(_NEEDED, container, bench.environ)
        missing = [name for name in _NEEDED if name not in there]
        if missing:
            what = f"no {missing[0]} in the image {container.image} and its layers"
            hint = f"jaxsif layer create ml {' '.join(_NEEDED)}, then --layer ml"
            raise HostError(what, "--layer", hint)
    kind, colon, _ = (prepared.settings.asked.gpus_per_node or "").rpartition(":")
    found = read_layout(pipeline.make_plan(prepared).layout)
    return found._replace(gpu_type=kind + colon)


def read_layout(layout: Layout) -> Processes:
    """Of a step that has the same number of processes on each node; raises JaxsifError for others."""
    nodes, per_node, gpus = layout.nodes, layout.ntasks_per_node, layout.gpus_per_node
    if not nodes or not per_node:
        hint = "--nodes=N --ntasks-per-node=N"
        raise JaxsifError(
            "the number of processes on each node is not one number, or not known", layout.why, hint
        )
    if gpus and gpus % per_node:
        hint = "a number of processes that divides it, without --share-gpus and --allow-uneven"
        raise JaxsifError(
            f"{per_node} processes on each node cannot have as many of its {gpus} GPUs",
            layout.why,
            hint,
        )
    return Processes(nodes, per_node, gpus // per_node if gpus else None)


def check_batch(most: Processes, batch: int) -> None:
    """Raise JaxsifError for a batch of which not every device can have as many examples."""
    devices = most.total * (most.gpus or 1)
    if batch % devices:
        hint = f"such as {math.ceil(batch / devices) * devices}"
        raise JaxsifError(
            f"a batch of {batch} cannot be split over {devices} devices", "--batch", hint
        )


def plan_runs(
    most: Processes, modes: Sequence[str], scaling: str | None, batch: int
) -> Iterator[Run]:
    """Each mode with the whole batch; with `scaling` the mode sharded from one process on, with it
    or a share of it.
    """
    for mode in modes:
        if mode == SHARDED and scaling:
            for some in scale(most):
                yield Run(
                    mode,
                    batch if scaling == STRONG else batch * some.total // most.total,
                    some.options,
                )
        else:
            yield Run(
                mode,
                batch,
                (most._replace(nodes=1, per_node=1) if mode == SINGLE else most).options,
            )


def scale(most: Processes) -> Iterator[Processes]:
    """1, 2, 4, … processes up to a node's, then all of 2, 4, … nodes."""
    for number in _double(most.per_node):
        yield most._replace(nodes=1, per_node=number)
    for number in _double(most.nodes):
        if number > 1:
            yield most._replace(nodes=number)


def _double(last: int) -> Iterator[int]:
    number = 1
    while number < last:
        yield number
        number *= 2
    yield last


def read_report(report: Record) -> Record:
    """What the program says of itself -> a record."""
    # JSON has no others.
    losses = [loss if math.isfinite(loss) else None for loss in report["losses"]]
    flops = report["flops_per_step"] / report["step_seconds"]
    peak = find_peak(report["device_kind"], report["precision"])
    return {
        **{name: report[name] for name in ("record", "mode", "processes", "devices", "batch")},
        "step_time": report["step_seconds"],
        "examples_per_second": report["examples_per_second"],
        "flops": flops,
        "share_of_peak": flops / report["devices"] / peak if peak else None,
        "memory": report["memory_bytes_per_process"],
        "compile_time": max(report["compile_seconds"]),
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "losses": losses,
    }


def find_efficiency(record: Record, earlier: Sequence[Record]) -> float | None:
    """Of a run among those of the mode sharded: examples per second of each device, over those of
    the first run.
    """
    first = next((one for one in earlier if one["mode"] == SHARDED), record)
    speed, usual = (one["examples_per_second"] / one["devices"] for one in (record, first))
    return speed / usual if record["mode"] == SHARDED else None


def measure(bench: Bench, runs: Iterator[Run], arguments: Sequence[str]) -> int:
    """Make the runs; returns the exit status."""
    folder = Path(find_data("slurm/train"))

    def refine(report: Record) -> Record:
        record = read_report(report)
        return {**record, "efficiency": find_efficiency(record, bench.records)}

    for run in runs:
        words = (f"--mode={run.mode}", f"--batch={run.batch}", *arguments)
        status = bench.run("training.py", *words, refine=refine, modules=folder, **run.options)
        if status:
            return status
    return 0


def compare_losses(records: Sequence[Record]) -> str:
    """How far the losses of runs with equal batches are from each other."""
    groups: dict[int, list[list[float | None]]] = {}
    for one in records:
        groups.setdefault(one["batch"], []).append(one["losses"])
    group = max(groups.values(), key=len)
    if len(group) < 2:
        return "no runs with equal batches, whose losses could be compared"
    pairs = [(loss, first) for losses in group for loss, first in zip(losses, group[0])]
    finite = [(loss, first) for loss, first in pairs if loss is not None and first is not None]
    if len(finite) < len(pairs):
        return f"of {len(group)} runs with equal batches, some losses are not finite"
    most = max(abs(loss - first) / max(abs(loss), abs(first), 1e-30) for loss, first in finite)
    return f"the losses of {len(group)} runs with equal batches differ by {most:.1g} at most, relatively"
