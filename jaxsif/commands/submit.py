"""jaxsif submit: a job script that needs no jaxsif, and the job of it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from jaxsif.commands import run
from jaxsif.container.policy import find_checksum
from jaxsif.errors import JaxsifError
from jaxsif.images.labels import read_labels
from jaxsif.launch import jobs, pipeline
from jaxsif.launch.gpus import note_missing_gpus
from jaxsif.plan.launcher import SRUN
from jaxsif.plan.notes import find_notes
from jaxsif.plan.script import JobOptions, Script, judge_image, name_job, render_script
from jaxsif.screen import print_json
from jaxsif.settings.options import add_arguments, split_words
from jaxsif.settings.passed import add_srun_options
from jaxsif.settings.request import OFF, TASK

DESCRIPTION = """\
Write a job script that runs COMMAND as `jaxsif run` would, and submit it. The
script is plain #SBATCH, srun and apptainer. It runs without jaxsif: keep it
with the program, read it, change it.

examples:
  jaxsif submit --nodes=2 --gpus-per-node=4 --time=1:00:00 -- python train.py
        write jaxsif-jobs/train.sbatch and submit it; its output: train-JOB.out
  jaxsif submit --dry-run --gpus-per-node=4 -- python train.py
        print the script, and submit nothing
  jaxsif submit --wait --gpus-per-node=1 -- python test.py
        wait for the job's end, and exit with its status
  jaxsif submit --array=0-9%2 -- sh -c 'python sweep.py --seed=$SLURM_ARRAY_TASK_ID'
        ten jobs, two at a time
"""

EPILOG = """\
Standard output has the number of the job.

exit status:
  0, or with --wait that of the job, 128 + N for signal N; the highest of an array
  2    a bad request            125  this host, its image or Slurm cannot run it
  127  the program was not found
"""


# What is on the nodes is for the script to do without.
_FIXED = {
    "launcher": SRUN,
    "containers": TASK,
    "stage": False,
    "cleanenv": False,
    "allow_uneven": False,
    "hang_timeout": OFF,
    "check_programs": OFF,
    "coordinator_tls": OFF,
}
_LEFT_OUT = {
    "stage-folder",
    "hosts",
    "hostfile",
    "on-hang",
    "busy-timeout",
    "history",
    *(key.replace("_", "-") for key in _FIXED),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif submit`."""
    parser.usage = "jaxsif submit [OPTIONS] -- COMMAND [ARGUMENT...]"
    add_arguments(parser, leave_out=_LEFT_OUT)
    job = parser.add_argument_group("the job")
    job.add_argument(
        "-J", "--job-name", metavar="NAME", help="its name; the program's unless given"
    )
    job.add_argument(
        "-a", "--array", metavar="INDEXES", help="one job for each index, such as 0-9%%2"
    )
    job.add_argument(
        "-d", "--dependency", metavar="LIST", help="when the job may start, such as afterok:4711"
    )
    job.add_argument(
        "--requeue", action="store_true", help="start the job again after a node has failed"
    )
    job.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="the file of its output; %%x-%%j.out, for an array %%x-%%A_%%a.out",
    )
    job.add_argument(
        "-e",
        "--error",
        metavar="FILE",
        help="the file of its standard error; --output unless given",
    )
    job.add_argument(
        "--task-output",
        metavar="FILE",
        help="a file for each task's output, such as %%x-%%j-%%t.out",
    )
    job.add_argument(
        "--sbatch-args",
        action="append",
        default=[],
        metavar="ARGS",
        help="further options of sbatch, quoted as for a shell: --sbatch-args='--mem=0'",
    )
    how = parser.add_argument_group("how to submit")
    how.add_argument(
        "--script",
        metavar="FILE",
        help="the file of the script; jaxsif-jobs/NAME.sbatch unless given",
    )
    how.add_argument("--json", action="store_true", help="print JSON")
    how.add_argument("--wait", action="store_true", help="wait for the end of the job")
    how.add_argument("--dry-run", action="store_true", help="print the script, and submit nothing")
    add_srun_options(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Submit it."""
    said = vars(arguments)
    if not said["command"]:
        raise JaxsifError(
            "no command",
            "jaxsif submit",
            "jaxsif submit [OPTIONS] -- COMMAND, such as -- python train.py",
        )
    # A script may be made without sbatch.
    jobs.check_slurm("srun" if said["dry_run"] else "sbatch", environ)
    job = _job_options(said)
    script, wait, dry_run = said.pop("script"), said.pop("wait"), said.pop("dry_run")
    as_json = said.pop("json")
    text = _render(said, job, environ)
    if dry_run:
        _show({"text": text}, text[:-1], as_json)
        return 0
    path = jobs.keep_script(text, name_job((job.job_name,)), script)
    job_id = jobs.submit(path, environ, run.note)
    output = (
        (job.output or "").replace("%x", job.job_name).replace("%j", job_id).replace("%A", job_id)
    )
    _show({"job": job_id, "script": path, "output": output}, job_id, as_json)
    run.note(f"job {job_id} is {path}; its output: {output}")
    run.note(f"its state: squeue --job={job_id}; to end it: scancel {job_id}")
    return _wait(job_id, environ) if wait else 0


def _show(found: Mapping[str, object], line: str, as_json: bool) -> None:
    """Print one of both."""
    if as_json:
        print_json(found)
    else:
        run.print_bytes(line)
    sys.stdout.flush()  # --wait takes long


def _wait(job_id: str, environ: Mapping[str, str]) -> int:
    try:
        ended = jobs.wait_job(job_id, environ)
    except (KeyboardInterrupt, SystemExit):
        run.note(f"job {job_id} goes on; to end it: scancel {job_id}")
        raise
    for one in ended:
        run.note(f"job {one.job_id} ended: {one.state}, exit status {one.status}")
    return max(one.status for one in ended)


def _job_options(said: dict[str, Any]) -> JobOptions:
    """Take the options of the job out of `said`, and return them; the rest are those of the run."""
    values = {name: said.pop(name) for name in JobOptions._fields}
    values["job_name"] = values["job_name"] or name_job(said["command"])
    values["output"] = values["output"] or ("%x-%A_%a.out" if values["array"] else "%x-%j.out")
    lines = values["sbatch_args"]
    values["sbatch_args"] = tuple(tuple(split_words(line, "--sbatch-args")) for line in lines)
    return JobOptions(**values)


def _render(said: dict[str, Any], job: JobOptions, environ: Mapping[str, str]) -> str:
    command = said.pop("command")
    # Whatever job we are in, the script is for another one.
    prepared = pipeline.prepare({**said, **_FIXED}, command, None, environ, run.note)
    container = prepared.require_container()
    plan = pipeline.make_plan(prepared.off_terminal())
    for line in find_notes(plan):
        run.note(line)
    note_missing_gpus(plan, [word for line in job.sbatch_args for word in line], run.note)
    pairs = prepared.settings.value("env") or ()
    flavour = read_labels(container.image).get("io.jaxsif.flavour")
    foreign = judge_image(flavour, plan.layout)
    checksum = ""
    if container.allowed:
        state = container.allowed.state
        checksum = find_checksum(container.image, state, container.source, environ)
    return render_script(
        Script(
            plan,
            container,
            job,
            foreign,
            tuple(pair for pair in pairs if "=" not in pair),
            checksum,
        )
    )
