"""A share of the tests: as many files as fit into a time, in an order drawn from a word.

    pytest tests/cluster -m "not core" --drawn-from WORD --seconds N

CI has no time for all of them at every commit. Each commit draws another order, so each file has its turn.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--drawn-from", metavar="WORD", help="run the files in an order drawn from this word")
    parser.addoption("--seconds", type=float, metavar="N", help="begin no test after so many seconds, and name those")


class Share:
    """What is left of the time, and what it did not suffice for."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._left_out: Counter[str] = Counter()  # tests, by their files

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Pass over a test that would begin too late."""
        if time.monotonic() < self._end:
            return None
        self._left_out[item.path.name] += 1
        return True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section(f"left out for lack of time: {self._left_out.total()} tests")
        for name, count in self._left_out.items():
            terminalreporter.line(f"{name}: {count}")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "core: what every change must pass, in `make test`")
    if config.getoption("--seconds") is not None:
        config.pluginmanager.register(Share(config.getoption("--seconds")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    word = config.getoption("--drawn-from")
    if word:
        items.sort(key=lambda item: hashlib.sha256(f"{word} {item.path.name}".encode()).digest())
