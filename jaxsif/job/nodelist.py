"""Slurm's node lists, as in SLURM_JOB_NODELIST: 'a,b', 'n[001-015,20],h', 'rack[1-2]n[1-4]',
'cn[1-2]-ib', 'node[7]'.

As `scontrol show hostnames` reads them, in its order, without a process. The first
name alone is `first_host` of jaxsif/task/contract.py.
"""

from __future__ import annotations

import re

from jaxsif.errors import JaxsifError
from jaxsif.limits import MOST_NODES, read_number, shorten

# Compiled when they are used: most runs read no node list.
_TEXT = r"[^,\[\]]*"
_ENTRY = rf"(?=[^,\]]){_TEXT}(?:\[[^\[\]]*\]{_TEXT})*"  # one name of the list, with its groups
_LIST = rf"{_ENTRY}(?:,{_ENTRY})*"
_GROUP = r"\[([^\]]*)\]"
_LONGEST_NAME = 255  # of a host, see gethostname(2) and DNS


def expand(nodelist: str, source: str = "SLURM_JOB_NODELIST") -> tuple[str, ...]:
    """All names, in Slurm's order; raises JaxsifError for what is no node list, or too long. An
    empty text has none.
    """
    number = count(nodelist, source)
    if "[" not in nodelist:  # plain names, as most lists of few nodes are
        return tuple(nodelist.split(",")) if number else ()
    names: list[str] = []
    for entry in _entries(nodelist, source):
        names += _expand_entry(entry, nodelist, source)
    return tuple(names)


def count(nodelist: str, source: str = "SLURM_JOB_NODELIST") -> int:
    """How many names `expand` gives, without making them."""
    number = sum(_count_entry(entry, nodelist, source) for entry in _entries(nodelist, source))
    if number > MOST_NODES:
        raise JaxsifError(
            f"a list of more than {MOST_NODES} nodes: {shorten(nodelist)!r}",
            source,
            "name fewer nodes",
        )
    return number


def _entries(nodelist: str, source: str) -> list[str]:
    if nodelist and not re.fullmatch(_LIST, nodelist):
        raise _error(nodelist, source)
    return re.findall(_ENTRY, nodelist)


def _count_entry(entry: str, nodelist: str, source: str) -> int:
    groups = [group.split(",") for group in re.findall(_GROUP, entry)] if "[" in entry else []
    longest = len(re.sub(_GROUP, "", entry)) + sum(max(map(len, parts)) for parts in groups)
    if groups and longest > _LONGEST_NAME:
        raise _error(nodelist, source)
    product = 1
    for parts in groups:
        product *= sum(_count_part(part, nodelist, source) for part in parts)
    return product


def _count_part(part: str, nodelist: str, source: str) -> int:
    return 1 if part.isdecimal() else len(_range(part, nodelist, source))


def _range(part: str, nodelist: str, source: str) -> range:
    """The numbers of a part of a group such as '001-015'."""
    begin, end = (read_number(number) for number in part.partition("-")[::2])
    if begin is None or end is None or begin > end:
        raise _error(nodelist, source)
    return range(begin, end + 1)


def _numbers(group: str, nodelist: str, source: str) -> list[str]:
    """'001-003,20' -> 001, 002, 003, 20."""
    numbers: list[str] = []
    for part in group.split(","):
        if part.isdecimal():
            numbers.append(part)
        else:
            width = len(part.partition("-")[0])
            numbers += [str(number).zfill(width) for number in _range(part, nodelist, source)]
    return numbers


def _expand_entry(entry: str, nodelist: str, source: str) -> list[str]:
    """The names of one entry. In Slurm's order, the last group runs fastest, then the first one,
    the second one, …
    """
    before, *rest = re.split(_GROUP, entry)
    names = [before]
    for position in range(0, len(rest), 2):
        ends = [
            number + rest[position + 1] for number in _numbers(rest[position], nodelist, source)
        ]
        if position + 2 < len(rest):
            names = [name + end for end in ends for name in names]
        else:
            names = [name + end for name in names for end in ends]
    return names


def _error(nodelist: str, source: str) -> JaxsifError:
    return JaxsifError(
        f"not a node list: {shorten(nodelist)!r}",
        source,
        "scontrol show hostnames shows how Slurm reads it",
    )
