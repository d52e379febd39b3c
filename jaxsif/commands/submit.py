"""jaxsif submit: a job script, which needs jaxsif only to go on after failures, and its job."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from jaxsif import process
from jaxsif.commands import COMMAND, JSON, all_of, argument, titled
from jaxsif.container.policy import find_checksum
from jaxsif.errors import HostError, JaxsifError, Notify
from jaxsif.files import create_file
from jaxsif.foreign import MOST_TEXT, open_file
from jaxsif.images.labels import read_labels
from jaxsif.installation import find_home
from jaxsif.job.allocation import outside_of_job
from jaxsif.job.srun_options import (
    FIELD,
    FORMS,
    STEP,
    add_srun_options,
    join,
    select,
    split_options,
    suggest_list,
)
from jaxsif.launch import pipeline
from jaxsif.launch.coordinator import draw_name
from jaxsif.launch.gpus import note_missing_gpus
from jaxsif.launch.program import find_doubts, name_program
from jaxsif.launch.script import JobOptions, Script, judge_image, render_script
from jaxsif.plan.launcher import SRUN
from jaxsif.plan.notes import find_notes
from jaxsif.process import find_executable
from jaxsif.screen import note, print_bytes, print_json
from jaxsif.settings.options import (
    OF_JOB,
    OF_RESTARTS,
    OFF,
    OPTIONS,
    SWITCH,
    TASK,
    Option,
    RunOptions,
    add_arguments,
    count,
    split_words,
)
from jaxsif.settings.secret import find_secrets

DESCRIPTION = """\
Write a job script that runs COMMAND as `jaxsif run` would, and submit it. The
script is plain #SBATCH, srun and apptainer. It runs without jaxsif: keep it
with the program, read it, change it. With --requeue, --chain or --max-restarts
it calls `jaxsif run`, which must be on the nodes.

examples:
  jaxsif submit --nodes=2 --gpus-per-node=4 --time=1:00:00 -- python train.py
        write jaxsif-jobs/train.sbatch and submit it; its output: train-JOB.out
  jaxsif submit --dry-run --gpus-per-node=4 -- python train.py
        print the script, and submit nothing
  jaxsif submit --wait --gpus-per-node=1 -- python test.py
        wait for the job to end, and exit with its status
  jaxsif submit --array=0-9%2 -- sh -c 'python x.py --seed=$SLURM_ARRAY_TASK_ID'
        ten jobs, two at a time
  jaxsif submit --requeue --checkpoints=ckpt --nodes=2 -- python train.py
        save before the time limit, wait in the queue again, and go on
"""

EPILOG = """\
The job's ID is printed to standard output; for a chain, that of its last job.

exit status:
  0; with --wait, that of the task that failed first, or 128 + N for signal N;
  for an array, the highest status of its jobs
  2    a bad request            125  this host, its image or Slurm cannot run it
  127  the program was not found
"""


FOLDER = "jaxsif-jobs"  # in the folder where the job is submitted
# From squeue(1), JOB STATE CODES.
_GOING_ON = {
    *("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT"),
    *("STOPPED", "SUSPENDED", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"),
}
# What sbatch says of words that it cannot read.
_BAD_OPTION = "Invalid --|(unrecognized |invalid )?option "
# srun's line for tasks that failed, and the one with which it ends the others.
_TASK_FAILED = re.compile(
    r"srun: error: \S+: tasks? \d[-,\d]*: "
    r"(?:Exited with exit code (?P<status>\d{1,3})|(?P<signal>.+?)(?: \(core dumped\))?)$",
    re.MULTILINE,
)
_STEP_ENDED = "srun: Terminating StepId={job}."
# A script without jaxsif does without what jaxsif runs on the nodes.
_FIXED = {
    "launcher": SRUN,
    "containers": TASK,
    "stage": False,
    "cleanenv": False,
    "allow_uneven": False,
    "check_programs": OFF,
    "coordinator_tls": OFF,
}
_LEFT_OUT = ("launcher", "hosts", "hostfile")
# The options that mean nothing to such a script.
_OF_RUN = (
    *("stage-folder", "hang-timeout", "on-hang", "busy-timeout", "history", "log-dir"),
    *OF_RESTARTS,
    *(key.replace("_", "-") for key in _FIXED if key not in _LEFT_OUT),
)
# What the job or the script decides.
_DECIDED = ("nodes", "image", *(option.key for option, _ in OF_JOB))
_MOST_REQUEUES = 100


add_options = all_of(
    partial(add_arguments, leave_out=_LEFT_OUT),
    titled(
        "the job",
        argument(
            "-J", "--job-name", metavar="NAME", help="the job's name (default: the program's)"
        ),
        argument("-a", "--array", metavar="INDEXES", help="one job for each index, such as 0-9%%2"),
        argument(
            "-d",
            "--dependency",
            metavar="LIST",
            help="when the job may start, such as afterok:4711",
        ),
        argument(
            "--requeue",
            action="store_true",
            help="let Slurm start the job again after its time limit, a preemption or a lost node",
        ),
        argument(
            "--chain",
            type=count,
            metavar="N",
            help="submit N jobs, each continuing where the one before stopped, for sites that"
            " forbid --requeue",
        ),
        argument(
            "-o",
            "--output",
            metavar="FILE",
            help="the file for the job's output"
            " (default: %%x-%%j.out; for an array, %%x-%%A_%%a.out)",
        ),
        argument(
            "-e",
            "--error",
            metavar="FILE",
            help="the file for the job's standard error (default: that of --output)",
        ),
        argument(
            "--task-output",
            metavar="FILE",
            help="a file for each task's output, such as %%x-%%j-%%t.out",
        ),
        argument(
            "--sbatch-args",
            action="append",
            default=[],
            metavar="ARGS",
            help="more sbatch options, quoted as in a shell: --sbatch-args='--mem=0'",
        ),
    ),
    titled(
        "how to submit",
        argument(
            "--script",
            metavar="FILE",
            help="where to write the script (default: jaxsif-jobs/NAME.sbatch)",
        ),
        JSON,
        argument("--wait", action="store_true", help="wait for the job to end"),
        argument("--dry-run", action="store_true", help="print the script, and submit nothing"),
    ),
    add_srun_options,
    COMMAND,
    usage="jaxsif submit [OPTIONS] -- COMMAND [ARGUMENT...]",
)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Submit the job."""
    options = vars(arguments)
    if not options["command"]:
        raise JaxsifError(
            "no command",
            "jaxsif submit",
            "jaxsif submit [OPTIONS] -- COMMAND, such as -- python train.py",
        )
    # A script may be made without sbatch.
    check_slurm("srun" if options["dry_run"] else "sbatch", environ)
    run = _find_run(options)
    job = _job_options(options)
    script, wait, dry_run = options.pop("script"), options.pop("wait"), options.pop("dry_run")
    as_json = options.pop("json")
    folder = _find_folder(options)
    text, requested = _render(options, job, run, environ)
    if dry_run:
        _show({"text": text}, text[:-1], as_json)
        return 0
    path = keep_script(text, name_program((job.job_name,)), script)
    requested = _without(requested, job)
    job_ids: list[str] = []
    try:
        for _ in range(job.chain or 1):
            job_ids.append(submit(path, requested, environ, note))
    except JaxsifError:
        if job_ids:
            left = f"{name_jobs(job_ids)} from {path} remain"
            note(f"{left}; to end them: scancel {' '.join(job_ids)}")
        elif not script:  # else the user named it
            os.unlink(path)
        raise
    outputs = [os.path.join(folder, _name_output(job, number)) for number in job_ids]
    # First, because standard output may be a file on a full disk, and the job is submitted.
    if run:
        note(f"the script calls {run[0][0]}, which must stay there until the job has ended")
    files = ", ".join(dict.fromkeys(outputs))
    note(f"submitted {path} as {name_jobs(job_ids)}; its output: {files}")
    _warn_of_output(folder, job.output)
    note(f"its state: squeue --job={','.join(job_ids)}; to end it: scancel {' '.join(job_ids)}")
    jobs = [{"job": number, "output": output} for number, output in zip(job_ids, outputs)]
    # The last one of a chain, so that a dependency on it waits for all.
    _show({**jobs[-1], "script": path, "jobs": jobs}, job_ids[-1], as_json)
    return _wait(job_ids, bool(run), environ) if wait else 0


def _without(requested: RunOptions, job: JobOptions) -> RunOptions:
    """Return what a script requests without the options that --sbatch-args has, too."""
    flags = {one.flag for words in job.sbatch_args for one in split_options(words)}
    keys = {flag[2:] for flag in flags} | ({"srun-args"} if flags else set())
    sources = {key: one for key, one in requested.sources.items() if key not in keys}
    passed = tuple([one for one in requested.passed if one.flag not in flags])
    return requested._replace(passed=passed, sources=sources)


def _find_folder(options: Mapping[str, Any]) -> str:
    """Return the folder of --chdir, to which Slurm takes the path of the job's output; or ''."""
    chdir = (options.get(FIELD) or {}).get("--chdir")
    return str(chdir.value) if chdir else ""


def _warn_of_output(above: str, output: str | None) -> None:
    """Warn if the job's output is a folder, or if its folder does not exist here."""
    path = os.path.join(above, output or "")
    folder = os.path.dirname(path)
    if output and os.path.isdir(path):
        what = f"{output} is a folder, and the job ends without a message"
        note(f"warning: {what}: name a file in it, such as {output.rstrip('/')}/%j.out")
    if folder and "%" not in folder and not os.path.isdir(folder):
        note(
            f"warning: no folder {folder} here: unless Slurm can make it, the job ends without a"
            " message"
        )


def _name_output(job: JobOptions, job_id: str) -> str:
    """Return the file for the output of a job, as far as its pattern is known here."""
    values = {"%x": job.job_name, "%j": job_id, "%A": job_id}
    return re.sub("%[xjA]", lambda found: values[found[0]], job.output or "")


def _show(values: Mapping[str, object], line: str, as_json: bool) -> None:
    """Print the values as JSON, or only the line."""
    if as_json:
        print_json(values)
    else:
        print_bytes(line)
    sys.stdout.flush()  # --wait may take long


def name_jobs(job_ids: Sequence[str]) -> str:
    """Return 'job 4711', or 'jobs 4711, 4712' for a chain."""
    return f"job{'s' if job_ids[1:] else ''} {', '.join(job_ids)}"


def _wait(job_ids: Sequence[str], calls_jaxsif: bool, environ: Mapping[str, str]) -> int:
    """Wait for the job, or the last one of a chain; return its exit status."""
    try:
        ended = wait_job(job_ids[-1], environ)
    except (KeyboardInterrupt, SystemExit):
        going_on = "continues" if len(job_ids) == 1 else "continue"
        note(f"{name_jobs(job_ids)} {going_on}; to end it: scancel {' '.join(job_ids)}")
        raise
    if not calls_jaxsif:  # which gives the status of the first failure itself
        ended = list(map(find_first_failure, ended))
    for job in ended:
        note(f"job {job.job_id} ended: {job.state}, exit status {job.status}")
        if job.state != "CANCELLED" and job.errors and not os.path.exists(job.errors):
            is_there = os.path.isdir(os.path.dirname(job.errors))
            remedy = "submit in a folder" if is_there else "give --output, or --chdir, a folder"
            note(f"no {job.errors} here: {remedy} that all nodes see")
    return max(job.status for job in ended)


def _find_run(options: dict[str, Any]) -> tuple[tuple[str, ...], ...]:
    """Return `jaxsif run` and its options, in lines of words, for a job that may go on after its
    first attempt, or () if the script needs no jaxsif; raise JaxsifError for options that need it,
    or exclude each other.
    """
    _settle_requeues(options)
    given = [option for option in OPTIONS if options.get(option.field) is not None]
    if options["max_requeues"] is None and options["max_restarts"] is None:
        _check_plain(given)
        return ()
    _check_run(options)
    passed = [option for option in given if option.key not in _DECIDED]
    words = ((word,) for option in passed for word in _render_option(option, options[option.field]))
    home = find_home()
    jaxsif = (f"{home}/bin/jaxsif",) if home else (sys.executable, "-m", "jaxsif")
    return ((*jaxsif, "run"), *words)


def _check_run(options: Mapping[str, Any]) -> None:
    """Raise JaxsifError for options that mean nothing to `jaxsif run` in a job."""
    if options["task_output"]:
        what = "--task-output is for scripts without jaxsif"
        raise JaxsifError(what, "--task-output", "--log-dir DIR")
    if options["max_requeues"] and not options["checkpoints"]:
        note("warning: without --checkpoints DIR, the job is not requeued before its time limit")
    if options["spare_nodes"] and options["ntasks"]:
        hint = "--ntasks-per-node=N"
        raise JaxsifError("--ntasks does not say how many tasks a node gets", "--ntasks", hint)


def _check_plain(given: Sequence[Option]) -> None:
    """Raise JaxsifError for options that mean nothing to a script without jaxsif."""
    for option in given:
        if option.key in _OF_RUN:
            hint = "add --max-restarts=N or --requeue, or submit a script with `jaxsif run`"
            raise JaxsifError(f"{option.flag} needs jaxsif run in the job", option.flag, hint)


def _settle_requeues(options: dict[str, Any]) -> None:
    """Settle --max-requeues and --requeue; raise JaxsifError for a chain that has any of them."""
    chain = options["chain"]
    if chain and (options["array"] or options["requeue"] or options["max_requeues"]):
        hint = "leave out --chain, or --array, --requeue and --max-requeues"
        raise JaxsifError("--chain excludes arrays and requeues", "--chain", hint)
    if options["max_requeues"] is None and (chain or options["requeue"]):
        options["max_requeues"] = 0 if chain else _MOST_REQUEUES
    options["requeue"] = bool(options["max_requeues"])


def _render_option(option: Option, value: object) -> list[str]:
    """Render an option of the command line, which is repeated for a list."""
    if option.kind == SWITCH:
        return [option.flag if value else f"--no-{option.flag[2:]}"]
    values = list(map(str, value if isinstance(value, list) else [value]))
    if option.flag == "--env":  # others may read the command line, but not the script
        secrets = find_secrets(values)
        names = (pair.partition("=")[0] for pair in values)
        values = [name if name in secrets else pair for name, pair in zip(names, values)]
    return [f"{option.flag}={one}" for one in values]


def _job_options(options: dict[str, Any]) -> JobOptions:
    """Remove the job's options from `options`, and return them; the remaining options are the
    run's.
    """
    values = {name: options.pop(name) for name in JobOptions._fields}
    for key in _OF_RUN:  # the script decides them, or passes them on
        options.pop(key.replace("-", "_"), None)
    values["job_name"] = values["job_name"] or name_program(options["command"])
    if values["chain"]:  # by which its end is cancelled, and nothing else
        values["job_name"] += f"-{draw_name()[:6]}"
    values["output"] = values["output"] or ("%x-%A_%a.out" if values["array"] else "%x-%j.out")
    lines = values["sbatch_args"]
    values["sbatch_args"] = tuple(tuple(split_words(line, "--sbatch-args")) for line in lines)
    return JobOptions(**values)


def _render(
    options: dict[str, Any],
    job: JobOptions,
    run: tuple[tuple[str, ...], ...],
    environ: Mapping[str, str],
) -> tuple[str, RunOptions]:
    """Return the script, and what it requests."""
    command = options.pop("command")
    values = {**options, **_FIXED}
    if not run:  # the script sets its own address
        environ = {**environ, "JAX_COORDINATOR_ADDRESS": ""}
    # Whatever job we are in, the script is for another one.
    prepared = pipeline.prepare(values, command, None, environ, note, fixed={"log-dir"})
    container = prepared.require_container()
    plan = pipeline.make_plan(prepared.off_terminal())
    for line in (*find_notes(plan), *map("warning: {}".format, find_doubts(command))):
        note(line)
    note_missing_gpus(plan, [word for line in job.sbatch_args for word in line], note)
    foreign = judge_image(read_labels(container.image).get("io.jaxsif.flavour"), plan.layout)
    checksum = ""
    if run:
        image = (f"--image={os.path.abspath(container.image)}",)
        own = join(select(plan.options.passed, STEP))
        run = (run[0], image, *run[1:], *((word,) for word in own))
    elif container.allowed:
        state = container.allowed.state
        checksum = find_checksum(container.image, state, container.source, environ)
    script = Script(
        plan,
        container,
        job,
        foreign,
        tuple(pair for pair in prepared.settings.value("env") or () if "=" not in pair),
        checksum,
        run,
        tuple(find_secrets(prepared.settings.value("env") or ())) if run else (),
    )
    return render_script(script), plan.options


class EndedJob(NamedTuple):
    """How a job ended."""

    job_id: str  # 4711_3 in an array
    state: str  # COMPLETED, FAILED, TIMEOUT, CANCELLED, ...
    status: int  # as in a shell: 128 + N for signal N
    number: str = ""  # Slurm's job ID, also in an array
    errors: str = ""  # the file of its standard error


def keep_script(text: str, name: str, path: str | None) -> str:
    """Write a script to `path`, or to FOLDER under a free name, never over another file; return its
    path.

    Only this user may read it: the script has the values of --env, and some may be secrets.
    """
    for number in itertools.count(1):
        ending = f"-{number}" if number > 1 else ""
        target = path or os.path.join(FOLDER, f"{name}{ending}.sbatch")
        if not os.path.lexists(target) and _create(target, os.fsencode(text)):
            break
        if path:
            hint = f"submit it with sbatch {path}, remove it with rm {path}, or choose another name"
            raise JaxsifError(f"{path} already exists", "--script", hint)
    return target


def _create(path: str, data: bytes) -> bool:
    """Create a script; return False if somebody else has created it in the meantime."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    try:
        create_file(path, data, 0o600)
    except FileExistsError:
        if not os.path.lexists(path):
            raise  # somebody guessed the hidden name of the new file
        return False
    return True


def check_slurm(program: str, environ: Mapping[str, str]) -> None:
    """Raise HostError if one of Slurm's programs is missing."""
    if not find_executable(program, environ):
        raise HostError(
            f"{program} is not on the PATH",
            "PATH",
            "load Slurm's module, or submit on a host with Slurm",
        )


def submit(path: str, requested: RunOptions, environ: Mapping[str, str], say: Notify) -> str:
    """Hand a script to sbatch; return the job's ID. Raise HostError if Slurm rejects it."""
    done = process.captured(("sbatch", "--parsable", path), outside_of_job(environ))
    messages = done.stderr.strip().splitlines()
    if done.returncode:
        first, *more = messages or [f"exit status {done.returncode}"]
        reason = first.partition("error: ")[2] or first.removeprefix("sbatch: ")
        refusal = JaxsifError if re.match(_BAD_OPTION, reason) else HostError
        where = requested.name_requester("sbatch", done.stderr, only_named=True)
        hint = next((form for flag, form in FORMS.items() if f"Invalid {flag} " in reason), "")
        if "Unable to contact slurm controller" in done.stderr:
            from jaxsif.diagnose.symptoms import NO_CONTROLLER

            hint = NO_CONTROLLER.remedy
        usual = "see sbatch(1) for the options, and sinfo for partitions, nodes and their GPUs"
        hint = hint or suggest_list(reason) or usual
        raise refusal(f"sbatch refused the job: {reason}", where, hint, "\n".join(more))
    for line in messages:
        say(line)  # the site's messages
    return done.stdout.strip().partition(";")[0]  # after it, the cluster's name


def wait_job(job_id: str, environ: Mapping[str, str]) -> list[EndedJob]:
    """Wait until a job, or each job of an array, has ended; raise HostError if Slurm has forgotten
    the job.

    `sbatch --wait` does this, too, but checks only every 32 seconds, and loses signals.
    """
    pause = 0.5
    # Slurm forgets a job of an array minutes after its end, even while others run.
    ended: dict[str, EndedJob] = {}
    while True:
        done = process.captured(("scontrol", "--oneliner", "show", "job", job_id), environ)
        if "Invalid job id" in done.stderr:
            raise HostError(
                f"Slurm no longer knows job {job_id}", "scontrol", f"sacct --jobs={job_id}"
            )
        over, going_on = parse_ends(done.stdout)
        ended.update((job.job_id, job) for job in over)
        # Slurm's controller may be unavailable for a while.
        if ended and not going_on and done.returncode == 0:
            return sorted(ended.values())
        time.sleep(pause)
        pause = min(pause * 1.5, 10)


def parse_ends(records: str) -> tuple[list[EndedJob], bool]:
    """Return the ended jobs in the output of `scontrol --oneliner show job`, and whether any has
    not ended.
    """
    jobs = re.findall(
        r"^JobId=(\d+)(?: ArrayJobId=(\d+) ArrayTaskId=(\S+))?"
        r".* JobState=(\w+).* ExitCode=(\d+):(\d+)(?:.* StdErr=(.*?) StdIn=)?",
        records,
        re.MULTILINE,
    )
    ended = sorted(_read_end(*fields) for fields in jobs if fields[3] not in _GOING_ON)
    return ended, len(ended) < len(jobs)


def _read_end(
    job: str, array: str, index: str, state: str, code: str, number: str, errors: str
) -> EndedJob:
    """Read the fields of an ended job, which may be a job of an array."""
    # Slurm also reports 0 for a cancelled job.
    least = 0 if state == "COMPLETED" else 1
    status = 128 + int(number) if int(number) else max(int(code), least)
    return EndedJob(f"{array}_{index}" if array else job, state, status, job, errors)


def find_first_failure(job: EndedJob) -> EndedJob:
    """Return the job with the status of the task that failed first, which srun has written to the
    job's standard error; the same job if that cannot be read.

    srun's own status is the highest of all tasks, such as the 143 of a task that srun ended.
    """
    if job.state != "FAILED":
        return job
    try:
        with open_file(job.errors, "output") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - MOST_TEXT))
            text = file.read(MOST_TEXT).decode(errors="replace")
    except (OSError, HostError):  # such as on the disk of a node
        return job
    before = text.rpartition(_STEP_ENDED.format(job=job.number))[0]
    *_, failed = (None, *_TASK_FAILED.finditer(before))
    if failed is None:
        return job
    signals = {signal.strsignal(number): 128 + number for number in signal.valid_signals()}
    return job._replace(status=int(failed["status"] or signals.get(failed["signal"], job.status)))
