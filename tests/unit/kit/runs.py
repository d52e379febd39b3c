"""Runs of the history, for tests."""

from __future__ import annotations

from typing import Any

from kit.samples import line

from jaxsif.history.folder import name_run
from jaxsif.history.run import Alarm, Complaint, RunRecord, TaskEnd
from jaxsif.watch.sample import Sample, parse_line
from jaxsif.watch.snapshot import make_snapshot, render_json

BEGIN = 1.79e9 + 2602 / 65536  # 0a2a


def picture() -> dict[str, Any]:
    seen = parse_line(line())
    assert isinstance(seen, Sample)
    return render_json(make_snapshot([seen]), "12.0")


def a_run(**fields: Any) -> RunRecord:
    """A run that failed after a minute; `fields` replace some of it."""
    begin = fields.get("begin", BEGIN)
    return RunRecord(
        **{
            "name": name_run(begin),
            "begin": begin,
            "end": begin + 63,
            "status": 137,
            "error": Complaint("task 1 on node1 was killed by SIGKILL", "train.py:16", "ask for more memory"),
            "step": "12.0",
            "launcher": "srun",
            "layout": "2 nodes, 2 tasks a node",
            "tasks": 4,
            "nodes": "node[1-2]",
            "command": ("python", "/home/ada/train.py", "--lr", "3"),
            "image": "/sw/jax.sif",
            "digest": "",
            "jaxsif": "0.1.0",
            "python": "3.11.7",
            "slurm": "24.11.5",
            "host": "login1",
            "pid": 77,
            "started": 4711,
            "variables": {"SLURM_JOB_ID": "12"},
            "ended": 4,
            "exits": (
                TaskEnd(1, "node1", 137, "train.py:16", "", ""),
                TaskEnd(2, "node2", 143, "train.py:9", "", ""),
                TaskEnd(3, "node2", 143, "train.py:9", "", ""),
                TaskEnd(0, "node1", 0, "", "", ""),
            ),
            "alarms": (
                Alarm(begin + 60, "hang", 60.0, ("the program hangs: tasks have been waiting for 60 s",), picture()),
            ),
            **fields,
        }
    )
