"""What all tests need of the process that runs them, and expected texts: rewritten by `make golden`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

# A shell starts what runs in its background with SIGINT ignored, nohup ignores SIGHUP, and all that the tests start
# would inherit that; what a handler catches is not inherited.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

# A project's file that a group may write does not count: what the tests write must not be one, whatever the umask is.
os.umask(0o022)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-golden", action="store_true", help="write the expected texts anew; review their diff")


@pytest.fixture
def compare(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compare a text with a file, whole; or write the file, with --rewrite-golden."""

    def compare_or_rewrite(path: Path, text: str) -> None:
        if request.config.getoption("--rewrite-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        if not path.exists():
            pytest.fail(f"{path} is missing: make golden, and review what it writes")
        assert text == path.read_text()

    return compare_or_rewrite
