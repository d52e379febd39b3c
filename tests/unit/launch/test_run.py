"""What is started when the first port turns out to be taken."""

from __future__ import annotations

import pytest

from jaxsif.launch.run import plans_for_other_ports
from jaxsif.plan.host import Host
from jaxsif.runtime import Runtime
from jaxsif.settings.request import RunOptions

HOST = Host(
    True,
    Runtime("apptainer", "APPTAINERENV_"),
    "/sw/jax.sif",
    "/usr/bin/python3",
    "/sw/lib/jaxsif",
    62001,
    "0a",
    0,
    None,
)
RANGE = "62001-62003"


def test_plans_differ_in_port_and_name_of_the_step() -> None:
    options = RunOptions(("/usr/bin/python3.12", "train.py"), coordinator_ports=RANGE)
    plans = [dict(plan.set_environ) for plan in plans_for_other_ports(options, HOST, None, {})]
    assert {plan["APPTAINERENV_JAXSIF_COORDINATOR_PORT"] for plan in plans} == {"62002", "62003"}
    assert len({plan["JAXSIF_STEP"] for plan in plans} | {HOST.step}) == 3


def test_there_are_only_a_few() -> None:
    assert len(list(plans_for_other_ports(RunOptions(("python", "-V")), HOST, None, {}))) == 3


@pytest.mark.parametrize("program", ["bash", "./train.sh", "env"])
def test_a_script_is_not_started_again(program: str) -> None:
    """It may have come far before the first Python in it looked at the port."""
    options = RunOptions((program, "python", "train.py"), coordinator_ports=RANGE)
    assert list(plans_for_other_ports(options, HOST, None, {})) == []


def test_a_port_that_the_user_chose_stays() -> None:
    options = RunOptions(("python", "train.py"), env=(("JAXSIF_COORDINATOR_PORT", "62009"),))
    assert list(plans_for_other_ports(options, HOST, None, {})) == []
