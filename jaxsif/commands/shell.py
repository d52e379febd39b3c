"""jaxsif shell: a shell in the image, on a compute node."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping

from jaxsif import process
from jaxsif.errors import JaxsifError
from jaxsif.job.allocation import Allocation, outside_of_job
from jaxsif.job.srun_options import add_srun_options, split_options
from jaxsif.launch import pipeline
from jaxsif.plan.launcher import LOCAL, SRUN
from jaxsif.process import find_executable
from jaxsif.runtime import require_runtime
from jaxsif.screen import note
from jaxsif.settings.options import JOB, OF_RESTARTS, OFF, OPTIONS, PROCESSES, TASK, add_arguments
from jaxsif.text import shorten

DESCRIPTION = """\
Open a shell in the image, on a compute node. Python finds the GPUs there as in
`jaxsif run`.

Inside a job, the shell runs on its first node. Outside a job, srun allocates
one with the options below. Without Slurm, the shell runs on this machine.

examples:
  jaxsif shell --gpus-per-node=1 --time=1:00:00
        in a new job
  jaxsif shell --jobid=4711
        in a running job, alongside its program
  echo 'nvidia-smi' | jaxsif shell --jobid=4711
        run commands from standard input
"""

EPILOG = """\
exit status: that of the shell
"""

# The options for the number of tasks and their GPUs.
OF_TASKS = (
    "ntasks",
    "per-node",
    "per-gpu",
    "gpus-per-task",
    "gpu-bind",
    "allow-uneven",
    "share-gpus",
    "log-dir",
    *OF_RESTARTS,
)
# One task, with a container of its own.
ONE_TASK = {
    "nodes": 1,
    "ntasks_per_node": 1,
    "containers": TASK,
    "stage": False,
    "label": False,
    "hang_timeout": OFF,
    "check_programs": OFF,
}
# The options that are of no use to one task.
LEFT_OUT = {
    "stage-folder",
    "launcher",
    "hosts",
    "hostfile",
    "on-hang",
    "busy-timeout",
    "history",
    *OF_TASKS,
    *(key.replace("_", "-") for key in ONE_TASK),
}
LEFT_OUT |= {option.key for option in OPTIONS if option.group == PROCESSES}
# Without the user's ~/.bashrc, which is for the host's programs.
_SHELL = ("/bin/sh", "-c", "if command -v bash >/dev/null; then exec bash --norc; fi; exec sh")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif shell`."""
    parser.usage = "jaxsif shell [OPTIONS]"
    groups = add_arguments(parser, leave_out=LEFT_OUT)
    groups[JOB].add_argument("--jobid", metavar="JOB", help="join this job, alongside its program")
    add_srun_options(parser)


def choose_launcher(environ: Mapping[str, str]) -> dict[str, str]:
    """Return Slurm's launcher if srun is available, or else this machine's, whatever launcher the
    settings choose for runs.
    """
    return {"launcher": SRUN if find_executable(SRUN, environ) else LOCAL}


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Become the shell."""
    cli_values = vars(arguments)
    job = cli_values.pop("jobid")
    if job is not None and not re.fullmatch(r"\d+([_+]\d+)?", job, re.ASCII):
        what = f"not a Slurm job: {shorten(job)!r}"
        raise JaxsifError(what, "--jobid", "squeue --me lists your jobs")
    require_runtime(environ)  # the user already has a shell without a container
    fixed: tuple[str, ...] = OF_TASKS
    if job:  # its nodes and GPUs differ from those of a job that we may be in
        environ = outside_of_job(environ)
        if find_executable("squeue", environ):
            from jaxsif.watch.squeue import require_job

            require_job(job, "--jobid", environ)
        fixed += tuple(option.key for option in OPTIONS if option.of_job)
    allocation = Allocation.from_environ(environ)
    cli_values = {**cli_values, **ONE_TASK, **choose_launcher(environ)}
    prepared = pipeline.prepare(cli_values, _SHELL, allocation, environ, note, fixed)
    # Without a terminal of its own, the shell ends on the first Ctrl-C.
    how = ["--pty"] if sys.stdin.isatty() else ["--unbuffered", "--quit-on-interrupt"]
    srun_args = [*how, *([f"--jobid={job}"] if job else [])]
    if job or (allocation and not allocation.in_step):
        srun_args.append("--overlap")  # with the job's other steps
    prepared = prepared.with_options(
        srun_args=(*split_options(srun_args), *prepared.settings.options.srun_args),
        job_name="shell",
    )
    plan = pipeline.make_plan(prepared, has_reader=False)
    process.become(plan.argv, plan.started_environ)
