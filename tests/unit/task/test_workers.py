"""Which ended processes of multiprocessing are reported."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from kit.reporting import PROGRAM
from kit.tasks import run_python

from jaxsif.task import workers

WORKER_ENDED = "a multiprocessing worker ended unexpectedly: "
POOL = """
import multiprocessing, os, signal, sys, time

def end(number):
    if number == 1:
        with open(f"{{__file__}}.ends", "w") as file:
            file.write(f"{{os.getpid()}}\\n")
        {end}
    return number

if __name__ == "__main__":
    with multiprocessing.get_context("{method}").Pool(2, maxtasksperchild=1) as pool:
        results = [pool.apply_async(end, (number,)) for number in range(3)]
        results[0].get(), results[2].get()
        ended = ""
        while not ended.endswith("\\n"):
            time.sleep(0.01)
            if os.path.exists(f"{{__file__}}.ends"):
                with open(f"{{__file__}}.ends") as file:
                    ended = file.read()
        while int(ended) in [worker.pid for worker in pool._pool]:  # until it is replaced
            time.sleep(0.01)
"""


def warnings(tmp_path: Path, program: str) -> list[str]:
    path = tmp_path / "train.py"
    path.write_text(program)
    ended = run_python(sys.executable, path, JAXSIF_REPORT=PROGRAM)
    assert ended.status == 0
    return [report.text for report in ended.reports if report.event == "warning"]


@pytest.mark.starts_processes
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", ["SIGKILL"]),
        ("sys.exit(3)", ["exit status 3"]),
        ("sys.exit(0)", []),
        ("pass", []),
    ],
)
def test_the_worker_of_a_pool(tmp_path: Path, method: str, end: str, told: list[str]) -> None:
    """A worker that has done its work, and those that the program's end terminates, are not reported."""
    found = warnings(tmp_path, POOL.format(method=method, end=end))
    assert found == [f"{WORKER_ENDED}{how}" for how in told]


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("end", "told"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), [f"{WORKER_ENDED}SIGKILL"]),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), []),
        (lambda: os._exit(1), []),
    ],
)
def test_a_child_that_was_killed(monkeypatch: pytest.MonkeyPatch, end: Callable[[], None], told: list[str]) -> None:
    """It remains for the program to wait for."""
    monkeypatch.setattr(workers, "_reported", set())
    found: list[Mapping[str, object]] = []
    child = multiprocessing.get_context("fork").Process(target=end)
    child.start()
    for _ in range(100):
        if not found:
            workers.report_killed(found.append)
            time.sleep(0.01)
    assert [report["text"] for report in found] == told
    child.join()
    assert child.exitcode
    monkeypatch.setattr(workers, "_reported", set())
    found.clear()
    workers.report_killed(found.append)
    assert not found
