"""The guard of a batch job (jaxsif/node/guard.py): kept on another node while the program runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from threading import Event, Thread

from jaxsif.errors import HostError, Notify
from jaxsif.installation import PACKAGE
from jaxsif.job.allocation import Allocation, name_job, outside_of_job
from jaxsif.job.nodelist import expand
from jaxsif.process import Running, end_fed, start_fed
from jaxsif.text import enclose, printable, shorten
from jaxsif.watch.inspector import OF_GUARD, Part, make_command

_BEAT = 5.0  # seconds between two bytes to the guard, and before the first guard
_PAUSE = 60.0  # seconds between a guard that was lost and the next one
_END = 3.0  # seconds for a guard to end


@contextmanager
def guarded(job: Allocation, environ: Mapping[str, str], notify: Notify) -> Iterator[None]:
    """Keep a guard during the body of the `with`, if this is the script of a batch job of several
    nodes: Slurm does not end such a job when it loses the script's node.
    """
    here, nodes = environ.get("SLURMD_NODENAME", ""), expand(job.nodelist)
    is_batch = environ.get("ENVIRONMENT") == "BATCH" and not job.in_step
    if not is_batch or here not in nodes or len(nodes) == 1:
        yield
        return
    # Spare nodes come last in the job, and first here.
    others = [node for node in reversed(nodes) if node != here]
    over = Event()
    arguments = (make_commands(environ, here, others), environ, over, notify)
    thread = Thread(target=_keep_guard, args=arguments, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def make_commands(
    environ: Mapping[str, str], here: str, nodes: Sequence[str]
) -> list[tuple[str, ...]]:
    """Return the commands that start a guard of the launcher here, for each of these nodes."""
    job = environ["SLURM_JOB_ID"]
    name = name_job(environ)
    output = os.path.realpath("/proc/self/fd/2")
    script = (sys.executable, "-IS", f"{PACKAGE}/node/guard.py", job, name, here, output)
    return [make_command(Part(job, (node,)), OF_GUARD, script) for node in nodes]


def _keep_guard(
    commands: Sequence[tuple[str, ...]], environ: Mapping[str, str], over: Event, notify: Notify
) -> None:
    """Keep a guard until the run is over, on the next node if it is lost; warn of each reason
    once.
    """
    if over.wait(_BEAT):
        return
    reasons = set()
    for argv in cycle(commands):
        try:
            guard = start_fed(argv, outside_of_job(environ))
        except HostError as error:
            notify(f"warning: nothing will end the job if this node is lost: {error.what}")
            return
        while not over.wait(_BEAT) and _write_byte(guard):
            pass
        reason = _end(guard)
        if over.is_set():
            return
        if reason not in reasons:
            reasons.add(reason)
            why = enclose(" (", reason, ")")
            notify(f"warning: the guard of jaxsif run has ended{why}: starting another one")
        if over.wait(_PAUSE):
            return


def _write_byte(guard: Running) -> bool:
    """Show the guard that this process is alive; return whether the guard is, too.

    A byte through srun needs no shared disk, and stops with this process, its node or its network.
    """
    assert guard.stdin
    try:
        return os.write(guard.stdin.fileno(), b".") > 0
    except OSError:
        return False


def _end(guard: Running) -> str:
    """End the guard; return the last line that srun printed before that, or ''."""
    assert guard.stderr
    os.set_blocking(guard.stderr.fileno(), False)
    lines = (guard.stderr.read() or b"").decode(errors="replace").splitlines()
    guard.terminate()
    end_fed(guard, _END)
    return shorten(printable(lines[-1])) if lines else ""
