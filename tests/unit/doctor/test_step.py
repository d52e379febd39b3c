"""When a step ends that stands still, and what the user hears before it begins."""

from __future__ import annotations

import json

import pytest

from jaxsif.doctor import step
from jaxsif.doctor.facts import FactsReader
from jaxsif.task.contract import cut


def test_the_patience_of_doctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It waits for ever for the step to begin, and notes it once; then each line counts."""
    clock = [0.0]
    monkeypatch.setattr("jaxsif.doctor.step.time.monotonic", lambda: clock[0])
    reader = FactsReader()
    watch = step._Watch(reader, 45, "squeue --me")
    assert watch.hear(b"srun: job 25 queued and waiting for resources\nother\n") == b""
    for clock[0] in (1.0, 16.0, 17.0, 5000.0):
        assert not watch.poll()
    assert capsys.readouterr().err == (
        "jaxsif: no node has answered yet (job 25 queued and waiting for resources);"
        " squeue --me shows what Slurm is waiting for\n"
    )
    for piece in cut(json.dumps({"node": "node1"}), "n0"):
        reader.take(piece.encode())
    for clock[0], must_end in ((5001.0, False), (5045.0, False), (5047.0, True)):
        assert watch.poll() == must_end == watch.has_stalled


@pytest.mark.parametrize(
    ("program", "python"),
    [
        ("python", "python"),
        ("/venv/bin/python3.12", "/venv/bin/python3.12"),
        ("venv/bin/python3", "venv/bin/python3"),
        ("train.py", ""),
        ("bash", ""),
        ("pythonic", ""),
    ],
)
def test_the_python_of_a_program(program: str, python: str) -> None:
    """Such as that of a virtual environment; a script may choose any."""
    assert step.find_python((program, "train.py")) == python


@pytest.mark.parametrize(
    ("init_timeout", "nodes", "seconds"), [(None, 2, 45), (30, None, 45), (300, 2, 315), (None, 1000, 95)]
)
def test_more_patience_with_more_nodes(init_timeout: int | None, nodes: int | None, seconds: int) -> None:
    assert step.find_patience(init_timeout, nodes) == pytest.approx(seconds, abs=0.2)
