"""Signals that come while a process is being started."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from jaxsif import process

SLEEP = ["sleep", "30"]


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    "start",
    [lambda: process.run_plain(SLEEP), lambda: process.captured(SLEEP, os.environ)],
    ids=["run_plain", "captured"],
)
def test_interrupted_while_starting(start: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C inside Popen, right after the fork: the command is ended all the same."""
    started: list[subprocess.Popen[Any]] = []
    real = subprocess.Popen.__init__

    def interrupted(self: subprocess.Popen[Any], *arguments: Any, **options: Any) -> None:
        real(self, *arguments, **options)
        started.append(self)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(subprocess.Popen, "__init__", interrupted)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        start()
    assert started[0].returncode == -signal.SIGTERM
    assert signal.getsignal(signal.SIGINT) is handler
