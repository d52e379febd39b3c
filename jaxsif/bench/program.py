"""A program of the folder `inside`, as `jaxsif run` runs it; its records, as it prints them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxsif.bench.results import Record
from jaxsif.errors import HostError
from jaxsif.job.allocation import Allocation
from jaxsif.launch import prepare
from jaxsif.launch import run as launch
from jaxsif.launch.children import Pass
from jaxsif.lines import Lines
from jaxsif.plan import command as render
from jaxsif.plan import plan
from jaxsif.plan.host import Host

INSIDE = Path(__file__).with_name("inside")
FOLDER = "/opt/jaxsif/bench"  # where the container sees it
_MODULES = "/opt/jaxsif/modules"
_MARK = b'{"record": '  # how a record begins
_LONGEST_RECORD = 1 << 22  # bytes; one may have the links of all nodes
# What Gloo says when it starts, once for each process.
_GREETING = re.compile(rb"\[Gloo\] Rank|peer ranks")


class Start(NamedTuple):
    """A program that is ready to start."""

    plan: plan.LaunchPlan
    others: Iterator[plan.LaunchPlan]  # with other ports
    host: Host  # with the image as it was named, wherever the nodes have it


def prepare_program(
    said: Mapping[str, Any],
    program: Sequence[str],
    environ: Mapping[str, str],
    note: Callable[[str], None],
    modules: Path | None = None,
) -> Start:
    """`program`: a file of the folder, and its arguments; `said`: options of `jaxsif run`. Raises
    JaxsifError.

    `modules`: a folder, of which the program is told in its first argument.
    """
    allocation = Allocation.from_environ(environ)
    prepared = prepare.prepare(said, ("python",), allocation, environ, note)
    request, host = prepared.request, prepared.host
    if prepared.settings["stage"].value:
        host = prepare.stage(prepared, allocation, False, environ, note)
    binds = find_binds(host)
    if modules:
        program = (program[0], _MODULES if host.image else str(modules), *program[1:])
        binds += (f"{modules}:{_MODULES}:ro",) if host.image else ()
    request = request._replace(binds=(*request.binds, *binds), command=find_command(host, program))
    start = plan.build(request, host, allocation, environ)
    for line in render.render_notes(request, start, host, allocation):
        note(line)
    others = launch.plans_for_other_ports(request, host, allocation, environ)
    return Start(start, others, prepared.host)


def run_program(
    start: Start,
    environ: Mapping[str, str],
    take: Callable[[Record], None],
    note: Callable[[str], None],
) -> int:
    """As launch.launch; `take` gets the records, as they come."""
    return launch.launch_until_port_is_free(
        start.plan, start.others, environ, note, stdout=lambda: read_records(take, sys.stderr.write)
    )


def find_binds(host: Host) -> tuple[str, ...]:
    """What shows the folder in the container."""
    return (f"{INSIDE}:{FOLDER}:ro",) if host.image else ()


def find_command(host: Host, program: Sequence[str]) -> tuple[str, ...]:
    """The program and its arguments, in the container or, where there is none, here."""
    name, *arguments = program
    return ("python", f"{FOLDER if host.image else INSIDE}/{name}", *arguments)


def read_records(take: Callable[[Record], None], other: Callable[[str], object]) -> Pass:
    """What reads the output of processes: `take` gets the records, and `other` the other lines."""
    lines = Lines(_LONGEST_RECORD)

    def feed(data: bytes) -> bytes:
        for line in lines.feed(data):
            # Of processes side by side, lines may have run together.
            before, mark, after = line.partition(_MARK)
            if mark:
                take(_parse(mark + after))
            if before and not _GREETING.search(before):
                other(before.decode(errors="replace") + "\n")
        return b""

    return feed


def _parse(line: bytes) -> Record:
    text = line.decode(errors="replace")
    try:
        record: Record = json.JSONDecoder().raw_decode(text)[0]
    except ValueError as error:
        raise HostError(
            f"cannot read what the benchmark prints: {text[:300]}", "its output", "run it again"
        ) from error
    return record
