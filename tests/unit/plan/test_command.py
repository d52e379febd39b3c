"""A plan as text: the line that a shell takes back to the same start, and what --verbose and the notes say."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hosts import LAPTOP, LOGIN_NODE, WORKSTATION, plan_for
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxsif.container.environment import Settled
from jaxsif.job.allocation import Allocation
from jaxsif.launch.launchers import load_launcher
from jaxsif.layout.layout import Group, Layout
from jaxsif.plan.command import describe_plan, render_command, render_summary
from jaxsif.plan.host import Host
from jaxsif.plan.launcher import LOCAL, Launcher
from jaxsif.plan.notes import find_notes
from jaxsif.plan.plan import Plan
from jaxsif.settings.request import RunOptions

JOB = Allocation("4711", 2, None, None, 4)
PROGRAM = RunOptions(("python", "train.py"))
PLAN = plan_for(PROGRAM)
SRUN = PLAN.launcher


def plan_with(argv: tuple[str, ...], variables: dict[str, str], unset: tuple[str, ...]) -> Plan:
    """A plan without a container, with any words."""
    launcher = SRUN._replace(argv=lambda _plan: argv, hides=lambda _layout, _host: ())
    layout = Layout((Group(2, 4, 4),), "one task per GPU")
    environment = Settled(variables, unset, {})
    return PLAN._replace(launcher=launcher, layout=layout, container=None, environment=environment)


def test_a_command_line_on_a_terminal_is_folded() -> None:
    plan = plan_with(("srun", *(f"--option-{number}=a b" for number in range(9)), "x" * 90, "end"), {"A": "1"}, ())
    one, lines = render_command(plan), render_command(plan, 80).splitlines()
    assert [line for line in lines if len(line) > 80] == [f"    {'x' * 90} \\"]
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert " ".join(line.strip().removesuffix(" \\") for line in lines) == one


WORDS_OF_SRUN = ("srun", "--nodes=2", "a b", "$c")


@pytest.mark.parametrize(
    ("variables", "unset", "line"),
    [
        ({}, (), "JAXSIF_STEP=0a1b srun --nodes=2 'a b' '$c'"),
        ({"A": "1", "B": "2 3,4"}, (), "A=1 B='2 3,4' JAXSIF_STEP=0a1b srun --nodes=2 'a b' '$c'"),
        ({}, ("http_proxy",), "env --unset=http_proxy JAXSIF_STEP=0a1b srun --nodes=2 'a b' '$c'"),
        ({"A": ""}, ("b", "c"), "env --unset=b --unset=c A='' JAXSIF_STEP=0a1b srun --nodes=2 'a b' '$c'"),
    ],
    ids=["argv", "variables", "without a variable", "both"],
)
def test_command(variables: dict[str, str], unset: tuple[str, ...], line: str) -> None:
    assert render_command(plan_with(WORDS_OF_SRUN, variables, unset)) == line


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


@pytest.mark.parametrize(
    ("layout", "launcher", "first_line"),
    [
        (
            Layout((Group(2, 4, 4),), "one task per GPU"),
            SRUN,
            "2 node(s), 4 task(s) a node, 4 GPU(s) a node by srun (one task per GPU)",
        ),
        (Layout((Group(None, None, None),), "Slurm's default"), SRUN, "one task by srun (Slurm's default)"),
        (
            Layout((Group(1, 2, 0),), "--ntasks-per-node"),
            load_launcher(LOCAL),
            "1 node(s), 2 task(s) a node, 0 GPU(s) a node on this machine (--ntasks-per-node)",
        ),
    ],
    ids=["srun", "Slurm decides", "local"],
)
def test_summary(layout: Layout, launcher: Launcher, first_line: str) -> None:
    plan = PLAN._replace(layout=layout, launcher=launcher)
    line = f"jaxsif: {first_line}; image from JAX_IMAGE (environment)\njaxsif: {render_command(plan)}"
    assert render_summary(plan) == line
    assert line.endswith("  # one of 2 process(es)") == (launcher.name == LOCAL)


FEW_CPUS = "warning: 2 tasks on each node share 1 CPU(s): allocate with --cpus-per-gpu or --cpus-per-task"
NO_RUNTIME = "warning: no container runtime here: running in this machine's own Python"


@pytest.mark.parametrize(
    ("host", "allocation", "options", "notes"),
    [
        (LOGIN_NODE, None, {"time": "5"}, ()),
        (LOGIN_NODE, JOB, {"nodes": 1}, ()),
        (
            LOGIN_NODE,
            JOB,
            {"time": "5", "constraint": "fast"},
            (
                "warning: --time has no effect inside job 4711",
                "warning: --constraint has no effect inside job 4711",
            ),
        ),
        (LOGIN_NODE, JOB._replace(gpus_per_node=2, cpus=((1, 2),)), {}, (FEW_CPUS,)),
        (LOGIN_NODE, JOB._replace(cpus=((4, 2),)), {}, ()),
        (LOGIN_NODE, JOB._replace(cpus=((2, 2),)), {"gpus_per_node": "2"}, ()),
        (WORKSTATION, None, {}, ("no Slurm here: starting 2 local process(es)",)),
        (WORKSTATION._replace(gpus=0), None, {}, ("no Slurm here: starting 1 local process(es)",)),
        (LAPTOP, None, {"launcher": LOCAL}, (NO_RUNTIME,)),
        (
            LOGIN_NODE,
            None,
            {"launcher": LOCAL, "partition": "gpu"},
            ("warning: --partition has no effect without Slurm",),
        ),
        (LOGIN_NODE, None, {"launcher": LOCAL, "partition": "gpu", "sources": {"partition": "FILE"}}, ()),
    ],
    ids=[
        "outside a job",
        "in a job",
        "ignored in a job",
        "fewer CPUs than tasks",
        "a CPU for each task",
        "few CPUs for few GPUs",
        "no Slurm",
        "no Slurm, no GPU",
        "no runtime",
        "a partition without Slurm",
        "a site's partition without Slurm",
    ],
)
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
