"""jaxsif stacks: what each task of a running step is doing."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping

from jaxsif.errors import HostError, JaxsifError, printable
from jaxsif.job.allocation import Allocation
from jaxsif.launch.inspector import LIMIT, Inspection, Target
from jaxsif.launch.steps import find_target
from jaxsif.screen import add_json, print_json
from jaxsif.watch.picture import Picture, make_picture, render_json, render_text

DESCRIPTION = """\
Show what each task of a running step does: where its Python is, what it waits
for, in which iteration of its loop it is. Tasks that do the same share a line;
the odd ones come last.

Without STEP: the newest step of the newest running job, or of this job. The
program needs no preparation and goes on. For a step of a bare srun, jaxsif
sees Python's stacks if the image is jaxsif's or the nodes have py-spy;
otherwise the system calls.

examples:
  jaxsif stacks                   the newest step
  jaxsif stacks 4711              the newest step of this job
  jaxsif stacks 4711.2 --json     all that is known of each task, as JSON
"""

EPILOG = """\
exit status: 0; 2 if no such step runs; 125 if no node answers
"""
_PAUSE = 0.02  # seconds between looks at what has come


def add_options(parser: argparse.ArgumentParser) -> None:
    """Give a parser the options of `jaxsif stacks`."""
    parser.add_argument(
        "step",
        nargs="?",
        metavar="STEP",
        help="JOB or JOB.STEP, as squeue --me --steps lists them; without Slurm, the process id"
        " of jaxsif run",
    )
    add_json(parser)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the picture of the step."""
    allocation = Allocation.from_environ(environ)
    target = find_target(arguments.step, allocation and allocation.job_id, environ)
    picture = take_picture(target, environ)
    if arguments.json:
        print_json(render_json(picture, target.name))
        return 0
    for line in render_text(picture, _title(target)):
        print(printable(line))
    return 0


def _title(target: Target) -> str:
    return f"step {target.name}" if target.parts else target.name


def take_picture(target: Target, environ: Mapping[str, str]) -> Picture:
    """Return the picture of a step; raise JaxsifError where a process has no tasks here, HostError
    where no node has answered.
    """
    inspection = Inspection.start(target, environ)
    try:
        while not inspection.poll():
            time.sleep(_PAUSE)
    finally:
        inspection.stop()
    if not inspection.sights and inspection.silent:
        why = inspection.complaint or f"no node has answered in {LIMIT:.0f} s"
        raise HostError(f"cannot look into {_title(target)}: {why}", "srun", "try it again")
    if not (inspection.sights or target.parts):
        hint = "name the process id of a jaxsif run that goes on"
        raise JaxsifError(f"{target.name} has no tasks on this host", "jaxsif stacks", hint)
    return make_picture(inspection.sights, inspection.silent, inspection.unseen)
