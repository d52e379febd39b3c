"""A plan as text: the line that a shell takes back to the same start, and what --verbose and the notes say."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.hosts import LAPTOP, LOGIN_NODE, WORKSTATION, plan_for

from jaxsif.container.environment import Environment
from jaxsif.job.allocation import Allocation
from jaxsif.layout.layout import Group, Layout
from jaxsif.plan.command import describe_plan, render_command, render_summary
from jaxsif.plan.host import Host
from jaxsif.plan.launcher import LOCAL
from jaxsif.plan.notes import find_notes
from jaxsif.plan.plan import Plan
from jaxsif.settings.options import Rank, RunOptions, Setting

JOB = Allocation("4711", 2, None, None, 4)
PROGRAM = RunOptions(("python", "train.py"))
PLAN = plan_for(PROGRAM)


def plan_with(argv: tuple[str, ...], variables: dict[str, str], unset: tuple[str, ...]) -> Plan:
    """A plan without a container, with any words."""
    layout = Layout((Group(2, 4, 4),), "one task per GPU")
    environment = Environment(variables, unset, {})
    added = {**variables, "JAXSIF_STEP": "0a1b"}
    return PLAN._replace(argv=argv, layout=layout, container=None, environment=environment, variables=added)


# Any bytes that a process can be given, as Python has them in its own argv and environment.
WORDS = st.binary(max_size=12).filter(lambda data: b"\0" not in data).map(os.fsdecode) | st.text(
    "ab $`'\"\\!#&|;<>()[]{}*?~=,:%\n\t", max_size=8
)
NAMES = st.from_regex(r"T_[A-Za-z0-9_]{1,4}", fullmatch=True)
SHOW = (
    "import os, sys\n"
    "shown = [*map(os.fsencode, sys.argv[1:]), b'--']\n"
    "shown += sorted(k + b'=' + v for k, v in os.environb.items() if k.startswith(b'T_'))\n"
    "os.write(1, b'\\0'.join(shown))\n"
)


@pytest.mark.starts_processes
@pytest.mark.parametrize("shell", ["bash", "sh"])
@settings(max_examples=40)
@given(words=st.lists(WORDS, max_size=4), variables=st.dictionaries(NAMES, WORDS, max_size=3), removed=st.sets(NAMES))
def test_a_shell_takes_the_command_back(
    shell: str, words: list[str], variables: dict[str, str], removed: set[str]
) -> None:
    argv = (sys.executable, "-ISc", SHOW, *words)
    plan = plan_with(argv, variables, tuple(sorted(removed)))
    environ = {"PATH": os.defpath, "T_kept_one": "as it was", **dict.fromkeys(removed, "to be removed")}
    shown = subprocess.run(
        [shell, "-c", os.fsencode(render_command(plan))], env=environ, stdout=subprocess.PIPE, check=True
    ).stdout
    expected = {"T_kept_one": "as it was", **variables}
    assert shown.split(b"\0") == [
        *map(os.fsencode, words),
        b"--",
        *sorted(os.fsencode(f"{name}={value}") for name, value in expected.items()),
    ]


FEW_CPUS = "warning: 2 tasks on a node share 1 CPU: allocate with --cpus-per-gpu or --cpus-per-task"
HETEROGENEOUS = JOB._replace(
    nodes=2,
    components=(
        JOB._replace(nodes=1, gpus_per_node=1, cpus=((1, 1),)),
        JOB._replace(nodes=1, gpus_per_node=2, cpus=((1, 1),)),
    ),
)
NO_RUNTIME = "warning: no container runtime here: running in this machine's own Python"


NOTES = {
    "outside a job": (LOGIN_NODE, None, {"time": "5"}, ()),
    "in a job": (LOGIN_NODE, JOB, {"nodes": 1}, ()),
    "ignored in a job": (
        LOGIN_NODE,
        JOB,
        {"time": "5", "constraint": "fast"},
        ("warning: --time has no effect inside job 4711", "warning: --constraint has no effect inside job 4711"),
    ),
    "fewer CPUs than tasks": (LOGIN_NODE, JOB._replace(gpus_per_node=2, cpus=((1, 2),)), {}, (FEW_CPUS,)),
    "fewer CPUs on a node that differs": (
        LOGIN_NODE,
        JOB._replace(gpus_per_node=2, cpus=((3, 1), (1, 1)), nodelist="a,b"),
        {},
        (FEW_CPUS,),
    ),
    "fewer CPUs in a heterogeneous job": (LOGIN_NODE, HETEROGENEOUS, {"allow_uneven": True}, (FEW_CPUS,)),
    "fewer CPUs on a node that is left out": (
        LOGIN_NODE,
        JOB._replace(gpus_per_node=2, cpus=((3, 1), (1, 1))),
        {"nodes": 1},
        (),
    ),
    "a CPU for each task": (LOGIN_NODE, JOB._replace(cpus=((4, 2),)), {}, ()),
    "few CPUs for few GPUs": (LOGIN_NODE, JOB._replace(cpus=((2, 2),)), {"gpus_per_node": "2"}, ()),
    "no Slurm": (WORKSTATION, None, {}, ("no Slurm here: starting 2 local processes",)),
    "no Slurm, no GPU": (WORKSTATION._replace(gpus=0), None, {}, ("no Slurm here: starting 1 local process",)),
    "no runtime": (LAPTOP, None, {"launcher": LOCAL}, (NO_RUNTIME,)),
    "a restart of a run that does not start again": (
        LOGIN_NODE,
        JOB,
        {"on_hang": "restart", "sources": {"on-hang": Setting("restart", "run.on-hang in FILE")}},
        ("warning: without --max-restarts, a hang ends the run: run.on-hang in FILE",),
    ),
    "options of hangs without hang detection": (
        LOGIN_NODE,
        JOB,
        {"on_hang": "stop", "busy_timeout": 9, "hang_timeout": "off"},
        (
            "warning: --on-hang has no effect: --hang-timeout is off",
            "warning: --busy-timeout has no effect: --hang-timeout is off",
        ),
    ),
    "a partition for the local launcher": (
        LOGIN_NODE,
        None,
        {"launcher": LOCAL, "partition": "gpu"},
        ("warning: --partition has no effect with --launcher local",),
    ),
    "a partition without Slurm": (
        WORKSTATION,
        None,
        {"partition": "gpu"},
        ("no Slurm here: starting 2 local processes", "warning: --partition has no effect without Slurm"),
    ),
    "a site's proxy": (
        WORKSTATION,
        None,
        {"env": (("http_proxy", "p"),), "sources": {"env": Setting((), "run.env in FILE", Rank.SITE)}},
        (
            "no Slurm here: starting 2 local processes",
            "warning: http_proxy=p: JAX's processes would connect through it; set by run.env in FILE",
        ),
    ),
    "a site's partition without Slurm": (
        LOGIN_NODE,
        None,
        {"launcher": LOCAL, "partition": "gpu", "sources": {"partition": Setting("gpu", "FILE")}},
        (),
    ),
}


@pytest.mark.parametrize(("host", "allocation", "options", "notes"), NOTES.values(), ids=NOTES)
def test_notes(host: Host, allocation: Allocation | None, options: dict[str, object], notes: tuple[str, ...]) -> None:
    asked = PROGRAM._replace(**options)  # type: ignore[arg-type]
    assert find_notes(plan_for(asked, host._replace(allocation=allocation))) == notes


@pytest.mark.parametrize("host", [LOGIN_NODE, WORKSTATION, LAPTOP])
def test_a_key_is_not_shown(host: Host) -> None:
    plan = plan_for(PROGRAM, host, credentials="0a1b,-----BEGIN EC PRIVATE KEY-----,MHcC")
    assert any("MHcC" in value for value in plan.variables.values())
    for shown in (render_command(plan), render_summary(plan), repr(describe_plan(plan))):
        assert "JAXSIF_CREDENTIALS" in shown
        assert "MHcC" not in shown
