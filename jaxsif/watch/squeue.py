"""Find this user's running steps, as squeue lists them."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jaxsif import process
from jaxsif.errors import HostError, JaxsifError
from jaxsif.job import nodelist
from jaxsif.job.allocation import outside_of_job
from jaxsif.process import Done, find_executable
from jaxsif.text import printable, shorten
from jaxsif.watch.inspector import GUARD_NAME, STEP_NAME, Part, Target

_SQUEUE = ("squeue", "--me", "--noheader", "--states=RUNNING")
_JOBS = (*_SQUEUE, "--sort=-S", "--format=%i|%A")  # the newest first
_STEPS = (*_SQUEUE[:3], "--steps", "--format=%i|%j|%N")
# A job, an array element or a component, perhaps with a step; or nothing.
_WANTED = re.compile(r"(?:([0-9]{1,10}(?:[_+][0-9]{1,10})?)(?:\.([0-9]{1,10}))?)?")
_JOB = re.compile(r"(?m)^([\d_+]{1,32})\|(\d{1,10})[ ]*$")
_STEP = re.compile(
    r"(?m)^([\d_+]{1,32})\.(\d{1,10})\|(.*)\|([^|\s]+)[ ]*$"
)  # none of batch, extern, ...
_PENDING = re.compile(r" State=PENDING .* SrunHost:Pid=[^\s:]+:(\d{1,10})\b")
_SHOW = "squeue --me --steps"


class Job(NamedTuple):
    """A running job, or one component of a heterogeneous job."""

    name: str  # as squeue shows it: 12, 12_3 in an array, 12+1 in a heterogeneous job
    number: str  # Slurm's own

    @property
    def whole(self) -> str:
        """Return the name of the whole heterogeneous job, or the job's own name."""
        return self.name.partition("+")[0]

    @property
    def component(self) -> str:
        """Return the component's number in a heterogeneous job, or ''."""
        return self.name.partition("+")[2]

    def take_part(self, nodes: tuple[str, ...]) -> Part:
        """Return the part of the job that is to be inspected."""
        return Part(self.whole if self.component else self.number, nodes, self.component)


class Step(NamedTuple):
    """A running step of a job or of one component."""

    job: str  # as squeue shows it
    number: int
    name: str
    nodes: str  # a node list


def find_target(wanted: str | None, inside: str | None, environ: Mapping[str, str]) -> Target:
    """Return the step that `wanted` names, JOB or JOB.STEP; without it, the newest step of the job
    that this process is `inside`, or else of the newest job.

    Without Slurm, or if no job has this number, JOB is the process id of `jaxsif run`. Raise
    JaxsifError if there is no such step, and HostError if Slurm does not answer.
    """
    found = _WANTED.fullmatch(wanted or "")
    if not found:
        what = f"not a Slurm step: {shorten(printable(str(wanted)))!r}"
        raise JaxsifError(what, "jaxsif stacks", f"give JOB or JOB.STEP, as {_SHOW} lists them")
    named, number = found.groups()
    if not find_executable("squeue", environ):
        return _target_here(named)
    jobs = parse_jobs(_ask(_JOBS, environ))
    steps = parse_steps(_ask(_STEPS, environ))
    if named and number is None and not _find_named(jobs, named) and process.is_of_user(named):
        return _target_here(named)  # of --launcher local
    return choose_target(jobs, steps, named or inside, None if number is None else int(number))


def _target_here(job: str | None) -> Target:
    if job is None:
        hint = "give the process id of jaxsif run: jaxsif stacks PID"
        raise JaxsifError("there is no Slurm here to ask for steps", "PATH", hint)
    return Target(f"process {job}", (f"{job}.",), ())


def _ask(argv: Sequence[str], environ: Mapping[str, str]) -> str:
    done = process.captured(argv, outside_of_job(environ))
    if done.returncode:
        message = done.stderr.strip().rpartition("\n")[2]
        raise HostError(f"cannot ask Slurm for steps: {message}", "squeue", "try again")
    return done.stdout


def ask_slurm(argv: Sequence[str], environ: Mapping[str, str]) -> Done | None:
    """Run one of Slurm's programs; return None if it cannot be started."""
    try:
        outside = outside_of_job(environ).items()
        # In these variables, users keep options: a filter would hide the job or its nodes.
        kept = {key: value for key, value in outside if not re.match("SQUEUE_|SINFO_", key)}
        return process.captured(argv, kept)
    except OSError:  # it is not on the PATH, or no process can be started now
        return None


def list_running(environ: Mapping[str, str]) -> frozenset[str]:
    """Return the numbers of this user's running jobs; none if Slurm does not answer."""
    done = ask_slurm(_JOBS, environ)
    jobs = parse_jobs(done.stdout) if done and not done.returncode else ()
    return frozenset(job.number for job in jobs)


def require_job(wanted: str, source: str, environ: Mapping[str, str]) -> None:
    """Raise JaxsifError if this user has no running job with this name or number, and HostError if
    Slurm does not answer.
    """
    if not _find_named(parse_jobs(_ask(_JOBS, environ)), wanted):
        what = f"job {wanted} is not running, or is not yours"
        raise JaxsifError(what, source, "squeue --me lists your jobs")


def is_preempted(job: str, environ: Mapping[str, str]) -> bool | None:
    """Return whether a running job is in the grace period before its preemption; None if Slurm
    does not answer.
    """
    argv = ("squeue", "--noheader", f"--jobs={job}", "--states=RUNNING", "--Format=PreemptTime")
    done = ask_slurm(argv, environ)
    if done is None or done.returncode:
        return None
    return re.search(r"\d:\d", done.stdout) is not None


def was_suspended(job: str, since: float, environ: Mapping[str, str]) -> bool:
    """Return whether a job was suspended or resumed after a given time, in seconds since 1970;
    False if Slurm does not answer.
    """
    argv = ("scontrol", "--oneliner", "show", "job", job)
    done = ask_slurm(argv, {**environ, "SLURM_TIME_FORMAT": "standard"})
    shown = done.stdout if done else ""
    found = re.search(r" SuspendTime=(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d) ", shown)
    return found is not None and parse_time(found[1]) > since


def waits_for_resources(job: str, environ: Mapping[str, str]) -> bool:
    """Return whether an srun that this process has started waits until other steps of the job end,
    which srun itself does not say; False if Slurm does not answer.
    """
    done = ask_slurm(("scontrol", "--oneliner", "show", "step", job), environ)
    pids = _PENDING.findall(done.stdout if done else "")
    return any(process.is_child(pid) for pid in pids)


def parse_time(text: str) -> float:
    """Return a local time, as Slurm writes it, in seconds since 1970."""
    return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


def parse_jobs(listed: str) -> list[Job]:
    """Return the jobs that squeue lists."""
    return [Job(name, number) for name, number in _JOB.findall(listed)]


def parse_steps(listed: str) -> list[Step]:
    """Return the steps with tasks that squeue lists, without jaxsif's own."""
    return [
        Step(job, int(number), name, nodes)
        for job, number, name, nodes in _STEP.findall(listed)
        if name not in (STEP_NAME, GUARD_NAME)
    ]


def choose_target(
    jobs: Sequence[Job], steps: Sequence[Step], wanted: str | None, number: int | None
) -> Target:
    """Return the step with this number, or the newest step, of the wanted job, or of the newest
    job; raise JaxsifError if there is no such step.
    """
    parts = _list_parts(jobs, wanted)
    whole = parts[0].whole
    named_so = {name: job for job in parts for name in (job.name, job.number)}
    own = [step for step in steps if step.job in named_so and number in (None, step.number)]
    if not own:
        step = "no running step" if number is None else f"no running step {number}"
        raise JaxsifError(f"job {whole} has {step}", "squeue", f"{_SHOW} lists what is running")
    newest = max(step.number for step in own)
    words = dict.fromkeys(f"{number}.{newest}" for number in _list_numbers(whole, parts))
    found = tuple(
        named_so[step.job].take_part(nodelist.expand(step.nodes, "squeue"))
        for step in own
        if step.number == newest
    )
    return Target(f"{whole}.{newest}", tuple(words), found)


def _list_parts(jobs: Sequence[Job], wanted: str | None) -> list[Job]:
    """Return the job with this name or number, or the newest job, with all its components; a step
    has the same number in each component.
    """
    named = _find_named(jobs, wanted)
    if not named:
        one = f"job {wanted} is not running, or is not yours"
        what = one if wanted else "none of your jobs is running"
        hint = f"{_SHOW} lists what is running; for --launcher local: jaxsif stacks PID"
        raise JaxsifError(what, "squeue", hint)
    return [job for job in jobs if job.whole == named[0].whole]


def _find_named(jobs: Sequence[Job], wanted: str | None) -> list[Job]:
    """Return the jobs with this name or number, or all for None."""
    return [job for job in jobs if wanted in (None, job.name, job.number, job.whole)]


def _list_numbers(whole: str, parts: Sequence[Job]) -> list[str]:
    """Return the job numbers that tasks may see: each component's, and the whole job's."""
    return [job.number for job in parts] + ([whole] if whole.isdecimal() else [])
