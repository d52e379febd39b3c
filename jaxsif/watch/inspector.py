"""Start the inspector (jaxsif/node/inspect_step.py) on a step's nodes, and read its output."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import IO, NamedTuple

from jaxsif.foreign import Pieces
from jaxsif.installation import PACKAGE
from jaxsif.job.allocation import outside_of_job
from jaxsif.limits import MOST_NODES
from jaxsif.process import Running, start_heard
from jaxsif.text import Lines, printable
from jaxsif.watch.sample import LONGEST_LINE, Answer, Sample, parse_line

LIMIT = 10.0  # seconds for all nodes
_HERE = ("this machine",)  # in place of nodes
STEP_NAME, GUARD_NAME = "jaxsif-stacks", "jaxsif-guard"  # of jaxsif's own steps
_AT_ONCE = 16  # srun processes
# For one srun, which contacts that many nodes directly: a dead node then hides no other node.
_NODES = 16
_LONGEST_JOINED = LONGEST_LINE + 1  # bytes; longer lines are refused
_GRACE = 1.0  # seconds from SIGTERM to SIGKILL, and for a node to answer
_PAUSE = 0.02  # seconds between two looks for answers
_SLURMD = 6818  # its usual port
_LARGEST = 65_536  # bytes to read at a time
_LONGEST_COMPLAINT = 300  # characters
# To run beside a step that has all CPUs, memory and GPUs of its nodes, without the job's variables.
_BESIDE = (
    *("--overlap", "--mem=0", "--cpus-per-task=1", "--ntasks-per-node=1"),
    *("--cpu-bind=none", "--mpi=none", "--export=PATH,LD_LIBRARY_PATH"),
    *("--kill-on-bad-exit=0", "--quit-on-interrupt"),
)
_NO_GPUS = ("--gres=none",)  # otherwise those of the job
OF_GUARD = (*_NO_GPUS, f"--job-name={GUARD_NAME}", "--input=all")  # a step that lasts


def is_reachable(node: str) -> bool:
    """Return whether a node responds to a connection attempt, even by refusing it, as without
    slurmd; True if its name cannot be resolved here.
    """
    import socket

    try:
        with socket.create_connection((node, _SLURMD), timeout=_GRACE):
            return True
    except (ConnectionRefusedError, socket.gaierror):
        return True
    except OSError:  # no route, or no answer
        return False


class Part(NamedTuple):
    """A job, or one component of a heterogeneous job, and which of its nodes to inspect."""

    job: str  # Slurm's number; for a component, that of the whole job
    nodes: tuple[str, ...]
    component: str = ""  # its number in a heterogeneous job

    @property
    def options(self) -> tuple[str, ...]:
        """Return srun's options that name the job, and its component if there is one."""
        group = (f"--het-group={self.component}",) if self.component else ()
        return (f"--jobid={self.job}", *group)


class Target(NamedTuple):
    """A step to inspect."""

    name: str  # in messages: '12.0'
    words: tuple[str, ...]  # that identify its processes, see inspect_step.py
    parts: tuple[Part, ...]  # () for this machine
    gpus: bool = False  # also report the memory in use on the job's GPUs
    announces: bool = False  # send the program SIGURG instead
    stacks: bool = False  # ask tasks for their stacks by a signal, which can end a sleep in C


class _Command(NamedTuple):
    """The command that inspects a step on some of its nodes."""

    argv: tuple[str, ...]
    nodes: tuple[str, ...]


def list_commands(target: Target) -> list[_Command]:
    """Return the commands that inspect a step: one for this machine, or one for every few nodes."""
    flags = {"--gpus": target.gpus, "--announce": target.announces, "--stacks": target.stacks}
    more = (flag for flag, is_set in flags.items() if is_set)
    script = (sys.executable, "-IS", f"{PACKAGE}/node/inspect_step.py", *more, *target.words)
    if not target.parts:
        return [_Command(script, _HERE)]
    some = [
        part._replace(nodes=part.nodes[first : first + _NODES])
        for part in target.parts
        for first in range(0, len(part.nodes), _NODES)
    ]
    options = ("--input=none", f"--job-name={STEP_NAME}", *(() if target.gpus else _NO_GPUS))
    return [_Command(make_command(part, options, script), part.nodes) for part in some]


def make_command(part: Part, options: Sequence[str], script: Sequence[str]) -> tuple[str, ...]:
    """Return the command that runs a script once on each node of a part, beside the job's steps."""
    count = len(part.nodes)
    where = (f"--nodes={count}", f"--ntasks={count}", f"--nodelist={','.join(part.nodes)}")
    return ("srun", *part.options, *_BESIDE, *options, *where, *script)


def make_listener(part: Part) -> tuple[str, ...]:
    """Return the command that waits on a node for SIGURG or SIGTERM from Slurm to the job, and ends
    with the number of the signal as its exit status; with 0 at the end of its input, since Slurm
    keeps the highest status of a job's steps.
    """
    code = (
        "import signal, sys;"
        " end = lambda number, _: sys.exit(number);"
        " signal.signal(signal.SIGTERM, end); signal.signal(signal.SIGURG, end);"
        " sys.stdin.read()"
    )
    python = (sys.executable, "-IS", "-c", code)
    return make_command(part, OF_GUARD, python)


class _Stream:
    """The output of a process, read without waiting."""

    def __init__(self, file: IO[bytes] | None) -> None:
        assert file is not None
        os.set_blocking(file.fileno(), False)
        self._file = file
        self._lines = Lines(_LONGEST_JOINED)
        self.open = True

    def read(self) -> list[bytes]:
        """Return the lines that have arrived."""
        found: list[bytes] = []
        while self.open:
            try:
                data = os.read(self._file.fileno(), _LARGEST)
            except BlockingIOError:
                break
            found += self._lines.feed(data)
            if not data:
                self.close()
        return found

    def close(self) -> None:
        """Stop reading."""
        self.open = False
        self._file.close()


class _Probe(NamedTuple):
    """A process that inspects some nodes, with its output."""

    process: Running
    nodes: tuple[str, ...]
    output: _Stream
    errors: _Stream

    @property
    def goes_on(self) -> bool:
        """Return whether more output may arrive."""
        return self.output.open or self.errors.open or self.process.poll() is None


class Inspection:
    """An inspection of a running step, which proceeds while the caller does other things."""

    def __init__(self, target: Target, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._all = list_commands(target)
        self._commands = self._all[::-1]  # not started yet, in reverse order
        self._probes: list[_Probe] = []
        self._deadline = time.monotonic() + LIMIT
        self._is_ending = False
        self.answers: dict[str, Answer] = {}  # by node
        self._pieces = Pieces(_LONGEST_JOINED, MOST_NODES)
        self.samples: list[Sample] = []  # in order of arrival
        self.complaint = ""  # srun's last line; printable

    @classmethod
    def start(cls, target: Target, environ: Mapping[str, str]) -> Inspection:
        """Start inspecting a step; raise HostError if a command cannot start."""
        one = cls(target, outside_of_job(environ))
        try:
            one._start_some()
        except BaseException:
            one.stop()
            raise
        return one

    def _start_some(self) -> None:
        """Start as many commands as may run at the same time."""
        while self._commands and sum(probe.goes_on for probe in self._probes) < _AT_ONCE:
            argv, nodes = self._commands.pop()
            process = start_heard(argv, self._environ)
            streams = _Stream(process.stdout), _Stream(process.stderr)
            self._probes.append(_Probe(process, nodes, *streams))

    def poll(self) -> bool:
        """Read the output so far without waiting; return whether the inspection is complete or out
        of time.
        """
        for number, probe in enumerate(self._probes):
            for line in probe.output.read():
                self._take(probe, self._join(number, line))
            for line in probe.errors.read():
                text = printable(line.decode(errors="replace").strip())
                self.complaint = text[:_LONGEST_COMPLAINT] or self.complaint
        self._start_some()
        now = time.monotonic()
        if now > self._deadline:
            self._terminate()
        is_over = now > self._deadline + _GRACE or not any(probe.goes_on for probe in self._probes)
        if is_over:
            self._kill()
        return is_over

    def _terminate(self) -> None:
        """Start nothing more, and terminate running commands: srun ends its step."""
        self._commands.clear()
        if not self._is_ending:
            self._is_ending = True
            for probe in self._probes:
                _signal(probe.process, signal.SIGTERM)

    def _kill(self) -> None:
        """Kill what is still running."""
        for probe in self._probes:
            _signal(probe.process, signal.SIGKILL)
            probe.process.wait()
            probe.output.close()
            probe.errors.close()

    def _join(self, stream: int, line: bytes) -> Sample | Answer | None:
        """Parse the line that ends with this piece; return None if more pieces follow."""
        _, whole = self._pieces.join(line, stream) or ("", line)
        return parse_line(whole)

    def _take(self, probe: _Probe, found: Sample | Answer | None) -> None:
        if isinstance(found, Sample):
            self.samples.append(found)
        elif found:
            node = _HERE[0] if probe.nodes == _HERE else found.node
            self.answers[node] = found

    @property
    def has_answer(self) -> bool:
        """Return whether any node has answered."""
        return bool(self.answers)

    @property
    def lost(self) -> tuple[str, ...]:
        """Return the nodes that were asked but whose answers are incomplete."""
        return self._find_missing(self._probes)

    @property
    def silent(self) -> tuple[str, ...]:
        """Return all nodes without a complete answer, including those that there was no time to
        ask.
        """
        return self._find_missing(self._all)

    def _find_missing(self, parts: Iterable[_Command | _Probe]) -> tuple[str, ...]:
        nodes = chain.from_iterable(part.nodes for part in parts)
        return tuple(node for node in nodes if node not in self.answers)

    @property
    def unseen(self) -> int:
        """Return the number of tasks whose lines did not arrive, or were refused."""
        expected = sum(answer.tasks for answer in self.answers.values())
        return max(0, expected - len(self.samples))

    def wait(self) -> None:
        """Wait until all nodes have answered, or until their time is up."""
        try:
            while not self.poll():
                time.sleep(_PAUSE)
        finally:
            self.stop()

    def stop(self) -> None:
        """End what is still running, within a second."""
        self._terminate()
        deadline = time.monotonic() + _GRACE
        while time.monotonic() < deadline and any(
            probe.process.poll() is None for probe in self._probes
        ):
            time.sleep(0.01)
        self._kill()


def _signal(process: Running, number: int) -> None:
    """Signal a process and its group."""
    if process.poll() is None:
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(process.pid, number)
