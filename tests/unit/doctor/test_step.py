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
    watch = step._Watch(reader)
    for clock[0] in (1.0, 16.0, 17.0, 5000.0):
        assert not watch.poll()
    assert capsys.readouterr().err.count("no node has answered yet") == 1
    for piece in cut(json.dumps({"node": "node1"}), "n0"):
        reader.take(piece.encode())
    for clock[0], must_end in ((5001.0, False), (5045.0, False), (5047.0, True)):
        assert watch.poll() == must_end == watch.has_stalled
