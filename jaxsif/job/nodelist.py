"""Slurm's node lists, as in SLURM_JOB_NODELIST: 'a,b', 'n[001-015,20],h', 'rack[1-2]n[1-4]',
'cn[1-2]-ib', 'node[7]'.

They are expanded as `scontrol show hostnames` does, in the same order, but without a process. For
only the first name, see `first_host` in jaxsif/task/contract.py.
"""

from __future__ import annotations

import re
from math import prod

from jaxsif.errors import JaxsifError
from jaxsif.limits import MOST_NODES, is_decimal, read_number
from jaxsif.text import shorten

# Compiled when they are used: most runs read no node list.
_TEXT = r"[^,\[\]]*"
_ENTRY = rf"(?=[^,\]]){_TEXT}(?:\[[^\[\]]*\]{_TEXT})*"  # one name of the list, with its groups
_LIST = rf"(?:{_ENTRY}(?:,{_ENTRY})*)?"
_GROUP = r"\[([^\]]*)\]"
_LONGEST_NAME = 255  # of a host, see gethostname(2) and DNS


def expand(nodelist: str, source: str = "SLURM_JOB_NODELIST") -> tuple[str, ...]:
    """Return all names in Slurm's order, or () for an empty text; raise JaxsifError if it is not a
    node list, or too long.
    """
    count(nodelist, source)
    entries = re.findall(_ENTRY, nodelist)
    if "[" not in nodelist:  # plain names, as most lists of few nodes are
        return tuple(entries)
    return tuple(name for entry in entries for name in _expand_entry(entry))


def count(nodelist: str, source: str = "SLURM_JOB_NODELIST") -> int:
    """Return the number of names that `expand` gives, without generating them.

    Raise JaxsifError.
    """
    try:
        if not re.fullmatch(_LIST, nodelist):
            raise ValueError(nodelist)
        number = sum(map(_count_entry, re.findall(_ENTRY, nodelist)))
    except ValueError as error:
        raise JaxsifError(
            f"not a node list: {shorten(nodelist)!r}",
            source,
            "scontrol show hostnames shows how Slurm reads it",
        ) from error
    if number > MOST_NODES:
        raise JaxsifError(
            f"a list of more than {MOST_NODES} nodes: {shorten(nodelist)!r}",
            source,
            "name fewer nodes",
        )
    return number


def _count_entry(entry: str) -> int:
    """Return the number of names in an entry; raise ValueError for names longer than a host name
    can be.
    """
    if "[" not in entry:
        return 1
    groups = [group.split(",") for group in re.findall(_GROUP, entry)]
    longest = len(re.sub(_GROUP, "", entry)) + sum(max(map(len, parts)) for parts in groups)
    if longest > _LONGEST_NAME:
        raise ValueError(entry)
    return prod(sum(map(_count_part, parts)) for parts in groups)


def _count_part(part: str) -> int:
    return 1 if is_decimal(part) else len(_range(part))


def _range(part: str) -> range:
    """Return the numbers of a part of a group such as '001-015'; raise ValueError for any other
    text.
    """
    begin, end = map(read_number, part.partition("-")[::2])
    if begin is None or end is None or begin > end:
        raise ValueError(part)
    return range(begin, end + 1)


def _expand_entry(entry: str) -> list[str]:
    """Return the names of one entry, in Slurm's order: the last group varies fastest, then the
    first, the second, …
    """
    before, *rest = re.split(_GROUP, entry)
    if not rest:
        return [before]
    *groups, last = map(_ends, rest[::2], rest[1::2])
    names = [before]
    for ends in groups:
        names = [name + end for end in ends for name in names]
    return [name + end for name in names for end in last]


def _ends(group: str, text: str) -> list[str]:
    """Return the numbers of a group with the text after it: '001-003,20' and '-ib' make '001-ib',
    '002-ib', '003-ib', '20-ib'.
    """
    ends: list[str] = []
    for part in group.split(","):
        if is_decimal(part):
            ends.append(part + text)
        else:
            width = len(part.partition("-")[0])
            ends += [str(number).zfill(width) + text for number in _range(part)]
    return ends
