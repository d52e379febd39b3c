"""The launcher for a single machine: jaxsif starts the processes itself."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from jaxsif.diagnose.reports import ReportFilter
from jaxsif.errors import JaxsifError
from jaxsif.job.task_env import hand_out_gpus, identify
from jaxsif.launch.children import Child, Pass, Reader
from jaxsif.launch.probe import count_gpus
from jaxsif.layout.layout import Layout
from jaxsif.layout.planner import plan_layout
from jaxsif.plan.host import Host
from jaxsif.plan.launcher import LOCAL, Launcher, Words
from jaxsif.plan.plan import Plan
from jaxsif.settings.options import RunOptions
from jaxsif.text import Lines


class Local(Launcher):
    """The processes of one machine."""

    name = LOCAL
    words = Words(
        where="on this machine",
        refuses="this machine",
        hint="the kernel's log names the processes it killed",
    )
    spans_nodes = False

    def probe(self, options: RunOptions, host: Host) -> Host:
        """Count the GPUs of this machine."""
        return host._replace(gpus=count_gpus(host.environ))

    def plan_layout(self, options: RunOptions, host: Host) -> Layout:
        """Plan the layout for this machine; raise JaxsifError for several nodes."""
        if options.nodes not in (None, 1):
            what, source = f"{options.nodes} nodes without Slurm", options.source("nodes")
            remedy = "--nodes=1, or run it where srun is"
            if host.srun:  # an option or a setting chose this launcher
                what, source = f"{options.nodes} nodes without srun", options.source("launcher")
                remedy = "--launcher srun, or --nodes=1 for this machine alone"
            raise JaxsifError(what, source, remedy)
        gpus = str(host.gpus) if options.gpus_per_node is None else options.gpus_per_node
        options = options._replace(nodes=1, gpus_per_node=gpus, gpu_bind=None)
        layout = plan_layout(options, None, None)
        return layout if layout.ntasks_per_node else layout.put(1, "one task without GPUs")

    def argv(self, plan: Plan) -> tuple[str, ...]:
        """Return the command line of each process."""
        return plan.task_argv

    def children(
        self, plan: Plan, environ: Mapping[str, str], seen: ReportFilter, stdout: Reader
    ) -> Sequence[Child]:
        """Return a child for each process, with Slurm's variables that identify its task."""
        count = plan.layout.ntasks_per_node or 1
        gpus = hand_out_gpus(environ.get("CUDA_VISIBLE_DEVICES"), plan.layout.gpus_per_node or 0, 0)
        children = []
        for index in range(count):
            variables = {**identify(index, count, ["localhost"], str(os.getpid())), **gpus}
            variables["SLURMD_NODENAME"] = socket.gethostname()
            reports = ReportFilter(plan.nonces, count, beside=seen)
            shown = (
                _Labeller(index, reports) if plan.options.label else _Plain(stdout(), reports.feed)
            )
            children.append(
                Child(
                    plan.argv,
                    {**environ, **variables},
                    stderr=shown.stderr,
                    stdout=shown.stdout,
                    own_group=True,
                    stdin=index == 0,
                    interrupt=signal.SIGTERM,  # for SIGINT, each Python would print a traceback
                )
            )
        return children

    def name_nodes(self, plan: Plan, first: int, count: int | None) -> str:
        """Name the only node."""
        return "this machine"


class _Plain(NamedTuple):
    """The output filters of a process without --label."""

    stdout: Pass | None
    stderr: Pass


class _Labeller:
    """Prefixes whole lines with the process's number, and cuts long ones, as srun --label does."""

    def __init__(self, index: int, reports: ReportFilter) -> None:
        self._prefix = f"{index}: ".encode()
        self._reports = reports
        self._stdout, self._stderr = Lines(), Lines()

    def stdout(self, data: bytes) -> bytes:
        return self._label(self._stdout.feed(data))

    def stderr(self, data: bytes) -> bytes:
        shown = self._reports.feed(data)
        lines = self._stderr.feed(shown) if shown else []
        return self._label(lines if data else [*lines, *self._stderr.feed(b"")])

    def _label(self, lines: Iterable[bytes]) -> bytes:
        return b"".join(self._prefix + line + b"\n" for line in lines)


LAUNCHER = Local()
