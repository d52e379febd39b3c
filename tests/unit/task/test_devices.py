"""A task's Slurm variables -> JAX's variables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.caught import catch

from jaxsif.layout.layout import Group, Layout
from jaxsif.task.contract import MisfitError, share
from jaxsif.task.devices import check_shm, describe_shm, find_device_ids, has_private_gpus, prepare

# The second of four tasks, two on each of two nodes with four GPUs, under `jaxsif run`.
TASK = {
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_STEP_GPUS": "0,1,2,3",
    "CUDA_VISIBLE_DEVICES": "0,1,2,3",
    "JAXSIF_COORDINATOR_PORT": "61234",
    "JAXSIF_FLAVOUR": "cuda12",
}


def without(*names: str) -> dict[str, str]:
    return {name: value for name, value in TASK.items() if name not in names}


PREPARE = {
    "shared GPUs": (TASK, {"JAX_LOCAL_DEVICE_IDS": "2,3", "JAX_PLATFORMS": "cuda"}),
    "a bare srun": (without("JAXSIF_COORDINATOR_PORT"), {"JAX_LOCAL_DEVICE_IDS": "2,3"}),
    "the user's devices": ({**TASK, "JAX_LOCAL_DEVICE_IDS": "0"}, {"JAX_PLATFORMS": "cuda"}),
    "the user's platform": ({**TASK, "JAX_PLATFORMS": "cpu"}, {"JAX_LOCAL_DEVICE_IDS": "2,3"}),
    "a GPU of its own": ({**TASK, "CUDA_VISIBLE_DEVICES": "0"}, {"JAX_LOCAL_DEVICE_IDS": "0", "JAX_PLATFORMS": "cuda"}),
    "as many tasks as GPUs": (
        {**TASK, "SLURM_STEP_TASKS_PER_NODE": "4(x2)"},
        {"JAX_LOCAL_DEVICE_IDS": "1", "JAX_PLATFORMS": "cuda"},
    ),
    "no GPUs": (without("CUDA_VISIBLE_DEVICES"), {}),
    "Slurm's word for no GPUs": ({**TASK, "CUDA_VISIBLE_DEVICES": "NoDevFiles"}, {}),
    "the user's word for no GPUs": ({**TASK, "CUDA_VISIBLE_DEVICES": "-1"}, {}),
    "the rehearsal": ({**TASK, "JAXSIF_FLAVOUR": "cpu"}, {"JAX_LOCAL_DEVICE_IDS": "2,3", "JAX_NUM_CPU_DEVICES": "2"}),
    "the rehearsal, devices forced by XLA_FLAGS": (
        {**TASK, "JAXSIF_FLAVOUR": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"},
        {"JAX_LOCAL_DEVICE_IDS": "2,3"},
    ),
    "the rehearsal, devices given": (
        {**TASK, "JAXSIF_FLAVOUR": "cpu", "JAX_NUM_CPU_DEVICES": "1"},
        {"JAX_LOCAL_DEVICE_IDS": "2,3"},
    ),
}


@pytest.mark.parametrize(("environ", "added"), PREPARE.values(), ids=PREPARE)
def test_prepare(environ: dict[str, str], added: dict[str, str]) -> None:
    prepared = dict(environ)
    prepare(prepared)
    assert prepared == {**environ, **added}


ONE_OF_ITS_OWN = {**without("SLURM_STEP_GPUS"), "CUDA_VISIBLE_DEVICES": "1", "SLURM_GPUS_ON_NODE": "4"}


@pytest.mark.parametrize(
    ("environ", "layout", "text"),
    [
        (TASK, "4:4(x2)", "this node has 2 of 4 planned tasks"),
        (TASK, "2:2(x2)", "this task sees 4 of 2 planned GPUs"),
        (without("CUDA_VISIBLE_DEVICES"), "2:4(x2)", "this task sees 0 of 4 planned GPUs"),
        ({**TASK, "CUDA_VISIBLE_DEVICES": "0"}, "2:1 bound", "each of 2 tasks on this node is bound to 1 of its 1 GPU"),
        (without("CUDA_VISIBLE_DEVICES"), "2:4(x2) bound", "Slurm bound no GPU to this task"),
        ({**TASK, "SLURM_GTIDS": "3,4,5,6,7"}, "-:-", "5 tasks share 4 of this node's GPUs"),
    ],
)
def test_what_was_not_planned_is_refused(environ: dict[str, str], layout: str, text: str) -> None:
    error = catch(MisfitError, prepare, {**environ, "JAXSIF_LAYOUT": layout})
    assert str(error).startswith(text)
    assert error.hint


@pytest.mark.parametrize(
    ("environ", "layout", "ids"),
    [
        (TASK, "2:4(x2)", "2,3"),
        (TASK, "-:-", "2,3"),
        (TASK, "1:1,2:4", "2,3"),
        (TASK, "2:4(x2) per-task=1", "1"),
        ({**TASK, "SLURM_GTIDS": "2,3,4"}, "3:4(x2) uneven", "2"),
        ({**TASK, "SLURM_GTIDS": "0,1,2,3,4,5", "SLURM_LOCALID": "5"}, "6:4(x2) share", "1"),
        (ONE_OF_ITS_OWN, "2:4(x2) bound", "0"),
        (ONE_OF_ITS_OWN, "2:4(x2)", "0"),
    ],
    ids=["planned", "nothing known", "by its node", "one each", "uneven", "shared", "bound", "set by a script"],
)
def test_planned_devices(environ: dict[str, str], layout: str, ids: str) -> None:
    prepared = {**environ, "JAXSIF_LAYOUT": layout}
    prepare(prepared)
    assert prepared["JAX_LOCAL_DEVICE_IDS"] == ids


@given(
    local_id=st.integers(0, 15), more=st.integers(0, 15), gpus=st.integers(1, 16), each=st.none() | st.integers(1, 4)
)
def test_task_takes_what_the_planner_says(local_id: int, more: int, gpus: int, each: int | None) -> None:
    tasks = local_id + more + 1
    layout = Layout((Group(1, tasks, gpus),), "", each, uneven=True, sharers=-(-tasks // gpus))
    environ = {
        "SLURM_LOCALID": str(local_id),
        "SLURM_STEP_TASKS_PER_NODE": str(tasks),
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(gpus))),
        "JAXSIF_LAYOUT": layout.expectation,
    }
    assert find_device_ids(environ) == share(local_id, tasks, gpus, each)


def test_more_tasks_than_gpus_are_the_users_own_affair_under_a_bare_srun() -> None:
    environ = {**without("JAXSIF_COORDINATOR_PORT"), "SLURM_STEP_TASKS_PER_NODE": "8(x2)", "SLURM_LOCALID": "6"}
    prepare(environ)
    assert environ["JAX_LOCAL_DEVICE_IDS"] == "2"


@pytest.mark.parametrize(
    ("of_step", "visible", "private"),
    [(None, "0,1", False), ("0,1", "0,1", False), ("0,1", "0", True), ("4,5,6,7", "0,1", True)],
    ids=["not told", "all", "one of two", "renumbered"],
)
def test_private_gpus(of_step: str | None, visible: str, private: bool) -> None:
    of_slurm = {} if of_step is None else {"SLURM_STEP_GPUS": of_step}
    assert has_private_gpus({"CUDA_VISIBLE_DEVICES": visible, **of_slurm}) is private


LONG = "9" * 5000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLURM_STEP_TASKS_PER_NODE", "2(x99999999999)"),
        ("SLURM_STEP_TASKS_PER_NODE", LONG),
        ("SLURM_STEP_TASKS_PER_NODE", "2"),
        ("SLURM_STEP_TASKS_PER_NODE", "x"),
        ("SLURM_LOCALID", LONG),
        ("SLURM_NODEID", "-1"),
        ("SLURM_GPUS_ON_NODE", LONG),
        ("JAXSIF_LAYOUT", f"2:{LONG}(x2)"),
        ("JAXSIF_LAYOUT", f"2:4(x{LONG})"),
        ("JAXSIF_LAYOUT", "2"),
    ],
)
def test_a_variable_that_slurm_does_not_write_so_ends_the_task_and_is_named(name: str, value: str) -> None:
    error = catch(MisfitError, prepare, {**TASK, name: value})
    assert str(error).startswith((f"{name} is not a number: '", f"{name} has no entry for this node: '"))
    assert len(str(error)) < 120
    assert error.hint == f"do not set {name}; {'jaxsif' if name == 'JAXSIF_LAYOUT' else 'Slurm'} sets it"


MIB = 1 << 20


@pytest.mark.parametrize(
    ("free", "tasks", "text"),
    [
        (64 * MIB, 2, "/dev/shm has 64 MiB free, and NCCL may need 256 for 2 tasks"),
        (0, 8, "/dev/shm has 0 MiB free, and NCCL may need 1024 for 8 tasks"),
        (1023 * MIB, 16, "/dev/shm has 1023 MiB free, and NCCL may need 1024 for 16 tasks"),
        (256 * MIB, 2, ""),
        (1024 * MIB, 16, ""),
    ],
)
def test_describe_shm(free: int, tasks: int, text: str) -> None:
    assert describe_shm(free, tasks) == text


def test_shm_is_checked_once() -> None:
    warnings: list[object] = []
    environ = {"SLURM_LOCALID": "0"}
    check_shm(environ, warnings.append)
    assert environ.pop("JAXSIF_NODE_CHECKED") == "1"
    other = {"SLURM_LOCALID": "1"}
    check_shm(other, warnings.append)
    assert "JAXSIF_NODE_CHECKED" not in other
    assert warnings == []
