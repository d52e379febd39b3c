"""The nodes of a job on which a run can start again: ask Slurm and the nodes, and choose."""

from __future__ import annotations

import re
import time
from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from jaxsif.errors import HostError
from jaxsif.job.allocation import name_job
from jaxsif.job.nodelist import expand
from jaxsif.limits import IDLE_GPU_MEMORY
from jaxsif.watch.inspector import Inspection, Part, Target
from jaxsif.watch.sample import Answer
from jaxsif.watch.squeue import ask_slurm

# States of nodes, as sinfo names them, on which a step can start.
_FIT = frozenset(["allocated", "mixed", "idle", "completing", "reserved", "planned"])
# States of jobs that keep their nodes, see squeue(1).
_LIVING = ("RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING")
_PATIENCE = 50.0  # seconds until the old run's processes and the memory of GPUs must be gone
_SLURM_PATIENCE = 300.0  # seconds until Slurm's controller must answer
_PAUSE = 2.0  # seconds between two inspections, or two questions to Slurm
_TRIES = 2  # inspections that a node may leave unanswered
NO_ANSWER = "no answer"


class SlurmJob(NamedTuple):
    """A job, as Slurm knows it."""

    state: str  # such as RUNNING; '' if it is over
    nodes: tuple[str, ...]  # without those that Slurm has taken from it

    @property
    def is_over(self) -> bool:
        """Return whether no step can start in the job any more."""
        return self.state not in _LIVING


def query_job(job: str, environ: Mapping[str, str]) -> SlurmJob | None:
    """Return a job's state and nodes, or None if Slurm does not answer."""
    done = ask_slurm(("squeue", "--noheader", f"--jobs={job}", "--format=%A|%T|%N"), environ)
    if done is None or (done.returncode and "Invalid job id" not in done.stderr):
        return None
    # If the job has the number of its array, squeue lists all jobs of the array.
    found = re.search(rf"(?m)^{job}\|(\w+)\|(\S*)", done.stdout)
    state, nodes = found.groups() if found else ("", "")
    return SlurmJob(state, tuple(expand(nodes)) if nodes else ())


def is_listed(steps: Container[str], job: str, environ: Mapping[str, str]) -> bool:
    """Return whether Slurm still lists one of these steps of a job; True if it does not answer."""
    argv = ("squeue", "--noheader", "--steps", f"--jobs={job}", "--format=%i")
    done = ask_slurm(argv, environ)
    if done is None or done.returncode:
        return True
    # squeue writes ARRAY_INDEX.STEP for a job of an array.
    listed = done.stdout.replace(f"{name_job(environ) or job}.", f"{job}.")
    return any(step in steps for step in listed.split())


def query_unfit(nodes: Sequence[str], environ: Mapping[str, str]) -> dict[str, str] | None:
    """Return the nodes on which no step can start, with their states; None if Slurm does not
    answer.
    """
    named = f"--nodes={','.join(nodes)}"
    done = ask_slurm(("sinfo", "--noheader", "--Node", named, "--format=%N|%T"), environ)
    return None if done is None or done.returncode else find_unfit(nodes, done.stdout)


def find_unfit(nodes: Sequence[str], listed: str) -> dict[str, str]:
    """Return those of the nodes that sinfo does not list as usable, with their states."""
    states = dict(re.findall(r"(?m)^(\S+)\|(\S+)$", listed))
    found = {node: states.get(node, "unknown to Slurm") for node in nodes}
    # At the end of a fit state: planned, completing, in a reservation for maintenance, to be
    # rebooted once it is idle. Others are bad, such as '*' for a node that does not answer.
    return {node: state for node, state in found.items() if state.rstrip("-+$@") not in _FIT}


def check_nodes(
    job: str, nodes: Sequence[str], words: Sequence[str], gpus: bool, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return what is wrong with each of the nodes of a job, '' for nothing; raise HostError if
    Slurm does not answer, or if the job is over.

    A node must be usable according to Slurm, start a step, and have neither processes left over
    from earlier attempts, which `words` identify, nor, with `gpus`, GPU memory in use.
    """
    problems = _await_slurm(job, nodes, environ)
    waiting = [node for node in nodes if not problems[node]]
    deadline, silences = time.monotonic() + _PATIENCE, dict.fromkeys(nodes, 0)
    parts = [Part(job, tuple(waiting))]
    while waiting:
        answers = _inspect(Target(job, tuple(words), tuple(parts), gpus), environ)
        gpus = gpus and bool(answers)  # a step may not get the job's GPUs in this way
        for node in waiting:
            problems[node] = judge_answer(answers.get(node))
            silences[node] += problems[node] == NO_ANSWER
        waiting = [node for node in waiting if problems[node] and silences[node] < _TRIES]
        if not waiting or time.monotonic() > deadline:
            break
        # One by one: srun ends a step of which it cannot start a task, as where slurmd is gone.
        parts = [Part(job, (node,)) for node in waiting]
        time.sleep(_PAUSE)
    return problems


def _await_slurm(job: str, nodes: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return what is wrong with each of the nodes of a job, '' for nothing, according to Slurm;
    raise HostError if the job is over, or if Slurm does not answer for a long time: the lack of an
    answer does not make a node usable.
    """
    deadline = time.monotonic() + _SLURM_PATIENCE
    while True:
        known, unfit = query_job(job, environ), query_unfit(nodes, environ)
        if known and known.is_over:
            raise job_over(job)
        if known and known.state != "RUNNING":  # Slurm answers: it is suspended, for any time
            deadline = time.monotonic() + _SLURM_PATIENCE
        elif known and unfit is not None:
            gone = dict.fromkeys(set(nodes).difference(known.nodes), "no longer in the job")
            return {**dict.fromkeys(nodes, ""), **gone, **unfit}  # only of these nodes
        if time.monotonic() > deadline:
            break
        time.sleep(_PAUSE)
    what = f"Slurm does not say which nodes of job {job} are up"
    raise HostError(what, "squeue, sinfo", "`scontrol ping` shows the state of its controller")


def job_over(job: str) -> HostError:
    """Return the error for a job that is over."""
    return HostError(f"job {job} is over", "squeue", f"`scontrol show job {job}` shows why")


def _inspect(target: Target, environ: Mapping[str, str]) -> Mapping[str, Answer]:
    """Return the answers of a target's nodes."""
    inspection = Inspection.start(target, environ)
    inspection.wait()
    return inspection.answers


def judge_answer(answer: Answer | None) -> str:
    """Return what is wrong with a node that gave this answer, or none; '' for nothing."""
    if answer is None:
        return NO_ANSWER
    if answer.tasks:
        return "processes left over from an earlier attempt"
    return f"{answer.memory} MiB of GPU memory in use" if answer.memory > IDLE_GPU_MEMORY else ""


def choose_nodes(
    names: Sequence[str],
    unusable: Container[str],
    suspects: Container[str],
    size: int,
    segment: int,
) -> tuple[str, ...]:
    """Return `size` of a job's nodes, in the job's order, in whole segments: suspect ones only if
    there are no others; () if too few are usable.
    """
    groups = [names[at : at + segment] for at in range(0, len(names), segment)]
    usable = [group for group in groups if not any(node in unusable for node in group)]
    usable.sort(key=lambda group: sum(node in suspects for node in group))
    chosen = {node for group in usable[: size // segment] for node in group}
    return tuple(node for node in names if node in chosen) if len(chosen) == size else ()
