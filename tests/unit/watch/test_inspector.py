"""The inspector, started beside a step or on this machine."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from kit.samples import line

from jaxsif.watch import inspector
from jaxsif.watch.inspector import Inspection, Part, Target, list_commands
from jaxsif.watch.watcher import EndWatcher, ProgramWatcher, UnwatchedWatcher, WaitWatcher, Watcher

pytestmark = pytest.mark.starts_processes

STEP = Target("12.0", ("12.0",), (Part("12", ("n1", "n2")), Part("13", ("n3",))))
HERE = Target("process 1", ("1.",), ())


def test_one_srun_for_few_nodes() -> None:
    nodes = tuple(f"n{number}" for number in range(20))
    target = Target("12.0", ("12.0",), (Part("12", nodes), Part("12", ("m",), "1")))
    commands = [command.argv for command in list_commands(target)]
    assert [[word for word in command if "node" in word and "/" not in word] for command in commands] == [
        ["--ntasks-per-node=1", "--nodes=16", f"--nodelist={','.join(nodes[:16])}"],
        ["--ntasks-per-node=1", "--nodes=4", f"--nodelist={','.join(nodes[16:])}"],
        ["--ntasks-per-node=1", "--nodes=1", "--nodelist=m"],
    ]
    assert [command[1:3] for command in commands[1:]] == [("--jobid=12", "--overlap"), ("--jobid=12", "--het-group=1")]
    assert all(command[-1] == "12.0" for command in commands)


def inspect(target: Target, environ: dict[str, str]) -> Inspection:
    """A look, to its end."""
    inspection = Inspection.start(target, environ)
    deadline = time.monotonic() + 20
    while not inspection.poll():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return inspection


def fake_srun(folder: Path, script: str) -> dict[str, str]:
    """An environment in which srun is a script; it finds the answers of two nodes in the files n1 and n3."""
    path = folder / "srun"
    path.write_text(f'#!/bin/sh\ncd {folder}\ncase "$*" in *jobid=12*) node=n1 ;; *) node=n3 ;; esac\n{script}\n')
    path.chmod(0o755)
    for node in ("n1", "n3"):
        (folder / node).write_bytes(
            line(node=node) + b'\n{"node": "%s", "tasks": 1, "memory": 0}\nnoise\n' % node.encode()
        )
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_answers(tmp_path: Path) -> None:
    found = inspect(STEP, fake_srun(tmp_path, "cat $node; echo 'srun: error: \033[2J n2' >&2; exit 1"))
    assert sorted(sample.node for sample in found.samples) == ["n1", "n3"]
    assert found.silent == ("n2",)
    assert found.complaint == "srun: error: \\x1b[2J n2"


def test_nobody_waits_for_a_command_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile the launcher passes on what the tasks print."""
    monkeypatch.setattr(inspector, "LIMIT", 0.5)
    inspection = Inspection.start(STEP, fake_srun(tmp_path, "trap : TERM; cat $node; while :; do sleep 1; done"))
    polls, begin = [], time.monotonic()
    while not inspection.poll():
        now = time.monotonic()
        polls.append(now - begin)
        begin = now
        time.sleep(0.01)
    assert max(polls) < 1.0
    assert 1.3 < sum(polls) < 5
    assert (len(inspection.samples), inspection.silent) == (2, ("n2",))


def test_few_commands_run_at_once(tmp_path: Path) -> None:
    nodes = tuple(f"n{number}" for number in range(40))
    script = "mkdir -p now; touch now/$$; ls now | wc -l >>counts; sleep 0.3; rm now/$$"
    target = Target("12.0", ("12.0",), tuple(Part("12", (node,)) for node in nodes))
    found = inspect(target, fake_srun(tmp_path, script))
    counts = [int(word) for word in (tmp_path / "counts").read_text().split()]
    assert len(counts) == len(found.silent) == 40
    assert 2 <= max(counts) <= 16


def test_nodes_that_were_not_asked_are_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the first ones take all the time."""
    monkeypatch.setattr(inspector, "LIMIT", 1.0)
    nodes = tuple(f"n{number}" for number in range(40))
    target = Target("12.0", ("12.0",), tuple(Part("12", (node,)) for node in nodes))
    found = inspect(target, fake_srun(tmp_path, "trap : TERM; while :; do sleep 1; done"))
    assert (found.lost, found.silent) == (nodes[:16], nodes)


def test_lines_that_have_not_come_are_counted(tmp_path: Path) -> None:
    environ = fake_srun(tmp_path, "cat $node")
    (tmp_path / "n1").write_bytes(line(node="n1") + b'\n{"task": 1}\n{"node": "n1", "tasks": 2, "memory": 0}\n')
    found = inspect(Target("12.0", ("12.0",), (Part("12", ("n1",)),)), environ)
    assert (found.silent, found.unseen) == ((), 1)


def test_this_machine() -> None:
    found = inspect(HERE, {"PATH": "/usr/bin:/bin"})
    assert (found.samples, found.silent, found.complaint) == ([], (), "")


def test_it_can_be_stopped_early(tmp_path: Path) -> None:
    inspection = Inspection.start(STEP, fake_srun(tmp_path, "sleep 100"))
    begin = time.monotonic()
    inspection.stop()
    inspection.stop()
    assert time.monotonic() - begin < 3
    assert inspection.silent == ("n1", "n2", "n3")


def test_a_step_that_looks_at_gpus_gets_those_of_the_job() -> None:
    plain, gpus = (list_commands(Target("", ("0a1b",), (Part("12", ("n1",)),), gpus))[0].argv for gpus in (False, True))
    assert ("--gres=none" in plain, "--gres=none" in gpus) == (True, False)
    assert ("--gpus" in plain, gpus[-2:]) == (False, ("--gpus", "0a1b"))


@pytest.mark.parametrize(
    ("watcher", "stacks"), [(ProgramWatcher, False), (EndWatcher, False), (WaitWatcher, True), (UnwatchedWatcher, True)]
)
def test_only_a_look_for_waiting_tasks_asks_for_stacks(watcher: type[Watcher], stacks: bool) -> None:
    """The signal can end a sleep in C early."""
    target = STEP._replace(stacks=watcher._needs_stacks)
    assert all(("--stacks" in command.argv) == stacks for command in list_commands(target))
