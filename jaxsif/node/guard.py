"""Guard a batch job against the loss of its launcher's node: requeue the job, or else cancel it.

    guard.py NUMBER JOB NODE OUTPUT

NUMBER is Slurm's own number for the job, and JOB its name for users, such as 12, or 12_3 in an
array. OUTPUT is the file that is the launcher's standard error.
`jaxsif run` starts this program on another node of the job, and writes a byte to its standard input
every few seconds. After silence, or at the end of the input, this program checks whether NODE still
takes a step. A launcher that is merely stopped, or this node without a network, changes nothing:
NODE then takes the step, or Slurm's controller does not answer either.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../.."))
from jaxsif import process
from jaxsif.job.allocation import outside_of_job
from jaxsif.launch.nodes import query_job
from jaxsif.watch.inspector import Inspection, Part, Target

_QUIET = 15.0  # seconds of silence before the first check; the launcher writes more often
_SILENCE = 30.0  # seconds of silence before the job ends
_TRIES = 2  # checks in a row that must fail
_PAUSE = 2.0  # seconds between them
_INPUT = 0


def watch(
    listen: Callable[[float], bytes | None],
    takes_step: Callable[[], bool | None],
    end_job: Callable[[], bool],
) -> None:
    """Return when the launcher has ended, or when the job was ended because its node is lost.

    `listen` returns the input that comes within some seconds, None for silence, and b'' at its end;
    `takes_step` whether the launcher's node takes a step, and None if nobody knows; `end_job`
    whether the job was ended.
    """
    heard, misses = time.monotonic(), 0
    while True:
        data = listen(0.0 if misses else _QUIET)
        if data:
            heard, misses = time.monotonic(), 0
            continue
        is_lost = misses >= _TRIES and time.monotonic() - heard >= _SILENCE
        if is_lost and end_job():
            return
        answer = takes_step()
        if answer and data == b"":
            return
        misses = misses + 1 if answer is False else 0
        if not answer:
            time.sleep(_PAUSE)


def listen(seconds: float) -> bytes | None:
    """Return the input that comes within some seconds, None for silence, and b'' at its end."""
    ready, _, _ = select.select([_INPUT], [], [], seconds)
    return os.read(_INPUT, 4096) if ready else None


def takes_step(job: str, node: str, environ: Mapping[str, str]) -> bool | None:
    """Return whether a node of a running job takes a step; None if Slurm's controller does not
    answer, which may be due to this node.
    """
    inspection = Inspection.start(Target(job, (), (Part(job, (node,)),)), environ)
    inspection.wait()
    if inspection.has_answer:
        return True
    known = query_job(job, environ)
    return False if known and known.state == "RUNNING" else None


def end_job(job: str, node: str, output: str, environ: Mapping[str, str]) -> bool:
    """Requeue a running job if that is allowed, or else cancel it, and report that in a file;
    return whether Slurm did so.
    """
    plain = outside_of_job(environ)
    shown = process.captured(("scontrol", "show", "job", job), plain).stdout
    if "JobState=RUNNING" not in shown:
        return False
    commands: dict[str, tuple[str, ...]] = {"cancelled": ("scancel", job)}
    if "Requeue=1" in shown.split():
        commands = {"requeued": ("scontrol", "requeue", job), **commands}
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # with the job, Slurm ends this step
    for deed, command in commands.items():
        if process.captured(command, plain).returncode == 0:
            lost = f"no answer from {node}, on which jaxsif run was running"
            report(f"jaxsif: {lost}: job {job} was {deed}\n", output)
            return True
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return False


def report(line: str, path: str) -> None:
    """Append a line to a file; to the standard error if that file is not on this node."""
    try:
        output = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
    except OSError:
        output = 2
    os.write(output, line.encode())


if __name__ == "__main__":
    NUMBER, JOB, NODE, OUTPUT = sys.argv[1:]
    watch(
        listen,
        lambda: takes_step(NUMBER, NODE, os.environ),
        lambda: end_job(JOB, NODE, OUTPUT, os.environ),
    )
