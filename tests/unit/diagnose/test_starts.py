"""Which tasks have not started, by the reports of each node's first task."""

from __future__ import annotations

import pytest

from jaxsif.diagnose.reports import Report
from jaxsif.diagnose.starts import find_unstarted, render_unstarted

NODES = ["node1", "node2", "node3"]
START = Report(0, "node1", "started")


def ready(task: int, node: str) -> Report:
    return Report(task, node, "ready")


@pytest.mark.parametrize(
    ("reports", "counts", "nodes", "found"),
    [
        ([START, ready(2, "node2"), ready(4, "node3")], [2, 2, 2], NODES, ""),
        ([START, ready(2, "node2")], [2, 2, 2], NODES, "tasks 4-5 on node3"),
        ([ready(2, "node2")], [2, 2, 1], NODES, "tasks 0-1 on node1, task 4 on node3"),
        ([START, ready(3, "node3")], [3, 1, 2], [], "tasks 4-5"),
        ([START, ready(1, "node2")], [2, 2, 2], NODES, "the tasks on node3"),
        ([START], [], NODES, "the tasks on node2, the tasks on node3"),
        ([START], [], [], ""),
        ([], [2, 2, 2], NODES, ""),
        ([START], [1] * 9, [], "task 1, task 2, task 3, task 4 and 4 other nodes"),
    ],
    ids=["all", "a node", "the first", "no names", "cyclic", "no counts", "neither", "none", "many"],
)
def test_tasks_that_have_not_started(reports: list[Report], counts: list[int], nodes: list[str], found: str) -> None:
    assert find_unstarted(reports, counts, nodes) == found


def test_one_task_has_and_several_have_not_started() -> None:
    assert render_unstarted("task 1 on node2") == "task 1 on node2 has not started"
    assert render_unstarted("tasks 2-3 on node2") == "tasks 2-3 on node2 have not started"
