"""Totals over all nodes become what each node has."""

from __future__ import annotations

from typing import Any

import pytest

from jaxsif.errors import JaxsifError
from jaxsif.layout.planner import resolve_totals
from jaxsif.settings.options import RunOptions


@pytest.mark.parametrize(
    ("options", "there", "nodes", "gpus_per_node"),
    [
        ({"gpus": "8", "nodes": 2}, None, 2, "4"),
        ({"gpus": "a100:8", "nodes": 2}, None, 2, "a100:4"),
        ({"gpus": "1"}, None, 1, "1"),
        ({"gpus": "8"}, 2, None, "4"),
        ({"gpus": "8", "nodes": 1}, 2, 1, "8"),
        ({"gpus": "8", "gpus_per_node": "4"}, None, 2, "4"),
        ({"gpus": "8", "gpus_per_node": "a100:4", "nodes": 2}, None, 2, "a100:4"),
        ({"gpus": "8", "ntasks": 4, "ntasks_per_node": 2}, None, 2, "4"),
        ({"node_range": (2, 4)}, None, 2, None),
        ({"node_range": (2, 4)}, 3, 3, None),
        ({"node_range": (2, 4)}, 9, 4, None),
        ({"node_range": (2, 4)}, 1, 2, None),  # which the planner refuses
        ({"node_range": (2, 5), "ntasks": 9}, None, 3, None),
        ({"node_range": (2, 5), "ntasks": 12, "gpus": "9"}, None, 3, "3"),
        ({"node_range": (2, 3), "gpus_per_node": "4"}, None, 2, "4"),
        ({"gpus": "0"}, None, 1, "0"),
        ({"gpus": "0", "ntasks": 8, "ntasks_per_node": 4}, None, 2, "0"),
        ({"gpus": "0"}, 2, None, "0"),
    ],
)
def test_totals(options: dict[str, Any], there: int | None, nodes: int | None, gpus_per_node: str | None) -> None:
    settled = resolve_totals(RunOptions(("x",), **options), there)
    assert (settled.nodes, settled.node_range, settled.gpus_per_node) == (nodes, None, gpus_per_node)


@pytest.mark.parametrize(
    ("options", "there", "what", "hint"),
    [
        ({"gpus": "7", "nodes": 2}, None, "2 nodes cannot share 7 GPUs evenly", "--gpus=6"),
        ({"gpus": "1"}, 2, "2 nodes cannot share 1 GPUs evenly", "--nodes=1"),
        ({"gpus": "8"}, None, "8 GPUs on an unknown number of nodes", "add --nodes=N"),
        (
            {"gpus": "8", "gpus_per_node": "2", "nodes": 2},
            None,
            "--gpus=8 and --gpus-per-node=2 contradict each other",
            "leave out --gpus: 2 nodes",
        ),
        ({"node_range": (4, 2)}, None, "not a range of nodes: '4-2'", "2-4"),
        (
            {"node_range": (2, 3), "ntasks": 7},
            None,
            "2 to 3 nodes cannot share 7 tasks or GPUs evenly",
            "another range, or another number of tasks or GPUs",
        ),
    ],
)
def test_what_cannot_be_shared(options: dict[str, Any], there: int | None, what: str, hint: str) -> None:
    with pytest.raises(JaxsifError) as raised:
        resolve_totals(RunOptions(("x",), **options), there)
    assert (raised.value.what, raised.value.hint) == (what, hint)
