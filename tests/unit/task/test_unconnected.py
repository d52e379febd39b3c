"""Which processes say that they computed with JAX and were connected to no other, or not as this run's."""

from __future__ import annotations

import importlib
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import jaxsif
from jaxsif.task import coordinator, port

ROOT = Path(jaxsif.__file__).parents[1]
SEVERAL = {"SLURM_STEP_NUM_TASKS": "2"}
# Modules that are built like JAX's, behind the hook.
START = """
import sys, types
sys.path.insert(0, {root!r})
from jaxsif.task import coordinator, failure
coordinator.report_unconnected({environ!r}, failure.reporter({{"SLURM_PROCID": "5", "JAXSIF_REPORT": "4e5f"}}))
bridge = types.SimpleNamespace(_backends={{}})
state = types.SimpleNamespace(client=None, coordinator_address=None)
def jax():
    sys.modules["jax._src.xla_bridge"] = bridge
    sys.modules["jax._src.distributed"] = types.SimpleNamespace(global_state=state)
"""
STATE = """\
class State:
    def initialize(self, coordinator_address=None, num_processes=None, process_id=None):
        given = {"coordinator_address": coordinator_address, "num_processes": num_processes, "process_id": process_id}
        return {name: value for name, value in given.items() if value is not None}
"""
ALONE = '\x1ejaxsif 4e5f {"task": 5, "node": "", "event": "alone"}\n'


def run(program: str, environ: dict[str, str]) -> str:
    """Execute a program behind the hook; return what it reports."""
    source = START.format(root=str(ROOT), environ=environ) + program
    return subprocess.run([sys.executable, "-ISc", source], check=False, text=True, stderr=subprocess.PIPE).stderr


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("program", "reports"),
    [
        ("jax(); bridge._backends['cpu'] = 1", ALONE),
        ("jax(); bridge._backends['cpu'] = 1; sys.exit(0)", ALONE),
        ("jax()", ""),
        ("", ""),
        ("jax(); bridge._backends['cpu'] = 1; state.coordinator_address = 'node1:1'", ""),
        ("jax(); bridge._backends['cpu'] = 1; import os; os.fork() and os.wait()", ALONE),
        ("jax(); bridge._backends['cpu'] = 1; import atexit; atexit.register(bridge._backends.clear)", ALONE),
    ],
    ids=["computed", "sys.exit(0)", "imported only", "no JAX", "connected, or once", "a fork is not the task", "exit"],
)
def test_who_computed_alone(program: str, reports: str) -> None:
    assert run(program, SEVERAL) == reports


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    "environ",
    [{"SLURM_NTASKS": "1"}, {}, {**SEVERAL, "JAXSIF_INDEPENDENT": "1"}],
    ids=["one task", "nothing known", "independent"],
)
def test_who_is_not_asked(environ: dict[str, str]) -> None:
    assert run("jax(); bridge._backends['cpu'] = 1", environ) == ""


@pytest.mark.parametrize(
    ("arguments", "odd"),
    [
        ({}, ""),
        ({"num_processes": 4, "process_id": 1}, ""),
        ({"num_processes": 8}, "num_processes=8"),
        ({"num_processes": 1, "process_id": 0}, "num_processes=1, process_id=0"),
        ({"coordinator_address": "node9:7", "num_processes": 8}, ""),
        ({"coordinator_address": "a.invalid:7", "num_processes": 8}, "coordinator_address='a.invalid:7'"),
        ({"coordinator_address": "localhost:7", "num_processes": 2}, ""),
        ({"coordinator_address": "localhost:7", "num_processes": 4}, "coordinator_address='localhost:7'"),
        ({"coordinator_address": "localhost:7"}, "coordinator_address='localhost:7'"),
        ({"coordinator_address": "node1:7", "process_id": 0}, ""),
        ({"coordinator_address": "node9:7", "process_id": 0}, "coordinator_address='node9:7'"),
        ({"coordinator_address": "a.invalid:7", "process_id": 0}, "coordinator_address='a.invalid:7'"),
    ],
    ids=[
        *("none", "the run's", "too many", "for itself", "another coordinator", "unknown", "of a node", "of each node"),
        *("of each node of the run", "its own node", "another node", "an unknown node"),
    ],
)
def test_arguments_for_other_processes_are_reported(
    packages: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, object], odd: str
) -> None:
    names = {"node1": [(socket.AF_INET, ("127.0.0.1", 0))], "node9": [(socket.AF_INET, ("192.0.2.1", 0))]}
    monkeypatch.setattr(port, "find_addresses", lambda name: names.get(name, []))
    monkeypatch.setattr(port, "is_here", names["node1"].__contains__)
    (packages / "jax/_src").mkdir(parents=True)
    (packages / "jax/_src/distributed.py").write_text(STATE)
    told: list[Mapping[str, object]] = []
    environ = {"SLURM_NTASKS": "4", "SLURM_PROCID": "1", "SLURM_GTIDS": "0,1"}
    coordinator.report_arguments(environ, told.append)
    state = importlib.import_module("jax._src.distributed").State()
    assert state.initialize(**arguments) == arguments
    assert [report["text"] for report in told] == [odd] * bool(odd)
    assert all(str(report["where"]).startswith(f"{__file__}:") for report in told)


@pytest.mark.parametrize(
    ("given", "odd"), [((4, 0), ["num_processes=4, process_id=0"]), ((2, 1), []), ((2, 0), ["process_id=0"])]
)
def test_all_tasks_of_one_node_can_connect_to_its_own_address(
    packages: Path, given: tuple[int, int], odd: list[str]
) -> None:
    (packages / "jax/_src").mkdir(parents=True)
    (packages / "jax/_src/distributed.py").write_text(STATE)
    told: list[Mapping[str, object]] = []
    environ = {"SLURM_NTASKS": "2", "SLURM_PROCID": "1", "SLURM_GTIDS": "0,1"}
    coordinator.report_arguments(environ, told.append)
    importlib.import_module("jax._src.distributed").State().initialize("localhost:7", *given)
    assert [report["text"] for report in told] == odd


@pytest.mark.parametrize("call", ["state.shutdown()", "multihost_utils.sync_global_devices('end')"])
@pytest.mark.parametrize(("error", "text"), [("ValueError(7)", "ValueError: 7"), ("SystemExit(0)", "")])
def test_an_exception_that_a_wait_for_all_tasks_follows_is_reported(
    packages: Path, error: str, text: str, call: str
) -> None:
    """Python prints no traceback before that; afterwards, the program may recover."""
    for folder, name, content in (
        ("jax/_src", "distributed", f"{STATE}    def shutdown(self):\n        self.wait()\n        return 7\n"),
        ("jax/experimental", "multihost_utils", "def sync_global_devices(name):\n    state.wait()\n    return 7\n"),
    ):
        (packages / folder).mkdir(parents=True)
        (packages / folder / f"{name}.py").write_text(content)
    told: list[Mapping[str, object]] = []
    coordinator.report_raised(told.append)
    state = importlib.import_module("jax._src.distributed").State()
    utils = importlib.import_module("jax.experimental.multihost_utils")
    utils.state = state
    names = {"state": state, "multihost_utils": utils}
    state.wait = lambda: None
    assert eval(call, names) == 7
    assert told == []
    waiting: list[list[Mapping[str, object]]] = []
    state.wait = lambda: waiting.append(told.copy())
    script = f"try:\n    raise {error}\nfinally:\n    {call}\n"
    with pytest.raises((ValueError, SystemExit)):
        exec(compile(script, "train.py", "exec"), names)
    event = {"event": "raised", "text": text, "where": "train.py:2"}
    assert waiting == [[event] if text else []]
    assert told == ([event, {"event": "raised", "text": "", "where": ""}] if text else [])
    # A wait may fail itself.
    state.wait = lambda: 1 / 0
    script = (
        f"try:\n    raise {error}\nexcept BaseException:\n    try:\n        {call}\n    except ArithmeticError: pass\n"
    )
    exec(compile(script, "train.py", "exec"), names)
    assert told[2:] == ([event] if text else [])
    state.wait = lambda: None
    eval(call, names)
    assert told[3:] == ([{"event": "raised", "text": "", "where": ""}] if text else [])
    # A fallback that ends well is none of its results.
    script = f"def run():\n    {call}\ntry:\n    raise {error}\nexcept BaseException:\n    run()\n"
    exec(compile(script, "train.py", "exec"), names)
    assert len(told) == 4 * bool(text)
