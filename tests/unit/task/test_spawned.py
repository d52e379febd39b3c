"""Which workers of multiprocessing end their task, and which are left to JAX."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import jaxsif
from jaxsif.task import spawned

PID = os.getpid()
VARIABLES = {"JAX_COORDINATOR_ADDRESS": "node1:7", "SLURM_PROCID": "2", "SLURM_NTASKS": "4"}


def connected(**state: object) -> SimpleNamespace:
    known = {"client": 1, "coordinator_address": "node1:7", "num_processes": 4, "process_id": 2}
    return SimpleNamespace(global_state=SimpleNamespace(**{**known, **state}))


def launch(monkeypatch: pytest.MonkeyPatch, distributed: object, environ: dict[str, str]) -> str | None:
    """Spawn a worker where JAX is `distributed`; return the mark that it inherits."""
    seen: list[str | None] = []
    original = SimpleNamespace(_launch=lambda *_: seen.append(environ.get("JAXSIF_CONNECTED")))
    module = SimpleNamespace(__name__="popen", Popen=original)
    monkeypatch.setitem(sys.modules, "jax._src.distributed", distributed)
    spawned._watch(module, environ, PID)
    module.Popen._launch("self", "process")
    assert "JAXSIF_CONNECTED" not in environ
    return seen[0]


def test_a_worker_of_a_connected_process_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    mark = f"{PID} node1:7 - - 2 4"
    assert launch(monkeypatch, connected(), {**VARIABLES}) == mark
    own = {**VARIABLES, "JAX_PROCESS_ID": "0"}
    assert launch(monkeypatch, connected(process_id=0), own) == f"{PID} node1:7 0 - 2 4"


@pytest.mark.parametrize(
    "distributed",
    [
        None,
        connected(client=None),
        connected(coordinator_address="node1:8"),
        connected(process_id=1),
        connected(num_processes=1),
        SimpleNamespace(),
    ],
    ids=["no JAX", "not connected", "another address", "another process", "the only one", "another JAX"],
)
def test_other_workers_are_not(monkeypatch: pytest.MonkeyPatch, distributed: object) -> None:
    assert launch(monkeypatch, distributed, {**VARIABLES}) is None


def test_a_worker_of_a_fork_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: PID + 1)
    assert launch(monkeypatch, connected(), {**VARIABLES}) is None


class Ended(BaseException):
    """Instead of the end of the process."""


def connect(
    monkeypatch: pytest.MonkeyPatch,
    environ: dict[str, str],
    *,
    inheriting: bool = True,
    parent: int = 40,
    **keywords: Any,
) -> list[object]:
    """Call initialize() in a worker of process 40; return what that did."""
    done: list[object] = []

    def leave(_status: int) -> None:
        raise Ended

    process = SimpleNamespace(current_process=lambda: SimpleNamespace(_inheriting=inheriting))
    monkeypatch.setitem(sys.modules, "multiprocessing.process", process)
    monkeypatch.setattr(os, "getppid", lambda: parent)
    monkeypatch.setattr(os, "kill", lambda *arguments: done.append(arguments))
    monkeypatch.setattr(os, "_exit", leave)

    def initialize(**keywords: Any) -> None:
        done.append(keywords)

    module = SimpleNamespace(__name__="distributed", initialize=initialize)
    spawned._guard(module, "40 node1:7 - - 2 4", environ, lambda record: done.append(record["where"]))
    with suppress(Ended):
        module.initialize(**keywords)
    return done


def test_a_worker_that_would_be_its_parent_ends_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    where, killed = connect(monkeypatch, VARIABLES)
    assert str(where).startswith(__file__)
    assert killed == (40, signal.SIGABRT)


@pytest.mark.parametrize(
    ("changed", "keywords"),
    [
        ({"JAX_COORDINATOR_ADDRESS": "node1:8"}, {}),
        ({"JAX_PROCESS_ID": "1"}, {}),
        ({"JAX_NUM_PROCESSES": "2"}, {}),
        ({"SLURM_PROCID": "3"}, {}),
        ({}, {"process_id": 3}),
        ({}, {"num_processes": 3}),
    ],
    ids=str,
)
def test_a_worker_that_is_another_process_connects(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], keywords: dict[str, int]
) -> None:
    assert connect(monkeypatch, {**VARIABLES, **changed}, **keywords) == [keywords]


def test_a_worker_of_another_parent_or_with_its_own_work_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    assert connect(monkeypatch, VARIABLES, parent=41) == [{}]
    assert connect(monkeypatch, VARIABLES, inheriting=False) == [{}]


SCRIPT = """\
import multiprocessing, os, sys
sys.path[:0] = {path!r}
from jaxsif.task import failure, spawned
spawned.install(os.environ, failure.reporter(os.environ))
if {setup!r} == "workers" and hasattr(multiprocessing.current_process(), "_inheriting"):
    os.environ["JAX_PROCESS_ID"] = "0"
import jax._src.distributed as distributed
def work():
    pass
if {setup!r} != "workers" or hasattr(multiprocessing.current_process(), "_inheriting"):
    distributed.initialize()
if not hasattr(multiprocessing.current_process(), "_inheriting"):
    worker = multiprocessing.get_context({method!r}).Process(target=work)
    worker.start()
    worker.join()
    sys.exit(abs(worker.exitcode))
"""
DISTRIBUTED = """\
from types import SimpleNamespace
global_state = SimpleNamespace(client=None)
def initialize():
    import os
    print("connects", flush=True)
    number = int(os.environ.get("JAX_PROCESS_ID", os.environ["SLURM_PROCID"]))
    address = os.environ["JAX_COORDINATOR_ADDRESS"]
    global_state.__init__(client=1, coordinator_address=address, process_id=number, num_processes=4)
"""


def run(tmp_path: Path, setup: str, method: str) -> tuple[int, str, list[str]]:
    """Execute a script whose worker runs it again; return its status, output, and what it reports."""
    folder = tmp_path / "jax/_src"
    folder.mkdir(parents=True)
    (folder / "distributed.py").write_text(DISTRIBUTED)
    path = [str(tmp_path), str(Path(jaxsif.__file__).parents[1])]
    (tmp_path / "train.py").write_text(SCRIPT.format(path=path, setup=setup, method=method))
    environ = {**VARIABLES, "PATH": os.environ["PATH"], "JAXSIF_REPORT": "4e5f"}
    argv = [sys.executable, str(tmp_path / "train.py")]
    done = subprocess.run(argv, check=False, text=True, capture_output=True, env=environ)
    lines = [line.partition("\x1ejaxsif 4e5f ") for line in done.stderr.split("\n")]
    return done.returncode, done.stdout, [json.loads(said)["where"] for _, mark, said in lines if mark]


@pytest.mark.starts_processes
def test_with_real_workers(tmp_path: Path) -> None:
    found = run(tmp_path, "program", "spawn")
    assert found == (-signal.SIGABRT, "connects\n", [f"{tmp_path}/train.py:11"])


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("setup", "method"), [("workers", "spawn"), ("program", "forkserver"), ("workers", "forkserver")]
)
def test_with_real_workers_that_are_left_alone(tmp_path: Path, setup: str, method: str) -> None:
    status, output, reported = run(tmp_path, setup, method)
    assert (status, reported) == (0, [])
    assert set(output.splitlines()) == {"connects"}
