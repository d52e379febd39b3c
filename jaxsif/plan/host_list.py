"""Lists of hosts for mpirun."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from jaxsif.errors import JaxsifError
from jaxsif.limits import MOST_NODES, read_number
from jaxsif.text import shorten

# Variables in which resource managers name a file of hosts, one line per slot: PBS, LSF.
HOSTFILE_VARIABLES = ("PBS_NODEFILE", "LSB_DJOB_HOSTFILE")
_HOST = re.compile(r"\w[\w.-]*(:[0-9]{1,18})?")  # NAME or NAME:SLOTS; read_number reads 18 digits


class HostList(NamedTuple):
    """The hosts on which mpirun may start tasks."""

    # A host's name -> the number of tasks it takes; None if the list does not say.
    slots: dict[str, int | None]
    source: str  # what named them

    def common_slots(self, nodes: int) -> int | None:
        """Return the number of slots on each of the first `nodes` hosts, or None if none is given.
        Raise JaxsifError if they differ.
        """
        first = dict(list(self.slots.items())[:nodes])
        if len(set(first.values())) > 1:
            shown = ", ".join(
                name if count is None else f"{name}:{count}" for name, count in first.items()
            )
            raise JaxsifError(
                f"the hosts have different numbers of slots: {shorten(shown)}",
                self.source,
                "pass --ntasks-per-node=N",
            )
        return next(iter(first.values()))


NO_HOSTS = HostList({}, "")


def parse_hosts(text: str, source: str) -> HostList:
    """Parse 'node1:4,node2:4', 'node1,node2'; a name given twice has two slots.

    Raise JaxsifError.
    """
    return _add_up([word.strip() for word in _few(text.split(","), source)], source)


def parse_hostfile(text: str, source: str) -> HostList:
    """Parse lines such as 'node1 slots=4', 'node2', 'node1:4', '# text'; raise JaxsifError."""
    words = []
    for line in _few(text.splitlines(), source):
        word, *others = line.partition("#")[0].split() or [""]
        name = word.partition(":")[0]
        slots = [other[len("slots=") :] for other in others if other.startswith("slots=")]
        if name:
            words.append(f"{name}:{slots[0]}" if slots else word)
    return _add_up(words, source)


def _few(hosts: list[str], source: str) -> list[str]:
    """Return the hosts of a list, which may repeat a host once for each slot; raise JaxsifError for
    too many hosts.
    """
    if len(hosts) > MOST_NODES:
        what = f"a list of more than {MOST_NODES} hosts"
        raise JaxsifError(what, source, "name fewer hosts, each as NAME:SLOTS")
    return hosts


def _add_up(words: Sequence[str], source: str) -> HostList:
    """Return the hosts of words such as 'NAME' and 'NAME:SLOTS'; raise JaxsifError."""
    found: dict[str, int | None] = {}
    for word in words:
        name, _, count = word.partition(":")
        slots = read_number(count)
        if slots == 0 or not _HOST.fullmatch(word):
            raise JaxsifError(f"not a host: {shorten(word)!r}", source, "NAME:SLOTS")
        if name in found:
            slots = (found[name] or 1) + (slots or 1)
        found[name] = slots
    if not found:
        raise JaxsifError("an empty list of hosts", source, "NAME:SLOTS,...")
    return HostList(found, source)
