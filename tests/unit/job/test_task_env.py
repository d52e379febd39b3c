"""Tasks that Slurm does not start know themselves as if it had."""

from __future__ import annotations

import pytest

from jaxsif.job.task_env import hand_out_gpus, identify
from jaxsif.task.contract import tasks_on_node


def test_task_of_the_second_node() -> None:
    assert identify(5, 4, ["a", "b"], "7") == {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_NODELIST": "a,b",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
        "SLURM_NTASKS": "8",
        "SLURM_PROCID": "5",
        "SLURM_LOCALID": "1",
        "SLURM_GTIDS": "4,5,6,7",
        "SLURM_NODEID": "1",
        "SLURMD_NODENAME": "b",
        "SLURM_DISTRIBUTION": "block",
        "SLURM_TASK_PID": "",
    }


@pytest.mark.parametrize("nodes", [["a"], ["a", "b", "c"]])
def test_the_task_shim_reads_it(nodes: list[str]) -> None:
    assert [tasks_on_node(identify(rank, 2, nodes, "1")) for rank in range(2 * len(nodes))] == [2] * 2 * len(nodes)


@pytest.mark.parametrize(
    ("visible", "number", "there", "gpus"),
    [
        (None, None, 4, "0,1,2,3"),
        (None, 2, 4, "0,1"),
        ("3,2,1", None, 4, "3,2,1"),
        ("3,2,1", 2, 4, "3,2"),
        ("GPU-a", 1, 0, "GPU-a"),
        ("", None, 4, None),
        ("-1", None, 4, None),
        (None, None, 0, None),
        (None, 0, 4, None),
        ("NoDevFiles", 1, 0, "0"),
        ("0", 2, 0, "0,1"),
    ],
    ids=[
        *("all", "some", "all that are visible", "some of these", "by name", "none visible", "minus one", "no device"),
        *("none asked for", "a rehearsal", "a larger rehearsal"),
    ],
)
def test_gpus(visible: str | None, number: int | None, there: int, gpus: str | None) -> None:
    expected = {} if gpus is None else {"CUDA_VISIBLE_DEVICES": gpus, "SLURM_STEP_GPUS": gpus}
    found = hand_out_gpus(visible, number, there)
    assert {name: value for name, value in found.items() if name != "SLURM_GPUS_ON_NODE"} == expected
    assert found.get("SLURM_GPUS_ON_NODE") == (str(len(gpus.split(","))) if gpus else None)
