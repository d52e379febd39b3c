"""Open MPI's side: its lists of hosts, the argument vector of mpirun, and what it says itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jaxsif.errors import JaxsifError
from jaxsif.limits import MOST_NODES, read_number, shorten
from jaxsif.lines import LONGEST_LINE

# Variables by which resource managers name a file of hosts, one line for each slot: PBS, LSF.
HOSTFILE_VARIABLES = ("PBS_NODEFILE", "LSB_DJOB_HOSTFILE")
# Patterns are compiled where they are used: to do it here would take srun's runs a millisecond.
# What each node knows better, and what is of Open MPI's and Slurm's own start.
_OWN = r"(OMPI|OPAL|PMIX|PRTE|PMI|SLURM|SLURMD|PBS|LSB|LS)_|(CUDA_VISIBLE_DEVICES|HOSTNAME|PWD|OLDPWD|SHLVL|_)$"


class Host(NamedTuple):
    """A host, and how many tasks its list has it take."""

    name: str
    slots: int | None  # None where the list does not say


def parse_hosts(text: str, source: str) -> tuple[Host, ...]:
    """'node1:4,node2:4', 'node1,node2'; a name that stands twice has two slots. Raises JaxsifError."""
    pairs = [part.strip().partition(":") for part in _few(text.split(","), source)]
    return _fold(((name, slots if colon else None) for name, colon, slots in pairs), source)


def parse_hostfile(text: str, source: str) -> tuple[Host, ...]:
    """Lines such as 'node1 slots=4', 'node2', 'node1:4', '# text'; raises JaxsifError."""
    pairs: list[tuple[str, str | None]] = []
    for line in _few(text.splitlines(), source):
        name, *words = line.partition("#")[0].split() or [""]
        name, colon, count = name.partition(":")
        slots = [word[len("slots=") :] for word in words if word.startswith("slots=")]
        if name:
            pairs.append((name, slots[0] if slots else count if colon else None))
    return _fold(pairs, source)


def _few(hosts: list[str], source: str) -> list[str]:
    """The hosts of a list, one for each slot in some; raises JaxsifError for more than any cluster
    has.
    """
    if len(hosts) > MOST_NODES:
        raise JaxsifError(
            f"a list of more than {MOST_NODES} hosts",
            source,
            "name fewer hosts, each as NAME:SLOTS",
        )
    return hosts


def _fold(pairs: Iterable[tuple[str, str | None]], source: str) -> tuple[Host, ...]:
    found: dict[str, int | None] = {}
    for name, slots in pairs:
        number = None if slots is None else read_number(slots)
        if not re.fullmatch(r"\w[\w.-]*", name) or not (slots is None or number):
            said = name if slots is None else f"{name}:{slots}"
            raise JaxsifError(f"not a host: {shorten(said)!r}", source, "NAME:SLOTS")
        found[name] = (found[name] or 1) + (number or 1) if name in found else number
    if not found:
        raise JaxsifError("a list of hosts without a host", source, "NAME:SLOTS,...")
    return tuple(Host(name, slots) for name, slots in found.items())


def choose_slots(hosts: Sequence[Host], source: str) -> int | None:
    """The number of slots that all hosts have, None where none is given; raises JaxsifError where
    they differ.
    """
    if len({host.slots for host in hosts}) > 1:
        shown = ", ".join(
            host.name if host.slots is None else f"{host.name}:{host.slots}" for host in hosts
        )
        raise JaxsifError(
            f"the hosts have different numbers of slots: {shorten(shown)}",
            source,
            "pass --ntasks-per-node=N",
        )
    return hosts[0].slots


def build_argv(
    nodes: Sequence[str], tasks: int, label: bool, variables: Iterable[str]
) -> tuple[str, ...]:
    """mpirun and its options, for the same number of tasks on each node, numbered node by node."""
    argv = [
        "mpirun",
        "--host",
        ",".join(f"{node}:{tasks}" for node in nodes),
        "-np",
        str(len(nodes) * tasks),
    ]
    # A resource manager may have given fewer slots than a node has GPUs.
    argv += ["--map-by", f"ppr:{tasks}:node:OVERSUBSCRIBE"]
    argv += ["--bind-to", "none"]  # by itself it would confine each process to one core
    if label:
        argv.append("--tag-output")
    return (*argv, *(word for name in variables for word in ("-x", name)))


def choose_variables(
    environ: Iterable[str], added: Iterable[str], removed: Iterable[str]
) -> tuple[str, ...]:
    """The names of the variables that the tasks shall have: as with srun, all of them. mpirun
    passes none by itself.

    By their names alone, -x takes them with any value.
    """
    known = [
        name
        for name in environ
        if name.isascii() and name.isidentifier() and not re.match(_OWN, name)
    ]
    return tuple(dict.fromkeys([*(name for name in known if name not in set(removed)), *added]))


# What mpirun 5 says when it gave a child its own process group after that had done so itself:
# nothing is wrong.
_NOISE = rb"(?m)^\[[^\]\n]*\] plm:ssh: Warning: setpgid\([^\n]*\n"
_TAG = rb"(?m)^\[[^\]\n]*,(\d+)\]<std(?:out|err)>: ?"
_BLOCK = r"(?ms)^-{60,}\n(.+?)\n\s*\n"  # its errors stand between two such lines
_SSH = r"(?m)^(ssh: .+|.+: Permission denied \(.+|Host key verification failed\.|.*prted: .*not found)$"
_KEPT = 16384  # bytes


class Output:
    """A stream of mpirun's: labels as srun's, without its noise; and its own complaint."""

    def __init__(self, label: bool) -> None:
        self._label = label
        self._pending = b""  # an unfinished line that may begin with a tag
        self._seen = b""

    def feed(self, data: bytes) -> bytes:
        """What to show of `data`; b'' means the end of the stream."""
        self._seen = (self._seen + data)[-_KEPT:]
        if self._label:
            data, self._pending = self._whole_lines(data)
            data = re.sub(_TAG, rb"\1: ", data)
        return re.sub(_NOISE, b"", data)

    def _whole_lines(self, data: bytes) -> tuple[bytes, bytes]:
        """The lines that are whole, and the rest; a long line comes in pieces."""
        whole = self._pending + data
        end = whole.rfind(b"\n") + 1
        if not data or len(whole) - end > LONGEST_LINE:
            end = len(whole)
        return whole[:end], whole[end:]

    @property
    def complaint(self) -> str:
        """Why mpirun could not do it, in its own words: ssh's, or the first sentence of a message;
        '' for nothing.
        """
        text = self._seen.decode(errors="replace")
        found = re.search(_SSH, text) or re.search(_BLOCK, text)
        return " ".join(found[1].split()) if found else ""
