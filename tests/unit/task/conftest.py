"""Packages that stand for JAX's."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def sigterm() -> Iterator[None]:
    """The end of a task in this process leaves that without a handler of SIGTERM."""
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages that Python finds; what is imported from it is forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    modules = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - modules:
        del sys.modules[name]
