"""What srun is told of a step: words, and the values in them."""

from __future__ import annotations

import pytest
from kit.caught import catch
from kit.hosts import LAPTOP, LOGIN_NODE, SRUN, launch_words, plan_for, srun_words

from jaxsif.errors import JaxsifError
from jaxsif.job.allocation import Allocation
from jaxsif.job.srun_options import StepOptions
from jaxsif.launch.launchers import srun
from jaxsif.settings.options import RunOptions

GIVEN = {"--nodes": 2, "--exact": True, "--overlap": False, "--mem": 0, "--ntasks": None, "--cpus-per-task": 4}


def test_words_are_of_what_is_given() -> None:
    options = StepOptions(GIVEN, srun_words("--mem=1", "--qos=a"))
    assert options.words == ("--nodes=2", "--exact", "--cpus-per-task=4", "--mem=1", "--qos=a")


@pytest.mark.parametrize(
    ("further", "value"),
    [((), "4"), (("--cpus-per-task=2", "--cpus-per-task=3"), "3"), (("--cpus-per-task-or-so=3",), "4")],
    ids=["given", "the user's last", "another option"],
)
def test_the_last_value_counts(further: tuple[str, ...], value: str) -> None:
    assert StepOptions(GIVEN, srun_words(*further)).value("--cpus-per-task") == value


def test_what_is_not_given_has_no_value() -> None:
    assert [StepOptions(GIVEN).value(option) for option in ("--ntasks", "--mem", "--time")] == ["", "", ""]


PART = Allocation("4711", 1, None, None, 1, ((8, 1),))
WITH_NODES = Allocation("4711", 3, None, None, None, nodelist="node[1-3]")
HETEROGENEOUS = PART._replace(nodes=2, components=(PART, PART._replace(cpus_per_task=2)))


def test_components_of_a_heterogeneous_job() -> None:
    """The user's own words are for the first one; the last one that says something of CPUs counts."""
    asked = RunOptions(("x",), srun_args=srun_words("--qos=a"))
    plan = plan_for(asked, LOGIN_NODE._replace(allocation=HETEROGENEOUS))
    first, second = plan.step
    assert (first.words[0], first.words[-1]) == ("--het-group=0", "--qos=a")
    assert (second.words[0], second.words[-1]) == ("--het-group=1", "--cpus-per-task=2")
    assert launch_words(plan).count("--qos=a") == 1
    assert plan.srun_option("--cpus-per-task") == "2"


@pytest.mark.parametrize(
    ("words", "nodes", "left_out"),
    [
        (("--exclude=node2",), 2, "node2"),
        (("-x", "node[2-3]", "--nodelist=node1"), 1, "node2,node3"),
        (("-x", "elsewhere"), 3, None),
        (("-x", "node[1-9]"), 3, None),  # srun refuses it
        (("-x", "./file"), 3, None),  # srun reads it
        (("-x", "node1", "-x", "node2"), 2, "node2"),  # as for srun, the last one counts
        (("-w", "node1*2,node2"), 3, None),
        (("--jobid=12", "-w", "node9"), 3, None),  # that job may have it
        (("-w", "node2"), 3, None),
    ],
)
def test_nodes_that_are_left(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], nodes: int, left_out: str | None
) -> None:
    """Otherwise, a step in a job has all of its nodes."""
    monkeypatch.setattr(srun, "query_gpus", lambda _options, _job: ((4, 3),))
    asked = RunOptions(("x",), passed=srun_words(*words))
    host = SRUN.probe(asked, LOGIN_NODE._replace(allocation=WITH_NODES))
    assert host.allocation
    assert (host.allocation.nodes, host.allocation.left_out, host.job_gpus) == (nodes, left_out, ((4, nodes),))
    plan = plan_for(asked, host)
    assert (f"--nodes={nodes}" in launch_words(plan), plan.layout.ntasks) == (True, 4 * nodes)


def test_a_node_that_a_job_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(srun, "query_gpus", lambda _options, _job: None)
    asked = RunOptions(("x",), srun_args=srun_words("-w", "node[3-4]"))
    error = catch(JaxsifError, SRUN.probe, asked, LOGIN_NODE._replace(allocation=WITH_NODES))
    left = SRUN.probe(
        RunOptions(("x",), srun_args=srun_words("-x", "node2")), LOGIN_NODE._replace(allocation=WITH_NODES)
    )
    few = catch(JaxsifError, SRUN.plan_layout, RunOptions(("x",), nodes=3), left)
    assert few.what == "3 nodes requested, but the job has 2 without node2"
    text = "node4 is not a node of this job\n  from: --srun-args\n  try:  choose from node[1-3]"
    assert error.render() == f"jaxsif: error: {text}"


def test_a_launcher_without_srun_is_told_nothing() -> None:
    plan = plan_for(RunOptions(("--cpus-per-task=9",), cpus_per_task=3), LAPTOP)
    assert (plan.srun_option("--cpus-per-task"), plan.distribution) == ("", "")


def test_words_of_the_program_are_not_sruns() -> None:
    plan = plan_for(RunOptions(("x", "--cpus-per-task=9")), LOGIN_NODE._replace(allocation=HETEROGENEOUS))
    assert plan.srun_option("--cpus-per-task") == "2"


def test_srun_takes_one_option_of_memory() -> None:
    """The job's own --mem would contradict the user's --mem-per-gpu."""
    assert StepOptions({"--exact": True, "--mem": 16000}, srun_words("--mem-per-gpu=4G")).words == (
        "--exact",
        "--mem-per-gpu=4G",
    )
