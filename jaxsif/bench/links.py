"""The links between neighbouring nodes -> the node that is to blame for slow ones."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

Link = tuple[str, str]  # from node, to node


class Blame(NamedTuple):
    """A node all of whose links are slow in one direction."""

    node: str
    direction: str  # 'sending' or 'receiving'
    figure: float  # of its best link in that direction
    usual: float  # the median of all nodes' figures


def find_slow_nodes(links: Mapping[Link, float], tolerance: float) -> list[Blame]:
    """The nodes that send, or receive, worse than the other nodes; the worst first.

    `links`: link -> a figure of which more is better, such as its bandwidth, or that over an older
    one. A node is as good as its best link: a slow neighbour makes one of its links slow, but not
    both. With fewer than three nodes no link tells which of its ends is to blame.
    """
    if len({node for link in links for node in link}) < 3:
        return []
    found = []
    for direction, end in (("sending", 0), ("receiving", 1)):
        best: dict[str, float] = {}
        for link, figure in links.items():
            best[link[end]] = max(figure, best.get(link[end], figure))
        usual = median(best.values())
        found += [
            Blame(node, direction, own, usual)
            for node, own in best.items()
            if own < usual * (1 - tolerance)
        ]
    return sorted(found, key=lambda blame: blame.figure / blame.usual)


def render_blame(blames: list[Blame]) -> list[str]:
    """One line for each node."""
    lines = []
    for node in dict.fromkeys(blame.node for blame in blames):
        how = [
            f"{one.direction}, {one.figure / one.usual:.2g} of the median node"
            for one in blames
            if one.node == node
        ]
        lines.append(f"slow node: {node}, over all its links: {'; '.join(how)}")
    return lines
