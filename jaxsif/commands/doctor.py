"""jaxsif doctor: find out what is wrong before a run."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from jaxsif.job.allocation import Allocation
from jaxsif.job.srun_options import add_srun_options
from jaxsif.screen import note, print_json, print_table
from jaxsif.settings.options import OF_RESTARTS, OFF, OUTPUT, Setting, add_arguments

DESCRIPTION = """\
Check what a run needs, before it uses hours of GPU time: the image, each node,
the network between them, and each task in its container. It starts one step,
with the options of `jaxsif run`; at its end, JAX sums a number over all
devices.

examples:
  jaxsif doctor --nodes=2 --gpus-per-node=4
        in a new job
  jaxsif doctor --no-sum
        in a job, on all its nodes, without JAX: a few seconds
  jaxsif doctor --checkpoints /scratch/me/run7 --json
        also check that folder; all results as JSON
"""

EPILOG = """\
docs/doctor.md describes each check.

exit status: 0; 1 if a check has failed; 2 for a bad request; 125 if the step
cannot run
"""

# Settings that make no difference to the checks. Doctor examines all nodes of the job, also spares.
_IGNORED = {
    *("label", "history", "hang-timeout", "on-hang", "busy-timeout", "check-programs"),
    *("max-restarts", "spare-nodes"),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif doctor`."""
    parser.usage = "jaxsif doctor [OPTIONS]"
    # Doctor also checks the folder of logs that a file or variable sets for runs.
    output = add_arguments(parser, leave_out={*_IGNORED, "log-dir", *OF_RESTARTS})[OUTPUT]
    output.add_argument(
        "--sum",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="at the end, start JAX in all tasks, and sum a number over all devices",
    )
    output.add_argument(
        "--checkpoints",
        metavar="DIR",
        help="a folder that all nodes must be able to write to, instead of the one in jaxsif.toml",
    )
    output.add_argument("--json", action="store_true", help="print all results as JSON")
    add_srun_options(parser)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Examine the nodes, and print the results."""
    cli_values = vars(arguments)
    with_sum, checkpoints, as_json = (
        cli_values.pop(name) for name in ("sum", "checkpoints", "json")
    )
    from jaxsif.doctor import render, step
    from jaxsif.doctor.result import FAILURE
    from jaxsif.launch import pipeline
    from jaxsif.launch.certificate import PendingCertificate
    from jaxsif.plan.notes import find_notes

    cli_values["init_timeout"] = cli_values["init_timeout"] or step.INIT_TIMEOUT
    wants_tls = with_sum and cli_values["coordinator_tls"] != OFF
    certificate = PendingCertificate(environ, wants_tls)
    allocation = Allocation.from_environ(environ)
    prepared = pipeline.prepare(cli_values, ("python3",), allocation, environ, note, _IGNORED)
    certificate.sign()
    prepared = pipeline.stage_image(prepared, note)
    credentials = certificate.finish(prepared.settings.options) if with_sum else ""
    if checkpoints:  # not before: for `prepare`, it is an option of restarts
        named = Setting(checkpoints, "--checkpoints")
        sources = {**prepared.settings.options.sources, "checkpoints": named}
        prepared = prepared.with_options(checkpoints=checkpoints, sources=sources)
    plan = step.make_plan(prepared, not with_sum, credentials)
    note(*find_notes(plan))
    results = step.examine(plan)
    if as_json:
        print_json([result._asdict() for result in results])
    else:
        rows = list(render.render_rows(results))
        print_table(rows, environ, render.HEADING if rows else ())
        for line in render.render_rest(results, plan.layout.describe()):
            print(line)
    return int(any(result.state == FAILURE for result in results))
