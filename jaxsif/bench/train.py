"""`jaxsif bench train`: slurm/train/train.py in each of its modes, and on 1, 2, 4, … processes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxsif.bench.results import Record
from jaxsif.bench.runner import Bench
from jaxsif.errors import HostError, JaxsifError
from jaxsif.installation import find_data
from jaxsif.job.allocation import Allocation
from jaxsif.launch import pipeline
from jaxsif.launch.packages import find_packages
from jaxsif.layout.layout import Layout

MODES = SINGLE, SHARDED, PMAP = ("single", "sharded", "pmap")
WEAK, STRONG = "weak", "strong"
_NEEDED = ("flax", "optax")


class Run(NamedTuple):
    """One run of the program."""

    mode: str
    batch: int
    options: Mapping[str, Any]  # of `jaxsif run`


class Processes(NamedTuple):
    """Where processes run, and how many GPUs each has; None if Slurm does not say."""

    nodes: int
    per_node: int
    gpus: int | None
    gpu_type: str = ""  # such as 'a100:'

    @property
    def total(self) -> int:
        """Return the total number of processes."""
        return self.nodes * self.per_node

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of `jaxsif run` for these processes, with all others that set the
        number of processes removed.
        """
        options: dict[str, Any] = {"nodes": self.nodes, "ntasks_per_node": self.per_node}
        options.update(ntasks=None, per_node=False, per_gpu=False)
        if self.gpus is not None:
            options["gpus_per_node"] = f"{self.gpu_type}{self.gpus * self.per_node}"
        return options


def find_processes(bench: Bench) -> Processes:
    """Return the processes that the options together request; raise JaxsifError if their number is
    unknown before the run, or if packages are missing.
    """
    allocation = Allocation.from_environ(bench.environ)
    prepared = pipeline.prepare(bench.options, ("python",), allocation, bench.environ, bench.note)
    container = prepared.container
    if container:
        there = find_packages(_NEEDED, container, bench.environ)
        missing = [name for name in _NEEDED if name not in there]
        if missing:
            what = f"no {missing[0]} in the image {container.image} or its layers"
            hint = f"pass --layer ml after jaxsif layer create ml {' '.join(_NEEDED)}"
            raise HostError(what, "--layer", hint)
    kind, colon, _ = (prepared.settings.options.gpus_per_node or "").rpartition(":")
    return read_layout(pipeline.make_plan(prepared).layout)._replace(gpu_type=kind + colon)


def read_layout(layout: Layout) -> Processes:
    """Return the processes of a step with the same number on each node; raise JaxsifError for any
    other layout.
    """
    nodes, per_node, gpus = layout.nodes, layout.ntasks_per_node, layout.gpus_per_node
    if not nodes or not per_node:
        raise JaxsifError(
            "the number of processes per node is unknown, or differs between nodes",
            layout.why,
            "--nodes=N --ntasks-per-node=N",
        )
    if gpus and gpus % per_node:
        raise JaxsifError(
            f"{per_node} processes on each node cannot share its {gpus} GPUs equally",
            layout.why,
            "pass a number of processes that divides the number of GPUs, and leave out --share-gpus"
            " and --allow-uneven",
        )
    return Processes(nodes, per_node, gpus // per_node if gpus else None)


def check_batch(most: Processes, batch: int) -> None:
    """Raise JaxsifError for a batch that cannot be split equally across all devices."""
    devices = most.total * (most.gpus or 1)
    if batch % devices:
        raise JaxsifError(
            f"a batch of {batch} cannot be split across {devices} devices",
            "--batch",
            f"such as {math.ceil(batch / devices) * devices}",
        )


def plan_runs(
    most: Processes, modes: Sequence[str], scaling: str | None, batch: int
) -> Iterator[Run]:
    """Yield each mode with the whole batch; with `scaling`, yield the sharded mode on growing
    numbers of processes, with the whole batch or with their share of it.
    """
    sizes = {
        SINGLE: [most._replace(nodes=1, per_node=1)],
        SHARDED: scale(most) if scaling else [most],
        PMAP: [most],
    }
    for mode in modes:
        for some in sizes[mode]:
            share = mode == SHARDED and scaling == WEAK
            yield Run(mode, batch * some.total // most.total if share else batch, some.options)


def scale(most: Processes) -> list[Processes]:
    """Return 1, 2, 4, … processes up to a whole node, then all processes of 2, 4, … nodes."""
    on_one_node = [most._replace(nodes=1, per_node=number) for number in _double(most.per_node)]
    return on_one_node + [most._replace(nodes=number) for number in _double(most.nodes)[1:]]


def _double(last: int) -> list[int]:
    """Return 1, 2, 4, … below a number, and the number itself."""
    return [*(1 << power for power in range((last - 1).bit_length())), last]


def read_report(report: Record) -> Record:
    """Convert the program's report to a record."""
    # JSON has no infinities and no NaN.
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
    """Return each device's speed relative to the first run in sharded mode, or None for another
    mode.
    """
    if record["mode"] != SHARDED:
        return None
    first = next((run for run in earlier if run["mode"] == SHARDED), record)
    return _find_speed(record) / _find_speed(first)


def _find_speed(record: Record) -> float:
    """Return the examples per second of each device."""
    speed: float = record["examples_per_second"] / record["devices"]
    return speed


def measure(bench: Bench, runs: Iterator[Run], arguments: Sequence[str]) -> int:
    """Run the benchmark; return the exit status."""
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
    """Describe how far the losses of runs with the same batch size differ."""
    groups = defaultdict(list)
    for record in records:
        groups[record["batch"]].append(record["losses"])
    first, *others = max(groups.values(), key=len)
    if not others:
        return "no runs with the same batch size, so no losses to compare"
    runs = f"{1 + len(others)} runs with the same batch size"
    pairs = [pair for losses in others for pair in zip(losses, first)]
    if any(None in pair for pair in pairs):
        return f"some losses of {runs} are not finite"
    most = max(abs(loss - other) / max(abs(loss), abs(other), 1e-30) for loss, other in pairs)
    return f"the losses of {runs} differ by at most {most:.1g} (relative)"


# A part of JAX's device_kind -> FLOP/s; the first match counts. NVIDIA's data sheets: dense
# products of bfloat16 matrices with sums in float32; if a sheet gives the figure "with sparsity",
# half of that. GPUs before Ampere, such as the V100, have no bfloat16.
_PEAKS = (
    ("A100", 312e12),
    ("H100 PCIe", 756e12),
    ("H100 NVL", 835e12),
    ("H100", 989e12),
    ("GH200", 989e12),
    ("H200", 989e12),
    ("L40S", 362e12),
    ("GB200", 2500e12),
    ("B200", 2250e12),
)


def find_peak(device_kind: str, precision: str) -> float | None:
    """Return the peak FLOP/s of this kind of device, or None if it is not known."""
    if precision != "bfloat16" or "MIG" in device_kind:  # a MIG device is a part of a GPU
        return None
    return next((peak for part, peak in _PEAKS if part in device_kind), None)
