"""The launcher for Open MPI: mpirun starts the tasks."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from itertools import chain

from jaxsif.diagnose.reports import ReportFilter
from jaxsif.diagnose.symptoms import MPIRUN_ERROR, MPIRUN_NOISE, SSH
from jaxsif.errors import HostError, JaxsifError, raise_as
from jaxsif.foreign import read_given
from jaxsif.job.nodelist import expand
from jaxsif.launch.children import INSIST_ONCE, Child, Reader
from jaxsif.launch.probe import count_gpus, query_gpus
from jaxsif.layout.layout import NOBODY, Layout
from jaxsif.layout.planner import find_basis, plan_layout
from jaxsif.limits import LONGEST_LINE
from jaxsif.plan.host import Host
from jaxsif.plan.host_list import HOSTFILE_VARIABLES, HostList, parse_hostfile, parse_hosts
from jaxsif.plan.launcher import Launcher, Words, name_ends
from jaxsif.plan.plan import Plan
from jaxsif.process import find_executable
from jaxsif.settings.options import RunOptions
from jaxsif.text import count_of

_MPIRUN = "mpirun"
_TAG = rb"(?m)^\[[^\]\n]*,(\d+)\]<std(?:out|err)>: ?"
_KEPT = 16384  # bytes of output, to search for the complaint
_LONGEST_HOSTFILE = 1 << 22  # bytes, for the maximum number of hosts
# Variables that each node knows better, or that belong to the start of Open MPI and Slurm.
_OWN = (
    r"(OMPI|OPAL|PMIX|PRTE|PMI|SLURM|SLURMD|PBS|LSB|LS)_"
    r"|(CUDA_VISIBLE_DEVICES|HOSTNAME|PWD|OLDPWD|SHLVL|_)$"
)
# Names that a shell can set; not those of Bash's exported functions.
_PASSED_ON = re.compile(rf"(?!{_OWN})[A-Za-z_][A-Za-z0-9_]*")


HERE = "this host"  # the source of the only host, where none is named


class Mpirun(Launcher):
    """Open MPI's launcher."""

    name = _MPIRUN
    words = Words(
        where="by mpirun",
        refuses="mpirun",
        remedy="mpirun --host NODE hostname shows whether it reaches a node,"
        " by ssh without a password",
        hint="mpirun's messages above and the node's log show whether a node was lost",
    )

    def probe(self, options: RunOptions, host: Host) -> Host:
        """Find the hosts; raise HostError if there is no mpirun."""
        if not find_executable(_MPIRUN, host.environ):
            source = options.source("launcher")
            raise HostError("mpirun is not on the PATH", source, "load Open MPI's module")
        return host._replace(
            host_list=_find_hosts(options, host),
            gpus=count_gpus(host.environ),
            job_gpus=query_gpus(options, host.allocation),
        )

    def plan_layout(self, options: RunOptions, host: Host) -> Layout:
        """Plan the layout for the hosts; raise JaxsifError for more nodes than hosts."""
        known, source = len(host.host_list.slots), host.host_list.source
        count = options.nodes or known
        if count > known:
            hint = f"--nodes={known}, or name more hosts"
            if source == HERE:
                source = f"{HERE}; {options.source('launcher')}"
            raise JaxsifError(f"{count} nodes, but {count_of(known, 'host')}", source, hint)
        # By default, each node hands out its own GPUs, which may differ from the GPUs here.
        assumed = options.gpus_per_node is None
        options = options._replace(nodes=count, gpu_bind=None)
        slots = _find_slots(options, host, count)
        if assumed and host.allocation is None and host.gpus:
            options = options._replace(
                gpus_per_node=str(host.gpus)
            )  # nodes are assumed to be like this one
        if slots:
            options = options._replace(ntasks_per_node=slots)
        layout = plan_layout(options, host.allocation, host.job_gpus)._replace(gpus_assumed=assumed)
        if slots:
            return layout._replace(why=f"the slots of {source}")
        if layout.ntasks_per_node:
            return layout
        if any(group.tasks for group in layout.groups):
            remedy = "--ntasks-per-node=N, or --launcher srun"
            raise JaxsifError(
                "mpirun starts the same number of tasks on each node", layout.why, remedy
            )
        return layout.put(1, "one task on each node")

    def argv(self, plan: Plan) -> tuple[str, ...]:
        """Return mpirun, its options, the program that identifies each task, and the task."""
        nodes = list(plan.host.host_list.slots)[: plan.layout.nodes]
        tasks = plan.layout.ntasks_per_node or 1
        hosts = ",".join(f"{node}:{tasks}" for node in nodes)
        argv = [_MPIRUN, "--host", hosts, "-np", str(len(nodes) * tasks)]
        # A resource manager may have given fewer slots than a node has GPUs.
        argv += ["--map-by", f"ppr:{tasks}:node:OVERSUBSCRIBE"]
        argv += ["--bind-to", "none"]  # the default confines each process to one core
        if plan.options.label:
            argv.append("--tag-output")
        # Given only names, -x accepts variables with any value.
        argv += chain.from_iterable(("-x", name) for name in choose_variables(plan))
        gpus = "-" if plan.options.gpus_per_node is None else str(plan.layout.gpus_per_node)
        identify = (plan.host.python, "-IS", f"{plan.host.package}/node/mpi.py")
        return (*argv, *identify, ",".join(nodes), str(tasks), gpus, *plan.task_argv)

    def children(
        self, plan: Plan, environ: Mapping[str, str], seen: ReportFilter, stdout: Reader
    ) -> Sequence[Child]:
        """Return mpirun in its own session: a second Ctrl-C would make it abandon its tasks."""
        show = Output(label=True).feed if plan.options.label else stdout()
        stderr = _Stderr(plan.options.label, seen).feed
        return [Child(plan.argv, environ, stderr, show, own_group=True, insist=INSIST_ONCE)]

    def name_nodes(self, plan: Plan, first: int, count: int | None) -> str:
        """Name hosts from the list."""
        return name_ends(list(plan.host.host_list.slots)[first : first + (count or 1)])


def _find_hosts(options: RunOptions, host: Host) -> HostList:
    """Return the hosts from an option, from the current job, or else only this machine."""
    if options.hosts is not None:
        return parse_hosts(options.hosts, options.source("hosts"))
    if options.hostfile is not None:
        return _read_hostfile(options.hostfile, options.source("hostfile"))
    if host.allocation:
        source = "SLURM_JOB_NODELIST (environment)"
        names = expand(host.environ.get("SLURM_JOB_NODELIST", ""), source)
        return HostList(dict.fromkeys(names), source)
    for variable in HOSTFILE_VARIABLES:
        if host.environ.get(variable):
            return _read_hostfile(host.environ[variable], f"{variable} (environment)")
    return HostList({socket.gethostname(): None}, HERE)


def _read_hostfile(path: str, source: str) -> HostList:
    with raise_as(JaxsifError(f"cannot read the hosts of {path}", source, "correct the path")):
        text = read_given(path, "list of hosts", source, _LONGEST_HOSTFILE)
    return parse_hostfile(text, f"{path}, of {source}")._replace(source=source)


def _find_slots(options: RunOptions, host: Host, count: int) -> int | None:
    """Return the number of tasks for each of the first `count` hosts, according to its list.

    Return None if an option sets the tasks or GPUs, or if the slots are cores rather than GPUs.
    """
    if options.gpus_per_node is not None or find_basis(options).name != NOBODY:
        return None
    slots = host.host_list.common_slots(count)
    return None if slots and slots > host.gpus > 0 else slots


def choose_variables(plan: Plan) -> tuple[str, ...]:
    """Return the names of the variables to pass to the tasks: all, as with srun; mpirun alone
    passes none.
    """
    unset = set(plan.unset)
    there = [name for name in plan.host.environ if name not in unset]
    return tuple(dict.fromkeys([*filter(_PASSED_ON.fullmatch, there), *plan.variables]))


class Output:
    """One stream of mpirun, standard output or error, with labels like srun's for its tasks."""

    def __init__(self, label: bool) -> None:
        self._label = label
        self._pending = b""  # an unfinished line that may begin with a tag
        self._seen = b""

    def feed(self, data: bytes) -> bytes:
        """Filter the next output; b'' means the end of the stream."""
        self._seen = (self._seen + data)[-_KEPT:]
        if self._label:
            data = re.sub(_TAG, rb"\1: ", self._take_whole_lines(data))
        return re.sub(MPIRUN_NOISE.pattern.encode(), b"", data)

    def _take_whole_lines(self, data: bytes) -> bytes:
        """Return the complete lines; a long line comes in pieces."""
        text = self._pending + data
        end = text.rfind(b"\n") + 1
        if not data or len(text) - end > LONGEST_LINE:
            end = len(text)
        self._pending = text[end:]
        return text[:end]

    @property
    def complaint(self) -> str:
        """The reason for which mpirun failed, in its own words: ssh's error, or the first sentence
        of a message, or ''.
        """
        text = self._seen.decode(errors="replace")
        match = re.search(SSH.pattern, text) or re.search(MPIRUN_ERROR.pattern, text)
        return " ".join(match[1].split()) if match else ""


class _Stderr:
    """Passes standard error on without the reports, and notes mpirun's complaint."""

    def __init__(self, label: bool, seen: ReportFilter) -> None:
        self._output = Output(label)
        self._seen = seen

    def feed(self, data: bytes) -> bytes:
        """Return the part of `data` to show; b'' is the end of the stream."""
        output = self._output.feed(data)
        shown = self._seen.feed(output) if output else b""  # b'' would be the end
        if data:
            return shown
        if self._output.complaint:
            self._seen.errors.append(f"mpirun: error: {self._output.complaint}")
        return shown + self._seen.feed(b"")


LAUNCHER = Mpirun()
