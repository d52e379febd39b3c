"""Numbers of many nodes in Slurm's short form: '4(x3),2' is 4 on each of three nodes, then 2 on
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, groupby, repeat, starmap
from operator import itemgetter

from jaxsif.task.contract import MisfitError, parse_number, parse_runs

# (value, number of nodes), in the order of the nodes; a cluster of ten thousand equal nodes is one
# pair.
Counts = tuple[tuple[int, int], ...]


def parse_counts(text: str) -> Counts:
    """Return the counts of SLURM_TASKS_PER_NODE or SLURM_JOB_CPUS_PER_NODE; () for other texts."""
    try:
        return fold((parse_number(value, ""), times) for value, times in parse_runs(text, ""))
    except MisfitError:
        return ()


def fold(pairs: Iterable[tuple[int, int]]) -> Counts:
    """Return the pairs with equal neighbours joined, and without the pairs for 0 nodes."""
    runs = groupby(filter(itemgetter(1), pairs), itemgetter(0))
    return tuple((value, sum(times for _, times in run)) for value, run in runs)


def each_node(counts: Counts) -> Iterator[int]:
    """Return the value of each node, one by one."""
    return chain.from_iterable(starmap(repeat, counts))


def size(counts: Counts) -> int:
    """Return the number of nodes."""
    return sum(times for _, times in counts)
