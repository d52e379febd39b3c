"""`jaxsif bench collectives`: bandwidths as nccl-tests defines them, and nodes with slow links.

https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md: the algorithm bandwidth is S/t.
The bus bandwidth is the algorithm bandwidth times a factor that makes it comparable with the
bandwidth of the hardware, whatever the number n of devices.

S is the size of the data that each device holds: of the input for all-reduce, reduce-scatter,
all-to-all and permute, and of the output for all-gather. So for all-gather and reduce-scatter, S is
the size of the whole array.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import count, takewhile
from statistics import median
from typing import NamedTuple

from jaxsif.bench.results import Record
from jaxsif.errors import JaxsifError
from jaxsif.limits import read_number
from jaxsif.text import shorten

_FACTOR = 4  # from one size to the next
_PREFIXES = {"": 0, "K": 1, "M": 2, "G": 3}
OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "permute")


def bus_factor(operation: str, devices: int) -> float:
    """Return bus bandwidth divided by algorithm bandwidth; permute is nccl-tests' sendrecv."""
    others = (devices - 1) / devices
    return {"all-reduce": 2 * others, "permute": 1.0}.get(operation, others)


def add_bandwidths(record: Record, devices: int) -> Record:
    """Add the bandwidths in bytes per second to the record of an operation."""
    if record["record"] != "operation":
        return record
    algorithm = record["size"] / record["time"]
    bus = algorithm * bus_factor(record["operation"], devices)
    return {**record, "algorithm_bandwidth": algorithm, "bus_bandwidth": bus}


Link = tuple[str, str]  # from node, to node


class Blame(NamedTuple):
    """A node whose links are all slow in one direction."""

    node: str
    direction: str  # 'sending' or 'receiving'
    part: float  # its best link in that direction / median of all nodes' best links


def find_links(records: Iterable[Record]) -> dict[Link, float]:
    """Return the bandwidths of the links in the records of a benchmark."""
    links = [record for record in records if record["record"] == "link"]
    return {(link["from"], link["to"]): link["bandwidth"] for link in links}


def find_slow_nodes(links: Mapping[Link, float], tolerance: float) -> list[Blame]:
    """Return the nodes that send or receive more slowly than the other nodes, the worst first.

    `links`: link -> a figure for which higher is better, such as its bandwidth, or the ratio of its
    bandwidth to an older one. A node is as good as its best link: a slow neighbour makes one of its
    links slow, but not both. With fewer than three nodes, a slow link does not show which end is to
    blame.
    """
    if len({node for link in links for node in link}) < 3:
        return []
    blames = []
    for end, direction in enumerate(("sending", "receiving")):
        best: dict[str, float] = {}
        for link, figure in links.items():
            best[link[end]] = max(figure, best.get(link[end], figure))
        usual = median(best.values())
        blames += [
            Blame(node, direction, own / usual)
            for node, own in best.items()
            if own < usual * (1 - tolerance)
        ]
    return sorted(blames, key=lambda blame: blame.part)


def render_blame(blames: Iterable[Blame]) -> list[str]:
    """Return one line for each node."""
    directions: dict[str, list[str]] = {}
    for blame in blames:
        words = f"{blame.direction}, {blame.part:.2g} of the median node"
        directions.setdefault(blame.node, []).append(words)
    return [
        f"slow node: {node}, on all its links: {'; '.join(how)}" for node, how in directions.items()
    ]


def parse_bytes(text: str, source: str) -> int:
    """Parse a size such as '4096', '64KiB', '64K' or '1GiB' into bytes; raise JaxsifError."""
    match = re.fullmatch(r"([0-9]+)([KMG]?)(?:i?B)?", text.strip())
    number = read_number(match[1]) if match else None
    if not match or not number:
        raise JaxsifError(
            f"not a size: {shorten(text)!r}", source, "write it as 4096, 64KiB or 1GiB"
        )
    return number << (10 * _PREFIXES[match[2]])


def parse_sizes(text: str, source: str) -> tuple[int, ...]:
    """Parse '1KiB,1MiB', or a range such as '1KiB-1GiB', each size four times the one before, into
    bytes; raise JaxsifError.
    """
    first, dash, last = text.partition("-")
    if not dash:
        return tuple(parse_bytes(word, source) for word in text.split(","))
    size, end = parse_bytes(first, source), parse_bytes(last, source)
    if size > end:
        raise JaxsifError(
            f"not a range of sizes: {shorten(text)!r}",
            source,
            "put the smaller size first, as in 1KiB-1GiB",
        )
    return tuple(takewhile(end.__ge__, (size * _FACTOR**power for power in count())))
