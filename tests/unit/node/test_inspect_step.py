"""What the inspector finds out about real processes of this user."""

from __future__ import annotations

import itertools
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit import waiting_task

from jaxsif.node import inspect_step
from jaxsif.watch.sample import LONGEST_LINE, NO_STATUS, Answer, Sample, parse_line
from jaxsif.watch.snapshot import make_snapshot, render_text
from jaxsif.watch.states import describe_state

pytestmark = pytest.mark.starts_processes

SCRIPT = inspect_step.__file__
# A process that holds the interpreter has not written its status for long.
STALE = {"time": time.time() - 100}
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def job() -> str:
    """The number of a job that no other test has: tests run side by side, and the inspector looks at all processes."""
    return str(os.getpid() * 1000 + next(_NUMBERS))


_NUMBERS = itertools.count()


@pytest.fixture
def start(job: str) -> Iterator[Start]:
    """Starts a task of the job's step 0, or another one, and waits until it is ready."""
    started = []

    def start(task: int, *argv: str, number: int = 0, ready: bool = True) -> subprocess.Popen[str]:
        environ = {
            "SLURM_JOB_ID": job,
            "SLURM_STEP_ID": str(number),
            "SLURM_PROCID": str(task),
            "PATH": os.environ["PATH"],
        }
        process = subprocess.Popen(
            argv, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        started.append(process)
        assert not ready or process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def inspect(*words: str) -> tuple[list[Sample], Answer]:
    """What the script says, each line parsed."""
    environ = {"PATH": os.environ["PATH"], "SLURMD_NODENAME": "node1"}
    done = subprocess.run([sys.executable, "-IS", SCRIPT, *words], env=environ, capture_output=True, check=True)
    assert done.stderr == b""
    *lines, last = re.sub(rb"(?m)^0 (?:\+(.*)\n|\.)", rb"\1", done.stdout).splitlines()
    samples = [parse_line(line) for line in lines]
    answer = parse_line(last)
    assert isinstance(answer, Answer)
    assert all(isinstance(one, Sample) for one in samples)
    return samples, answer  # type: ignore[return-value]


def settle(process: subprocess.Popen[str], state: str) -> None:
    """Wait until a process is in a state that the kernel's letter tells."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] in state:
            return
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("what", "status", "kind", "words", "innermost"),
    [
        ("sleep", {}, "sleep", "is sleeping", "sleep"),
        ("spin", {}, "computing", "is computing", "spin"),
        ("hold", STALE, "held", "is computing in C, and holds the interpreter lock", "hold"),
        ("lock", {"call": "lock.acquire()"}, "lock", "is waiting for a lock", "lock"),
        ("lock", {}, "collective", "is waiting in a collective", "lock"),
        ("pipe", {}, "pipe", "is reading from a pipe", "pipe"),
        ("poll", {}, "pipe", "is waiting for a pipe", "poll"),
        ("child", {}, "child", "is waiting for a child process", "_try_wait"),
        ("stdin", {}, "input", "is reading standard input", "stdin"),
    ],
)
def test_what_a_task_does(
    start: Start, job: str, what: str, status: dict[str, object], kind: str, words: str, innermost: str
) -> None:
    process = start(3, sys.executable, waiting_task.__file__, what, json.dumps(status))
    settle(process, "R" if what in ("spin", "hold") else "S")
    ((sample,), answer) = inspect("--stacks", f"{job}.0")
    assert answer == Answer("node1", 1)
    assert (sample.task, sample.node, sample.pid, sample.answered) == (3, "node1", process.pid, True)
    assert describe_state(sample) == (kind, words)
    assert sample.frames[0].function == innermost
    assert sample.frames[-1].function == "<module>"
    assert (sample.status.loop, sample.status.turns) == ("train.py:38", 12)


@pytest.mark.parametrize(("age", "answered"), [(0, None), (100, True)], ids=["fresh", "stale"])
def test_a_task_that_has_told_where_it_is_gets_no_signal(
    start: Start, job: str, age: int, answered: bool | None
) -> None:
    """It would end a sleep of C code early."""
    status = {"time": time.time() - age, "quiet": 9.0, "frames": [["/home/u/train.py", 7, "step"]]}
    process = start(0, sys.executable, waiting_task.__file__, "sleep_in_c", json.dumps(status))
    settle(process, "S")
    ((sample,), _) = inspect("--stacks", f"{job}.0")
    assert sample.answered is answered
    assert sample.frames[0].function == ("step" if answered is None else "sleep_in_c")
    assert process.stdout
    assert bool(select.select([process.stdout], [], [], 1)[0]) is bool(answered)


def test_no_task_gets_a_signal_where_its_own_reports_suffice(start: Start, job: str) -> None:
    process = start(0, sys.executable, waiting_task.__file__, "sleep_in_c")
    settle(process, "S")
    ((sample,), _) = inspect(f"{job}.0")
    assert (sample.answered, len(sample.frames)) == (None, 0)
    assert process.stdout
    assert not select.select([process.stdout], [], [], 1)[0]


@pytest.mark.parametrize(
    ("what", "quiet", "answered"), [("lock", 0.0, True), ("lock", 9.0, None), ("sleep", 0.0, None), ("spin", 0.0, True)]
)
def test_a_task_that_moves_is_asked_where_no_sleep_ends_early(
    start: Start, job: str, what: str, quiet: float, answered: bool | None
) -> None:
    status = {"quiet": quiet, "frames": [["/home/u/train.py", 7, "step"]]}
    settle(start(0, sys.executable, waiting_task.__file__, what, json.dumps(status)), "R" if what == "spin" else "S")
    ((sample,), _) = inspect("--stacks", f"{job}.0")
    assert sample.answered is answered


def test_a_task_is_asked_again(start: Start, job: str) -> None:
    settle(start(0, sys.executable, waiting_task.__file__, "sleep"), "S")
    begin = time.monotonic()
    for _ in range(3):
        ((sample,), _) = inspect("--stacks", f"{job}.")
        assert [frame.function for frame in sample.frames] == ["sleep", "<module>"]
    assert time.monotonic() - begin < 3 * 2


def test_more_threads_than_python_shows(start: Start, job: str) -> None:
    start(0, sys.executable, waiting_task.__file__, "many")
    time.sleep(0.5)
    ((sample,), _) = inspect("--stacks", f"{job}.0")
    assert (sample.threads, sample.answered, sample.frames[0].function) == (120, True, "sleep")


def test_a_stopped_task(start: Start, job: str) -> None:
    process = start(0, sys.executable, waiting_task.__file__, "stop")
    settle(process, "T")
    ((sample,), _) = inspect("--stacks", f"{job}.0")
    assert (sample.state, sample.answered, sample.frames) == ("T", False, ())
    assert describe_state(sample).kind == "stopped"


def test_a_child_with_the_same_box_is_not_the_program(start: Start, job: str) -> None:
    process = start(0, sys.executable, waiting_task.__file__, "fork")
    settle(process, "S")
    ((sample,), _) = inspect("--stacks", f"{job}.0")
    assert sample.pid == process.pid
    assert describe_state(sample).kind == "sleep"


def test_a_program_without_a_handler_is_left_alone(start: Start, job: str) -> None:
    start(0, sys.executable, waiting_task.__file__, "bare", json.dumps({"frames": "strange"}))
    ((sample,), _) = inspect("--stacks", f"{job}.0")
    assert (sample.answered, sample.call, sample.frames) == (None, "clock_nanosleep", ())


@pytest.mark.parametrize(("age", "known"), [(0, True), (100, False)], ids=["fresh", "old"])
def test_where_a_program_has_a_handler_of_its_own_its_observer_tells(
    start: Start, job: str, age: float, known: bool
) -> None:
    frames = [["/home/ada/train.py", 7, "step"]]
    start(0, sys.executable, waiting_task.__file__, "bare", json.dumps({"frames": frames, "time": time.time() - age}))
    ((sample,), _) = inspect("--stacks", f"{job}.0")
    assert [list(frame) for frame in sample.frames] == (frames if known else [])


def test_a_deep_stack_loses_its_middle(start: Start, job: str) -> None:
    start(0, sys.executable, waiting_task.__file__, "deep")
    ((sample,), _) = inspect("--stacks", f"{job}.0")
    assert len(sample.frames) == 40
    assert (sample.frames[0].function, sample.frames[-1].function) == ("sleep", "<module>")


def test_tasks_without_a_box(start: Start, job: str) -> None:
    """A shell with what it executes; a Python; a program that is neither; another step; no task at all."""
    start(0, "sh", "-c", "echo ready; sleep 101; true")
    start(1, sys.executable, "-c", "print('ready', flush=True); input()")
    start(2, "sleep", "102", ready=False)
    start(3, "sleep", "103", number=1, ready=False)
    time.sleep(0.2)
    samples, answer = inspect("--stacks", f"{job}.0")
    assert answer.tasks == 3
    assert [(one.task, one.command) for one in samples if one.task != 1] == [(0, "sleep"), (2, "sleep")]
    assert [(one.file, one.descriptor) for one in samples if one.task == 1] == [("pipe", 0)]
    assert inspect("--stacks", f"{job}.2") == ([], Answer("node1", 0))
    assert re.match("x: 3 tasks on 1 node", render_text(make_snapshot(samples), "x")[0])


def test_a_box_that_is_nonsense(start: Start, job: str) -> None:
    for task, fields in enumerate(({"turns": -1}, {"loop": "x" * 500}, {"time": "now"}, {"quiet": 1e300})):
        start(task, sys.executable, waiting_task.__file__, "sleep", json.dumps(fields))
    samples, _ = inspect("--stacks", f"{job}.0")
    assert [one.status for one in samples] == [NO_STATUS] * 4
    assert all(one.frames for one in samples)


ANNOUNCED = (
    "import signal; signal.signal(signal.SIGURG, lambda *_: print('told', flush=True)); print('ready', flush=True)"
)


def test_the_end_of_the_job_is_announced_to_the_program(start: Start, job: str) -> None:
    """Not to start.sh, which would pass it on: the program would save twice."""
    code = f"{ANNOUNCED}\nfor _ in range(2): signal.pause()"
    task, other = start(0, sys.executable, "-uc", code), start(1, sys.executable, "-uc", code, number=1)
    starter = start(0, sys.executable, "-uc", code, "/opt/jaxsif/task/start.sh")
    assert inspect("--announce", f"{job}.0") == ([], Answer("node1", 0))
    assert task.stdout
    assert task.stdout.readline() == "told\n"
    for process in (other, starter):
        assert not select.select([process.stdout], [], [], 0.2)[0]


def test_a_line_is_bounded() -> None:
    frames: list[list[object]] = [["\n" * 240, 1, "\n" * 120] for _ in range(1000)]
    assert len(inspect_step.render({"frames": frames})) <= LONGEST_LINE


@pytest.mark.parametrize(
    ("word", "variables"),
    [
        ("12.3", {b"SLURM_JOB_ID": b"12", b"SLURM_STEP_ID": b"3"}),
        ("12.", {b"SLURM_JOB_ID": b"12"}),
        ("0a1b", {b"JAXSIF_STEP": b"0a1b"}),
    ],
)
def test_words(word: str, variables: dict[bytes, bytes]) -> None:
    assert inspect_step.parse_step(word) == variables
