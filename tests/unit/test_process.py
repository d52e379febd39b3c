"""Signals that come while a process is being started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.executables import executable

from jaxsif import process
from jaxsif.process import find_executable

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


FIND_EXECUTABLE = {
    "first on the PATH": ("tool", "{0}/nowhere:{0}/a:{0}/b", "{0}/a/tool"),
    "not one that cannot be executed": ("tool", "{0}/no:{0}/b", "{0}/b/tool"),
    "not a folder": ("tool", "{0}/folder:{0}/b", "{0}/b/tool"),
    "none": ("tool", "{0}/no", None),
    "the working directory": ("here", "{0}/a:", "here"),
    "a path": ("{0}/a/tool", "{0}/b", "{0}/a/tool"),
    "a relative path": ("b/tool", "{0}/a", "b/tool"),
    "a path that cannot be executed": ("{0}/no/tool", "{0}/a", None),
    "a path of a folder": ("{0}/a", "", None),
}


@pytest.mark.parametrize(("name", "path", "found"), FIND_EXECUTABLE.values(), ids=FIND_EXECUTABLE)
def test_find_executable(folder: Path, name: str, path: str, found: str | None) -> None:
    for place in ("a/tool", "b/tool", "here"):
        executable(folder / place)
    executable(folder / "no/tool").chmod(0o644)
    (folder / "folder/tool").mkdir(parents=True)
    environ = {"PATH": path.format(folder)}
    assert find_executable(name.format(folder), environ) == (found and found.format(folder))


@pytest.mark.starts_processes
def test_a_process_finds_a_name_in_the_place_of_its_own() -> None:
    argv = ["sh", "-c", "echo $0 >&2"]
    for name, found in (("", b"sh\n"), ("sh-1a2b", b"sh-1a2b\n")):
        started = process.start_process(argv, os.environ, stdin=False, stdout=False, alone=True, name=name)
        assert started.communicate()[1] == found


@pytest.mark.starts_processes
def test_a_low_limit_of_open_files_is_named() -> None:
    code = "from jaxsif.process import start_process as s; s(['true'], {}, False, False, False)"
    limited = ["sh", "-c", 'ulimit -n 64 && exec "$@"', "sh", sys.executable, "-c", code]
    ended = subprocess.run(limited, stderr=subprocess.PIPE, check=False, text=True)
    assert ended.stderr.splitlines()[-1] == "OSError: [Errno 24] Too many open files"
