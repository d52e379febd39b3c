"""Lists of hosts for mpirun."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from jaxsif.errors import JaxsifError
from jaxsif.limits import MOST_NODES, read_number, shorten

# Variables by which resource managers name a file of hosts, one line for each slot: PBS, LSF.
HOSTFILE_VARIABLES = ("PBS_NODEFILE", "LSB_DJOB_HOSTFILE")


class HostList(NamedTuple):
    """The hosts on which mpirun may start tasks."""

    # A host's name -> how many tasks the list has it take; None where the list does not say.
    slots: dict[str, int | None]
    source: str  # what named them

    def common_slots(self, nodes: int) -> int | None:
        """Return the number of slots that each of the first `nodes` hosts has, None where none is
        given. Raises JaxsifError where they differ.
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
    """Parse 'node1:4,node2:4', 'node1,node2'; a name that stands twice has two slots.

    Raises JaxsifError.
    """
    pairs = [part.strip().partition(":") for part in _few(text.split(","), source)]
    return _add_up(((name, slots if colon else None) for name, colon, slots in pairs), source)


def parse_hostfile(text: str, source: str) -> HostList:
    """Parse lines such as 'node1 slots=4', 'node2', 'node1:4', '# text'; raises JaxsifError."""
    pairs: list[tuple[str, str | None]] = []
    for line in _few(text.splitlines(), source):
        name, *words = line.partition("#")[0].split() or [""]
        name, colon, count = name.partition(":")
        slots = [word[len("slots=") :] for word in words if word.startswith("slots=")]
        if name:
            pairs.append((name, slots[0] if slots else count if colon else None))
    return _add_up(pairs, source)


def _few(hosts: list[str], source: str) -> list[str]:
    """Return the hosts of a list, one for each slot in some; raises JaxsifError for too many."""
    if len(hosts) > MOST_NODES:
        what = f"a list of more than {MOST_NODES} hosts"
        raise JaxsifError(what, source, "name fewer hosts, each as NAME:SLOTS")
    return hosts


def _add_up(pairs: Iterable[tuple[str, str | None]], source: str) -> HostList:
    found: dict[str, int | None] = {}
    for name, slots in pairs:
        number = None if slots is None else read_number(slots)
        if not re.fullmatch(r"\w[\w.-]*", name) or (slots is not None and not number):
            said = name if slots is None else f"{name}:{slots}"
            raise JaxsifError(f"not a host: {shorten(said)!r}", source, "NAME:SLOTS")
        found[name] = (found[name] or 1) + (number or 1) if name in found else number
    if not found:
        raise JaxsifError("a list of hosts without a host", source, "NAME:SLOTS,...")
    return HostList(found, source)
