"""Slurm's node lists, as in SLURM_JOB_NODELIST: 'a,b', 'n[001-015,20],h', 'rack[1-2]n[1-4]', 'cn[1-2]-ib', 'node[7]'.

As `scontrol show hostnames` reads them, in its order, without a process. jaxsif/task/coordinator.py has a first name
of its own, for it imports nothing of jaxsif.
"""

from __future__ import annotations

import re
from math import prod

from jaxsif.errors import JaxsifError

_ENTRY = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")  # one name of the list, with its groups
_LIST = re.compile(rf"{_ENTRY.pattern}(?:,{_ENTRY.pattern})*")
_GROUP = re.compile(r"\[([^\]]*)\]")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def expand(nodelist: str, source: str = "SLURM_JOB_NODELIST") -> tuple[str, ...]:
    """All names, in Slurm's order; raises JaxsifError for what is no node list. An empty text has none."""
    if "[" not in nodelist:  # plain names, as most lists of few nodes are
        return tuple(nodelist.split(",")) if _entries(nodelist, source) else ()
    names: list[str] = []
    for entry in _entries(nodelist, source):
        names += _expand_entry(entry, nodelist, source)
    return tuple(names)


def count(nodelist: str, source: str = "SLURM_JOB_NODELIST") -> int:
    """How many names `expand` gives, without making them."""
    return sum(_count_entry(entry, nodelist, source) for entry in _entries(nodelist, source))


def _entries(nodelist: str, source: str) -> list[str]:
    if nodelist and not _LIST.fullmatch(nodelist):
        raise _error(nodelist, source)
    return _ENTRY.findall(nodelist)


def _ranges(group: str, nodelist: str, source: str) -> list[tuple[int, int, int]]:
    """'001-015,20' -> the first and the last number of each part, and the digits to write them with."""
    ranges = []
    for part in group.split(","):
        found = _RANGE.fullmatch(part)
        if not found or int(found[2] or found[1]) < int(found[1]):
            raise _error(nodelist, source)
        ranges.append((int(found[1]), int(found[2] or found[1]), len(found[1])))
    return ranges


def _count_entry(entry: str, nodelist: str, source: str) -> int:
    groups = [_ranges(group, nodelist, source) for group in _GROUP.findall(entry)] if "[" in entry else []
    return prod(sum(last - first + 1 for first, last, _ in ranges) for ranges in groups)


def _expand_entry(entry: str, nodelist: str, source: str) -> list[str]:
    """The names of one entry. In Slurm's order, the last group runs fastest, then the first one, the second one, …"""
    before, *rest = _GROUP.split(entry)
    names = [before]
    for position in range(0, len(rest), 2):
        group, text = rest[position : position + 2]
        ends = [
            str(number).zfill(width) + text  # twice as fast as a format
            for first, last, width in _ranges(group, nodelist, source)
            for number in range(first, last + 1)
        ]
        if position + 2 < len(rest):
            names = [name + end for end in ends for name in names]
        else:
            names = [name + end for name in names for end in ends]
    return names


def _error(nodelist: str, source: str) -> JaxsifError:
    return JaxsifError(f"not a node list: {nodelist!r}", source, "scontrol show hostnames shows how Slurm reads it")
