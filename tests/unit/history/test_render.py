"""Runs as people read them."""

from __future__ import annotations

from typing import Any

import pytest
from kit.runs import BEGIN, a_run

from jaxsif.history.render import WIDTH, Listed, describe_seconds, render_row, render_run, render_table
from jaxsif.history.run import Attempt, Complaint


@pytest.mark.parametrize(
    ("fields", "running", "ended"),
    [
        ({}, False, "failed 137"),
        ({"status": 0, "error": None}, False, "done"),
        ({"status": 0}, False, "done*"),
        ({"status": 0, "error": None, "difference": "task 1 compiled jit_f for …"}, False, "done*"),
        ({"status": 130, "error": None}, False, "interrupted"),
        ({"status": 143, "outside": True}, False, "interrupted"),
        ({"status": None, "end": None, "error": None}, True, "runs"),
        ({"status": None, "end": None, "error": None}, False, "unknown"),
    ],
)
def test_how_a_run_ended(fields: dict[str, Any], running: bool, ended: str) -> None:
    assert Listed(a_run(**fields), running).ended == ended


def test_the_table() -> None:
    begun = a_run(begin=BEGIN + 1, end=None, status=None, error=None, step="", tasks=None)
    head, first, second = render_table([render_row(Listed(a_run(), False)), render_row(Listed(begun, True))])
    assert head.split() == ["RUN", "LASTED", "STEP", "TASKS", "ENDED", "COMMAND"]
    name = a_run().name
    assert first == f"{name}  1m03s   12.0  4      failed 137  train.py --lr 3"
    assert second.split()[:3] == [begun.name, "runs", "train.py"]


def test_long_commands_show_where_they_differ() -> None:
    words = ("python", "train.py", "--steps=100", "--model=transformer")
    commands = [(*words, f"--seed={seed}") for seed in range(2)] + [("python", "other.py", *words[2:], "--seed=3")]
    _, *lines = render_table([render_row(Listed(a_run(command=command), False)) for command in commands])
    cells = [line.split("137  ")[1] for line in lines]
    assert cells == ["train.py … --seed=0", "train.py … --seed=1", "other.py --steps=100…"]


def test_a_difference_between_programs_is_shown() -> None:
    difference = "task 1 compiled jit_f for (tensor<2xf32>), 3 others for (tensor<4xf32>)"
    lines = render_run(Listed(a_run(status=0, error=None, difference=difference), False), "/runs/x", [])
    assert f"  differs   {difference}" in lines


def test_code_is_not_taken_for_a_path() -> None:
    run = a_run(command=("/bin/bash", "-c", "df -m /dev/shm"))
    assert render_row(Listed(run, False))[-1] == "bash -c 'df -m /dev/shm'"
    assert render_row(Listed(a_run(command=("/bin/python", "-c", "1/0")), False))[-1] == "python -c 1/0"


def test_commands_are_whole_for_a_pipe() -> None:
    command = ("python", "train.py", "--steps=100", "--model=transformer", "--seed=1")
    rows = [render_row(Listed(a_run(command=command), False))] * 2
    assert all(
        line.endswith("  python train.py --steps=100 --model=transformer --seed=1")
        for line in render_table(rows, 0)[1:]
    )


def test_a_run_in_a_job_on_another_host() -> None:
    listed = Listed(a_run(end=None, status=None, error=None, variables={"SLURM_JOB_ID": "43"}), False, in_job=True)
    assert listed.ended == "job runs"
    first, *lines = render_run(listed, "/runs/x", [])
    assert first.endswith(": it has recorded no end, and its job is running: squeue --jobs=43")
    assert "  job       43" in lines


def test_long_commands_keep_the_name_of_a_module() -> None:
    words = ("python", "-m", "swarm", "--steps=100", "--model=transformer")
    commands = [(*words, f"--seed={seed}") for seed in range(2)]
    _, *lines = render_table([render_row(Listed(a_run(command=command), False)) for command in commands])
    assert [line.split("137  ")[1] for line in lines] == ["swarm … --seed=0", "swarm … --seed=1"]


def test_the_table_is_narrow_and_printable() -> None:
    wild = a_run(command=("\x1b[2J\n" * 100,), step="\x1b" * 50, status=255, end=BEGIN + 1e9, tasks=(1 << 31) - 1)
    for line in render_table([render_row(Listed(wild, False))]):
        assert len(line) <= WIDTH
        assert line.isprintable()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, ""), (0.04, "0.0s"), (9.9, "9.9s"), (59.9, "59s"), (63, "1m03s"), (3723, "1h02m"), (90000, "1d01h")],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert describe_seconds(seconds) == text


def test_all_of_a_run() -> None:
    lines = render_run(Listed(a_run(), False), "/runs/x", ["run.json", "stderr"])
    assert lines[0] == f"run {a_run().name}: it failed with exit status 137"
    for line in (
        "  command   python /home/ada/train.py --lr 3",
        "  tasks     4 by srun: 2 nodes, 2 tasks a node",
        "  error     task 1 on node1 was killed by SIGKILL",
        "  try       ask for more memory",
        "  ended     task 1 on node1, status 137, train.py:16",
        "  ended     tasks 2-3 on node2, status 143, train.py:9",
        "  after 1m00s:",
        "    the program hangs: tasks have been waiting for 60 s",
        "  folder    /runs/x",
        "  files     run.json, stderr",
    ):
        assert line in lines


def test_the_attempts_that_failed_with_their_costs_and_the_nodes_left_out() -> None:
    attempts = (
        Attempt(BEGIN + 61, 135, "task 2 on node2 was killed by SIGBUS", "a.py:7", {"node2": "SIGBUS"}),
        Attempt(BEGIN + 90, 1, "task 0 on node1 failed: ValueError", "", {}, 71.3, 4),
        Attempt(BEGIN + 95, 1, "task 0 on node1 failed: ValueError", "", {}, 12.0),
    )
    lines = render_run(Listed(a_run(attempts=attempts), False), "/runs/x", [])
    at = lines.index("  failed    after 1m01s: status 135, a.py:7, task 2 on node2 was killed by SIGBUS")
    assert lines[at + 1 : at + 6] == [
        "            without node2: SIGBUS",
        "  failed    after 1m30s: status 1, task 0 on node1 failed: ValueError",
        "            1m11s lost, at least 4 iterations computed twice",
        "  failed    after 1m35s: status 1, task 0 on node1 failed: ValueError",
        "            12s lost",
    ]


def test_an_error_behind_status_0_is_shown() -> None:
    lines = render_run(Listed(a_run(status=0), False), "/runs/x", [])
    assert lines[0] == f"run {a_run().name}: it ended with exit status 0"
    assert "  error     task 1 on node1 was killed by SIGKILL" in lines


def test_a_run_whose_output_was_closed() -> None:
    lines = render_run(Listed(a_run(status=141, error=None), False), "/runs/x", [])
    how = "its output was closed, for example by `head`, and its tasks were ended, exit status 141"
    assert lines[0] == f"run {a_run().name}: {how}"


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"tasks": 16, "ended": 13}, "no report from 3 of 16 tasks: a lost node or a killed step sends none"),
        ({"tasks": 1, "ended": 0}, "no report from 1 of 1 task: a lost node or a killed step sends none"),
        ({"tasks": 4, "ended": 4}, ""),
        ({"tasks": 16, "ended": 13, "status": None}, ""),
        ({"tasks": 16, "ended": 0, "nodes": ""}, ""),
        ({"tasks": None, "ended": 3}, ""),
    ],
    ids=["some", "the only one", "none", "the run goes on", "no task has started", "nobody knows how many"],
)
def test_tasks_that_have_not_told_how_they_ended(fields: dict[str, Any], line: str) -> None:
    lines = render_run(Listed(a_run(**{"exits": (), **fields}), False), "/runs/x", [])
    found = [text for text in lines if "no report" in text]
    assert found == ([f"  ended     {line}"] if line else [])


def test_what_others_wrote_moves_no_cursor() -> None:
    wild = "\x1b[2J\n\udc80"
    end = a_run().exits[0]._replace(where=wild, text=wild, node=wild)
    alarm = a_run().alarms[0]._replace(lines=(wild,))
    fields = dict.fromkeys(("step", "launcher", "layout", "nodes", "image", "host", "jaxsif"), wild)
    run = a_run(**fields, command=(wild,), exits=(end,), alarms=(alarm,), error=Complaint(wild, wild, wild))
    lines = render_run(Listed(run, False), wild, [wild])
    assert all(line.isprintable() for line in lines)


def test_of_many_tasks_few_lines_are_shown() -> None:
    ends = tuple(a_run().exits[0]._replace(task=task, where=f"a.py:{task}") for task in range(1000))
    lines = render_run(Listed(a_run(exits=ends, ended=5000), False), "/runs/x", [])
    assert len(lines) < 40
    assert "  ended     and 4980 other tasks" in lines
