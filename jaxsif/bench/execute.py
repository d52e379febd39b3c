"""Run a program from the folder `inside` as `jaxsif run` does, and read the records that it
prints.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxsif.bench.results import Record
from jaxsif.errors import HostError, Notify
from jaxsif.job.allocation import Allocation
from jaxsif.launch import pipeline
from jaxsif.launch.certificate import PendingCertificate
from jaxsif.launch.children import Pass
from jaxsif.plan.container import Container
from jaxsif.plan.notes import find_notes
from jaxsif.plan.plan import Plan
from jaxsif.settings.options import OF_RESTARTS
from jaxsif.text import Lines

INSIDE = Path(__file__).with_name("inside")
FOLDER = "/opt/jaxsif/bench"  # its path in the container
_MODULES = "/opt/jaxsif/modules"
_MARK = b'{"record": '  # how a record begins
_LONGEST_RECORD = 1 << 22  # bytes; one record may hold the links of all nodes
# Gloo's messages at its start, one set from each process.
_GREETING = re.compile(rb"\[Gloo\] Rank|peer ranks")


def prepare_program(
    options: Mapping[str, Any],
    program: Sequence[str],
    environ: Mapping[str, str],
    note: Notify,
    modules: Path | None = None,
) -> Plan:
    """Plan a run of a program from the folder, with its arguments; raise JaxsifError.

    `options` are those of `jaxsif run`. `modules` is a folder that becomes the program's first
    argument.
    """
    allocation = Allocation.from_environ(environ)
    certificate = PendingCertificate(environ)
    prepared = pipeline.prepare(options, ("python",), allocation, environ, note, fixed=OF_RESTARTS)
    certificate.sign()
    container = prepared.container
    name, *arguments = program
    if modules:
        arguments.insert(0, _MODULES if container else str(modules))
    prepared = prepared.with_options(command=find_command(container, (name, *arguments)))
    if container:
        binds = [f"{modules}:{_MODULES}:ro"] if modules else []
        container = container._replace(binds=(*container.binds, *find_binds(), *binds))
        prepared = prepared._replace(container=container)
    prepared = pipeline.stage_image(prepared, note)
    plan = pipeline.make_plan(prepared, credentials=certificate.finish(prepared.settings.options))
    for line in find_notes(plan):
        note(line)
    return plan


def run_program(plan: Plan, take: Callable[[Record], None], note: Notify) -> int:
    """Run the plan to its end as `jaxsif run` does; `take` gets each record as it arrives."""
    return pipeline.run_plan(plan, note, stdout=lambda: read_records(take, sys.stderr.write))


def find_binds() -> tuple[str, ...]:
    """Return the binds that make the folder visible in a container."""
    return (f"{INSIDE}:{FOLDER}:ro",)


def find_command(container: Container | None, program: Sequence[str]) -> tuple[str, ...]:
    """Return the program and its arguments, for the container, or for this host if there is no
    container.
    """
    name, *arguments = program
    return ("python", f"{FOLDER if container else INSIDE}/{name}", *arguments)


def read_records(take: Callable[[Record], None], other: Callable[[str], object]) -> Pass:
    """Make a reader of the output of processes: `take` gets the records, `other` all other
    lines.
    """
    lines = Lines(_LONGEST_RECORD)

    def feed(data: bytes) -> bytes:
        for line in lines.feed(data):
            # Lines of concurrent processes may have run together.
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
            f"cannot read the benchmark's output: {text[:300]}", "its output", "run it again"
        ) from error
    return record
