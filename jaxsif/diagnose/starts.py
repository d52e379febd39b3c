"""Find the tasks of a step that have not started: each node's first task reports its start."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate

from jaxsif.diagnose.facts import list_few
from jaxsif.diagnose.reports import Report, find_start, of_event
from jaxsif.plan.plan import Plan
from jaxsif.text import enclose, name_tasks


def name_unstarted(plan: Plan, reports: Sequence[Report]) -> str:
    """Name the tasks of nodes on which no task has started, such as 'tasks 2-3 on node4'; '' if all
    have started, if none has, or if that is not known.
    """
    nodes = [name for _, names in plan.launcher.nodes(plan, find_start(reports)) for name in names]
    if None in (plan.layout.nodes, plan.layout.ntasks):
        return find_unstarted(reports, [], nodes)
    counts = [group.tasks or 0 for group in plan.layout.groups for _ in range(group.nodes or 0)]
    return find_unstarted(reports, counts, nodes if len(nodes) == len(counts) else [])


def render_unstarted(unstarted: str) -> str:
    """Return a sentence saying that these tasks have not started."""
    is_one = re.fullmatch(r"task \d+( on \S+)?", unstarted)
    return f"{unstarted} {'has' if is_one else 'have'} not started"


def find_unstarted(reports: Sequence[Report], counts: Sequence[int], nodes: Sequence[str]) -> str:
    """Name tasks as `name_unstarted` does: `counts` has the number of tasks of each node, and
    `nodes` the nodes' names; either is empty if Slurm decides.
    """
    begun = {report.task: report.node for report in of_event(reports, "started", "ready")}
    firsts = [0, *accumulate(counts)][: len(counts)]  # task of each node, with consecutive tasks
    names = dict(zip(firsts, nodes))
    if not begun:
        missing = []
    elif nodes and any(names.get(task) != node for task, node in begun.items()):
        # Slurm distributes the tasks in its own order.
        missing = [f"the tasks on {name}" for name in nodes if name not in begun.values()]
    else:
        missing = [
            name_tasks(range(first, first + count)) + enclose(" on ", names.get(first, ""))
            for first, count in zip(firsts, counts)
            if first not in begun
        ]
    return list_few(missing, len(missing), "other nodes")
