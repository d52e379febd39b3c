"""A plan as text: the line that a shell takes back to the same start, and what --verbose and the notes say."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxsif.job.allocation import Allocation
from jaxsif.layout.layout import Group, Layout
from jaxsif.plan.command import render_command, render_notes, render_summary
from jaxsif.plan.host import Host
from jaxsif.plan.launchers import LOCAL, SRUN
from jaxsif.plan.plan import LaunchPlan, build
from jaxsif.runtime import Runtime
from jaxsif.settings.request import RunOptions

JOB = Allocation("4711", 2, None, None, 4)
HOST = Host(
    True,
    Runtime("apptainer", "APPTAINERENV_"),
    "/sw/jax.sif",
    "/usr/bin/python3",
    "/sw/lib/jaxsif",
    61234,
    "0a1b",
    0,
    None,
)
PROGRAM = RunOptions(("python", "train.py"))
PLAN = LaunchPlan(
    SRUN, Layout((Group(2, 4, 4),), "one task per GPU"), ("srun", "--nodes=2"), ("a b", "$c"), (), (), False
)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "srun --nodes=2 'a b' '$c'"),
        ({"set_environ": (("A", "1"), ("B", "2 3,4"))}, "A=1 B='2 3,4' srun --nodes=2 'a b' '$c'"),
        ({"unset_environ": ("http_proxy",)}, "env --unset=http_proxy srun --nodes=2 'a b' '$c'"),
        (
            {"set_environ": (("A", ""),), "unset_environ": ("b", "c")},
            "env --unset=b --unset=c A='' srun --nodes=2 'a b' '$c'",
        ),
    ],
    ids=["argv", "variables", "without a variable", "both"],
)
def test_command(changes: dict[str, object], line: str) -> None:
    assert render_command(PLAN._replace(**changes)) == line  # type: ignore[arg-type]


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
    launch_argv = (sys.executable, "-ISc", SHOW)
    plan = PLAN._replace(
        launch_argv=launch_argv,
        task_argv=tuple(words),
        set_environ=tuple(variables.items()),
        unset_environ=tuple(sorted(removed)),
    )
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
    ("changes", "first_line"),
    [
        ({}, "jaxsif: 2 node(s), 4 task(s) a node, 4 GPU(s) a node by srun (one task per GPU); image from --image"),
        (
            {"layout": Layout((Group(None, None, None),), "Slurm's default")},
            "jaxsif: one task by srun (Slurm's default); image from --image",
        ),
        (
            {"launcher": LOCAL, "layout": Layout((Group(1, 2, 0),), "--ntasks-per-node")},
            "jaxsif: 1 node(s), 2 task(s) a node, 0 GPU(s) a node on this machine (--ntasks-per-node); "
            "image from --image",
        ),
    ],
    ids=["srun", "Slurm decides", "local"],
)
def test_summary(changes: dict[str, object], first_line: str) -> None:
    plan = PLAN._replace(**changes)  # type: ignore[arg-type]
    each = "  # one of 2 process(es)" if plan.launcher == LOCAL else ""
    assert render_summary(plan, "--image") == f"{first_line}\njaxsif: srun --nodes=2 'a b' '$c'{each}"


FEW_CPUS = "warning: 2 tasks on each node share 1 CPU(s): allocate with --cpus-per-gpu or --cpus-per-task"
NO_RUNTIME = "warning: no container runtime here: running in this machine's own Python"


@pytest.mark.parametrize(
    ("host", "allocation", "options", "notes"),
    [
        (HOST, None, {"time": "5"}, ()),
        (HOST, JOB, {"nodes": 1}, ()),
        (
            HOST,
            JOB,
            {"time": "5", "constraint": "fast"},
            (
                "warning: --time has no effect inside job 4711",
                "warning: --constraint has no effect inside job 4711",
            ),
        ),
        (HOST, JOB._replace(gpus_per_node=2, cpus=((1, 2),)), {}, (FEW_CPUS,)),
        (HOST, JOB._replace(cpus=((4, 2),)), {}, ()),
        (HOST, JOB._replace(cpus=((2, 2),)), {"gpus_per_node": "2"}, ()),
        (HOST._replace(srun=False, gpus=2), None, {}, ("no Slurm here: starting 2 local process(es)",)),
        (HOST._replace(srun=False), None, {}, ("no Slurm here: starting 1 local process(es)",)),
        (HOST._replace(srun=False, runtime=None), None, {"launcher": LOCAL}, (NO_RUNTIME,)),
        (HOST, None, {"launcher": LOCAL, "partition": "gpu"}, ("warning: --partition has no effect without Slurm",)),
        (HOST, None, {"launcher": LOCAL, "partition": "gpu", "sources": {"partition": "FILE"}}, ()),
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
    request = PROGRAM._replace(**options)  # type: ignore[arg-type]
    plan = build(request, host, allocation, {})
    assert render_notes(request, plan, host, allocation) == notes
