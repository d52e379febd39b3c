"""A plan -> running processes, and the first cause when one fails."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from jaxsif import process
from jaxsif.host import visible_gpus
from jaxsif.plan import SRUN, LaunchPlan
from jaxsif.reports import ReportFilter, find_failure


def launch(plan: LaunchPlan, environ: Mapping[str, str]) -> int:
    """Run the plan to its end; return 0 or 128 + N for a signal to us, raise JaxsifError with the cause otherwise."""
    base = {name: value for name, value in environ.items() if name not in plan.unset_environ}
    base.update(plan.set_environ)
    seen = ReportFilter(plan.label)
    if plan.launcher == SRUN:
        children = [process.Child(plan.argv, base, seen.feed)]
    else:
        children = _local_children(plan, base, seen)
    ended = process.run(children)
    if ended.interrupted:
        return 128 + ended.interrupted
    failure = find_failure(ended.status, seen.reports, seen.errors, plan.launcher)
    if failure:
        raise failure
    return 0


def _local_children(plan: LaunchPlan, environ: Mapping[str, str], seen: ReportFilter) -> list[process.Child]:
    """One child per process, each with the variables by which Slurm would tell it who it is.

    JAX has no other variables for that, and the task shim needs no second way either.
    """
    count = plan.layout.ntasks_per_node or 1
    number = plan.layout.gpus_per_node or 0
    visible = visible_gpus(environ)[:number]
    gpus = ",".join(visible if len(visible) == number else map(str, range(number)))
    children = []
    for index in range(count):
        variables = {
            "SLURM_JOB_ID": str(os.getpid()),
            "SLURM_STEP_NODELIST": "localhost",
            "SLURM_STEP_TASKS_PER_NODE": str(count),
            "SLURM_NTASKS": str(count),
            "SLURM_PROCID": str(index),
            "SLURM_LOCALID": str(index),
            "SLURM_NODEID": "0",
            "SLURMD_NODENAME": socket.gethostname(),
        }
        if gpus:
            variables.update(CUDA_VISIBLE_DEVICES=gpus, SLURM_STEP_GPUS=gpus)
        one = ReportFilter(beside=seen)
        label = _Labeller(index, one) if plan.label else None
        children.append(
            process.Child(
                plan.argv,
                {**environ, **variables},
                stderr=label.stderr if label else one.feed,
                stdout=label.stdout if label else None,
                own_group=True,
                stdin=index == 0,
            )
        )
    return children


class _Labeller:
    """Prefixes whole lines with the process's number, as srun --label does."""

    def __init__(self, index: int, reports: ReportFilter) -> None:
        self._prefix = f"{index}: ".encode()
        self._reports = reports
        self._pending = {1: b"", 2: b""}

    def stdout(self, data: bytes) -> bytes:
        return self._label(1, data, end=not data)

    def stderr(self, data: bytes) -> bytes:
        return self._label(2, self._reports.feed(data), end=not data)

    def _label(self, stream: int, data: bytes, end: bool) -> bytes:
        *lines, rest = (self._pending[stream] + data).split(b"\n")
        if end and rest:
            lines, rest = [*lines, rest], b""
        self._pending[stream] = rest
        return b"".join(self._prefix + line + b"\n" for line in lines)
