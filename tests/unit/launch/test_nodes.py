"""The nodes on which a run starts again."""

from __future__ import annotations

import pytest

from jaxsif.launch import nodes as module
from jaxsif.launch.nodes import SlurmJob, check_nodes, choose_nodes, find_unfit, judge_answer
from jaxsif.watch.sample import Answer

NAMES = ("node1", "node2", "node3", "node4")


@pytest.mark.parametrize(
    ("state", "is_fit"),
    [
        *((state, True) for state in ("allocated", "mixed", "idle", "completing", "mixed-", "allocated+")),
        *((state, False) for state in ("draining", "drained", "down", "down*", "mixed*", "fail", "unknown", "maint")),
    ],
)
def test_a_draining_node_is_not_fit_nor_one_that_does_not_answer(state: str, is_fit: bool) -> None:
    found = find_unfit(["node1"], f"node1|{state}\nnode1|{state}\n")
    assert found == ({} if is_fit else {"node1": state})


def test_a_node_that_slurm_does_not_list_is_not_fit() -> None:
    assert find_unfit(["node1", "node2"], "node1|mixed\n") == {"node2": "unknown to Slurm"}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (None, "no answer"),
        (Answer("node1", 0), ""),
        (Answer("node1", 2), "processes of the old run"),
        (Answer("node1", 0, 512), ""),
        (Answer("node1", 0, 70_000), "70000 MiB of a GPU in use"),
    ],
)
def test_what_is_wrong_with_a_node(answer: Answer | None, problem: str) -> None:
    assert judge_answer(answer) == problem


@pytest.mark.parametrize(
    ("unusable", "suspects", "size", "segment", "chosen"),
    [
        ("", "", 2, 1, "node1 node2"),
        ("node1", "", 2, 1, "node2 node3"),
        ("", "node2", 3, 1, "node1 node3 node4"),
        ("", "node2 node3 node4", 2, 1, "node1 node2"),
        ("node1 node4", "node3", 2, 1, "node2 node3"),
        ("node1 node2 node3", "", 2, 1, ""),
        ("node1", "", 2, 2, "node3 node4"),
        ("", "node2", 2, 2, "node3 node4"),
        ("node1 node4", "", 2, 2, ""),
    ],
)
def test_the_nodes_of_the_next_start(unusable: str, suspects: str, size: int, segment: int, chosen: str) -> None:
    found = choose_nodes(NAMES, unusable.split(), suspects.split(), size, segment)
    assert found == tuple(chosen.split())


def test_only_nodes_that_were_asked_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the job's other nodes nothing is known; one that Slurm has taken from the job is not asked."""
    monkeypatch.setattr(module, "query_job", lambda *_: SlurmJob("RUNNING", ("node1", "node2")))
    monkeypatch.setattr(module, "query_unfit", lambda *_: {})
    monkeypatch.setattr(module, "_inspect", lambda *_: {"node1": Answer("node1", 0)})
    found = check_nodes("12", ["node1", "node3"], ["0a1b"], False, {})
    assert found == {"node1": "", "node3": "no longer in the job"}
