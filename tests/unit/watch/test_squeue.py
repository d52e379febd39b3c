"""Which step is looked into, by what squeue lists."""

from __future__ import annotations

import os

import pytest

from jaxsif.errors import JaxsifError
from jaxsif.watch.inspector import Part, Target
from jaxsif.watch.squeue import choose_target, find_target, parse_jobs, parse_steps

JOBS = "30|30\n20+0|20\n20+1|21\n12_3|15\n9|9\n"
STEPS = """\
30.batch|bash|node1
30.extern|extern|node[1-2]
30.0|train|node[1-2]
30.1|train.py|node[1-2]
30.2|jaxsif-stacks|node[1-2]
20.0|a|node3
21.0|a|node[4-5]
12_3.7|b|node6
9.interactive|interactive|node7
"""


def choose(asked: str | None, number: int | None = None) -> Target:
    return choose_target(parse_jobs(JOBS), parse_steps(STEPS), asked, number)


@pytest.mark.parametrize(
    ("asked", "number", "target"),
    [
        (None, None, Target("30.1", ("30.1",), (Part("30", ("node1", "node2")),))),
        ("30", 0, Target("30.0", ("30.0",), (Part("30", ("node1", "node2")),))),
        ("12_3", None, Target("12_3.7", ("15.7",), (Part("15", ("node6",)),))),
        ("15", 7, Target("12_3.7", ("15.7",), (Part("15", ("node6",)),))),
        (
            "20",
            None,
            Target("20.0", ("20.0", "21.0"), (Part("20", ("node3",), "0"), Part("20", ("node4", "node5"), "1"))),
        ),
    ],
)
def test_choice(asked: str | None, number: int | None, target: Target) -> None:
    assert choose(asked, number) == target


@pytest.mark.parametrize(
    ("asked", "number", "what"),
    [
        ("8", None, "job 8 is not running, or is not yours"),
        ("9", None, "job 9 has no running step"),
        ("30", 2, "job 30 has no running step 2"),
    ],
)
def test_no_such_step(asked: str | None, number: int | None, what: str) -> None:
    with pytest.raises(JaxsifError, match=what):
        choose(asked, number)


def test_no_job() -> None:
    with pytest.raises(JaxsifError, match="none of your jobs is running") as caught:
        choose_target([], [], None, None)
    assert caught.value.hint.endswith("; for --launcher local: jaxsif stacks PID")


@pytest.mark.parametrize("asked", ["x", "1.batch", "1.2.3", "-1", "1\n", "1" * 11])
def test_not_a_step(asked: str) -> None:
    with pytest.raises(JaxsifError, match="not a Slurm step"):
        find_target(asked, None, {"PATH": "/none"})


def test_without_slurm() -> None:
    assert find_target("77", "12", {"PATH": "/none"}) == Target("process 77", ("77.",), ())
    with pytest.raises(JaxsifError, match="there is no Slurm here"):
        find_target(None, None, {"PATH": "/none"})


def test_a_local_run_beside_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxsif.watch.squeue.find_executable", lambda *_: "/usr/bin/squeue")
    ours = str(os.getpid())
    monkeypatch.setattr("jaxsif.watch.squeue._ask", lambda *_: "")
    assert find_target(ours, None, {}) == Target(f"process {ours}", (f"{ours}.",), ())
    for wanted in (f"{ours}.0", "9999999999"):
        with pytest.raises(JaxsifError, match="is not running, or is not yours"):
            find_target(wanted, None, {})
    monkeypatch.setattr("jaxsif.watch.squeue._ask", lambda *_: f"{ours}|{ours}\n")  # Slurm's job comes first
    with pytest.raises(JaxsifError, match=f"job {ours} has no running step"):
        find_target(ours, None, {})
