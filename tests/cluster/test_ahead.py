"""Dispatch runs ahead of the devices: the task that went wrong is named, and not process 0, which saves."""

from __future__ import annotations

import json
import re

import pytest
from harness import Cluster, jaxsif_run


def run(cluster: Cluster, folder: str, kind: str, saves: str, seed: int) -> tuple[int, str, int]:
    """The exit status, what was said, and the task that went wrong."""
    options = ("--nodes=2", "--ntasks-per-node=2", "--hang-timeout=3", "--on-hang=stop", "--check-programs=off")
    argv = jaxsif_run(*options, "--", "timeout", "120", "python", "ahead.py", kind, saves, str(seed))
    done = cluster.run(f"cd {folder} && {argv}", timeout=200)
    return done.returncode, done.stderr, json.loads(cluster.check(["cat", f"{folder}/odd.json"]))["task"]


@pytest.mark.parametrize("saves", ["save", "no"])
@pytest.mark.parametrize("kind", ["sleep", "end", "ahead", "behind"])
def test_the_odd_task_alone_is_named(cluster: Cluster, folder: str, kind: str, saves: str) -> None:
    status, said, odd = run(cluster, folder, kind, saves, len(kind + saves))
    assert status == 124, said
    assert set(re.findall(r"likely: (.+)", said)) == {f"task {odd} is keeping the others waiting"}, said
    assert re.search(rf"^jaxsif: error: task {odd} on node\d kept the others waiting", said, re.MULTILINE), said


@pytest.mark.parametrize("saves", ["save", "no"])
def test_where_nothing_tells_nobody_is_named(cluster: Cluster, folder: str, saves: str) -> None:
    """Task 2 leaves out the sum of iteration 35, and all wait in the same one."""
    status, said, odd = run(cluster, folder, "skip", saves, 0)
    assert (status, odd, re.findall("likely", said)) == (124, 2, []), said


@pytest.mark.parametrize("saves", ["save", "no"])
def test_a_sum_left_out_brings_a_task_ahead(cluster: Cluster, folder: str, saves: str) -> None:
    """Task 3 leaves out the sum of iteration 19, after which a barrier pairs with another one's."""
    status, said, odd = run(cluster, folder, "skip", saves, 5)
    assert (status, odd) == (124, 3), said
    assert set(re.findall(r"likely: (.+)", said)) == {"task 3 is keeping the others waiting"}, said
    assert "\n  try:  all processes must run the same computations the same number of times: " in said, said
