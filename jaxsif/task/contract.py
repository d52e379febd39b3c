"""The contract between the launcher and a task: variables, reports, the layout, the share of GPUs.

The launcher imports this module as jaxsif.task.contract, a task as jaxsif_task.contract. start.sh
and jaxsif/node/share.py repeat a few of these words, because they must start fast:
tests/unit/task/test_contract.py compares them.
"""

from __future__ import annotations

import os

# Type checkers take it for true. Import nothing slow here, such as typing: each task of mpirun
# waits for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Optional, TypeVar

    Value = TypeVar("Value")
    # A node's tasks and GPUs; None if Slurm decides.
    Shape = tuple[Optional[int], Optional[int]]

# Variables that the launcher sets for the tasks; the table in jaxsif/container/environment.py gives
# the reasons.
REPORT = "JAXSIF_REPORT"  # FIRST:SECOND, the nonces of the run; the program has only the second
COORDINATOR_PORT = "JAXSIF_COORDINATOR_PORT"  # absent under a bare srun
NODE_ADDRESS = "JAXSIF_NODE_ADDRESS"  # of --node-address; %N stands for the node's name
# The lines of the run's certificate and its key; after start.sh, the path of a pipe that holds
# them.
CREDENTIALS = "JAXSIF_CREDENTIALS"
SEPARATOR_OF_LINES = ","
IDENTITY_PREFIX = "spiffe://jaxsif/"  # JAX requires this prefix in a certificate's URI
IDENTITY = IDENTITY_PREFIX + "task"
COORDINATOR_TLS = "JAXSIF_COORDINATOR_TLS"  # beside CREDENTIALS
ON = "on"  # its value if a program must use TLS
OFF = "off"  # the value of a user's setting
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}  # of timeouts
INIT_TIMEOUT = "JAXSIF_INIT_TIMEOUT"  # seconds, like the next two
HEARTBEAT_TIMEOUT = "JAXSIF_HEARTBEAT_TIMEOUT"
SHUTDOWN_TIMEOUT = "JAXSIF_SHUTDOWN_TIMEOUT"
LAYOUT = "JAXSIF_LAYOUT"  # an Expectation
FABRIC = "JAXSIF_FABRIC"  # the profile's name
FABRIC_NEEDS = "JAXSIF_FABRIC_NEEDS"  # patterns for paths that the node must have
FABRIC_LIBRARIES = "JAXSIF_FABRIC_LIBRARIES"  # folders, as in LD_LIBRARY_PATH
OWN_CACHE = "JAXSIF_CACHE"  # 1: the compile cache folder is jaxsif's
STEP = "JAXSIF_STEP"  # a random name of the step
CHECK_PROGRAMS = "JAXSIF_CHECK_PROGRAMS"  # programs of several tasks must be the same
WARN, STOP = "warn", "stop"  # its values
DRAINS = "JAXSIF_DRAINS"  # the process that, before it exits, waits until its output is read
TASK_LOG = "JAXSIF_TASK_LOG"  # the path of log files without .out and .err; %t: the task
HANG_TIMEOUT = "JAXSIF_HANG_TIMEOUT"  # seconds; absent if hangs are not detected
NOTICES = "JAXSIF_NOTICES"  # 1: SIGTERM may announce the end of the job
# Seconds in which a SIGTERM is the first one again: Slurm may send it to all processes of a task,
# and start.sh pass it on.
TWICE = 0.2
# The user sets it: the tasks are meant to compute on their own.
INDEPENDENT = "JAXSIF_INDEPENDENT"
# The image sets it: cpu, cuda12, cuda13.
FLAVOUR = "JAXSIF_FLAVOUR"
# start.sh sets it: the descriptor to which Python writes its threads' stacks in a crash.
CRASH = "JAXSIF_CRASH"
# start.sh sets it: its process id. Reports go to start.sh's standard error, whatever a script does
# with the program's. A Python adds that destination for those that it starts.
STARTER = "JAXSIF_STARTER"
# A task sets these for its children: the port is held, the node is checked.
PORT_HELD = "JAXSIF_PORT_HELD"
NODE_CHECKED = "JAXSIF_NODE_CHECKED"
# Like the two above, for a spawned worker: the process as which the task's JAX is connected.
CONNECTED = "JAXSIF_CONNECTED"

# The memory file of a task: its name, and the size in bytes of the JSON object at its start.
BOX_NAME, BOX_BYTES = "jaxsif-box", 4096
MOST_OWN = 16  # modules of the user's own projects in it
# A pattern for the module of a file in a folder of installed packages.
INSTALLED = "/(?:site|dist)-packages/([^/]+)"

# The probes of a node that checks depend on, by the names that a warning shows.
DRIVER, NETWORK, IMAGE = "the driver", "the network", "the image"
KERNEL_LOG, SITE_CHECKS = "the kernel's log", "the site's checks"

# A report is the rest of a line after a marker: a JSON object with the task, the node, the event
# and the fields of the event.
SEPARATOR = b"\x1e"
LONGEST_TEXT = 300  # characters of an exception or a hint
CACHE_COUNTS = ("requests", "hits", "written")
# Event -> its fields. start.sh and stage.py report with the first nonce, before the program and
# around it.
START_EVENTS: Mapping[str, tuple[str, ...]] = {
    "nodes": ("nodes",),
    "started": ("step", "nodes"),
    "ready": (),
    "lacking": ("text", "hint"),  # of what a fabric's profile needs
    "refused": ("text", "hint"),
    "warning": ("text",),
    "unmounted": (),
    "exit": ("status", "where", "box", "crashed"),
}
# The program's Pythons report with the second nonce.
PROGRAM_EVENTS: Mapping[str, tuple[str, ...]] = {
    "port-held": ("text",),
    "port-taken": ("text", "hint"),
    "refused": ("text", "hint"),
    "warning": ("text",),
    "exception": ("text", "where", "consequence", "hint", "jax", "hides"),
    "missing": ("text",),
    "end": ("text",),  # an early exit with its line, if it was one
    "success": ("text",),  # likewise
    "alone": (),
    "arguments": ("text", "where"),  # of jax.distributed.initialize
    "raised": ("text", "where"),  # an exception, while it waits for all others; '' after that
    "cache": (*CACHE_COUNTS, "saved"),
    "watched": ("jax",),
    "wait": ("seconds", "where"),
    "moved": ("seconds",),
    "terminated": (),
    "stopped": ("where",),  # where the program was when its own handler of SIGTERM ended it
    "noticed": (),
    "program": ("order", "group", "processes", "name", "types", "digest", "where", "at"),
}
OWN_THREADS = "jaxsif-"  # begins the names of jaxsif's threads in a task
# Begins the warning of a task whose thread an exception has ended; others may wait for that thread.
THREAD_ENDED = "an exception ended a thread: "
# Likewise for a worker of multiprocessing.
WORKER_ENDED = "a multiprocessing worker ended unexpectedly: "
# In the error of a task that --check-programs=stop ends: its program differs, or that of the other.
OTHER_PROGRAM = " is not what task "
# In the errors that the neighbours of a dead process raise.
CONSEQUENCES = (
    "closed by peer",
    "reset by peer",
    "SO_ERROR: Connection refused",  # Gloo's: the neighbour no longer listens
    "Socket closed",
    "Broken pipe",
    "heartbeat",
    "tasks are unhealthy",
    "distributed service detected fatal errors",
    "remote process exited",
)
# In the error of a multiprocessing worker that runs the script again: Python's text, and ours.
SPAWNED = (
    "An attempt has been made to start a new process before",
    "a multiprocessing worker ran the script again",
)
# In the error of a call that is for other processes than the run's.
INITIALIZED = "called jax.distributed.initialize("
UNKNOWN_ADDRESS = "no address is known for "  # begins a refusal of the first task's node
# XLA's words for too little memory, as regular expressions, and what to do. Messages of gRPC begin
# alike.
FULL_NODE = "(?:RESOURCE_EXHAUSTED|computation): Out of memory allocating"  # on a CPU
FULL_NODE_HINT = (
    "request more memory for the step (--mem), or use smaller arrays or fewer tasks on a node"
)
FULL_GPU = "RESOURCE_EXHAUSTED: (Out of memory while trying|Failed to allocate) "
FULL_GPU_HINT = (
    "use a smaller batch or more devices; with several processes on a GPU, lower"
    " XLA_CLIENT_MEM_FRACTION; `jaxsif doctor` names GPUs whose memory is in use"
)
# JAX's words in jax.devices("gpu") and jax.devices("cuda") for a platform that it does not have.
ABSENT_GPU = r"Unknown backend(: 'gpu' requested| (cuda|rocm)\. Available)"
ABSENT_GPU_HINT = (
    "use an image with CUDA and pass --gpus-per-node=N, or call jax.devices() without a platform"
    " and unset JAX_PLATFORM_NAME"
)


_MOST_SHOWN = 80  # characters of types in a text, which shows two programs


def render_position(around: Sequence[tuple[str, int]]) -> str:
    """Render the loops around a call, outermost first, such as '1f3a77c0:3,99e0a4b1:17': a checksum
    of each loop's FILE:LINE, and its iteration.
    """
    from zlib import crc32

    return ",".join(f"{crc32(place.encode()):x}:{turns}" for place, turns in around)


def focus_types(types: str, other: str) -> str:
    """Return the types of a program's arguments, or the part of long ones that begins where the
    other program's types differ.
    """
    if len(types) <= _MOST_SHOWN:
        return types
    same = next((i for i, (a, b) in enumerate(zip(types, other)) if a != b), 0)
    begin = types.rfind(" ", 0, same) + 1
    shown = types[begin : begin + _MOST_SHOWN]
    return ("... " if begin else "") + shown + (" ..." if begin + len(shown) < len(types) else "")


def ellipsize(text: str, most: int) -> str:
    """Return a text of at most that many characters; of a longer one, the beginning and '…'.

    It is here, and not in jaxsif.text, because tasks need it.
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def signal_name(number: int) -> str:
    """Name a signal, such as 'SIGKILL' for 9, or use its number if Python knows no name."""
    import signal  # here: it is slow

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def render_marker(nonce: str) -> bytes:
    """Return the beginning of a report from the run with this nonce."""
    return SEPARATOR + f"jaxsif {nonce} ".encode()


def render_report(nonce: str, fields: Mapping[str, object]) -> bytes:
    """Render the line of a report."""
    import json

    # A file name that is not UTF-8 becomes a JSON escape.
    text = json.dumps(fields, ensure_ascii=False).encode(errors="backslashreplace")
    return render_marker(nonce) + text + b"\n"


_PIECE = 900  # characters, all ASCII


def cut(line: str, origin: str) -> list[str]:
    """Cut a line into pieces that are short enough for srun, which mixes longer lines from several
    nodes.

    Each piece begins with its origin, such as the number of the node in the step, then '+' if more
    of the line follows, or '.' if not.
    """
    pieces = [line[at : at + _PIECE] for at in range(0, len(line), _PIECE)]
    return [f"{origin} {'.' if piece is pieces[-1] else '+'}{piece}" for piece in pieces]


class MisfitError(Exception):
    """This task must not run: the reason, the remedy, and the event to report."""

    def __init__(self, text: str, hint: str = "", event: str = "refused") -> None:
        super().__init__(text)
        self.hint = hint
        self.event = event


def parse_number(text: str, variable: str) -> int:
    """Parse a number of nodes, tasks, GPUs or seconds, of at most ten digits; raise MisfitError."""
    if not (text.isascii() and text.isdecimal()) or len(text) > 10:
        raise MisfitError(f"{variable} is not a number: {text[:40]!r}", _advise(variable))
    return int(text)


def parse_seconds(text: str, variable: str) -> int:
    """Parse a timeout: seconds, or the forms in which users set it for `jaxsif run`, which reach
    tasks of a bare srun, too: 5m, or 'off', which is 0. Raise MisfitError.
    """
    if text == OFF:
        return 0
    number, unit = split_unit(text)
    return parse_number(number, variable) * unit


def split_unit(text: str) -> tuple[str, int]:
    """Split a timeout into its number, unchecked, and the seconds of its unit: '5m' into '5' and
    60.
    """
    unit = text[-1:] if text[-1:] in _UNITS else ""
    return text[: len(text) - len(unit)], _UNITS[unit]


def _advise(variable: str) -> str:
    return (
        f"do not set {variable}; {'jaxsif' if variable.startswith('JAXSIF_') else 'Slurm'} sets it"
    )


def parse_runs(text: str, variable: str) -> list[tuple[str, int]]:
    """Parse '4(x3),2' into values, each with its number of consecutive nodes.

    This is the form of SLURM_TASKS_PER_NODE. Raise MisfitError for any other form.
    """
    runs = []
    for part in text.split(","):
        value, times = part, "1"
        if part.endswith(")"):
            value, _, times = part[:-1].partition("(x")
        runs.append((value, parse_number(times, variable)))
    return runs


def find_value(runs: Sequence[tuple[Value, int]], node: int) -> Value | None:
    """Return the value for node number `node`, from 0, or None if the node comes after the last
    value.
    """
    for value, times in runs:
        node -= times
        if node < 0:
            return value
    return None


def tasks_on_node(environ: Mapping[str, str]) -> int:
    """Return the number of the step's tasks on this node; raise MisfitError.

    SLURM_GTIDS lists them. SLURM_STEP_TASKS_PER_NODE, a list such as '2(x3),1', is the second
    choice: in a heterogeneous job, its order differs from that of SLURM_NODEID.
    """
    if environ.get("SLURM_GTIDS"):
        return len(environ["SLURM_GTIDS"].split(","))
    variable = "SLURM_STEP_TASKS_PER_NODE"
    text = environ.get(variable, "1")
    tasks = find_value(parse_runs(text, variable), node_number(environ))
    if tasks is None:
        raise MisfitError(
            f"{variable} has no entry for this node: {text[:40]!r}", _advise(variable)
        )
    return parse_number(tasks, variable)


def node_number(environ: Mapping[str, str]) -> int:
    """Return the number of this node in its step, from 0; raise MisfitError."""
    return parse_number(environ.get("SLURM_NODEID", "0"), "SLURM_NODEID")


def times(nodes: int) -> str:
    """Return Slurm's suffix for a value that `nodes` nodes share: '(x3)', or '' for one node."""
    return f"(x{nodes})" if nodes > 1 else ""


def _parse_shape(text: str) -> Shape:
    tasks, _, gpus = text.partition(":")
    return _parse_count(tasks), _parse_count(gpus)


def _parse_count(text: str) -> int | None:
    return None if text == "-" else parse_number(text, LAYOUT)


_EACH = "per-task="
_FLAGS = ("bound", "uneven", "share")


class Expectation:
    """The expected shape of the step's nodes, in text such as '4:4(x3),2:- per-task=1 bound'."""

    def __init__(
        self,
        shapes: Sequence[tuple[Shape, int]],
        each: int | None = None,
        bound: bool = False,
        uneven: bool = False,
        share: bool = False,
    ) -> None:
        self.shapes = shapes  # each with its number of consecutive nodes
        self.each = each  # GPUs of each task, which may leave others idle
        self.bound = bound  # Slurm binds GPUs to tasks
        self.uneven = uneven  # the shares of the tasks may differ by one GPU
        self.share = share  # several tasks may use the same GPU

    def render(self) -> str:
        """Render the expectation as text."""
        shapes = [
            f"{'-' if tasks is None else tasks}:{'-' if gpus is None else gpus}{times(nodes)}"
            for (tasks, gpus), nodes in self.shapes
        ]
        each = [f"{_EACH}{self.each}"] if self.each else []
        flags = [flag for flag in _FLAGS if getattr(self, flag)]
        return " ".join([",".join(shapes), *each, *flags])

    @classmethod
    def parse(cls, text: str) -> Expectation:
        """Parse an expectation from its text; raise MisfitError."""
        runs, *words = text.split(" ")
        each = [word[len(_EACH) :] for word in words if word.startswith(_EACH)]
        return cls(
            [(_parse_shape(value), nodes) for value, nodes in parse_runs(runs, LAYOUT)],
            parse_number(each[0], LAYOUT) if each else None,
            *(flag in words for flag in _FLAGS),
        )

    def find_shape(self, node: int) -> Shape:
        """Return the shape of node number `node`, from 0; the last shape applies to all later
        nodes.
        """
        return find_value(self.shapes, node) or self.shapes[-1][0]


def share(
    local_id: int, tasks: int, gpus: int, each: int | None = None, uneven: bool = True
) -> tuple[int, ...]:
    """Return the numbers, from 0, of a node's GPUs that task `local_id` of the node uses: `each`
    GPUs, or a share of all.

    With more tasks than GPUs, GPUs are assigned to tasks round-robin. If the GPUs cannot be shared
    equally, the first tasks get one more if `uneven`; otherwise the remaining GPUs are idle.
    """
    if each:
        return tuple(range(local_id * each, (local_id + 1) * each))
    if tasks > gpus:
        return (local_id % gpus,)
    size, rest = divmod(gpus, tasks)
    larger = rest if uneven else 0  # tasks with one more
    first = local_id * size + min(local_id, larger)
    return tuple(range(first, first + size + (local_id < larger)))


def visible_gpus(value: str) -> list[str]:
    """Return the GPUs in a value of CUDA_VISIBLE_DEVICES: indices, UUIDs (GPU-...) or MIG names.

    Slurm's word for none is NoDevFiles, and people write -1.
    """
    return [name for name in value.split(",") if name not in ("", "NoDevFiles", "-1")]


def count_gpus() -> int:
    """Count the NVIDIA GPUs of this machine."""
    return sum(name[:6] == "nvidia" and name[6:].isdecimal() for name in os.listdir("/dev"))


def first_host(nodelist: str) -> str:
    """Return the first name in a Slurm node list, or '' if the list is empty.

    Examples of lists: 'a,b', 'n[001-015],h', 'rack[1-2]n[1-4]', 'cn[1-2]-ib', 'node[7]'.
    """
    name = ""
    for part in nodelist.split("["):  # 'rack', '1-2]n', '1-4],other'
        group, _, text = part.rpartition("]")
        text, comma, _ = text.partition(",")
        name += group.split(",")[0].split("-")[0] + text
        if comma:
            break
    return name
