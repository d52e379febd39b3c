"""A plan -> running processes, and the first cause when one fails."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from jaxsif import process
from jaxsif.distributed import PORT_VARIABLE
from jaxsif.errors import PortTakenError
from jaxsif.host import coordinator_ports, free_ports, step_name, visible_gpus
from jaxsif.plan import SRUN, Host, LaunchPlan, RunOptions, build
from jaxsif.reports import ReportFilter, find_failure
from jaxsif.slurm import Allocation

_MORE_PORTS = 3  # to try when the first is taken


def launch_until_port_is_free(
    plan: LaunchPlan, others: Iterator[LaunchPlan], environ: Mapping[str, str], note: Callable[[str], None]
) -> int:
    """As `launch`; when the port turns out to be taken on the first task's node, once more with the next of `others`.

    Nobody could tell the other tasks of another port, and to ask the node before each start would take longer than the
    start. The first task refuses before its program's first line; other tasks may have run theirs.
    """
    while True:
        try:
            return launch(plan, environ)
        except PortTakenError as error:
            following = next(others, None) if _input_is_no_file() else None
            if following is None:
                raise
            note(f"{error.what} ({error.where}): starting again with another")
            plan = following


def plans_for_other_ports(
    options: RunOptions, host: Host, allocation: Allocation | None, environ: Mapping[str, str]
) -> Iterator[LaunchPlan]:
    """A few more plans of the same request, each with another port.

    None where the program is no Python: a script may have come far before the first Python looked at the port. And
    none where --env names the port.
    """
    if os.path.basename(options.command[0]).startswith("python") and PORT_VARIABLE not in dict(options.env):
        others = (port for port in free_ports(coordinator_ports(options)) if port != host.port)
        for port in islice(others, _MORE_PORTS):
            yield build(options, host._replace(port=port, step=step_name()), allocation, environ)


def _input_is_no_file() -> bool:
    """True for a terminal and /dev/null: a first start has not read what a second one would miss."""
    try:
        return stat.S_ISCHR(os.fstat(0).st_mode)
    except OSError:
        return True  # closed


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
            # Here, for a surrounding step has its own.
            "SLURM_GTIDS": ",".join(map(str, range(count))),
            "SLURM_GPUS_ON_NODE": str(number),
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
