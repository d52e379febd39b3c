"""Signals that come while a process is being started."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from jaxsif import process


@pytest.mark.starts_processes
def test_interrupted_while_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        process.run_plain(["sleep", "30"])
    assert started[0].returncode == -signal.SIGTERM
    assert signal.getsignal(signal.SIGINT) is handler
