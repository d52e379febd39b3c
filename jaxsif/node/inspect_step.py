"""Tell what the tasks of a running step do on this node; jaxsif starts it once on each node.

    inspect_step.py [--no-tracer] STEP...

STEP is Slurm's number of a step, JOB.STEP, or JAXSIF_STEP's random name; 'JOB.' stands for any step
of a job. Of several, as of the components of a heterogeneous job, any counts.

It prints one line of JSON for each task (`Sight` in jaxsif/watch/sight.py says what is in it), and
a last one with the number of tasks, which says that nothing is missing. It reads /proc, and asks
each task whose box does not tell that where its main thread is, by a signal that Python answers
without the interpreter's lock. Where py-spy is installed, it tells more, and stops each task for a
moment; not with --no-tracer. All needs at most the time that py-spy takes and a second.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, starmap
from operator import attrgetter
from typing import NamedTuple

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../.."))
from jaxsif.limits import MOST_TASKS_OF_A_STEP
from jaxsif.node import native, processes
from jaxsif.node.boxes import (
    BoxFile,
    find_box,
    is_whole,
    parse_dump,
    read_box,
    read_dump,
    read_frames,
)
from jaxsif.watch.sight import (
    LONGEST_FILE,
    LONGEST_LINE,
    LONGEST_NAME,
    MOST_FRAMES,
    NO_BOX,
    NO_TRACER,
    BoxState,
)

_PIECE = 900  # letters, all ASCII
_LIMIT = 9  # seconds that this process may live
_PATIENCE = 0.5  # seconds to wait for what threads are at
_INTERVAL = 0.2  # seconds between two looks at clocks
_PAUSE = 0.01  # seconds between looks at what has come
_SETTLED = 0.3  # seconds without more, after which a stack with another end is whole, too
_NO_TASK = -1
_RUNS = ""  # instead of a system call
_QUIET = 1.5  # seconds without computing, from which on a task is where its observer saw it
_OURS = os.path.dirname(os.path.realpath(__file__)).encode()


class TaskProcess(NamedTuple):
    """A process of a task."""

    pid: int
    stat: processes.Stat
    descriptors: Mapping[int, str]
    box: BoxFile | None


class Asked(NamedTuple):
    """The process of a task that is its program, and how it was before it was asked."""

    task: int
    pid: int
    pids: Sequence[int]  # of all processes of the task
    call: processes.Call
    gpu: bool
    box: BoxFile | None
    asked: bool
    stat: processes.Stat
    thread: int  # of the kernel's numbers: the main one, or which its observer observes
    state: str  # of that thread
    main_cpu: float  # seconds that its main thread had computed
    begun: float  # when that was, by the monotonic clock


def parse_step(word: str) -> dict[bytes, bytes]:
    """Return the variables by which the processes of a step are known."""
    job, dot, step = os.fsencode(word).partition(b".")
    if not dot:
        return {b"JAXSIF_STEP": job}
    return {b"SLURM_JOB_ID": job, **({b"SLURM_STEP_ID": step} if step else {})}


def find_tasks(steps: Sequence[Mapping[bytes, bytes]]) -> dict[int, list[int]]:
    """Return the process ids of each task here, by its number in the step."""
    found: dict[int, list[int]] = {}
    for pid in processes.list_own():
        environ = processes.read_environ(pid)
        is_wanted = any(step.items() <= environ.items() for step in steps)
        if is_wanted and not _is_ours(pid):
            found.setdefault(_read_task(environ), []).append(pid)
    found.pop(_NO_TASK, None)
    return found


def _read_task(environ: Mapping[bytes, bytes]) -> int:
    """Return the number of a task; _NO_TASK where none is there."""
    digits = re.fullmatch(rb"\d{1,8}", environ.get(b"SLURM_PROCID", b""))
    number = int(digits[0]) if digits else _NO_TASK
    return number if number < MOST_TASKS_OF_A_STEP else _NO_TASK


def _is_ours(pid: int) -> bool:
    """Return whether a process is one of jaxsif/node, such as what keeps a container."""
    arguments = processes.read(f"/proc/{pid}/cmdline").split(b"\0")
    return _OURS in map(os.path.dirname, arguments)


def look_at(pid: int) -> TaskProcess | None:
    """Return what a process has open; None where it has ended."""
    stat = processes.read_stat(pid)
    if stat is None:
        return None
    descriptors = processes.find_descriptors(pid)
    return TaskProcess(pid, stat, descriptors, find_box(pid, descriptors))


def choose(candidates: Sequence[TaskProcess]) -> TaskProcess:
    """Return the process that is the program of the task.

    Processes around it and below it may have its box open too: it is the one that writes it, or
    else the first that answers. Without a box it is the first Python; or what a shell executes now,
    which is the last process without a child.
    """
    first = sorted(candidates, key=attrgetter("stat.begun"))
    parents = set(map(attrgetter("stat.parent"), candidates))
    childless = [one for one in reversed(first) if one.pid not in parents]
    of_python = (filter(test, first) for test in (_writes, _answers, _is_python))
    return next(chain(*of_python, childless, first))


def _writes(candidate: TaskProcess) -> bool:
    return read_box(candidate.box).pid == processes.number_inside(candidate.pid)


def _answers(candidate: TaskProcess) -> bool:
    return bool(candidate.box) and processes.catches(candidate.pid, signal.SIGWINCH)


def _is_python(candidate: TaskProcess) -> bool:
    return processes.is_python(candidate.pid)


def find_program(task: int, pids: Sequence[int]) -> Asked | None:
    """Return the program of a task, which is asked; None where all has ended meanwhile."""
    candidates = list(filter(None, map(look_at, pids)))
    return ask(task, pids, choose(candidates)) if candidates else None


def ask(task: int, pids: Sequence[int], chosen: TaskProcess) -> Asked:
    """Ask a program where its threads are; before, look in which call it is, which that may end."""
    pid = chosen.pid
    thread = processes.find_thread(pid, read_box(chosen.box).thread)
    call = processes.read_call(pid, thread, chosen.descriptors)
    stat = processes.read_stat(pid) or chosen.stat
    state = processes.read_state(pid, thread) or stat.state
    main_cpu, begun = processes.read_thread_cpu(pid, thread), time.monotonic()
    asked = bool(chosen.box) and _must_ask(call, chosen.box) and processes.ask(pid)
    gpu = processes.uses_gpu(chosen.descriptors)
    return Asked(
        task, pid, pids, call, gpu, chosen.box, asked, stat, thread, state, main_cpu, begun
    )


def _must_ask(call: processes.Call, box: BoxFile | None) -> bool:
    """Return whether the observer has not told where the main thread is, as while it cannot run;
    or that may be elsewhere by now, and no sleep of C code ends early by the signal.
    """
    known = read_box(box)
    if known.thread:  # the signal tells where the main thread is alone
        return False
    if call.name == _RUNS or not read_frames(box):
        return True
    return known.quiet < _QUIET and call.name.startswith("futex")


def await_answers(programs: Sequence[Asked]) -> dict[int, bytes]:
    """Return the stacks that processes have written whole, within half a second; it takes at least
    the time between two looks at clocks.

    Half of a stack would tell another state.
    """
    begin = now = time.monotonic()
    waiting = [one for one in programs if one.asked]
    answers = {one.pid: _Answer(b"", begin) for one in waiting}
    while waiting and now < begin + _PATIENCE:
        time.sleep(_PAUSE)
        now = time.monotonic()
        for one in waiting:
            dump = read_dump(one.box)
            if dump != answers[one.pid].dump:
                answers[one.pid] = _Answer(dump, now)
        waiting = [one for one in waiting if not answers[one.pid].is_settled(now)]
    time.sleep(max(0.0, begin + _INTERVAL - time.monotonic()))
    missing = {one.pid for one in waiting}
    return {pid: answer.dump for pid, answer in answers.items() if pid not in missing}


class _Answer(NamedTuple):
    """What a process has written so far."""

    dump: bytes
    since: float  # by the monotonic clock

    def is_settled(self, now: float) -> bool:
        """Return whether no frame is missing: one may still come after what looks whole."""
        pause = _PAUSE if is_whole(self.dump) else _SETTLED
        return bool(parse_dump(self.dump)) and now >= self.since + pause


def trace(programs: Sequence[Asked], dumps: Mapping[int, bytes]) -> dict[int, native.Native]:
    """Return what py-spy tells of programs: of all whose frames are not known, and of one of those
    with the same frames.
    """
    alike = {
        str(parse_dump(dumps.get(one.pid, b"")) or read_frames(one.box) or one.pid): one.pid
        for one in reversed(programs)
    }
    return native.trace(list(alike.values()))


def describe(
    program: Asked, node: str, dump: bytes, traced: native.Native
) -> dict[str, object] | None:
    """Return the fields of a line; None where the program has ended meanwhile."""
    pid = program.pid
    stat = processes.read_stat(pid)
    if stat is None:
        return None
    seconds = time.monotonic() - program.begun
    read, written = processes.sum_io(program.pids) or (-1, -1)
    box = read_box(program.box)
    # A main thread that computes may be elsewhere by now.
    said = read_frames(program.box) if program.state != "R" else []
    frames = parse_dump(dump) or traced.frames or said
    return {
        "task": program.task,
        "node": node,
        "pid": pid,
        "command": processes.read_name(pid),
        "state": program.state,
        "call": program.call.name[:LONGEST_NAME],
        "descriptor": program.call.descriptor,
        "file": program.call.file[-LONGEST_FILE:],
        "frames": list(starmap(_shorten, frames)),
        "threads": processes.count_threads(pid),
        "main_cpu": _rate(
            processes.read_thread_cpu(pid, program.thread) - program.main_cpu, seconds
        ),
        "cpu": _rate(stat.cpu - program.stat.cpu, seconds),
        "spent": round(processes.sum_cpu(program.pids), 2),
        "runs": processes.count_runs(pid, program.thread),
        "read": read,
        "written": written,
        "gpu": program.gpu,
        "native": traced.name[:LONGEST_NAME],
        "answered": bool(dump) if program.asked else None,
        **_describe_box(box),
    }


def _rate(spent: float, seconds: float) -> float:
    return round(max(spent, 0.0) / seconds, 3)


def _describe_box(box: BoxState) -> dict[str, object]:
    if box == NO_BOX:
        return {"age": 0.0, "box": None}
    return {"age": round(max(time.time() - box.time, 0.0), 3), "box": box._asdict()}


def _shorten(file: object, line: object, function: object) -> list[object]:
    return [str(file)[-LONGEST_FILE:], line, str(function)[:LONGEST_NAME]]


def render(fields: dict[str, object]) -> str:
    """Return a line of at most 8 KiB; for that, the middle of a deep stack is left out."""
    frames = fields["frames"]
    assert isinstance(frames, list)
    del frames[MOST_FRAMES // 2 : len(frames) - MOST_FRAMES // 2]
    while len(line := json.dumps(fields)) > LONGEST_LINE and frames:
        del frames[len(frames) // 2]
    return line


def inspect(words: Sequence[str]) -> Iterator[str]:
    """Return the lines of all tasks of a step here, and the last one."""
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    steps = [word for word in words if word != NO_TRACER]
    tasks = find_tasks(list(map(parse_step, steps)))
    programs = list(filter(None, starmap(find_program, sorted(tasks.items()))))
    dumps = await_answers(programs)
    traced = {} if NO_TRACER in words else trace(programs, dumps)
    none = native.Native([], "")
    seen = (
        describe(one, node, dumps.get(one.pid, b""), traced.get(one.pid, none)) for one in programs
    )
    lines = list(map(render, filter(None, seen)))
    yield from lines
    yield json.dumps({"node": node, "tasks": len(lines)})


def cut(line: str, node: str) -> Iterator[str]:
    """Return pieces of a line that srun keeps whole: it mixes longer lines of several nodes.

    Each begins with the node's number in the step, and '+' where more of the line follows, or '.'.
    """
    first, *others = (line[at : at + _PIECE] for at in range(0, len(line), _PIECE))
    pieces = [first, *others]
    yield from (f"{node} +{piece}" for piece in pieces[:-1])
    yield f"{node} .{pieces[-1]}"


if __name__ == "__main__":
    signal.alarm(_LIMIT)  # whatever it waits for: nobody listens any more
    for found in inspect(sys.argv[1:]):
        for piece in cut(found, os.environ.get("SLURM_NODEID", "0")):
            sys.stdout.write(f"{piece}\n")
