"""Drills: runs of programs/drill.py, in which one task goes wrong, and what `jaxsif run` said of them."""

from __future__ import annotations

import json
import random
import re
import shlex
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import takewhile
from typing import Any, NamedTuple

from harness import PROGRAMS, Cluster, own_ports

PATIENCE = 5  # seconds, --hang-timeout
SHAPE = ("--nodes=2", "--ntasks-per-node=2")
LARGE = ("--nodes=4", "--ntasks-per-node=4")
LOCAL = ("--launcher=local", "--nodes=1", "--ntasks-per-node=3", "--gpus-per-node=0")
# Fault -> the words for what the odd task does.
FAULTS: Mapping[str, str] = {
    "skip": "has ended, and is waiting for the others",
    "leave": "has ended, and is waiting for the others",
    "end": "has ended, and is waiting for the others",
    "at-exit": "is sleeping",
    "sleep": "is sleeping",
    "own-lock": "is waiting for a lock that no other thread can release",
    "other-lock": "is waiting for a lock",
    "pipe": "is reading from a pipe",
    "fifo": "is waiting for a file",
    "file-lock": "is waiting for {folder}/lock",
    "spin": "is computing",
    "hold": "is computing in C, and holds the interpreter lock",
    "stop": "is stopped (SIGSTOP)",
    "stdin": "is reading standard input",
}
# These compute for ever: they are ended after BUSY_TIMEOUT, where that is given.
COMPUTES, BUSY_TIMEOUT = ("spin", "hold"), 4 * PATIENCE
# Nobody comes back from these.
ENDLESS = ("skip", "leave", "end", "stop", "own-lock")
# These cannot count their last second.
MUTE, MUTE_TURNS = ("hold", "stop"), 100
HABITS = ("evaluate", "compile", "checkpoint", "late-batch", "all-slow")


def stop(kind: str) -> tuple[str, ...]:
    """The options that end a run with this fault."""
    return ("--on-hang=stop", *([f"--busy-timeout={BUSY_TIMEOUT}"] if kind in COMPUTES else []))


class Line(NamedTuple):
    """A line of `jaxsif run` on its standard error."""

    time: float  # when it came, in seconds since 1970
    text: str


class Told(NamedTuple):
    """What a run has told so far."""

    folder: str
    record: Mapping[str, Any]  # the injector's; {} where it has written none
    lines: tuple[Line, ...]
    status: int | None = None  # of the run; None while it goes on

    def find(self, pattern: str) -> list[Line]:
        """The lines that match."""
        return [line for line in self.lines if re.search(pattern, line.text)]

    def seconds_to(self, pattern: str) -> float:
        """The seconds from the fault to the first line that matches."""
        found = self.find(pattern)
        assert found, f"no line has {pattern!r}:\n{self.text}"
        return found[0].time - float(self.record["time"])

    def rows_of(self, title: str) -> list[str]:
        """The rows under the first title that matches, without 'jaxsif: '."""
        texts = [line.text for line in self.lines]
        begin = next(index for index, text in enumerate(texts) if re.search(title, text))
        rows = takewhile(lambda text: text.startswith("jaxsif:   "), texts[begin + 1 :])
        return [row[len("jaxsif: ") :] for row in rows]

    @property
    def text(self) -> str:
        """All of it, with its seconds, for the message of a failed assertion."""
        begin = self.lines[0].time if self.lines else 0.0
        return "\n".join([str(dict(self.record)), *(f"{time - begin:6.1f} {text}" for time, text in self.lines)])


NEVER = "(?!)"  # no line matches
WAIT, HANG = r"^jaxsif: tasks have been waiting ", r"^jaxsif: the program hangs: "
SAID = f"{WAIT}|{HANG}"
ENDED = r"^jaxsif: error: .+; the run was ended$"
BUSY, OVER = r"^jaxsif: tasks have been waiting \d+ s for others to ", r"^jaxsif: the wait is over"


class Drill:
    """One run of the injector, while it goes on."""

    def __init__(
        self, cluster: Cluster, kind: str, seed: int, *options: str, environ: str = "", node: str = "login"
    ) -> None:
        self._cluster = cluster
        self._node = node
        self.folder = cluster.check(f"mktemp -d ~/drill-{kind}.XXXXXX").strip()
        cluster.write(f"{self.folder}/drill.py", (PROGRAMS / "drill.py").read_text())
        words = (f"--hang-timeout={PATIENCE}", own_ports(), *options, "--", "python", "drill.py", kind, str(seed))
        run = f"cd {self.folder} && echo $$ >pid && {environ} exec jaxsif run {shlex.join(words)}"
        self._process = cluster.start(f"module load jax/sif && {run}", node=node)
        self._lines: list[Line] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr
        for text in self._process.stderr:
            self._lines.append(Line(time.time(), text.rstrip()))

    def look(self) -> Told:
        """What is told by now."""
        text = self._cluster.run(["cat", f"{self.folder}/record.json"]).stdout
        return Told(self.folder, json.loads(text or "{}"), tuple(self._lines), self._process.poll())

    def wait_until(self, is_enough: Callable[[Told], object], timeout: float) -> Told:
        """What is told once that is enough, or the run has ended; raises TimeoutError."""
        deadline = time.monotonic() + timeout
        while self._process.poll() is None:
            told = Told(self.folder, {}, tuple(self._lines))
            if is_enough(told):
                return self.look()
            if time.monotonic() > deadline:
                raise TimeoutError(f"not enough after {timeout} s:\n{self.look().text}")
            time.sleep(0.1)
        self._reader.join(10)
        return self.look()

    def wait(self, timeout: float = 120) -> Told:
        """What is told at the end of the run."""
        return self.wait_until(lambda _: False, timeout)

    def wait_alive(self, timeout: float = 60) -> None:
        """Wait until the tasks are in their loop."""
        self._cluster.check(["sh", "-c", f"until [ -e {self.folder}/alive.json ]; do sleep 0.2; done"], timeout=timeout)

    def end(self) -> Told:
        """End the run if it goes on; remove its folder."""
        told = self.look()
        if told.status is None:
            self._cluster.run(f"kill -TERM $(cat {self.folder}/pid)", node=self._node)
            told = self.wait(30)
        self._cluster.run(["rm", "-rf", self.folder])
        return told


class Case(NamedTuple):
    """A run of the injector, and until when it is watched."""

    kind: str
    options: tuple[str, ...] = SHAPE
    until: str = NEVER  # the first line of that form ends it
    node: str = "login"
    number: int = 0  # of the cases that are alike else

    @property
    def seed(self) -> int:
        """Another one for each case, and the same each time."""
        return random.Random(f"{self.kind} {self.options} {self.number}").randrange(1 << 30)


def drill(cluster: Cluster, case: Case) -> Told:
    """What a case has told, at its end; one that takes too long is ended, and has not told all."""
    one = Drill(cluster, case.kind, case.seed, *case.options, node=case.node)
    try:
        with suppress(TimeoutError):
            one.wait_until(lambda told: told.find(case.until), 150)
    finally:
        told = one.end()
    return told


def check_blame(told: Told, title: str) -> None:
    """Under the title stands what the record says: task, node, state, place, iteration; and that the others wait."""
    record = told.record
    others, *_ = rows = told.rows_of(title)
    row = next((row for row in rows if row.endswith(f"task {record['task']} on {record['node']}")), "")
    assert row, told.text
    assert rows[-1] == f"  likely: task {record['task']} is keeping the others waiting", told.text
    assert " tasks are waiting in a collective " in others, told.text
    # That nobody can release a lock shows once the process is idle, which a busy node may delay beyond the first look.
    kind = "other-lock" if record["kind"] == "own-lock" and title == SAID else record["kind"]
    words = FAULTS[kind].format(folder=told.folder)
    assert row.split(None, 2)[2].startswith(words[:60]), told.text
    assert not record["place"] or record["kind"] == "stop" or f" {record['place']} " in row, told.text
    found = re.search(rf" iteration (?:\d+-)?(\d+)( or later)? of the loop at {record['loop']} ", row)
    assert found, told.text
    if record["kind"] in MUTE:
        assert found[2], told.text
        assert record["stands"] - MUTE_TURNS <= int(found[1]) <= record["stands"], told.text
    else:
        assert (int(found[1]), found[2]) == (record["stands"], None), told.text
