"""jaxsif run: a program in the container, one task per GPU."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jaxsif.errors import JaxsifError
from jaxsif.job.allocation import Allocation
from jaxsif.job.srun_options import add_srun_options
from jaxsif.plan.container import Container
from jaxsif.plan.launcher import LOCAL, SRUN
from jaxsif.plan.plan import Plan
from jaxsif.screen import note, print_bytes, print_json
from jaxsif.settings.options import OFF, OUTPUT, add_arguments

if TYPE_CHECKING:
    from jaxsif.launch.certificate import PendingCertificate

DESCRIPTION = """\
Run COMMAND as a distributed JAX program: one task per GPU, each in the
container.

Inside a job, it uses the job's nodes. Outside a job, srun allocates one with
the options below. Without Slurm, jaxsif starts processes on this machine.

examples:
  jaxsif run -- python train.py
        in a job: on all its nodes, one task per GPU
  jaxsif run --nodes=2 --gpus-per-node=4 -- python allreduce.py
        from a login node: 2 nodes x 4 tasks
  jaxsif run --ntasks-per-node=1 -- python train.py
        one process per node, with all its GPUs
  jaxsif run -N 2 -n 8 -G 8 -t 5 --qos=normal -- python allreduce.py
        with srun's own options
  jaxsif run --launcher local --gpus-per-node=4 -- python query.py
        4 processes on this machine; with a CPU image, on its CPUs
  jaxsif run --hosts node1:4,node2:4 -- python train.py
        without Slurm: Open MPI's mpirun starts them
"""

EPILOG = """\
The image comes from --image, else JAX_IMAGE, else run.image in a jaxsif.toml,
else ./jax.sif; the runtime from JAXSIF_RUNTIME, else apptainer or singularity
on the PATH.

exit status:
  that of the process that failed first, or 128 + N for signal N
  2    a bad request            125  this host, its image or Slurm cannot run it
  127  the program was not found
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif run`."""
    parser.usage = "jaxsif run [OPTIONS] -- COMMAND [ARGUMENT...]"
    output = add_arguments(parser)[OUTPUT]
    output.add_argument(
        "--explain", action="store_true", help="show which process gets which GPUs, and run nothing"
    )
    output.add_argument(
        "--dry-run", action="store_true", help="print the command line, and run nothing"
    )
    output.add_argument(
        "--json", action="store_true", help="with --explain or --dry-run, print JSON"
    )
    output.add_argument(
        "--check",
        action="store_true",
        help="inside a job, first check its nodes, as `jaxsif doctor --no-sum` does",
    )
    output.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="print to standard error what is started and why, and the image's labels",
    )
    add_srun_options(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Run the program to its end."""
    cli_values = vars(arguments)
    dry_run, verbose, command = (
        cli_values.pop("dry_run"),
        cli_values.pop("verbose"),
        cli_values.pop("command"),
    )
    explain, as_json = cli_values.pop("explain"), cli_values.pop("json")
    check = cli_values.pop("check")
    _check(command, as_json, explain, dry_run)
    command = command or ["COMMAND"]  # for --explain
    allocation = Allocation.from_environ(environ)
    certificate = None
    if not (explain or dry_run):
        # openssl runs while the rest is imported and the plan is made.
        from jaxsif.launch.certificate import PendingCertificate

        certificate = PendingCertificate(environ, cli_values["coordinator_tls"] != OFF)
    from jaxsif.launch import pipeline

    if certificate:
        certificate.sign()
    prepared = pipeline.prepare(cli_values, command, allocation, environ, note)
    if (dry_run or verbose) and prepared.container and prepared.container.allowed:
        note(*prepared.container.allowed.reasons)
    if not explain:
        prepared = pipeline.stage_image(prepared, note, dry_run)
    if certificate is None:
        _show(pipeline.make_plan(prepared), explain, dry_run, as_json)
        return 0
    if check:
        from jaxsif.doctor.step import check_before

        prepared = check_before(prepared, note)
    plan = pipeline.make_plan(prepared, credentials=certificate.finish(prepared.settings.options))
    _note(plan, allocation, certificate, verbose)
    if verbose:
        from jaxsif.plan.command import render_summary

        print(render_summary(plan), file=sys.stderr, flush=True)
        _describe_image(plan.container)
    return pipeline.run_plan(plan, note, verbose)


def _check(command: Sequence[str], as_json: bool, explain: bool, dry_run: bool) -> None:
    """Raise JaxsifError for an option without another that it needs, and for a missing command."""
    if as_json and not (explain or dry_run):
        raise JaxsifError(
            "--json without --explain or --dry-run", "--json", "add --dry-run, or leave it out"
        )
    if not (command or explain):
        example = "jaxsif run [OPTIONS] -- COMMAND, such as -- python train.py"
        raise JaxsifError("no command", "jaxsif run", example)


def _note(
    plan: Plan, allocation: Allocation | None, certificate: PendingCertificate, verbose: bool
) -> None:
    """Point out options that may not do what the user meant, and why the coordinator has no TLS;
    for a host without openssl, only with `verbose`.
    """
    from jaxsif.launch.program import reads_program
    from jaxsif.plan.notes import find_notes

    note(*find_notes(plan))
    if plan.launcher.name == SRUN and os.isatty(0) and reads_program(plan.options.command):
        what = f"{plan.options.command[0]} reads its program from this terminal, until Ctrl-D"
        note(f"{what}; jaxsif shell opens an interactive shell")
    environ = plan.host.environ
    starters = (
        ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
        ("mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    )
    for starter, number, rank in starters:
        tasks = environ.get(number, "1")
        # A terminal is that of srun --pty, where only task 0 goes on.
        if tasks != "1" and environ.get(rank) == "0" and not os.isatty(0):
            what = f"{starter} has started jaxsif {tasks} times, and each starts a run of its own"
            note(f"warning: {what}: leave out {starter} before jaxsif")
    if plan.launcher.name == SRUN and allocation is None:
        from jaxsif.launch.gpus import note_missing_gpus

        note_missing_gpus(plan, (), note)
    if certificate.lack and (verbose or certificate.has_openssl):
        note(f"JAX's coordinator has no TLS: {certificate.lack}")


def _show(plan: Plan, explain: bool, dry_run: bool, as_json: bool) -> None:
    """Print the plan of a run."""
    from jaxsif.plan.command import describe_plan, render_command

    if as_json:
        print_json(describe_plan(plan))
        return
    if explain:
        _explain(plan)
    if dry_run:
        print_bytes(render_command(plan, *plan.host.window[:1]))


def _explain(plan: Plan) -> None:
    from jaxsif.layout.topology import find_near
    from jaxsif.plan.map import render_map

    # Only on a node of the job.
    here = plan.launcher.name == LOCAL or "SLURMD_NODENAME" in plan.host.environ
    print(render_map(plan, find_near() if here else None))


def _describe_image(container: Container | None) -> None:
    from jaxsif.images.labels import describe_image

    if container:
        note(f"the image: {describe_image(container.image)}")
