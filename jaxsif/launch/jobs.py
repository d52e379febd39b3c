"""Job scripts -> files that stay, and jobs of Slurm."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import NamedTuple

from jaxsif import process
from jaxsif.errors import HostError, JaxsifError, Show
from jaxsif.files import create_file
from jaxsif.foreign import open_file
from jaxsif.job.allocation import outside_of_job
from jaxsif.process import find_executable

FOLDER = "jaxsif-jobs"  # below the folder where the job is submitted
# As squeue(1) lists them, JOB STATE CODES.
_GOING_ON = {
    "PENDING",
    "CONFIGURING",
    "RUNNING",
    "COMPLETING",
    "RESIZING",
    "SIGNALING",
    "STAGE_OUT",
    "STOPPED",
}
_GOING_ON |= {"SUSPENDED", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"}


class EndedJob(NamedTuple):
    """How a job ended."""

    job_id: str  # of an array, 4711_3
    state: str  # COMPLETED, FAILED, TIMEOUT, CANCELLED, ...
    status: int  # as a shell would say: 128 + N for signal N


def keep_script(text: str, name: str, path: str | None) -> str:
    """Write a script to `path`, or to FOLDER under a name that is free; never over another text.
    Return its path.
    """
    data = os.fsencode(text)
    if path is None:
        return _keep_under_free_name(data, name)
    if not _write(path, data):
        what = f"{path} is there already, with another text"
        raise JaxsifError(what, "--script", f"rm {path}, or another name")
    return path


def _keep_under_free_name(data: bytes, name: str) -> str:
    number, path = 1, os.path.join(FOLDER, f"{name}.sbatch")
    while not _write(path, data):
        number += 1
        path = os.path.join(FOLDER, f"{name}-{number}.sbatch")
    return path


def _is_there(path: str, data: bytes) -> bool:
    """Whether the file is this user's and has this text; it is then for this user alone.

    A file of another user counts as another text, whatever is in it: its owner can change it before
    Slurm reads it.
    """
    try:
        # Before it is opened: perhaps it cannot be, or is a FIFO.
        if os.lstat(path).st_uid != os.geteuid():
            return False
        with open_file(path, "job script", path) as file:
            found = (os.fstat(file.fileno()).st_uid, file.read(len(data) + 1))
            if found != (os.geteuid(), data):
                return False
            os.fchmod(file.fileno(), 0o600)
    except FileNotFoundError:  # a link to nothing, or removed meanwhile
        return False
    return True


def _write(path: str, data: bytes) -> bool:
    """Write a script for this user alone: the values of --env stand in it, and some are secrets.

    False where another text is there, or has come there meanwhile.
    """
    if os.path.lexists(path):
        return _is_there(path, data)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    try:
        create_file(path, data, 0o600)
    except FileExistsError:
        if not os.path.lexists(path):
            raise  # somebody guessed the hidden name of the new file
        return _is_there(path, data)
    return True


def check_slurm(program: str, environ: Mapping[str, str]) -> None:
    """Raise HostError where a program of Slurm's is missing."""
    if not find_executable(program, environ):
        raise HostError(
            f"{program} is not on the PATH", "PATH", "load Slurm's module, or submit where Slurm is"
        )


def submit(path: str, environ: Mapping[str, str], say: Show) -> str:
    """Hand a script to sbatch; return the job's number. Raises HostError where Slurm does not take
    it.
    """
    done = process.captured(("sbatch", "--parsable", path), outside_of_job(environ))
    said = done.stderr.strip().splitlines()
    if done.returncode:
        *_, last = (f"exit status {done.returncode}", *said)
        reason = last.replace("sbatch: error: ", "")
        raise HostError(f"sbatch refused the job: {reason}", path, "fix the script, see sbatch(1)")
    for line in said:
        say(line)  # what the site has to say
    return done.stdout.strip().partition(";")[0]  # after it, the cluster's name


def wait_job(job_id: str, environ: Mapping[str, str]) -> list[EndedJob]:
    """Wait until a job, all jobs of an array, have ended; raises HostError when Slurm has forgotten
    the job.

    `sbatch --wait` does so too, but looks every 32 seconds only, and does not tell signals.
    """
    pause = 0.5
    # Slurm forgets a job of an array minutes after its end, though others go on.
    ended: dict[str, EndedJob] = {}
    while True:
        done = process.captured(("scontrol", "--oneliner", "show", "job", job_id), environ)
        if "Invalid job id" in done.stderr:
            raise HostError(
                f"Slurm does not know job {job_id} any more", "scontrol", f"sacct --jobs={job_id}"
            )
        over, going_on = parse_ends(done.stdout)
        ended.update((one.job_id, one) for one in over)
        # Slurm's controller may be away for a while.
        if ended and not going_on and done.returncode == 0:
            return sorted(ended.values())
        time.sleep(pause)
        pause = min(pause * 1.5, 10)


def parse_ends(records: str) -> tuple[list[EndedJob], bool]:
    """From `scontrol --oneliner show job`, how jobs ended, and whether any of them goes on."""
    found = re.findall(
        r"^JobId=(\d+)(?: ArrayJobId=(\d+) ArrayTaskId=(\S+))?"
        r".* JobState=(\w+).* ExitCode=(\d+):(\d+)",
        records,
        re.MULTILINE,
    )
    ended = sorted(_read_end(*fields) for fields in found if fields[3] not in _GOING_ON)
    return ended, len(ended) < len(found)


def _read_end(job: str, array: str, index: str, state: str, code: str, number: str) -> EndedJob:
    """Read the fields of a job that is over, or of one of an array."""
    job_id = f"{array}_{index}" if array else job
    if int(number):  # of a signal
        return EndedJob(job_id, state, 128 + int(number))
    # Slurm says 0 also of a job that was cancelled.
    least = 0 if state == "COMPLETED" else 1
    return EndedJob(job_id, state, max(int(code), least))
