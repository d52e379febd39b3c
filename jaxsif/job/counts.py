"""Numbers of many nodes in Slurm's short form: '4(x3),2' is 4 on each of three nodes, then 2 on
one.
"""

from __future__ import annotations

from collections.abc import Iterable

from jaxsif.task.contract import MisfitError, parse_number, parse_runs

# (value, number of nodes), in the order of the nodes; a cluster of ten thousand equal nodes is one
# pair.
Counts = tuple[tuple[int, int], ...]


def parse_counts(text: str) -> Counts:
    """The form of SLURM_TASKS_PER_NODE and SLURM_JOB_CPUS_PER_NODE; () for anything else.

    Slurm's numbers of tasks and of nodes have at most ten digits.
    """
    try:
        runs = parse_runs(text, "")
        return fold((parse_number(value, ""), times) for value, times in runs)
    except MisfitError:
        return ()


def fold(pairs: Iterable[tuple[int, int]]) -> Counts:
    """The pairs, equal neighbours made one."""
    found: list[tuple[int, int]] = []
    for value, times in pairs:
        if found and found[-1][0] == value:
            times += found.pop()[1]
        if times:
            found.append((value, times))
    return tuple(found)


def take(counts: Counts, nodes: int) -> Counts:
    """The counts of the first `nodes` nodes."""
    found = []
    for value, times in counts:
        found.append((value, min(times, nodes)))
        nodes -= times
        if nodes <= 0:
            break
    return tuple(found)


def size(counts: Counts) -> int:
    """How many nodes."""
    return sum(times for _, times in counts)


def align(*columns: Counts) -> list[tuple[int, ...]]:
    """Columns over the same nodes -> rows (number of nodes, a value of each column), as few as can
    be.
    """
    rest = [list(column) for column in columns]
    rows = []
    while all(rest):
        times = min(column[0][1] for column in rest)
        rows.append((times, *(column[0][0] for column in rest)))
        for column in rest:
            value, left = column.pop(0)
            if left > times:
                column.insert(0, (value, left - times))
    return rows
