"""What srun is told of a step: words, and the values in them."""

from __future__ import annotations

import pytest
from kit.hosts import LAPTOP, LOGIN_NODE, launch_words, plan_for, srun_words

from jaxsif.job.allocation import Allocation
from jaxsif.job.srun_options import StepOptions
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
