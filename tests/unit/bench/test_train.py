"""What `jaxsif bench train` and `startup` run, and what they make of the figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.scripts import load_script

from jaxsif.bench import startup, train
from jaxsif.bench.kinds import KINDS, STARTUP_PHASES
from jaxsif.bench.train import find_peak
from jaxsif.errors import JaxsifError
from jaxsif.layout.layout import Group, Layout

MOST = train.Processes(nodes=4, per_node=4, gpus=1)
REPORT = {
    "record": "run",
    "mode": "sharded",
    "processes": 2,
    "devices": 8,
    "batch": 64,
    "precision": "bfloat16",
    "device_kind": "NVIDIA A100-SXM4-80GB",
    "step_seconds": 0.5,
    "examples_per_second": 128.0,
    "flops_per_step": 2496e12,
    "memory_bytes_per_process": 1 << 30,
    "compile_seconds": [1.0, 3.0],
    "losses": [2.0, 1.0],
}


def run(mode: str, batch: int, losses: list[float], devices: int = 1, speed: float = 1.0) -> dict[str, Any]:
    return {"mode": mode, "batch": batch, "losses": losses, "devices": devices, "examples_per_second": speed}


def startup_program() -> Any:
    """The program of the container; what it imports at first is Python's own."""
    return load_script(Path(startup.__file__).with_name("inside") / "startup.py")


def test_scaling_fills_a_node_and_then_takes_whole_ones() -> None:
    found = [(some.nodes, some.per_node) for some in train.scale(MOST)]
    assert found == [(1, 1), (1, 2), (1, 4), (2, 4), (4, 4)]
    assert [some.total for some in train.scale(train.Processes(3, 3, None))] == [1, 2, 3, 6, 9]


@pytest.mark.parametrize(("kind", "batches"), [("weak", [4, 8, 16, 32, 64]), ("strong", [64] * 5)])
def test_a_scaling_shares_out_the_work_or_not(kind: str, batches: list[int]) -> None:
    runs = list(train.plan_runs(MOST, ("sharded",), kind, 64))
    assert [one.batch for one in runs] == batches
    assert runs[1].options["gpus_per_node"] == "2"
    typed = MOST._replace(gpu_type="a100:", gpus=2)
    assert [some.options["gpus_per_node"] for some in train.scale(typed)] == [f"a100:{n}" for n in (2, 4, 8, 8, 8)]


def test_each_mode_has_its_processes() -> None:
    single, sharded, pmap = train.plan_runs(MOST._replace(gpus=None), train.MODES, None, 64)
    assert (single.options["nodes"], single.options["ntasks_per_node"]) == (1, 1)
    assert sharded.options == pmap.options
    assert (pmap.options["nodes"], pmap.options["ntasks_per_node"]) == (4, 4)
    assert "gpus_per_node" not in pmap.options


def test_processes_are_those_of_the_layout() -> None:
    assert train.read_layout(Layout((Group(2, 2, 4),), "")) == train.Processes(2, 2, 2)
    assert train.read_layout(Layout((Group(2, 2, None),), "")) == train.Processes(2, 2, None)
    for groups in ((Group(None, 2, 2),), (Group(1, 2, 2), Group(1, 1, 1))):
        with pytest.raises(JaxsifError, match="the number of processes per node is unknown, or differs between nodes"):
            train.read_layout(Layout(groups, "--ntasks"))


def test_the_share_of_the_peak_is_of_one_device() -> None:
    record = train.read_report(REPORT)
    assert record["flops"] == 4992e12
    assert record["share_of_peak"] == pytest.approx(2.0)
    assert (record["memory"], record["compile_time"], record["last_loss"]) == (1 << 30, 3.0, 1.0)
    assert train.read_report({**REPORT, "precision": "float32"})["share_of_peak"] is None
    fields = {field.name for field in KINDS["train"]["run"]}
    assert fields - set(record) == {"efficiency"}


@pytest.mark.parametrize(
    ("kind", "peak"),
    [("NVIDIA H100 80GB HBM3", 989e12), ("NVIDIA H100 PCIe", 756e12), ("Tesla V100", None), ("A100 MIG 1g.5gb", None)],
)
def test_peaks_are_known_by_the_names_of_devices(kind: str, peak: float | None) -> None:
    assert find_peak(kind, "bfloat16") == peak


def test_efficiency_is_that_of_a_device_beside_the_first_run() -> None:
    first = run("sharded", 8, [], 2, 100.0)
    assert train.find_efficiency(first, [run("single", 8, [], 1, 900.0)]) == 1.0
    assert train.find_efficiency(run("sharded", 32, [], 8, 300.0), [first]) == 0.75
    assert train.find_efficiency(run("pmap", 32, [], 8, 300.0), [first]) is None


def test_losses_of_equal_batches_are_compared() -> None:
    records = [run("single", 64, [2.0, 1.0]), run("sharded", 8, [9.0, 9.0]), run("pmap", 64, [2.0, 1.01])]
    assert (
        train.compare_losses(records)
        == "the losses of 2 runs with the same batch size differ by at most 0.01 (relative)"
    )
    assert "no runs with the same batch size" in train.compare_losses(records[:2])
    diverged = run("pmap", 64, [2.0, None])
    assert "some losses of 3 runs with the same batch size are not finite" in train.compare_losses([*records, diverged])


def test_a_diverged_run_has_no_loss() -> None:
    assert train.read_report({**REPORT, "losses": [2.0, float("nan")]})["losses"] == [2.0, None]


def test_work_that_cannot_be_shared_out_is_refused() -> None:
    train.check_batch(MOST, 64)
    with pytest.raises(JaxsifError, match="a batch of 20 cannot be split across 16 devices") as caught:
        train.check_batch(MOST, 20)
    assert caught.value.hint == "such as 32"
    with pytest.raises(JaxsifError, match="4 processes on each node cannot share its 1 GPUs equally"):
        train.read_layout(Layout((Group(2, 4, 1),), ""))


def test_variants() -> None:
    assert startup.parse_variants("node,stage", in_job=True) == (["node", "stage"], [])
    assert startup.parse_variants("node,stage", in_job=False) == (["node"], ["stage"])
    with pytest.raises(JaxsifError, match="no variant 'share'"):
        startup.parse_variants("node,share", in_job=True)
    with pytest.raises(JaxsifError, match="nothing to measure"):
        startup.parse_variants("stage", in_job=False)


def task(number: int, node: str, **phases: float) -> dict[str, Any]:
    times = {phase: phases.get(phase, 1.0) for phase in STARTUP_PHASES}
    return {"variant": "node", "round": 1, "task": number, "node": node, **times, "total": sum(times.values())}


def test_the_task_that_the_others_waited_for_is_named() -> None:
    tasks = [task(0, "node1"), task(1, "node1"), task(2, "node2", python=1.5, **{"import": 3.0, "initialize": 0.1})]
    assert startup.describe_last(tasks) == (
        "last to reach initialize: task 2 on node2, 6.50 s after the command started, 2.50 s after the first; "
        "import: 2.00 s more than the median"
    )
    summary = startup.summarize(tasks)
    assert (summary["import"], summary["total"]) == (1.0, tasks[2]["total"])
    assert {field.name for field in KINDS["startup"]["start"]} <= set(summary)


def test_the_programs_phases_are_those_of_the_records() -> None:
    assert startup_program().PHASES == STARTUP_PHASES


@given(st.floats(-1e3, 1e3), st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)), min_size=1))
def test_a_clock_is_corrected_as_far_as_messages_prove_it(ahead: float, rounds: list[tuple[float, ...]]) -> None:
    """Each round: both enter, the later one's message lets both leave."""
    mine, first = [], []
    for number, (early, late, leave) in enumerate(rounds):
        enter, enter_first = 10 * number + early, 10 * number + late
        left = max(enter, enter_first) + leave
        mine.append((enter + ahead, left + ahead))
        first.append((enter_first, left))
    found = startup_program().clock_ahead(mine, first)
    assert abs(found) <= abs(ahead) + 1e-6
    assert abs(found - ahead) <= 2 + 1e-6  # no round took longer
