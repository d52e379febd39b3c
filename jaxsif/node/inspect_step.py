"""Report the state of a running step's tasks on this node; jaxsif starts this program on each node.

    inspect_step.py [--gpus] [--announce | --stacks] STEP...

STEP is a step's ID in Slurm, JOB.STEP, or JAXSIF_STEP's random name; 'JOB.' stands for any step
of a job. If several are given, as for the components of a heterogeneous job, tasks of any of them
are reported.

It prints one line of JSON for each task (the fields of `Sample`, jaxsif/watch/sample.py), and a
last line (`Answer`) with the number of tasks, which shows that nothing is missing, and, with
--gpus, the memory in use on the GPUs of this step. With --announce, it only sends SIGURG to all
processes of the tasks: Slurm itself does not where it tracks processes by cgroups, and Apptainer
does not pass this signal on. It reads /proc. With --stacks, it asks a task whose status file does
not say where its main thread is, with a signal that Python answers without the interpreter's lock.
All this takes at most a second.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../.."))
from jaxsif.limits import MOST_TASKS_OF_A_STEP
from jaxsif.node import processes
from jaxsif.node.status_files import (
    TaskStatusFile,
    find_status_file,
    is_whole,
    parse_dump,
    read_dump,
    read_frames,
    read_status,
)
from jaxsif.task.contract import cut
from jaxsif.watch.sample import (
    LONGEST_FILE,
    LONGEST_LINE,
    LONGEST_NAME,
    MOST_FRAMES,
    NO_STATUS,
)

_LIMIT = 9  # seconds that this process may live
_PATIENCE = 0.5  # seconds to wait for the stacks of threads
_INTERVAL = 0.2  # seconds between two readings of clocks
_PAUSE = 0.01  # seconds between two reads of stacks
_SETTLED = 0.3  # seconds without more output, after which a stack with another end is complete
_NO_TASK = -1
_WITH_GPUS, _ANNOUNCES, _WITH_STACKS = "--gpus", "--announce", "--stacks"
_RUNS = ""  # instead of a system call
_QUIET = 1.5  # seconds without computing, after which a task is still where its observer saw it
_OURS = os.path.dirname(os.path.realpath(__file__)).encode()


class TaskProcess(NamedTuple):
    """A process of a task."""

    pid: int
    stat: processes.Stat
    descriptors: Mapping[int, str]
    status_file: TaskStatusFile | None


class TaskProgram(NamedTuple):
    """The process of a task that is its program, and its state before it was asked."""

    task: int
    pid: int
    pids: Sequence[int]  # of all processes of the task
    call: processes.Call
    gpu: bool
    status_file: TaskStatusFile | None
    is_signalled: bool
    stat: processes.Stat
    number: int  # the kernel's, of its main thread or of the one that its observer observes
    thread: processes.Thread  # the thread with that number
    begun: float  # when it was read, by the monotonic clock


def parse_step(word: str) -> dict[bytes, bytes]:
    """Return the variables that identify the processes of a step."""
    job, dot, step = os.fsencode(word).partition(b".")
    if not dot:
        return {b"JAXSIF_STEP": job}
    return {b"SLURM_JOB_ID": job, **({b"SLURM_STEP_ID": step} if step else {})}


def find_tasks(steps: Sequence[Mapping[bytes, bytes]]) -> dict[int, list[int]]:
    """Return the process IDs of each task here, by the task's number in the step."""
    found: dict[int, list[int]] = {}
    for pid in processes.list_own():
        environ = processes.read_environ(pid)
        if any(step.items() <= environ.items() for step in steps) and not _is_ours(pid):
            found.setdefault(_read_task(environ), []).append(pid)
    found.pop(_NO_TASK, None)
    return found


def _read_task(environ: Mapping[bytes, bytes]) -> int:
    """Return the number of a task, or _NO_TASK if there is none."""
    digits = re.fullmatch(rb"\d{1,8}", environ.get(b"SLURM_PROCID", b""))
    number = int(digits[0]) if digits else _NO_TASK
    return number if number < MOST_TASKS_OF_A_STEP else _NO_TASK


def _is_ours(pid: int) -> bool:
    """Return whether a process runs a program of jaxsif/node, such as the keeper of a container."""
    arguments = processes.read(f"/proc/{pid}/cmdline").split(b"\0")
    return _OURS in map(os.path.dirname, arguments)


def read_process(pid: int) -> TaskProcess | None:
    """Return a process with its open descriptors, or None if it has ended."""
    stat = processes.read_stat(pid)
    if stat is None:
        return None
    descriptors = processes.find_descriptors(pid)
    return TaskProcess(pid, stat, descriptors, find_status_file(pid, descriptors))


def choose(candidates: Sequence[TaskProcess]) -> TaskProcess:
    """Return the process that is the program of the task.

    Its parents and children may also have its status file open: the program is the process that
    writes the file, or else the first one that answers. Without a status file, it is the first
    Python process, or the program that a shell is executing, which is the last process without a
    child.
    """
    first = sorted(candidates, key=attrgetter("stat.begun"))
    parents = set(map(attrgetter("stat.parent"), candidates))
    childless = [program for program in reversed(first) if program.pid not in parents]
    of_python = (filter(test, first) for test in (_writes, _answers, _is_python))
    return next(chain(*of_python, childless, first))


def _writes(candidate: TaskProcess) -> bool:
    return read_status(candidate.status_file).pid == processes.number_inside(candidate.pid)


def _answers(candidate: TaskProcess) -> bool:
    return bool(candidate.status_file) and processes.catches(candidate.pid, signal.SIGWINCH)


def _is_python(candidate: TaskProcess) -> bool:
    return processes.is_python(candidate.pid)


def find_program(task: int, pids: Sequence[int], stacks: bool) -> TaskProgram | None:
    """Return the program of a task, or None if all processes of the task have ended. With `stacks`,
    ask a program whose status file does not say where its main thread is.
    """
    candidates = list(filter(None, map(read_process, pids)))
    if not candidates:
        return None
    chosen = choose(candidates)
    pid = chosen.pid
    number = processes.find_thread(pid, read_status(chosen.status_file).thread)
    # Before the question, which may end the call.
    call = processes.read_call(pid, number, chosen.descriptors)
    stat = processes.read_stat(pid) or chosen.stat
    thread, begun = processes.read_thread(pid, number), time.monotonic()
    is_signalled = (
        stacks
        and bool(chosen.status_file)
        and _needs_stack(call, chosen.status_file)
        and processes.request_stack(pid)
    )
    gpu = processes.uses_gpu(chosen.descriptors)
    return TaskProgram(
        task, pid, pids, call, gpu, chosen.status_file, is_signalled, stat, number, thread, begun
    )


def _needs_stack(call: processes.Call, status_file: TaskStatusFile | None) -> bool:
    """Return whether to ask for the main thread's stack: its observer has not reported it, as while
    the observer cannot run, or the thread may be elsewhere by now, and the signal would not cut
    short a sleep in C.
    """
    known = read_status(status_file)
    if known.thread:  # the signal only reports where the main thread is
        return False
    if call.name == _RUNS or not read_frames(status_file):
        return True
    return known.quiet < _QUIET and call.name.startswith("futex")


def await_answers(programs: Sequence[TaskProgram]) -> dict[int, bytes]:
    """Return the complete stacks that processes write within half a second; wait at least for the
    time between two readings of clocks.

    Half of a stack would mean a different state.
    """
    begin = now = time.monotonic()
    waiting = [program for program in programs if program.is_signalled]
    answers = {program.pid: _Answer(b"", begin) for program in waiting}
    while waiting and now < begin + _PATIENCE:
        time.sleep(_PAUSE)
        now = time.monotonic()
        for program in waiting:
            dump = read_dump(program.status_file)
            if dump != answers[program.pid].dump:
                answers[program.pid] = _Answer(dump, now)
        waiting = [program for program in waiting if not answers[program.pid].is_settled(now)]
    time.sleep(max(0.0, begin + _INTERVAL - time.monotonic()))
    missing = {program.pid for program in waiting}
    return {pid: answer.dump for pid, answer in answers.items() if pid not in missing}


class _Answer(NamedTuple):
    """The output of a process so far."""

    dump: bytes
    since: float  # by the monotonic clock

    def is_settled(self, now: float) -> bool:
        """Return whether no frame is missing: more may still follow a stack that looks complete."""
        pause = _PAUSE if is_whole(self.dump) else _SETTLED
        return bool(parse_dump(self.dump)) and now >= self.since + pause


def describe(program: TaskProgram, node: str, dump: bytes) -> dict[str, object] | None:
    """Return the fields of a program's line, or None if the program has ended."""
    pid = program.pid
    stat = processes.read_stat(pid)
    if stat is None:
        return None
    seconds = time.monotonic() - program.begun
    read, written = processes.sum_io(program.pids) or (-1, -1)
    status = read_status(program.status_file)
    thread = processes.read_thread(pid, program.number)
    state = program.thread.state or program.stat.state
    # A main thread that computes may be elsewhere by now.
    frames = parse_dump(dump) or (read_frames(program.status_file) if state != "R" else [])
    return {
        "task": program.task,
        "node": node,
        "pid": pid,
        "command": processes.read_name(pid),
        "state": state,
        "call": program.call.name[:LONGEST_NAME],
        "descriptor": program.call.descriptor,
        "file": program.call.file[-LONGEST_FILE:],
        "frames": [
            [str(file)[-LONGEST_FILE:], line, str(function)[:LONGEST_NAME]]
            for file, line, function in frames
        ],
        "threads": processes.count_threads(pid),
        "main_cpu": _rate(thread.cpu - program.thread.cpu, seconds),
        "cpu": _rate(stat.cpu - program.stat.cpu, seconds),
        "spent": round(processes.sum_cpu(program.pids), 2),
        "runs": thread.runs,
        "read": read,
        "written": written,
        "gpu": program.gpu,
        "answered": bool(dump) if program.is_signalled else None,
        "age": 0.0 if status == NO_STATUS else round(max(time.time() - status.time, 0.0), 3),
        "status": None if status == NO_STATUS else status._asdict(),
    }


def _rate(spent: float, seconds: float) -> float:
    return round(max(spent, 0.0) / seconds, 3)


def render(fields: dict[str, object]) -> str:
    """Return a line of at most 8 KiB, without the middle of a deep stack if necessary."""
    frames = fields["frames"]
    assert isinstance(frames, list)
    del frames[MOST_FRAMES // 2 : len(frames) - MOST_FRAMES // 2]
    while len(line := json.dumps(fields)) > LONGEST_LINE and frames:
        del frames[len(frames) // 2]
    return line


def announce(pids: Iterable[int]) -> None:
    """Send SIGURG to processes, except start.sh, which would pass it on once more."""
    for pid in pids:
        if b"/task/start.sh" not in processes.read(f"/proc/{pid}/cmdline"):
            with suppress(ProcessLookupError, PermissionError):  # it has ended, or changed its user
                os.kill(pid, signal.SIGURG)


def inspect(words: Sequence[str]) -> Iterator[str]:
    """Yield the lines of all tasks of a step here, and the last line."""
    flags = {word for word in words if word.startswith("--")}
    words = [word for word in words if word not in flags]
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    tasks = find_tasks(list(map(parse_step, words)))
    if _ANNOUNCES in flags:
        announce(chain.from_iterable(tasks.values()))
        yield render_answer(node)
        return
    stacks = _WITH_STACKS in flags
    found = (find_program(task, pids, stacks) for task, pids in sorted(tasks.items()))
    programs = list(filter(None, found))
    dumps = await_answers(programs)
    seen = (describe(program, node, dumps.get(program.pid, b"")) for program in programs)
    lines = list(map(render, filter(None, seen)))
    yield from lines
    memory = 0
    if _WITH_GPUS in flags:
        from jaxsif.node import nvml  # here: ctypes takes milliseconds, and few inspections need it

        memory = nvml.read_memory(os.environ)
    yield render_answer(node, len(lines), memory)


def render_answer(node: str, tasks: int = 0, memory: int = 0) -> str:
    """Return the last line, an `Answer`."""
    return json.dumps({"node": node, "tasks": tasks, "memory": memory})


if __name__ == "__main__":
    signal.alarm(_LIMIT)  # after that, nobody listens any more
    for found in inspect(sys.argv[1:]):
        for piece in cut(found, os.environ.get("SLURM_NODEID", "0")):
            sys.stdout.write(f"{piece}\n")
