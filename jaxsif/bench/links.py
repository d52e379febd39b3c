"""The links between neighbouring nodes -> the node that is to blame for slow ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median
from typing import NamedTuple

from jaxsif.bench.results import Record

Link = tuple[str, str]  # from node, to node


class Blame(NamedTuple):
    """A node all of whose links are slow in one direction."""

    node: str
    direction: str  # 'sending' or 'receiving'
    part: float  # its best link in that direction over the median of all nodes' best links


def find_links(records: Iterable[Record]) -> dict[Link, float]:
    """Return the bandwidths of the links among the records of a benchmark."""
    links = [record for record in records if record["record"] == "link"]
    return {(link["from"], link["to"]): link["bandwidth"] for link in links}


def find_slow_nodes(links: Mapping[Link, float], tolerance: float) -> list[Blame]:
    """Return the nodes that send, or receive, worse than the other nodes; the worst first.

    `links`: link -> a figure of which more is better, such as its bandwidth, or that over an older
    one. A node is as good as its best link: a slow neighbour makes one of its links slow, but not
    both. With fewer than three nodes no link tells which of its ends is to blame.
    """
    if len({node for link in links for node in link}) < 3:
        return []
    found = []
    for end, direction in enumerate(("sending", "receiving")):
        best: dict[str, float] = {}
        for link, figure in links.items():
            best[link[end]] = max(figure, best.get(link[end], figure))
        usual = median(best.values())
        found += [
            Blame(node, direction, own / usual)
            for node, own in best.items()
            if own < usual * (1 - tolerance)
        ]
    return sorted(found, key=lambda blame: blame.part)


def render_blame(blames: Iterable[Blame]) -> list[str]:
    """Return one line for each node."""
    told: dict[str, list[str]] = {}
    for blame in blames:
        words = f"{blame.direction}, {blame.part:.2g} of the median node"
        told.setdefault(blame.node, []).append(words)
    return [
        f"slow node: {node}, over all its links: {'; '.join(how)}" for node, how in told.items()
    ]
