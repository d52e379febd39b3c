"""Announcements of a job's end: a warning where none can come, and what they do where they come."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.reporting import NONCES
from kit.tasks import ENVIRON, TASK_FOLDER

from jaxsif.diagnose.reports import ReportFilter
from jaxsif.task import preemption

SIGNALS = (signal.SIGTERM, signal.SIGURG, signal.SIGUSR1, signal.SIGUSR2)
SERVICE_OFF = """
def reached_preemption_sync_point(step_id):
    raise RuntimeError("Preemption sync manager has not been initialized.")
"""


@pytest.fixture
def multihost_utils(packages: Path) -> Iterator[Path]:
    """The file of a module that has the name of JAX's."""
    (packages / "jax/experimental").mkdir(parents=True)
    handlers = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}  # other tests leave some
    yield packages / "jax/experimental/multihost_utils.py"
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("value", "task", "times"),
    [("0", "0", 1), ("0", "1", 0), ("false", "0", 0), ("1", "0", 0)],
    ids=["first task", "another task", "the user's own answer", "on"],
)
def test_the_question_is_warned_of(
    multihost_utils: Path, capsys: pytest.CaptureFixture[str], value: str, task: str, times: int
) -> None:
    multihost_utils.write_text(SERVICE_OFF)
    preemption.install({"JAX_ENABLE_PREEMPTION_SERVICE": value, "SLURM_PROCID": task}, list, -1)
    module = importlib.import_module("jax.experimental.multihost_utils")
    for step in range(2):
        with pytest.raises(RuntimeError, match="has not been initialized"):
            module.reached_preemption_sync_point(step)
    warning = "jaxsif: warning: the program asks JAX for preemption notices but gets none: "
    assert capsys.readouterr().err.count(warning) == times


def test_a_program_that_listens_to_a_signal_has_its_own_notice(
    multihost_utils: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As slurm/checkpoint does."""
    multihost_utils.write_text(SERVICE_OFF)
    preemption.install({"JAX_ENABLE_PREEMPTION_SERVICE": "0", "SLURM_PROCID": "0"}, list, -1)
    module = importlib.import_module("jax.experimental.multihost_utils")
    signal.signal(signal.SIGURG, lambda *_: None)
    with pytest.raises(RuntimeError):
        module.reached_preemption_sync_point(1)
    assert capsys.readouterr().err == ""


def test_an_answer_is_passed_on(multihost_utils: Path, capsys: pytest.CaptureFixture[str]) -> None:
    multihost_utils.write_text("def reached_preemption_sync_point(step_id):\n    return step_id == 3\n")
    preemption.install({"JAX_ENABLE_PREEMPTION_SERVICE": "0", "SLURM_PROCID": "0"}, list, -1)
    module = importlib.import_module("jax.experimental.multihost_utils")
    assert [module.reached_preemption_sync_point(step) for step in (2, 3)] == [False, True]
    assert capsys.readouterr().err == ""


# A program that says when it is ready, and then waits.
READY = "import ctypes, os, signal, sys, time\nprint('ready', flush=True)\n"
WAITS = READY + "while True: time.sleep(0.05)\n"
# In C, where no handler in Python runs: it locks the same mutex twice.
STUCK = (
    READY + "libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)\n"
    "[libc.pthread_mutex_lock(mutex) for _ in '12']\n"
)
FORKS = READY.replace(
    "print", "child = os.fork()\nif child == 0:\n    while True: time.sleep(0.05)\nprint(child);print", 1
)
# JAX's service, as far as it matters here: a handler in C, in place of the one before.
SERVICE = """
import ctypes
TOLD = []
HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)(TOLD.append)
class State:
    preemption_sync_manager = None
    def initialize_preemption_sync_manager(self):
        function = ctypes.CDLL(None).signal
        function.restype = ctypes.c_void_p
        function(15, HANDLER)
        self.preemption_sync_manager = 1
global_state = State()
"""


class Program:
    """A running task that takes announcements."""

    def __init__(self, code: str, shell: bool = True, **variables: str) -> None:
        start = ["sh", TASK_FOLDER / "start.sh"] if shell else []
        nonces = ENVIRON["JAXSIF_REPORT"] if shell else NONCES[1]
        environ = {**ENVIRON, "JAXSIF_REPORT": nonces, "JAXSIF_NOTICES": "1", **variables}
        command = [*start, sys.executable, "-c", code]
        self.process = subprocess.Popen(
            command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        assert self.process.stdout
        line = ""
        while line != "ready\n":
            line = self.process.stdout.readline().decode()
            assert line, self.process.communicate()[1]

    def send(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def end(self) -> tuple[int, list[str]]:
        """The exit status, and the events that it reported."""
        _, err = self.process.communicate(timeout=20)
        seen = ReportFilter(NONCES)
        seen.feed(err)
        seen.feed(b"")
        return self.process.returncode, [report.event for report in seen.reports if report.event != "ready"]


@pytest.mark.starts_processes
@pytest.mark.parametrize("code", [WAITS, STUCK], ids=["waits", "is stuck in C"])
def test_sigterm_ends_a_task_after_three_seconds(code: str) -> None:
    program = Program(code)
    begun = time.monotonic()
    program.send(signal.SIGTERM)
    status, events = program.end()
    assert (status, events) == (143, ["terminated", "exit"])
    assert time.monotonic() - begun > 1.9


@pytest.mark.starts_processes
def test_the_second_sigterm_ends_it_at_once() -> None:
    program = Program(STUCK)
    begun = time.monotonic()
    program.send(signal.SIGTERM)
    time.sleep(0.3)
    program.send(signal.SIGTERM)
    assert program.end() == (143, ["terminated", "exit"])
    assert time.monotonic() - begun < 1.9


@pytest.mark.starts_processes
def test_a_sigterm_that_comes_twice_at_once_is_one() -> None:
    program = Program(READY + "time.sleep(4)\n")
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGURG):
        program.send(number)
        time.sleep(0.03)
    assert program.end() == (0, ["terminated", "noticed", "exit"])


@pytest.mark.starts_processes
def test_sigurg_means_that_it_goes_on() -> None:
    program = Program(READY + "time.sleep(4); print(signal.getsignal(23))\n")
    program.send(signal.SIGTERM)
    time.sleep(0.3)
    program.send(signal.SIGURG)
    assert program.end() == (0, ["terminated", "noticed", "exit"])


@pytest.mark.starts_processes
def test_the_programs_own_handlers_win() -> None:
    own = "signal.signal(15, lambda *_: sys.exit(7)); signal.signal(23, lambda *_: os.write(1, b'urg'))\n"
    program = Program(READY.replace("print", own + "print", 1) + "while True: time.sleep(0.05)\n")
    program.send(signal.SIGURG)
    assert program.process.stdout
    assert program.process.stdout.read(3) == b"urg"
    time.sleep(0.3)
    program.send(signal.SIGTERM)
    status, events = program.end()
    assert (status, events[0]) == (7, "noticed")
    assert "terminated" not in events


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    "fork",
    ["os.fork()", "concurrent.futures.ThreadPoolExecutor(1).submit(lambda: os.fork() or time.sleep(60)).result()"],
)
def test_a_fork_ends_as_ever_and_its_parent_does_not(fork: str) -> None:
    """As a worker that loads data."""
    code = FORKS.replace("import ctypes", "import ctypes, concurrent.futures").replace("os.fork()", fork)
    program = Program(
        code + "time.sleep(0.5); os.kill(child, 15); print(os.waitpid(child, 0)[1], flush=True); time.sleep(3)\n"
    )
    assert program.process.stdout
    assert program.process.stdout.readline() == b"15\n"
    assert program.end() == (0, ["exit"])


@pytest.mark.starts_processes
def test_asyncio_wakes_its_own_thread() -> None:
    program = Program(READY + "import asyncio; asyncio.run(asyncio.sleep(20))\n")
    time.sleep(0.5)
    program.send(signal.SIGTERM)
    assert program.end() == (143, ["terminated", "exit"])


@pytest.mark.starts_processes
@pytest.mark.parametrize("shell", [True, False], ids=["with stacks", "without"])
def test_jaxs_service_gets_sigurg_in_place_of_sigterm(packages: Path, shell: bool) -> None:
    (packages / "jax/_src").mkdir(parents=True)
    (packages / "jax/_src/distributed.py").write_text(SERVICE)
    code = "import jax._src.distributed as d; d.global_state.initialize_preemption_sync_manager()\n"
    path = f"{ENVIRON['PYTHONPATH']}:{packages}"
    program = Program(
        code + READY + "time.sleep(3); print(d.TOLD, flush=True); time.sleep(9)\n", shell, PYTHONPATH=path
    )
    program.send(signal.SIGTERM)
    time.sleep(0.3)
    program.send(signal.SIGURG)
    assert program.process.stdout
    assert program.process.stdout.readline() in (b"[15]\n", b"[15, 15]\n")  # twice does no harm
    program.send(signal.SIGTERM)  # the end of the grace period
    status, events = program.end()
    assert (status, events[:2]) == (143, ["terminated", "noticed"])
