"""The messages that jaxsif knows, one row each, with its remedy.

A pattern matches from the beginning of a line of standard error, or of an exception's text. It is
compiled on first use: compiling all of them here would delay a run's start by milliseconds.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from typing import NamedTuple


class Symptom(NamedTuple):
    """A message that jaxsif knows; the groups of its pattern fill in `what` and `remedy`."""

    pattern: str  # regular expression; an unmatched group stands for a node without a name
    what: str = ""  # the error in jaxsif's words; empty if they need more than the message
    remedy: str = ""  # the hint of the error
    page: str = ""  # anchor in docs/troubleshooting.md


# --- The container, from Apptainer and SingularityCE

_FATAL = r"(?=FATAL: |Error for command )[^:]*:?\s*"
_ON_ALL_NODES = "put it on a disk that all nodes see"
NO_IMAGE = Symptom(
    _FATAL + r".*?could not open image (?P<image>.+?): .*no such file or directory",
    "the image is not on {node}: {image}",
    _ON_ALL_NODES,
    "the-image-is-not-on-node-path",
)
NO_BIND = Symptom(
    _FATAL + r".*?mount source (?P<bind>.+?) doesn't exist",
    "{node} has no {bind}, which the container needs",
    _ON_ALL_NODES
    + ", or leave out the option that names it (--bind, --log-dir, --compile-cache-folder)",
    "node-has-no-path-which-the-container-needs",
)
NO_CONTAINER = Symptom(
    _FATAL + r"(?P<reason>.*)",
    "the container did not start: {reason}",
    "run it there by hand",
    "the-container-did-not-start-reason",
)
CONTAINER = (NO_IMAGE, NO_BIND, NO_CONTAINER)
IMAGE_READ = Symptom(  # raised by Python if the bytes of the image's files have changed
    r"(ImportError|ModuleNotFoundError|OSError|SyntaxError|EOFError|zlib\.error)\b",
    remedy="copy a new image beside the old one and rename it: running programs keep the old one",
    page="image-which-was-written-to-during-the-run",
)

# --- Slurm

OUT_OF_MEMORY = Symptom(
    r"slurmstepd\S*: error: Detected \d+ oom[-_ ]kill event"
    r"|srun: error: \S+: tasks? .*: Out Of Memory$"
    # Only the last one, which JobAcctGatherParams=OverMemoryKill causes, ends the step.
    r"|slurmstepd\S*: error: StepId=(?P<job>\d+)(?P<part>\S*) exceeded memory limit ",
    "step {job}{part} exceeded its memory limit",
    "ask for --mem=0 (all), or fewer tasks",
    "step-jobstep-exceeded-its-memory-limit",
)
NO_FOLDER = Symptom(
    r"slurmstepd(?:-(?P<node>\S+))?: error: couldn't chdir to `(?P<folder>.+?)'"
    r": No such file or directory",
    remedy="work in a folder that all nodes see: {folder} is not on {node}",
    page="couldnt-chdir-to-folder-no-such-file-or-directory-going-to-tmp-instead",
)
TASK_EXITED = Symptom(
    r"srun: error: (?P<node>\S+): tasks? (?P<task>\d{1,9})[-,\d]*"
    r": Exited with exit code (?P<status>\d{1,3})$",
)
TASK_KILLED = Symptom(
    r"srun: error: (?P<node>\S+): tasks? (?P<task>\d{1,9})\b.*: Killed$",
    page="task-n-on-node-was-killed-by-sigkill",
)
# About a node on which srun could start no task; StepId= is followed by a number, or by two in a
# heterogeneous job.
_NOT_LAUNCHED = r"srun: error: Task launch for .+ failed on node (?P<node>\S+): "
NOT_REACHED = Symptom(
    _NOT_LAUNCHED + r"(?:Communication .+|Unable to contact .+|Socket timed out .+)",
    "{node} cannot be reached",
    "list lost nodes with sinfo --list-reasons; leave the node out: --exclude={node}",
    "node-cannot-be-reached",
)
NOT_LAUNCHED = Symptom(
    _NOT_LAUNCHED + r"(?P<reason>.+)",
    "srun could not start the tasks on {node}: {reason}",
    "read slurmd's log on {node}, or leave the node out: --exclude={node}",
    "srun-could-not-start-the-tasks-on-node-reason",
)
BAD_VALUE = Symptom(
    r"srun: error: Invalid (?P<option>--\S+) specification",
    "Slurm cannot read the value of {option}",
    "`man srun` shows the forms of {option}",
    "slurm-cannot-read-the-value-of---option-slurms-controller-does-not-answer",
)
NO_CONTROLLER = Symptom(
    r"srun: error: .*Unable to contact slurm controller",
    "Slurm's controller does not answer",
    "`scontrol ping` shows its state; try again later, or ask your site's staff",
    "slurm-cannot-read-the-value-of---option-slurms-controller-does-not-answer",
)
TASKS_RAN = Symptom(r"srun: error: \S+: tasks? \d|slurmstepd")
# About a cancelled step, but not about a step with a failed task.
STEP_ABORTED = Symptom(r"srun: Job step aborted: ", page="the-run-was-cancelled-step-jobstep")
# From slurmstepd, about a step or a job: its number, and since Slurm 25.05 always a reason, such as
# SIGNAL Terminated.
_CANCELLED = (
    r"slurmstepd\S*: error: \*\*\* (?:JOB|STEP) (?P<job>\d+)(?P<part>\S*) ON \S+ CANCELLED AT \S+"
)
_DUE_TO = _CANCELLED + r" DUE [Tt][Oo] "
_REASONS_PAGE = (
    "job-n-reached-its-time-limit-job-n-was-preempted-job-n-lost-a-node-job-n-was-requeued"
)
_AGAIN = "run it again, or let Slurm do it: `jaxsif submit --requeue`"
TIME_LIMIT = Symptom(
    _DUE_TO + r"TIME LIMIT.* \*\*\*",
    "job {job} reached its time limit",
    "pass a longer --time, or resume from a checkpoint: see slurm/checkpoint",
    _REASONS_PAGE,
)
PREEMPTION = Symptom(
    _DUE_TO + r"PREEMPTION.* \*\*\*", "job {job} was preempted", _AGAIN, _REASONS_PAGE
)
NODE_FAILURE = Symptom(
    _DUE_TO + r"NODE FAILURE.* \*\*\*", "job {job} lost a node", _AGAIN, _REASONS_PAGE
)
REQUEUE = Symptom(
    _DUE_TO + r"JOB REQUEUE.* \*\*\*",
    "job {job} was requeued",
    "Slurm starts it again",
    _REASONS_PAGE,
)
# What Slurm since 25.05 calls --kill-on-bad-exit: not an error on its own, so it has no words.
TASK_FAILURE = Symptom(_DUE_TO + r"TASK FAILURE.* \*\*\*")
CANCELLED = Symptom(
    _CANCELLED + r"(?: DUE [Tt][Oo] .+?)? \*\*\*",
    "the run was cancelled: step {job}{part}",
    "see by whom: sacct --jobs={job}",
    "the-run-was-cancelled-step-jobstep",
)
CANCELLATIONS = (
    *(OUT_OF_MEMORY, TIME_LIMIT, PREEMPTION, NODE_FAILURE, REQUEUE, TASK_FAILURE, CANCELLED),
)
# srun's own reasons to end a step, see launch_abort and similar functions in src/api/step_launch.c.
SRUN_GAVE_UP = Symptom(
    r"srun: error: (?P<reason>.*(?:io error with|Cannot communicate with node|Timed out waiting).*"
    r"|Aborting, .*)",
    "srun ended the step: {reason}",
    "list lost nodes with sinfo --list-reasons",
    "srun-ended-the-step-reason",
)

# --- mpirun; here ^ and $ match at lines

SSH = Symptom(
    r"(?m)^(ssh: .+|.+: Permission denied \(.+|Host key verification failed\."
    r"|.*prted: .*not found)$",
    page="mpirun-refused-the-request-reason",
)
MPIRUN_ERROR = Symptom(  # between two lines of dashes
    r"(?ms)^-{60,}\n(.+?)\n\s*\n", page="mpirun-refused-the-request-reason"
)
# From mpirun 5, when it gave a child its own process group after the child had done so itself.
MPIRUN_NOISE = Symptom(r"(?m)^\[[^\]\n]*\] plm:ssh: Warning: setpgid\([^\n]*\n")

# --- JAX and XLA

BROKEN_GPU = Symptom(  # by CUDA's names, and the driver's
    r"(?i).*(ECC_UNCORRECTABLE|uncorrectable ECC|NVLINK_UNCORRECTABLE|fallen off the bus|\bXid\b)"
)
UNKNOWN_FLAGS = Symptom(
    r"F.*Unknown flags? in (?P<variable>XLA_\w+): (?P<flags>.*)",
    "XLA does not know {flags}",
    "correct or remove them: flags come and go with JAX versions; see jaxsif image inspect",
    "xla-does-not-know-flags",
)
NO_GPU = Symptom(
    r".*(JAX_PLATFORMS=cuda|Unable to initialize backend 'cuda')",
    remedy="the task was given GPUs, but JAX cannot use them: see nvidia-smi on the node, or set"
    " --env JAX_PLATFORMS=cpu to run on the CPU",
    page="unable-to-initialize-backend-cuda-or-assertionerror-in-xla_bridgepy",
)
# JAX about itself, when another process did not reach jax.distributed.initialize.
GAVE_UP = Symptom(
    r"F.*JAX distributed service detected fatal errors.*DEADLINE_EXCEEDED",
    page="jaxdistributedinitialize-hangs-or-ends-after-300-s-with-deadline_exceeded",
)
# To all, when a second process claims to be a connected one; its number ends the name.
INTRUDED = Symptom(
    r"F.*JAX distributed service detected fatal errors.*"
    r"ABORTED: \S*?(?P<process>\d{1,9}) unexpectedly tried to connect",
    "a second process connected to JAX's coordinator as process {process}, and JAX ended the run",
    "call jax.distributed.initialize() in one process of each task; with"
    " --coordinator-tls=on, another user's program cannot connect",
    "a-second-process-connected-to-jaxs-coordinator-as-process-n-and-jax-ended-the-run",
)
# gRPC compares names, although JAX has it check only the certificate's URI.
OTHER_NAME = Symptom(
    r"E\d{4} [\d:.]+ +\d+ ssl_transport_security\.cc:\d+\]"
    r" No match found for server name: (?P<name>\S+)$",
)
TIMED_OUT = Symptom(  # JAX's coordinator, Gloo
    r"(Jax|Xla)RuntimeError: .*(DEADLINE_EXCEEDED|Timed out waiting)",
    page="task-never-came-and-task-timed-out-waiting-at-fileline",
)
BARRIER = Symptom(  # in three lines or more
    r".*\bBarrier timed out\. Id: (?P<id>\S*)\. ",
    remedy="all processes must run the same computations the same number of times: see"
    " slurm/mistakes",
    page="task-did-not-reach-place-but-n-of-n-did-task-reached-place-but-n-of-n-did-not",
)

# --- The signals that end a task, by number

SIGNALS: Mapping[int, Symptom] = {
    signal.SIGKILL: Symptom(
        "SIGKILL",
        remedy="if nobody killed it, the node ran out of memory: see the kernel's log there, and"
        " the job's --mem",
        page="task-n-on-node-was-killed-by-sigkill",
    ),
    signal.SIGABRT: Symptom(
        "SIGABRT",
        remedy="JAX ended it and gave the reason above; DEADLINE_EXCEEDED: a process did not"
        " connect, or cannot reach task 0",
        page="task-n-on-node-was-killed-by-sigabrt",
    ),
    signal.SIGBUS: Symptom(
        "SIGBUS",
        remedy="SIGUSR1 or SIGUSR2 sent to the step may have killed the process that serves the"
        " image's files (send SIGURG instead); or /dev/shm was full, or a file was truncated",
        page="task-n-on-node-was-killed-by-sigbus",
    ),
}

# --- The lines of standard error that diagnose/reports.py keeps

KEPT_LINES = re.compile(
    r"srun: (error|fatal): |slurmstepd: error: "
    r"|slurmstepd-\S+: error: (\*\*\*|couldn't chdir|Detected \d+|StepId=\S+ exceeded) "
    rf"|FATAL: |Error for command |{UNKNOWN_FLAGS.pattern}|{GAVE_UP.pattern}"
    rf"|{INTRUDED.pattern}"
)
# It examines only lines with one of these.
BARRIER_TEXT, OTHER_NAME_TEXT = b"Barrier timed", b"No match found for server name"
NOTABLE = (
    b"srun",
    b"slurm",
    b"FATAL",
    b"Error for",
    b"Unknown flag",
    b"detected fatal",
    BARRIER_TEXT,
    OTHER_NAME_TEXT,
)
