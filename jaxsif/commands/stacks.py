"""jaxsif stacks: the state of each task of a running step."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from jaxsif.commands import JSON, all_of, argument
from jaxsif.errors import HostError, JaxsifError
from jaxsif.job.allocation import Allocation
from jaxsif.screen import print_json
from jaxsif.text import printable
from jaxsif.watch.inspector import LIMIT, Inspection, Target
from jaxsif.watch.snapshot import Snapshot, make_snapshot, render_json, render_text
from jaxsif.watch.squeue import find_target

DESCRIPTION = """\
Show what each task of a running step is doing: where its Python code is, what
it is waiting for, and which iteration of its loop it is in. Tasks that are
doing the same thing share a line; the odd ones come last.

Without STEP: the newest step of the newest running job; inside a job, of that
job. The program needs no preparation and keeps running. For a step started by
plain srun, jaxsif sees Python stacks if it built the image, otherwise only
system calls.

examples:
  jaxsif stacks                   the newest step
  jaxsif stacks 4711              the newest step of this job
  jaxsif stacks 4711.2 --json     everything known about each task, as JSON
"""

EPILOG = """\
exit status: 0; 2 if no such step is running; 125 if no node answers
"""


add_options = all_of(
    argument(
        "step",
        nargs="?",
        metavar="STEP",
        help="JOB or JOB.STEP, as squeue --me --steps lists them; without Slurm or with"
        " --launcher local, the process id of jaxsif run",
    ),
    JSON,
)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """Print the snapshot of the step."""
    allocation = Allocation.from_environ(environ)
    target = find_target(arguments.step, allocation and allocation.job_id, environ)
    snapshot = take_snapshot(target, environ)
    if arguments.json:
        print_json(render_json(snapshot, target.name))
        return
    for line in render_text(snapshot, _title(target)):
        print(printable(line))


def _title(target: Target) -> str:
    return f"step {target.name}" if target.parts else target.name


def take_snapshot(target: Target, environ: Mapping[str, str]) -> Snapshot:
    """Return the snapshot of a step; raise JaxsifError if the given process has no tasks on this
    host, and HostError if no node has answered.
    """
    inspection = Inspection.start(target._replace(stacks=True), environ)
    inspection.wait()
    if not inspection.samples and inspection.silent:
        why = inspection.complaint or f"no node has answered in {LIMIT:.0f} s"
        raise HostError(f"cannot inspect {_title(target)}: {why}", "srun", "try again")
    if not (inspection.samples or target.parts):
        hint = "give the process id of a jaxsif run that is still running"
        raise JaxsifError(f"{target.name} has no tasks on this host", "jaxsif stacks", hint)
    return make_snapshot(inspection.samples, inspection.silent, inspection.unseen)
