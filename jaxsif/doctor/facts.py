"""The facts that checks judge: of the login node, of each node, of each task.

Nodes (jaxsif/node/examine.py) and tasks (jaxsif/task/examine.py) print them as lines of JSON, in
pieces that srun does not mix. An image and its programs may print anything, too: each field has a
type and a range, and a line with anything else is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Union

from jaxsif.diagnose.reports import Report
from jaxsif.errors import JaxsifError
from jaxsif.foreign import (
    Check,
    Pieces,
    check_list,
    check_number,
    check_row,
    check_text,
    is_flag,
    is_node,
    or_none,
    parse_json,
)
from jaxsif.job.nodelist import count
from jaxsif.limits import LONGEST_LINE, MOST_GPUS, MOST_NODES, MOST_TASKS_OF_A_STEP
from jaxsif.task.contract import LONGEST_TEXT
from jaxsif.text import Lines, printable

UNKNOWN = -1  # in place of a number
LONGEST_FACTS = 1 << 17  # bytes of a line
Texts = Mapping[str, str]


class Gpu(NamedTuple):
    """A GPU of a node, as NVML reports it; UNKNOWN for a number that the driver does not know."""

    number: int
    name: str = ""
    memory: int = UNKNOWN  # MiB in use
    errors: int = UNKNOWN  # of memory, uncorrected since the driver was loaded
    pending: int = UNKNOWN  # 1: rows of memory will be remapped at the next reset
    failed: int = UNKNOWN  # 1: a row could not be remapped
    recovery: int = UNKNOWN  # what the driver asks for; 0 for nothing
    down: int = UNKNOWN  # NVLinks that are down, while others are up
    mig: int = UNKNOWN  # 1: it is divided
    power: int = UNKNOWN  # the limit, in watts
    usual: int = UNKNOWN  # the default of that limit


class SiteResult(NamedTuple):
    """What an executable of the site's own checks found."""

    name: str
    state: str
    evidence: str
    remedy: str


class NodeFacts(NamedTuple):
    """A node, as seen from outside the container; None and UNKNOWN mean "not known"."""

    node: str
    number: int = 0  # in the step
    nodelist: str = ""  # of the step
    began: float = 0.0  # seconds since 1970, by its own clock; 0 if not known
    driver: str = ""  # NVIDIA's version; '' without one
    trouble: str = ""  # why the driver's library does not answer, although there are devices
    devices: int = 0  # /dev/nvidia0 and so on
    gpus: tuple[Gpu, ...] | None = None
    addresses: Texts = MappingProxyType({})  # A,B of the step's first nodes, and its own; '': none
    reason: str = ""  # why it cannot reach the first node's port, or that node cannot take it
    skew: float = 0.0  # seconds that this clock is ahead of the first node's
    rate: float = 0.0  # bytes/s to the first node and back; 0 if not measured
    image: str = ""  # a digest of its size and ends
    spaces: tuple[tuple[str, int, int], ...] = ()  # path, free MiB, free inodes
    folders: tuple[tuple[str, str], ...] = ()  # a shared folder, and what is wrong; '' for nothing
    ports: tuple[tuple[str, str, str], ...] = ()  # of InfiniBand: name, state, rate
    namespaces: int = UNKNOWN  # how many a user may make
    fuse: bool = True  # /dev/fuse exists
    imex: int = 0  # channels
    kernel: tuple[str, ...] | None = None  # the kernel's lines on GPUs and memory
    site: tuple[SiteResult, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()  # what could not be found out, and why

    @property
    def active_ports(self) -> list[tuple[str, str]]:
        """The name and rate of each port of InfiniBand that is up: its state is '4: ACTIVE'."""
        return [(name, rate) for name, state, rate in self.ports if state.startswith("4")]


class TaskFacts(NamedTuple):
    """A task, from inside of the container, before its program."""

    node: str
    task: int
    flavour: str = ""  # of an image of jaxsif
    machine: str = ""  # such as x86_64
    python: str = ""  # its version
    jax: str = ""  # the file that `import jax` takes; '' for none
    folder: str = ""  # where it starts
    home: str = ""
    lacks: tuple[str, ...] = ()  # folders that are not in the container
    user: str = ""  # the name of the user; '' if the container knows none
    temporary: str = ""  # the folder for sockets
    packages: Texts = MappingProxyType({})  # name -> version
    variables: Texts = MappingProxyType({})  # of JAX, XLA and NCCL
    foreign: Texts = MappingProxyType({})  # variables that bring in the host's Python or libraries
    proxies: tuple[str, ...] = ()  # names of variables that gRPC obeys
    flags: tuple[str, ...] = ()  # of XLA_FLAGS that no library of jaxlib knows
    visible: int = 0  # GPUs
    memory: int = UNKNOWN  # MiB that all tasks of the node may use
    tasks: int = 1  # on the node
    cpus: int = UNKNOWN  # that this task may use
    limits: Mapping[str, int] = MappingProxyType({})  # RLIMIT_…, UNKNOWN for infinity
    verbs: bool = False  # libibverbs can be loaded
    imex: int = 0  # channels
    left: int = UNKNOWN  # seconds until the job's time limit

    @property
    def uses_gpus(self) -> bool:
        """Return whether the task is to compute on NVIDIA's GPUs."""
        return bool(self.visible) and self.flavour != "cpu"


class SumFacts(NamedTuple):
    """How far a task has come with the sum over all devices."""

    node: str
    task: int
    phase: str  # imported, connected, devices, summed
    platform: str = ""
    here: int = 0  # devices of this process
    devices: int = 0  # in all
    total: float = 0.0
    network: str = ""  # that NCCL uses, such as IB or Socket


class EndFacts(NamedTuple):
    """A container that ended with an error."""

    node: str
    task: int
    status: int
    error: str


Line = Union[NodeFacts, TaskFacts, SumFacts, EndFacts]
_is_text = check_text(LONGEST_TEXT)
_is_count = check_number(1 << 62, int, least=UNKNOWN)
_is_task = check_number(MOST_TASKS_OF_A_STEP - 1, int)
_are_texts = check_list(64, _is_text)


def _is_nodelist(value: object) -> bool:
    """Return whether a value is a Slurm node list; a Check."""
    try:
        return type(value) is str and len(value) <= LONGEST_LINE and count(value) >= 0
    except JaxsifError:
        return False


def _check_map(check: Check) -> Check:
    """Return the check for an object whose keys are strings."""
    return lambda value: (
        type(value) is dict
        and len(value) <= 256
        and all(map(_is_text, value))
        and all(map(check, value.values()))
    )


_is_gpu = check_row(_is_count, _is_text, *[_is_count] * (len(Gpu._fields) - 2))
_CHECKS: dict[str, Check] = {
    "node": is_node,
    "number": check_number(MOST_NODES, int),
    "nodelist": _is_nodelist,
    "task": _is_task,
    "tasks": _is_task,
    "gpus": or_none(check_list(MOST_GPUS, _is_gpu)),
    "addresses": _check_map(_is_text),
    "spaces": check_list(8, check_row(_is_text, _is_count, _is_count)),
    "folders": check_list(8, check_row(_is_text, _is_text)),
    "ports": check_list(64, check_row(_is_text, _is_text, _is_text)),
    "kernel": or_none(_are_texts),
    "site": check_list(64, check_row(*[_is_text] * 4)),
    "failed": check_list(32, check_row(_is_text, _is_text)),
    "limits": _check_map(_is_count),
    **dict.fromkeys(("fuse", "verbs"), is_flag),
    **dict.fromkeys(
        ("began", "skew", "rate", "total"), check_number(1e15, int, float, least=-1e15)
    ),
    **dict.fromkeys(("packages", "variables", "foreign"), _check_map(_is_text)),
    **dict.fromkeys(("lacks", "proxies", "flags"), _are_texts),
    **dict.fromkeys(
        ("devices", "namespaces", "imex", "visible", "memory", "cpus", "status", "here", "left"),
        _is_count,
    ),
}
# By the first letter of a line's origin, which the number of the node or task follows.
_KINDS: dict[str, Callable[..., Line]] = {
    "n": NodeFacts,
    "t": TaskFacts,
    "s": SumFacts,
    "e": EndFacts,
}


def parse_facts(kind: str, text: str) -> Line | None:
    """Parse the facts of a line; return None for any other line."""
    try:
        found = parse_json(text)
    except ValueError:
        return None
    make: Any = _KINDS.get(kind)
    if make is None or type(found) is not dict or not found.keys() <= set(make._fields):
        return None
    if not all(_CHECKS.get(name, _is_text)(value) for name, value in found.items()):
        return None
    known = {name: _clean(value) for name, value in found.items()}
    if kind == "n":
        gpus = known.get("gpus")
        known["gpus"] = None if gpus is None else tuple(Gpu(*row) for row in gpus)
        known["site"] = tuple(SiteResult(*row) for row in known.get("site", ()))
    required = set(make._fields).difference(make._field_defaults)
    line: Line | None = make(**known) if required <= known.keys() else None
    return line


def _clean(value: Any) -> Any:
    """Return a value with printable strings, and tuples in place of lists."""
    if type(value) is list:
        return tuple(map(_clean, value))
    if type(value) is dict:
        return {printable(name): _clean(part) for name, part in value.items()}
    return printable(value) if type(value) is str else value


class LoginFacts(NamedTuple):
    """The login node, or wherever the command runs, and the request."""

    labels: Texts = MappingProxyType({})  # of the image
    slurm: Texts = MappingProxyType({})  # `scontrol show config`, and of the job's partition
    folder: str = ""  # where the tasks are to start; '' if --chdir names it
    quick: bool = False  # without the sum
    cache: str = ""  # the folder of compiled programs, '' if there is none
    in_container: bool = True  # the tasks are
    # Path of a bind or folder -> the option or setting that names it.
    sources: Texts = MappingProxyType({})


class DoctorFacts(NamedTuple):
    """All facts."""

    host: LoginFacts
    nodes: Mapping[str, NodeFacts] = MappingProxyType({})  # by name
    tasks: Mapping[int, TaskFacts] = MappingProxyType({})
    sums: Mapping[int, SumFacts] = MappingProxyType({})
    ends: Mapping[int, EndFacts] = MappingProxyType({})
    reports: Sequence[Report] = ()  # of the tasks
    broken: str = ""  # the error with which the step has ended too early
    remedy: str = ""  # of that error
    succeeded: bool = False  # the step came to its end, without an error

    @property
    def first(self) -> NodeFacts | None:
        """The step's first node, if it has answered."""
        return next((node for node in self.nodes.values() if node.number == 0), None)

    @property
    def fast_nodes(self) -> frozenset[str]:
        """The nodes with a port of InfiniBand that is up."""
        return frozenset(node.node for node in self.nodes.values() if node.active_ports)


class FactsReader:
    """Reads facts from the output of tasks."""

    def __init__(self) -> None:
        self.taken = 0  # lines
        # By the kind of facts, and by node or task.
        self._found: dict[Any, dict[Any, Any]] = {kind: {} for kind in _KINDS.values()}
        self._pieces = Pieces(LONGEST_FACTS, MOST_TASKS_OF_A_STEP)

    def reader(self) -> Callable[[bytes], bytes]:
        """Return the filter of a stream, which shows nothing."""
        lines = Lines(LONGEST_FACTS)

        def feed(data: bytes) -> bytes:
            for line in lines.feed(data):
                self.take(line)
            return b""

        return feed

    def take(self, line: bytes) -> None:
        """Take a line of output."""
        origin, whole = self._pieces.join(line) or ("", b"")
        found = parse_facts(origin[:1], whole.decode(errors="replace"))
        if found:
            self.taken += 1
            key = found.node if isinstance(found, NodeFacts) else found.task
            self._found[type(found)][key] = found

    def collect(self, host: LoginFacts, reports: Sequence[Report] = ()) -> DoctorFacts:
        """Return the facts so far, in the order of nodes and tasks."""
        nodes, tasks, sums, ends = (
            dict(sorted(part.items(), key=lambda pair: getattr(pair[1], "number", pair[0])))
            for part in self._found.values()
        )
        return DoctorFacts(host, nodes, tasks, sums, ends, reports)
