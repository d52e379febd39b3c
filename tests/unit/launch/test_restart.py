"""Whether a run starts again after a failure, and on which nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kit.hosts import LOGIN_NODE, SRUN, plan_for, srun_words

from jaxsif.errors import Cause, Fault, JaxsifError
from jaxsif.job.allocation import Allocation
from jaxsif.launch.restart import Judge, find_segment, move_to_nodes, set_spares_aside, use_nodes
from jaxsif.plan.host import Host
from jaxsif.settings.config import Config
from jaxsif.settings.options import RESTART, Rank, RunOptions, Setting
from jaxsif.settings.read import Settings

JOB = {
    "SLURM_JOB_ID": "12",
    "SLURM_JOB_NUM_NODES": "4",
    "SLURM_JOB_NODELIST": "node[1-4]",
    "SLURM_NTASKS_PER_NODE": "2",
    "SLURM_GPUS_PER_NODE": "2",
    "SLURM_JOB_CPUS_PER_NODE": "8(x3),4",
}
ERROR = ("1", "ValueError: shapes # and #", "train.py:7")
KILL = Cause(mark=("137", "40", "train.py:9"))
SAME = "the same failure twice, without progress in between"


def judged(options: RunOptions, *failures: tuple[Cause, int]) -> list[str]:
    judge = Judge(options, -1)
    return [judge.refuse(*failure) for failure in failures]


def options(**more: Any) -> RunOptions:
    return RunOptions(("python", "train.py"), **{"max_restarts": 3, **more})


SAVES = options(checkpoints="checkpoints")


@pytest.mark.parametrize(
    ("asked", "failures", "reasons"),
    [
        (options(), [(Cause(), -1)] * 4, ["", "", "", "that was attempt 4 of 4"]),
        (options(), [(Cause(mark=ERROR), -1)] * 2, ["", SAME]),
        (options(), [(Cause(mark=ERROR), -1), (Cause(mark=("1", "KeyError", "a.py:1")), -1)], ["", ""]),
        (options(), [(Cause(mark=ERROR), -1), (KILL, -1), (Cause(mark=ERROR), -1)], ["", "", SAME]),
        (options(), [(KILL, -1), (KILL._replace(mark=("137", "41", "train.py:9")), -1)], ["", ""]),
        (options(), [(Cause(mark=("memory",)), -1)] * 2, ["", SAME]),
        (options(), [(Cause(mark=ERROR, turns=(turns,)), -1) for turns in (7, 9, 9)], ["", "", SAME]),
        (options(), [(Cause(mark=ERROR, turns=turns), -1) for turns in ((1, 30), (2, 3), (1, 99))], ["", "", SAME]),
        (SAVES, [(Cause(mark=ERROR, turns=(turns,)), -1) for turns in (7, 9)], ["", SAME]),
        (SAVES, [(Cause(mark=ERROR), step) for step in (10, 20, 20)], ["", "", SAME]),
        (SAVES, [(Cause(mark=ERROR), step) for step in (20, 10)], ["", SAME]),
        (options(), [(Cause(Fault.NODE, ("node1",), "lost"), -1)] * 3, ["", "", ""]),
        (options(), [(Cause(Fault.OUTSIDE), -1)], ["the run was ended from outside"]),
        (options(), [(Cause(Fault.REQUEST), -1)], ["the same request would fail again"]),
        (options(), [(Cause(), -1), (Cause(Fault.REQUEST), -1)], ["", ""]),
        (options(), [(Cause(Fault.HANG), -1)], ["only --on-hang=restart starts a hung program again"]),
        (options(on_hang=RESTART), [(Cause(Fault.HANG), -1)], [""]),
        (options(on_hang=RESTART), [(Cause(Fault.HANG, mark=("hang", "a.py:7")), -1)] * 2, ["", SAME]),
    ],
)
def test_whether_a_run_starts_again(asked: RunOptions, failures: list[tuple[Cause, int]], reasons: list[str]) -> None:
    assert judged(asked, *failures) == reasons


@pytest.mark.parametrize(
    ("cause", "is_useless"),
    [(Cause(mark=ERROR), True), (Cause(Fault.NODE), False), (Cause(), False)],
)
def test_whether_it_is_useless(cause: Cause, is_useless: bool) -> None:
    judge = Judge(options(max_restarts=1), -1)
    judge.refuse(cause, -1)
    assert judge.refuse(cause, -1)
    assert judge.is_useless is is_useless


def host(**environ: str) -> Host:
    variables = {**JOB, **environ}
    return LOGIN_NODE._replace(allocation=Allocation.from_environ(variables), environ=variables)


def settings(asked: RunOptions, *said: str) -> Settings:
    values = {key: Setting(True, f"--{key}", Rank.COMMAND_LINE) for key in said}
    return Settings(Config((), ()), values, asked)


def nodes_of(found: Host) -> str:
    assert found.allocation
    return found.allocation.nodelist


@pytest.mark.parametrize(
    ("more", "nodes", "left_out"),
    [
        ({}, "node1,node2,node3,node4", ""),
        ({"spare_nodes": 1}, "node1,node2,node3", "node4"),
        ({"nodes": 2}, "node1,node2", "node3,node4"),
        ({"nodes": 2, "spare_nodes": 2}, "node1,node2", "node3,node4"),
    ],
)
def test_spare_nodes_are_set_aside(tmp_path: Path, more: dict[str, int], nodes: str, left_out: str) -> None:
    found = set_spares_aside(settings(options(**more)), SRUN, host(XDG_STATE_HOME=str(tmp_path)))
    assert found.allocation
    assert (nodes_of(found), found.allocation.left_out) == (nodes, left_out)
    assert found.whole
    assert nodes_of(found.whole) == "node[1-4]"


def test_a_run_that_does_not_start_again_has_all_nodes() -> None:
    assert set_spares_aside(settings(options(max_restarts=None)), SRUN, host()) == host()
    outside = LOGIN_NODE._replace(environ={})
    assert set_spares_aside(settings(options()), SRUN, outside) == outside  # a file asks for it


@pytest.mark.parametrize(
    ("asked", "said", "environ", "what"),
    [
        (options(spare_nodes=4), (), {}, "1 node and 4 spares do not fit in the job's 4"),
        (options(nodes=3, spare_nodes=2), (), {}, "3 nodes and 2 spares do not fit in the job's 4"),
        (options(spare_nodes=1), (), {"SLURM_JOB_SEGMENT_SIZE": "2"}, "3 of 4 nodes do not form whole segments of 2"),
        (options(max_restarts=None, spare_nodes=1), ("spare-nodes",), {}, "--spare-nodes needs --max-restarts"),
        (options(max_restarts=None, on_hang=RESTART), ("on-hang",), {}, "--on-hang needs --max-restarts"),
        (
            options(passed=srun_words("--exclude=node1")),
            (),
            {},
            "--exclude conflicts with --max-restarts, which chooses nodes",
        ),
        (
            options(srun_args=srun_words("--output=log")),
            (),
            {},
            "--output conflicts with --max-restarts, which needs reports",
        ),
        (
            options(),
            (),
            {"SLURM_STDERRMODE": "log"},
            "SLURM_STDERRMODE conflicts with --max-restarts, which needs reports",
        ),
    ],
)
def test_what_is_refused(asked: RunOptions, said: tuple[str, ...], environ: dict[str, str], what: str) -> None:
    with pytest.raises(JaxsifError) as caught:
        set_spares_aside(settings(asked, *said), SRUN, host(**environ))
    assert caught.value.what == what


def test_outside_a_job_it_is_refused() -> None:
    with pytest.raises(JaxsifError, match="there is no job yet in which to start again") as caught:
        set_spares_aside(settings(options(), "max-restarts"), SRUN, LOGIN_NODE._replace(environ={}))
    assert caught.value.hint == "salloc --no-kill …, then jaxsif run"


def test_the_next_plan_leaves_nodes_out_and_moves_to_another_port() -> None:
    plan = plan_for(options(), host=use_nodes(host(), ("node1", "node2")))
    assert ("--exclude=node3,node4" in plan.argv, "--nodes=2" in plan.argv) == (True, True)
    moved = move_to_nodes(plan, ("node2", "node4"), overlaps=False)
    assert "--overlap" not in moved.argv
    assert "--overlap" in move_to_nodes(plan, ("node2", "node4"), overlaps=True).argv
    assert ("--exclude=node1,node3" in moved.argv, "--nodes=2" in moved.argv) == (True, True)
    assert moved.coordinator.step != plan.coordinator.step
    assert set(moved.nonces).isdisjoint(plan.nonces)
    assert moved.layout.ntasks == plan.layout.ntasks == 4
    assert moved.host.allocation
    assert moved.host.allocation.cpus == ((8, 1), (4, 1))


def test_a_variable_that_would_keep_a_failed_step_alive_is_removed() -> None:
    """srun --no-kill makes --kill-on-bad-exit ineffective."""
    plan = plan_for(options(), host=use_nodes(host(SLURM_NO_KILL="1"), ("node1", "node2")))
    assert "SLURM_NO_KILL" not in plan.started_environ


def test_a_segment() -> None:
    assert find_segment(options(), {}) == 1
    assert find_segment(options(), {"SLURM_JOB_SEGMENT_SIZE": "4"}) == 4
    assert find_segment(options(passed=srun_words("--segment=2")), {}) == 2
