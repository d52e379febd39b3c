"""The status file of a task: its head is replaced, stacks are appended; the files of the program stay as they are."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import jaxsif
from jaxsif.task import contract
from jaxsif.task.watch import status_file

pytestmark = pytest.mark.starts_processes


def list_files() -> set[int]:
    """The descriptors of status files in memory: other tests may have left one open."""
    return {int(name) for name in os.listdir("/proc/self/fd") if _link(name).startswith("/memfd:jaxsif-box")}


@pytest.fixture
def opened() -> Iterator[tuple[status_file.StatusFile, int]]:
    before = list_files()
    made = status_file.open_status_file()
    [descriptor] = list_files() - before
    yield made, descriptor
    faulthandler.unregister(signal.SIGWINCH)
    os.close(descriptor)


def _link(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except FileNotFoundError:
        return ""


def test_the_last_state_is_in_the_head(opened: tuple[status_file.StatusFile, int]) -> None:
    made, descriptor = opened
    made.write({"where": "train.py:7" * 20, "turns": 1})
    made.write({"turns": 2})
    assert json.loads(os.pread(descriptor, contract.BOX_BYTES, 0)) == {"turns": 2}
    assert os.fstat(descriptor).st_size == contract.BOX_BYTES


def test_frames_that_are_too_long_are_left_out(opened: tuple[status_file.StatusFile, int]) -> None:
    made, descriptor = opened
    made.write({"turns": 1, "frames": [["/a/train.py", 7, "step"]]})
    assert json.loads(os.pread(descriptor, contract.BOX_BYTES, 0))["frames"] == [["/a/train.py", 7, "step"]]
    made.write({"turns": 2, "frames": [["/a/" + "\u8bad" * 1000, 7, "step"]]})
    assert json.loads(os.pread(descriptor, contract.BOX_BYTES, 0)) == {"turns": 2, "frames": []}


def test_a_signal_appends_the_stacks(opened: tuple[status_file.StatusFile, int]) -> None:
    made, descriptor = opened
    os.kill(os.getpid(), signal.SIGWINCH)
    made.write({"turns": 3})
    stacks = os.pread(descriptor, 1 << 20, contract.BOX_BYTES).decode()
    assert "test_a_signal_appends_the_stacks" in stacks
    assert json.loads(os.pread(descriptor, contract.BOX_BYTES, 0)) == {"turns": 3}


def test_the_size_tells_that_stacks_were_asked_for(opened: tuple[status_file.StatusFile, int]) -> None:
    made, _ = opened
    assert made.size() == contract.BOX_BYTES
    os.kill(os.getpid(), signal.SIGWINCH)
    assert made.size() > contract.BOX_BYTES
    assert status_file.StatusFile().size() == 0


def test_who_restores_a_handler_of_python_does_not_end_the_answers(opened: tuple[status_file.StatusFile, int]) -> None:
    """As progress bars do."""
    made, _ = opened
    signal.signal(signal.SIGWINCH, signal.signal(signal.SIGWINCH, lambda *_: None))
    os.kill(os.getpid(), signal.SIGWINCH)
    assert made.size() == contract.BOX_BYTES
    made.answer_again()
    os.kill(os.getpid(), signal.SIGWINCH)
    assert made.size() > contract.BOX_BYTES


def test_a_handler_of_the_program_stays(opened: tuple[status_file.StatusFile, int]) -> None:
    made, _ = opened
    heard: list[int] = []
    before = signal.signal(signal.SIGWINCH, lambda number, _frame: heard.append(number))
    made.answer_again()
    os.kill(os.getpid(), signal.SIGWINCH)
    signal.signal(signal.SIGWINCH, before)
    assert (heard, made.size()) == ([signal.SIGWINCH], contract.BOX_BYTES)


def test_a_python_without_files_in_memory_has_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    made = status_file.open_status_file()
    made.write({"turns": 7})
    found = [name for name in os.listdir("/proc/self/fd") if _link(name).startswith("/dev/shm/jaxsif-box")]
    assert json.loads(os.pread(int(found[0]), contract.BOX_BYTES, 0)) == {"turns": 7}
    assert _link(found[0]).endswith(" (deleted)")
    faulthandler.unregister(signal.SIGWINCH)
    os.close(int(found[0]))


def test_the_file_does_not_grow_for_ever(opened: tuple[status_file.StatusFile, int]) -> None:
    made, descriptor = opened
    os.lseek(descriptor, 2 << 20, os.SEEK_SET)
    made.write({"turns": 4})
    os.kill(os.getpid(), signal.SIGWINCH)
    assert contract.BOX_BYTES < os.fstat(descriptor).st_size < 1 << 20


def test_another_file_with_its_number_stays_as_it_is(tmp_path: Path) -> None:
    before = list_files()
    made = status_file.open_status_file()
    [descriptor] = list_files() - before
    file = tmp_path / "results"
    file.write_text("the user's own")
    other = os.open(file, os.O_RDWR)
    os.dup2(other, descriptor)  # what happens when a program closes all, and opens many
    made.write({"turns": 5})
    os.kill(os.getpid(), signal.SIGWINCH)
    os.close(other)
    os.close(descriptor)
    assert file.read_text() == "the user's own"


def test_a_status_file_that_the_program_closes_is_made_again() -> None:
    """As by a program that closes all descriptors at its start."""
    before = list_files()
    made = status_file.open_status_file()
    os.close(*(list_files() - before))
    made.write({"turns": 8})
    found = list(list_files() - before)
    assert json.loads(os.pread(found[0], contract.BOX_BYTES, 0)) == {"turns": 8}
    os.kill(os.getpid(), signal.SIGWINCH)
    assert made.size() > contract.BOX_BYTES
    made.forget()
    made.write({"turns": 9})
    assert not made.is_there()


def test_a_fork_has_no_status_file() -> None:
    code = (
        "import os, signal, sys; sys.path.insert(0, sys.argv[1]); from jaxsif.task.watch import status_file\n"
        "made = status_file.open_status_file()\n"
        "if os.fork() == 0:\n"
        "    os.kill(os.getpid(), signal.SIGWINCH)\n"
        "    links = [os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') if n != '3']\n"
        "    os._exit(any('jaxsif-box' in link for link in links))\n"
        "print(os.waitstatus_to_exitcode(os.wait()[1]), os.fstat(200).st_size)"
    )
    folder = Path(jaxsif.__file__).parents[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir("/")
        ended = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["0", str(contract.BOX_BYTES)]


def test_a_resized_terminal_and_pythons_own_fault_handler() -> None:
    """The first sends SIGWINCH, and nothing is to be seen of that; PYTHONFAULTHANDLER tells of a crash as ever."""
    code = (
        "import os, signal, sys; sys.path.insert(0, sys.argv[1]); from jaxsif.task.watch import status_file\n"
        "made = status_file.open_status_file()\n"
        "os.kill(os.getpid(), signal.SIGWINCH)\n"
        "print('goes on', file=sys.stderr, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGSEGV)"
    )
    argv = [sys.executable, "-c", code, str(Path(jaxsif.__file__).parents[1])]
    environ = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    ended = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGSEGV
    assert ended.stderr.startswith("goes on\nFatal Python error: Segmentation fault\n")
    assert ended.stderr.count("most recent call first") == 1


def test_without_a_free_descriptor_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_name: str) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", refuse)
    begin = time.monotonic()
    status_file.open_status_file().write({"turns": 6})
    assert time.monotonic() - begin < 60


STATE = {"turns": 40, "quiet": 12.04, "loop": "/home/ada/train.py:16", "where": ""}


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, b"Box 40 12.0 /home/ada/train.py:16|\n"),
        ({"where": "/home/ada/data.py:7"}, b"Box 40 12.0 /home/ada/train.py:16|/home/ada/data.py:7\n"),
        ({"loop": ""}, b"Box 40 12.0 |\n"),
        ({"loop": '/ä/\n"|\\a.py:1'}, b"Box 40 12.0 /?/????a.py:1|\n"),
        ({"loop": "/" + "x" * 500 + ".py:16"}, b"Box 40 12.0 " + b"x" * 84 + b".py:16|\n"),
        ({"around": [("a.py:1", 2), ("a.py:3", 40)]}, b"Box 40 12.0 /home/ada/train.py:16||2.40\n"),
    ],
    ids=["a loop", "standing still", "no loop", "odd names", "a long name", "loops around"],
)
def test_what_is_left_for_start_sh(fields: dict[str, object], line: bytes) -> None:
    assert status_file.render_line({**STATE, **fields}) == line


def test_one_line_is_left_and_nothing_of_others_is_taken() -> None:
    reader, pipe = os.pipe()
    os.set_blocking(pipe, False)
    trail = status_file.StatusPipe(pipe)
    for turns in range(5000):  # more than the pipe has room for
        trail.write({**STATE, "turns": turns})
    os.write(pipe, b"a trace\n")
    trail.write({**STATE, "turns": 5000})
    left = os.read(reader, 1 << 20)
    os.close(reader)
    os.close(pipe)
    assert left == b"Box 4999 12.0 /home/ada/train.py:16|\na trace\n"


def test_a_pipe_that_is_full_is_no_hang() -> None:
    reader, pipe = os.pipe()
    os.set_blocking(pipe, False)
    trail = status_file.StatusPipe(pipe)
    os.write(pipe, bytes(1 << 20))
    trail.write(STATE)
    os.close(reader)
    os.close(pipe)
    trail.write(STATE)  # the program has closed it


def test_no_file_but_a_pipe_is_written(tmp_path: Path) -> None:
    with (tmp_path / "results").open("wb") as file:
        status_file.StatusPipe(file.fileno()).write(STATE)
    assert (tmp_path / "results").read_bytes() == b""
