"""The messages that jaxsif knows, one row each, with its remedy.

A pattern matches from the beginning of a line of standard error, or of an exception's text. It is
compiled on first use: compiling all of them here would delay a run's start by milliseconds.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from typing import NamedTuple

from jaxsif.task.contract import (
    ABSENT_GPU,
    ABSENT_GPU_HINT,
    FULL_GPU,
    FULL_GPU_HINT,
    FULL_NODE,
    FULL_NODE_HINT,
)

# The roles of a message in a failure: a consequence is never the cause.
CAUSE, EITHER, CONSEQUENCE = "cause", "cause or consequence", "consequence"


class Symptom(NamedTuple):
    """A message that jaxsif knows; the groups of its pattern fill in its texts."""

    pattern: str  # regular expression; an unmatched group stands for a node without a name
    what: str = ""  # the error in jaxsif's words; empty if they need more than the message
    remedy: str = ""  # the hint of the error
    page: str = ""  # anchor in docs/troubleshooting.md, or PAGE.md#ANCHOR
    # For `jaxsif explain`, which knows the rows with a role:
    role: str = ""
    texts: tuple[str, ...] = ("rror: ",)  # each such line has one of these, fast to find
    meaning: str = ""  # the message in jaxsif's words; empty if `what` has them


# --- The container, from Apptainer and SingularityCE

_FATAL = r"(?=FATAL: |Error for command )[^:]*:?\s*"
_ON_ALL_NODES = "put it on a disk that all nodes see"
_LEAVE_OUT = "if other nodes have it, leave this one out with --exclude, and report it to the site"
NO_IMAGE = Symptom(
    _FATAL + r".*?could not open image (?P<image>.+?): .*no such file or directory",
    "the image is not on {node}: {image}",
    f"{_ON_ALL_NODES}, or take another one if it was removed; {_LEAVE_OUT}",
    "the-image-is-not-on-node-path",
    role=CAUSE,
    texts=("FATAL: ",),
)
NO_BIND = Symptom(
    _FATAL + r".*?mount source (?P<bind>.+?) doesn't exist",
    "{node} has no {bind}, which the container needs",
    _ON_ALL_NODES + ", or leave out the option or setting that names it",
    "node-has-no-path-which-the-container-needs",
    role=CAUSE,
    texts=("FATAL: ",),
)
NO_CONTAINER = Symptom(
    _FATAL + r"(?P<reason>.*)",
    "the container did not start: {reason}",
    "run it there by hand",
    "the-container-did-not-start-reason",
    role=CAUSE,
    texts=("FATAL: ", "Error for command "),
)
BAD_BIND = NO_CONTAINER._replace(
    pattern=_FATAL + r"(?P<reason>(?:While setting bind mount configuration"
    r"|container creation failed: unable to add (?P<bind>.+) to mount list): .*)",
    remedy="correct --bind, run.binds, the binds of the fabric's profile, or APPTAINER_BIND",
)
HIDING_BIND = NO_CONTAINER._replace(
    pattern=_FATAL + r"(?P<reason>(?:failed to open /bin/sh for inspection"
    r"|.* destination /opt/jaxsif/\S* doesn't exist in container).*)",
    remedy="a bind may hide the image's own /opt or /usr: bind single folders below it, by --bind,"
    " run.binds, the binds of the fabric's profile, or APPTAINER_BIND",
)
CLOSED_BIND = NO_CONTAINER._replace(
    pattern=_FATAL + r"(?P<reason>.*while mounting (?P<bind>/.+?): .*permission denied)",
    remedy="this user may not read it: open it and the folders above it by chmod a+rx, or leave out"
    " the option or setting that names it",
)
CONTAINER = (NO_IMAGE, NO_BIND, BAD_BIND, HIDING_BIND, CLOSED_BIND, NO_CONTAINER)
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
    role=CAUSE,
    meaning="the tasks on a node used more memory than their step is allowed",
)
NO_FOLDER = Symptom(
    r"slurmstepd(?:-(?P<node>\S+))?: error: couldn't chdir to `(?P<folder>.+?)'"
    r": No such file or directory",
    remedy="work in a folder that all nodes see: {folder} is not on {node}",
    page="couldnt-chdir-to-folder-no-such-file-or-directory-going-to-tmp-instead",
    role=CAUSE,
    meaning="{node} has no {folder}, and the tasks started in another folder",
)
NO_JAXSIF = Symptom(  # from the Python of the node, before the container
    r".*python\S{0,20}: can't open file '(?P<file>/\S*/jaxsif/node/\w+\.py)': \[Errno (?:2|13)\]",
    "{file}, which belongs to jaxsif, cannot be read on {node}",
    _LEAVE_OUT,
    "file-which-belongs-to-jaxsif-cannot-be-read-on-node",
    role=CAUSE,
    texts=("can't open file",),
)
NOT_EXECUTED = Symptom(
    r"(?:slurmstepd(?:-(?P<node>\S+))?: error: execve\(\)|FATAL: cannot execute)"
    r":? (?P<program>.*): (?P<reason>.*)",
    "{node} cannot execute {program}: {reason}",
    f"check its name and its mode; {_LEAVE_OUT}",
    "node-cannot-execute-program-reason",
    role=CAUSE,
    texts=("rror: ", "FATAL: "),
)
TASK_PROLOG = Symptom(
    r"slurmstepd(?:-(?P<node>\S+))?: error: (?P<prolog>--task-prolog|TaskProlog)"
    r" failed status=(?P<status>\d{1,3})",
    "the task prolog failed on {node} (exit status {status})",
    "run the script of {prolog} there by hand; Slurm starts no program after it has failed",
    "explain.md#slurm-and-the-container",
    role=CAUSE,
)
TASK_EXITED = Symptom(
    r"srun: error: (?P<node>\S+): tasks? (?P<task>\d{1,9})[-,\d]*"
    r": Exited with exit code (?P<status>\d{1,3})$",
    page="explain.md#slurm-and-the-container",
    role=CONSEQUENCE,
    remedy="read what the task printed before that, or start it with jaxsif run, which names the"
    " line",
    meaning="a task failed, and its exit status is all that srun knows",
)
TASK_ABORTED = Symptom(
    r"srun: error: \S+: tasks? .*: Aborted",
    page="task-n-on-node-was-killed-by-sigabrt",
    role=CONSEQUENCE,
    remedy="read what the task printed before that: JAX, Gloo or NCCL gave the reason",
    meaning="a task aborted (SIGABRT), as JAX does when another process has failed",
)
TASK_TERMINATED = Symptom(
    r"srun: error: \S+: tasks? .*: Terminated",
    page="task-n-on-node-was-killed-by-sigterm",
    role=CONSEQUENCE,
    remedy="look for the process that failed first: its message gives the cause",
    meaning="Slurm ended a task (SIGTERM), as it does when another task has failed",
)
TASK_KILLED = Symptom(
    r"srun: error: (?P<node>\S+): tasks? (?P<tasks>(?P<task>\d{1,9})\b[\d,-]*).*: Killed$",
    page="task-n-on-node-was-killed-by-sigkill",
    role=EITHER,
    remedy="look for an oom_kill message or a task that failed first; otherwise request more"
    " memory with --mem",
    meaning="a task was killed (SIGKILL): another one had failed, or memory ran out",
)
# About a node on which srun could start no task; StepId= is followed by a number, or by two in a
# heterogeneous job.
_NOT_LAUNCHED = r"srun: error: Task launch for .+ failed on node (?P<node>\S+): "
NOT_REACHED = Symptom(
    _NOT_LAUNCHED + r"(?:Communication .+|Unable to contact .+|Socket timed out .+)",
    "{node} cannot be reached",
    "list lost nodes with sinfo --list-reasons; leave the node out: --exclude={node}",
    "node-cannot-be-reached",
    role=CAUSE,
)
NOT_LAUNCHED = Symptom(
    _NOT_LAUNCHED + r"(?P<reason>.+)",
    "srun could not start the tasks on {node}: {reason}",
    "read slurmd's log on {node}, or leave the node out: --exclude={node}",
    "srun-could-not-start-the-tasks-on-node-reason",
    role=CAUSE,
)
BAD_VALUE = Symptom(
    r"srun: (?:error|fatal): (?:[Ii]nvalid|unrecognized|Failed to parse|Invalid MPI type '.*',"
    r"|Invalid numeric value .* (?:arg of|for)) (?P<option>--?[\w-]+)(?! node file)\b",
    "Slurm cannot read the value of {option}",
    "`man srun` shows the forms of {option}",
    "slurm-cannot-read-the-value-of---option-slurms-controller-does-not-answer",
    role=CAUSE,
)
NO_OPTION = Symptom(
    r"srun: (?:unrecognized option '|invalid option -- ')(?P<option>[^']+)'",
    "srun has no option {option}",
    "correct its name: `srun --help` lists all",
    "srun-has-no-option-option",
    role=CAUSE,
    texts=("srun: ",),
)
STEP_REFUSED = Symptom(
    r"srun: error: Unable to create step for job (?P<job>\d+): (?P<reason>.*)",
    remedy="compare the request with the job's nodes, tasks, CPUs, GPUs and memory: scontrol show"
    " job {job}; request GPUs already in salloc or sbatch",
    page="explain.md#slurm-and-the-container",
    role=CAUSE,
    meaning="Slurm refused the step in the job: {reason}",
)
EXCLUSIVE = Symptom(
    r"srun: (?:error|fatal): (?P<reason>.*mutually exclusive.*)",
    remedy="keep one of them: leave out an option or setting, or unset a variable of Slurm",
    page="slurm-refused-the-request-reason",
    role=CAUSE,
    texts=("mutually exclusive",),
    meaning="Slurm refused the request: {reason}",
)
JOB_ENDED = Symptom(
    r"srun: error: (?:Slurm|Unable to confirm allocation for) job (?P<job>\d+)"
    r"(?: has expired|: Invalid job id specified)",
    "job {job} is not running",
    "leave that job's shell, or unset SLURM_JOB_ID; then start a new job",
    "job-n-is-not-running",
    role=CAUSE,
)
NO_CONTROLLER = Symptom(
    r"srun: error: .*Unable to contact slurm controller",
    "Slurm's controller does not answer",
    "`scontrol ping` shows its state; try again later, or ask your site's staff",
    "slurm-cannot-read-the-value-of---option-slurms-controller-does-not-answer",
    role=CAUSE,
)
TASKS_RAN = Symptom(r"srun: error: \S+: tasks? \d|slurmstepd")
# About a cancelled step, but not about a step with a failed task.
STEP_ABORTED = Symptom(
    r"srun: Job step aborted: ",
    page="the-run-was-cancelled-step-jobstep",
    role=CONSEQUENCE,
    texts=("srun: ",),
    remedy="read the lines around it for the reason",
    meaning="Slurm, a signal or the end of another task ended the step",
)
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
    role=CAUSE,
)
PREEMPTION = Symptom(
    _DUE_TO + r"PREEMPTION.* \*\*\*",
    "job {job} was preempted",
    _AGAIN,
    _REASONS_PAGE,
    role=CAUSE,
)
NODE_FAILURE = Symptom(
    _DUE_TO + r"NODE FAILURE.* \*\*\*",
    "job {job} lost a node",
    _AGAIN,
    _REASONS_PAGE,
    role=CAUSE,
)
REQUEUE = Symptom(
    _DUE_TO + r"JOB REQUEUE.* \*\*\*",
    "job {job} was requeued",
    "Slurm starts it again",
    _REASONS_PAGE,
    role=CAUSE,
)
# What Slurm since 25.05 calls --kill-on-bad-exit: not an error on its own, so it has no words.
TASK_FAILURE = Symptom(
    _DUE_TO + r"TASK FAILURE.* \*\*\*",
    page="the-run-was-cancelled-step-jobstep",
    role=CONSEQUENCE,
    remedy="find the task that failed first: the line with `Exited with exit code` has its number",
    meaning="Slurm ended the step because a task had failed",
)
CANCELLED = Symptom(
    _CANCELLED + r"(?: DUE [Tt][Oo] .+?)? \*\*\*",
    "the run was cancelled: step {job}{part}",
    "see by whom, if Slurm keeps accounts: sacct --jobs={job} --format=JobID,State%40",
    "the-run-was-cancelled-step-jobstep",
    role=EITHER,
    meaning="somebody cancelled the job or step, or Slurm did so because a task had failed",
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
    role=EITHER,
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

# Xids that a faulty program causes, as a broken GPU may; and harmless ones: a repair of memory that
# the driver has planned, and many corrected errors.
XIDS_OF_PROGRAMS = ("13", "31", "43", "45", "68", "69", "109")
HARMLESS_XIDS = ("63", "92")
BROKEN_GPU = Symptom(  # by CUDA's names, and the driver's
    r"(?i).*(ECC_UNCORRECTABLE|uncorrectable ECC|NVLINK_UNCORRECTABLE|fallen off the bus"
    rf"|\bXid (?:\([^)]*\): )?(?!(?:{'|'.join(XIDS_OF_PROGRAMS + HARMLESS_XIDS)})\b)\d)",
    page="explain.md#gpus",
    role=CAUSE,
    texts=("NVLINK_UNCORRECTABLE", "Xid", "off the bus", "rror: ", "CUDA"),
    remedy="leave the node out with --exclude=NODE, and report the message to your site's staff",
    meaning="a GPU or its NVLink is broken",
)
UNKNOWN_FLAGS = Symptom(
    r"F.*Unknown flags? in (?P<variable>XLA_\w+): (?P<flags>.*)",
    "XLA does not know {flags}",
    "correct or remove them: write --FLAG=VALUE; flags come and go with JAX versions",
    "xla-does-not-know-flags",
    role=CAUSE,
    texts=("Unknown flag",),
)
NO_GPU = Symptom(
    r".*(JAX_PLATFORMS=cuda|Unable to initialize backend 'cuda')",
    remedy="the task was given GPUs, but JAX cannot use them: see nvidia-smi on the node, or set"
    " --env JAX_PLATFORMS=cpu to run on the CPU",
    page="unable-to-initialize-backend-cuda-or-assertionerror-in-xla_bridgepy",
    role=CAUSE,
    meaning="JAX cannot use the GPUs",
)
# JAX about itself, before it ends its process by SIGABRT.
_FATAL_OF_JAX = r"F.*JAX distributed service detected fatal errors"
# When another process did not reach jax.distributed.initialize.
GAVE_UP = Symptom(
    _FATAL_OF_JAX + r".*DEADLINE_EXCEEDED",
    page="jaxdistributedinitialize-hangs-or-ends-after-300-s-with-deadline_exceeded",
    role=CONSEQUENCE,
    texts=("fatal errors",),
    remedy="find the process that did not connect: it failed, started late, or cannot reach task 0",
    meaning="a process waited in jax.distributed.initialize for one that did not connect",
)
# To all, when a second process claims to be a connected one; its number ends the name.
INTRUDED = Symptom(
    _FATAL_OF_JAX + r".*ABORTED: \S*?(?P<process>\d{1,9}) unexpectedly tried to connect",
    "a second process connected to JAX's coordinator as process {process}, and JAX ended the run",
    "call jax.distributed.initialize() in one process of each task; with"
    " --coordinator-tls=on, another user's program cannot connect",
    "a-second-process-connected-to-jaxs-coordinator-as-process-n-and-jax-ended-the-run",
    role=CAUSE,
    texts=("fatal errors",),
)
SAME_ID = Symptom(
    _FATAL_OF_JAX + r".*ALREADY_EXISTS",
    page="explain.md#other-processes",
    role=CAUSE,
    texts=("fatal errors",),
    remedy="give each process its own process_id, or leave it out: JAX takes it from Slurm",
    meaning="two processes called jax.distributed.initialize with the same process_id",
)
# To a process whose process 0, with the coordinator, is gone.
LOST_COORDINATOR = Symptom(_FATAL_OF_JAX + r".*Failed to send RPC to coordination service")
# gRPC compares names, although JAX has it check only the certificate's URI.
OTHER_NAME = Symptom(
    r"E\d{4} [\d:.]+ +\d+ ssl_transport_security\.cc:\d+\]"
    r" No match found for server name: (?P<name>\S+)$",
)
ALL_ALIKE = "make all tasks compute with the same shapes, types and constants, in the same order"
DIFFERENT = Symptom(  # a warning of jaxsif itself
    r"jaxsif: warning: (?P<programs>.* compiled .*): the(ir)? results (would|may) be wrong$",
    "{programs}",
    ALL_ALIKE,
    "the-results-may-be-wrong-only-task-compiled-name-for-types"
    "-task-goes-on-without-name-for-types",
    role=EITHER,
    texts=("results may be wrong",),
)
SAME_ARRAYS = (
    "let all processes run the same collectives, none under `if jax.process_index() == 0`, with the"
    " same shapes, from one thread, and pad the last batch"
)
SIZES_DIFFER = Symptom(  # from Gloo, which then ends its process by SIGABRT
    r".*Received data size doesn't match expected size",
    "the processes took part in a collective with arrays of different sizes",
    f"{SAME_ARRAYS}; --check-programs=stop names a task whose programs differ",
    "the-processes-took-part-in-a-collective-with-arrays-of-different-sizes",
    role=EITHER,
    texts=("match expected size",),
)
TIMED_OUT = Symptom(  # JAX's coordinator, Gloo
    r"(Jax|Xla)RuntimeError: .*(DEADLINE_EXCEEDED|Timed out waiting)",
    page="task-never-arrived-and-task-timed-out-waiting-at-fileline",
    role=CONSEQUENCE,
    remedy="find the process that did not arrive: it failed, hangs, or does something else",
    meaning="a process waited too long for another one",
)
BARRIER = Symptom(  # in three lines or more
    r".*\bBarrier timed out\. Id: (?P<id>\S*)\. ",
    remedy="all processes must run the same computations the same number of times: see"
    " slurm/mistakes",
    page="task-did-not-reach-place-but-n-of-n-did-task-reached-place-but-n-of-n-did-not",
    role=CONSEQUENCE,
    texts=("arrier timed out",),
    meaning="some processes did not reach a barrier in time; the lines below it name some",
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
        remedy="if JAX ended the task, its reason is above; DEADLINE_EXCEEDED: a process did not"
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

# --- What `jaxsif explain` looks for, in the order of the search

_MEMORY, _GPU, _NETWORK = "explain.md#memory", "explain.md#gpus", "explain.md#network"
_OTHERS, _PROGRAM = "explain.md#other-processes", "explain.md#the-program"
_FILES, _SLURM = "explain.md#files-and-limits", "explain.md#slurm-and-the-container"
_LOOK_FIRST = "look for the process that failed first: its message gives the cause"
# From argparse.
_REFUSES = (
    r"(?P<program>(?!(?:slurm\w*|srun|sbatch|salloc|\w*Error): )[\w./-]+(?: [\w./-]+)*): error: "
)
_OWN_FILE = r"(?P<file>/(?!opt/|usr/|.*-packages/|.*/lib/python3|.*/jax/_src/)[^)]*)"
_NO_PROGRAM = r"(?:SystemExit: )?(?:\S*/)?python[\d.]*: No module named "  # from python -m
# What `import jax` does not import, in JAX 0.12.
_SUBMODULE = (
    r"(?P<package>jax(?:\.experimental|\.scipy)?)' has no attribute '(?P<name>"
    r"(?<=jax' has no attribute ')(?:ad_checkpoint|example_libraries|extend|flatten_util|tools)"
    r"|(?<=scipy' has no attribute ')(?:optimize|spatial)"
    r"|(?<=experimental' has no attribute ')(?:array_serialization|checkify|colocated_python"
    r"|compute_on|custom_partitioning|jax2tf|jet|key_reuse|layout|mesh_utils|mosaic"
    r"|multihost_utils|ode|pallas|pjit|profiler|rnn|roofline|serialize_executable|shard_map"
    r"|sparse|topologies|transfer|xla_metadata))'"
)
EXPLAINED = (
    DIFFERENT,
    # Memory
    Symptom(
        f".*{FULL_NODE}",
        "an array does not fit into the memory of the node, or of the task",
        FULL_NODE_HINT,
        _MEMORY,
        CAUSE,
        ("Out of memory allocating",),
    ),
    Symptom(
        f".*{FULL_GPU}",
        "an array or a compiled program does not fit into the memory of the GPU",
        FULL_GPU_HINT,
        _MEMORY,
        CAUSE,
        ("RESOURCE_EXHAUSTED",),
    ),
    Symptom(
        r".*CUDA_ERROR_OUT_OF_MEMORY",
        "CUDA found too little free memory on the GPU",
        "check with nvidia-smi what else uses the GPU; start one process for each GPU",
        _MEMORY,
        CAUSE,
        ("CUDA",),
    ),
    Symptom(
        r"(_ArrayMemoryError|MemoryError|numpy.*MemoryError)\b",
        "Python or NumPy found too little memory on the node",
        "request more memory for the step (--mem), check the shape, or load the data in parts",
        _MEMORY,
        CAUSE,
        ("MemoryError",),
    ),
    Symptom(
        r"(.*: )?(OSError: )?\[Errno 12\] Cannot allocate memory",
        "the node has too little memory for another process or mapping",
        "request more memory for the step (--mem), or start fewer worker processes",
        _MEMORY,
        CAUSE,
    ),
    Symptom(
        r"(Out of memory|Memory cgroup out of memory): Killed process \d+ \((?P<program>.*?)\)",
        "the kernel killed {program} because memory had run out",
        OUT_OF_MEMORY.remedy,
        _MEMORY,
        CAUSE,
        ("Killed process",),
    ),
    # GPUs
    Symptom(
        rf".*NVRM: Xid \([^)]*\): (?:{'|'.join(XIDS_OF_PROGRAMS)})\b",
        "the driver stopped a program on the GPU because of a fault in the program or the GPU",
        "read the other Xid messages and the program's own error; run it on another GPU",
        _GPU,
        EITHER,
        ("Xid",),
    ),
    BROKEN_GPU,
    Symptom(
        r".*Mismatched PJRT plugin PJRT API version",
        "jaxlib and JAX's CUDA plugin have different versions",
        "install the same version of jax, jaxlib and the CUDA plugin",
        _GPU,
        CAUSE,
        ("PJRT",),
    ),
    NO_GPU._replace(pattern=r"\w*Error: Unable to initialize backend 'cuda'"),  # not INFO
    Symptom(
        rf"\w*Error: {ABSENT_GPU}",
        "the program asks for a GPU, and JAX has none",
        ABSENT_GPU_HINT,
        _GPU,
        CAUSE,
        ("Unknown backend",),
    ),
    Symptom(
        r"assert (self\.)?_default_backend is not None",
        "JAX cannot use any platform in JAX_PLATFORMS",  # as the task says it
        "if that is cuda: request GPUs, and see nvidia-smi on the node; or set --env"
        " JAX_PLATFORMS=cpu to run on the CPU",
        NO_GPU.page,
        CAUSE,
        ("default_backend",),
    ),
    Symptom(
        r".*(CUDA_ERROR_NO_DEVICE|no CUDA-capable device|XlaRuntimeError: .*No visible GPU)",
        "CUDA sees no GPU: the task was given none, or the container has no driver",
        "request GPUs with --gpus-per-node, and start the container with --nv",
        _GPU,
        CAUSE,
        ("CUDA", "rror: "),
    ),
    Symptom(
        r".*(CUDA_ERROR_INVALID_DEVICE|invalid device ordinal)",
        "a process asked for a GPU that it cannot see",
        "give each process one GPU, or set JAX_LOCAL_DEVICE_IDS; jaxsif run does so",
        _GPU,
        CAUSE,
        ("CUDA", "rror: "),
    ),
    Symptom(
        r".*(Driver/library version mismatch|does not match DSO version)",
        "the node's NVIDIA driver and its library have different versions",
        "leave the node out with --exclude=NODE, and ask your site's staff to restart it",
        _GPU,
        CAUSE,
        ("NVML", "DSO version"),
    ),
    Symptom(
        r".*(driver version is insufficient|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
        r"|no kernel image is available|CUDA_ERROR_NO_BINARY_FOR_GPU)",
        "the image's CUDA is incompatible with the node's driver or GPU",
        "compare `jaxsif image inspect` with nvidia-smi: an older driver needs an image for an"
        " older CUDA, a newer GPU one for a newer CUDA",
        _GPU,
        CAUSE,
        ("CUDA", "kernel image"),
    ),
    Symptom(
        r".*(Loaded runtime CuDNN library: .* but source was compiled with"
        r"|Found cuDNN version .* but JAX was built against)",
        "JAX loaded an older cuDNN than it was compiled for",
        "take the other cuDNN out of LD_LIBRARY_PATH, the layer or ~/.local: the image has its own",
        _GPU,
        CAUSE,
        ("DNN",),
    ),
    Symptom(
        r"(?i).*((could not|failed to) create cudnn handle"
        r"|CUDNN_STATUS_(INTERNAL_ERROR|ALLOC_FAILED|NOT_INITIALIZED))",
        "cuDNN could not start on the GPU, most often for lack of memory",
        "lower XLA_CLIENT_MEM_FRACTION, and check with nvidia-smi what else uses the GPU",
        _GPU,
        CAUSE,
        ("DNN", "dnn handle"),
    ),
    Symptom(
        r".*(CUDA_ERROR_ILLEGAL_ADDRESS|illegal memory access was encountered)",
        "a kernel read or wrote GPU memory that it must not access",
        "run it on another node; if it recurs, test without custom kernels, and with another"
        " version of JAX",
        _GPU,
        CAUSE,
        ("CUDA", "rror: "),
    ),
    Symptom(
        r"(.*Error: )?lib(?P<name>(cu(da|blas|dnn|fft|pti|rand|solver|sparse)|nv[a-z]|nccl)"
        r"[\w.-]*): cannot open shared object file",
        "a CUDA library is missing: lib{name}",
        "start the container with --nv, or use an image with CUDA: see `jaxsif image inspect`",
        _GPU,
        CAUSE,
    ),
    Symptom(
        r"(INFO|WARNING): +Could not find any nv files on this host",
        "the container was started with --nv on a host without the NVIDIA driver",
        "request GPUs with --gpus-per-node, and run on a node that has some",
        _GPU,
        EITHER,
        ("nv files",),
    ),
    # Network
    Symptom(
        r".*NCCL WARN .*(shared memory segment|posix_fallocate|failed to extend).*No space left",
        "/dev/shm is too full for NCCL",
        "remove old files from /dev/shm, or ask for more; with NCCL_SHM_DISABLE=1, NCCL does"
        " without it",
        _NETWORK,
        CAUSE,
        ("NCCL",),
    ),
    Symptom(
        r".*Bootstrap : no (socket|NCCL_SOCKET_IFNAME) interface found",
        "NCCL found no network interface, or not the one in NCCL_SOCKET_IFNAME",
        "set NCCL_SOCKET_IFNAME to an interface that `ip link` lists on each node",
        _NETWORK,
        CAUSE,
        ("interface found",),
    ),
    Symptom(
        r".*NCCL WARN .*ibv_reg_mr\S* failed.*Cannot allocate memory",
        "NCCL cannot lock enough memory for InfiniBand",
        "ask your site's staff for an unlimited `ulimit -l` (memlock) in Slurm's tasks",
        _NETWORK,
        CAUSE,
        ("NCCL",),
    ),
    Symptom(
        r".*NCCL WARN .*Got completion .*(error|status=) ?(12|5)\b",
        "InfiniBand got no answer from another node: its process ended, or a link is broken",
        "test the link with `jaxsif bench collectives`, and leave the node out: --exclude=NODE",
        _NETWORK,
        EITHER,
        ("NCCL",),
    ),
    Symptom(
        r".*NCCL WARN .*(Connection (closed|reset|refused)|Broken pipe|Socket recv failed"
        r"|remote process exited)",
        "NCCL lost its connection to a process that ended",
        _LOOK_FIRST,
        _OTHERS,
        CONSEQUENCE,
        ("NCCL",),
    ),
    Symptom(
        r".*NCCL operation .* failed: (?P<reason>unhandled \w+ error|remote process exited"
        r"|internal error)",
        "NCCL failed: {reason}",
        "set NCCL_DEBUG=WARN and run it again: NCCL then prints the reason",
        _NETWORK,
        EITHER,
        ("NCCL",),
    ),
    Symptom(
        r".*(Temporary failure in name resolution|Name or service not known)",
        "the node cannot resolve a host name",
        "correct the name; compute nodes often have no internet: download on a login node",
        _NETWORK,
        CAUSE,
        ("name resolution", "Name or service"),
    ),
    Symptom(
        r".*(\[Errno 101\]|Network is unreachable|\[Errno 113\]|No route to host)",
        "the node has no route to a host",
        "download on a login node, or name another network with --node-address",
        _NETWORK,
        CAUSE,
        ("rror: ", "unreachable", "route to host"),
    ),
    Symptom(
        r".*(\[Errno 98\]|Address already in use)",
        "another process uses the port",
        "choose another port; jaxsif run picks a free one for JAX's coordinator",
        _NETWORK,
        CAUSE,
        ("rror: ", "already in use"),
    ),
    Symptom(
        r".*(ConnectionRefusedError|\[Errno 111\])",
        "no process answers on a port: its server has ended, or has not started",
        "see whether the server for this port started, and whether it has ended since",
        _NETWORK,
        EITHER,
    ),
    # Other processes
    INTRUDED,
    SAME_ID,
    GAVE_UP,
    Symptom(
        r".*stopped sending heartbeats",
        "a process ended or stalled: JAX's coordinator heard nothing from it",
        _LOOK_FIRST,
        _OTHERS,
        CONSEQUENCE,
        ("heartbeats",),
    ),
    BARRIER,
    Symptom(
        _FATAL_OF_JAX,
        "JAX ended this process because another one had failed or ended",
        _LOOK_FIRST,
        _OTHERS,
        CONSEQUENCE,
        ("fatal errors",),
    ),
    SIZES_DIFFER,
    Symptom(
        r"AssertionError: sync_global_devices name mismatch",
        "the processes are at different places in the program",
        "make all processes run the same code in the same order, and compare their branches",
        _OTHERS,
        CAUSE,
    ),
    Symptom(
        r"AssertionError: .*passed to device_put is not the same on each process",
        "device_put got values that differ between the processes, or that are float64, which JAX"
        " rounds",
        "convert float64 values first, by x.astype('float32'); else load or compute them alike in"
        " all processes, or take those of one with multihost_utils.broadcast_one_to_all",
        _OTHERS,
        CAUSE,
    ),
    Symptom(
        r"AssertionError: .*\. Expected: .*; got: ",
        "multihost_utils.assert_equal found different values in the processes",
        "compare the process that has the odd value with the others: its data or branches differ",
        _OTHERS,
        CAUSE,
    ),
    Symptom(
        r"(Jax|Xla)RuntimeError: .*(Connection closed by peer|Connection reset by peer|Broken pipe"
        r"|Socket closed|SO_ERROR: Connection refused)",
        "a process lost its connection to another one, which had failed or ended",
        _LOOK_FIRST,
        _OTHERS,
        CONSEQUENCE,
    ),
    TIMED_OUT,
    Symptom(
        r"\w*Error: Fetching value for `jax.Array` that spans non-addressable",
        "a process tried to read a whole array, parts of which other processes hold",
        "use multihost_utils.process_allgather, or .addressable_shards for the process's own part",
        _OTHERS,
        CAUSE,
    ),
    Symptom(
        r"ValueError: coordinator_address should be defined",
        "jax.distributed.initialize found no job that tells it where to connect",
        "start the program with srun or jaxsif run, or pass coordinator_address",
        _OTHERS,
        CAUSE,
    ),
    Symptom(
        r"RuntimeError: jax.distributed.initialize\(\) must be called before",
        "the program used JAX before jax.distributed.initialize",
        "call jax.distributed.initialize() once, before any computation or jax.devices()",
        _OTHERS,
        CAUSE,
    ),
    # The program
    Symptom(
        r"ModuleNotFoundError: No module named 'jax'",
        "this Python has no JAX",
        "use the Python of an image with JAX: `python`, not the path of another one",
        "no-module-named-name",
        CAUSE,
    ),
    Symptom(
        r"(ImportError|AttributeError): .*\(consider renaming '(?P<file>[^']+)'",
        "{file} takes the place of a module with its name",
        "rename it",
        _PROGRAM,
        CAUSE,
    ),
    Symptom(
        rf"{_REFUSES}unrecognized arguments: (?:.*? )?(?P<option>--(?:nodes|ntasks"
        r"|ntasks-per-node|gpus"
        r"|gpus-per-node|gpus-per-task|cpus-per-task|mem|time|partition|account|qos|constraint"
        r"|nodelist|exclusive|env|image|layer|bind|hang-timeout|on-hang|max-restarts|log-dir"
        r"|explain|dry-run))(?=[= ]|$)",
        "{program} does not know {option}, which jaxsif run does",
        "if it is for jaxsif, write it before the program: jaxsif run OPTIONS -- PROGRAM",
        _PROGRAM,
        CAUSE,
        ("unrecognized arguments: ",),
    ),
    Symptom(
        rf"{_REFUSES}(?P<reason>(?:unrecognized arguments: |the following arguments are required: "
        r"|argument \S+: (?:can't|expected|ignored|invalid|not allowed) ).*)",
        "{program} refused its arguments: {reason}",
        "correct them: its --help lists what it takes",
        _PROGRAM,
        CAUSE,
    ),
    Symptom(
        rf"{_NO_PROGRAM}.*; '(?P<package>[\w.]+)' is a package and cannot be",
        "{package} is a package without a __main__.py, which python -m cannot run",
        "name a module in it: python -m {package}.MODULE",
        _PROGRAM,
        CAUSE,
        ("No module named ",),
    ),
    Symptom(
        rf"{_NO_PROGRAM}(?P<module>(?!(?:conda|ensurepip|pip|uv|venv)$)[\w.]+(?<!\.py))$",
        "python -m found no module {module}",
        "correct its name; for a package, add a layer: jaxsif layer create NAME PACKAGE",
        "no-module-named-name",
        CAUSE,
        ("No module named ",),
    ),
    Symptom(
        r"AttributeError: module 'jax' has no attribute '(?:config|device_count|devices|distributed"
        r"|grad|jit|lax|local_devices|nn|numpy|process_index|random|vmap)'",
        "this jax is not JAX: a file jax.py or a folder jax takes its place",
        "rename it: Python finds what is in the program's folder first",
        _PROGRAM,
        CAUSE,
    ),
    Symptom(
        r"ModuleNotFoundError: No module named '[^']*'; '(?P<package>\w+)' is not a package",
        "{package} is a single module here, not a package",
        "rename {package}.py, if you have such a file: Python finds it first; else import {package}"
        " alone, and use the name as its attribute",
        _PROGRAM,
        CAUSE,
    ),
    Symptom(
        r"ModuleNotFoundError: No module named '(?P<module>[^']*)'",
        "Python cannot find the module {module}",
        "add the package to a layer: jaxsif layer create NAME PACKAGE; for a module of your own:"
        " --env PYTHONPATH=/FOLDER",
        "no-module-named-name",
        CAUSE,
    ),
    Symptom(
        rf"ImportError: cannot import name '(?P<name>[^']*)' from \S+ \({_OWN_FILE}\)\. Did you"
        r" mean: '(?P<near>[^']*)'\?",
        "{file} does not define {name}",
        "write {near}, if that is meant; else see whether {file} is the file that is meant",
        _PROGRAM,
        CAUSE,
    ),
    Symptom(
        rf"ImportError: cannot import name '(?P<name>[^']*)' from \S+ \({_OWN_FILE}\)$",
        "{file} does not define {name}",
        "correct the name, or see whether {file} is the file that is meant",
        _PROGRAM,
        CAUSE,
    ),
    Symptom(
        r"ImportError: cannot import name '(?P<name>[^']*)' from '(?P<folder>[^']*)'"
        r" \(unknown location\)",
        "{folder} does not define {name}",
        "if {folder} is a folder of yours without __init__.py, import {name} from the file in it;"
        " else use a name that this version defines",
        _PROGRAM,
        CAUSE,
    ),
    Symptom(
        r"ImportError: cannot import name '(?P<name>[^']*)' from .*\. Did you mean: "
        r"'(?P<near>[^']*)'\?",
        "this version of a package does not define {name}",
        "write {near}, if that is meant; else use the name that this version defines",
        _PROGRAM,
        CAUSE,
    ),
    Symptom(
        r"ImportError: cannot import name '(?P<name>[^']*)'(?!.*\. Did you mean: )",
        "this version of a package does not define {name}",
        "compare the versions with `jaxsif image inspect`; use the name that this version defines",
        _PROGRAM,
        CAUSE,
    ),
    Symptom(
        rf"AttributeError: module '{_SUBMODULE}",
        "the program did not import {package}.{name}, and `import jax` does not either",
        "add `import {package}.{name}` to the program",
        _PROGRAM,
        CAUSE,
    ),
    Symptom(
        r"AttributeError: module 'jax(?:\.\S*)?' has no attribute '[^']*'\. Did you mean: "
        r"'(?P<near>[^']*)'\?",
        "the program uses a name that this version of JAX does not have",
        "write {near}, if that is meant; else look for the new name in JAX's changelog",
        _PROGRAM,
        CAUSE,
    ),
    Symptom(
        r"AttributeError: module 'jax(?:\.\S*)?' has no attribute '(?P<name>[^']*)'(?!\. Did you)"
        r"|AttributeError: jax\S* (?P<other>.*) was removed",
        "the program uses a name that this version of JAX does not have",
        "look for the new name in JAX's changelog, such as jax.tree.map for jax.tree_map",
        _PROGRAM,
        CAUSE,
    ),
    UNKNOWN_FLAGS,
    Symptom(
        r"TypeError: (dot_general requires contracting dimensions|\w+ got incompatible shapes"
        r"|cannot reshape array|\w+ requires .* shapes? )|ValueError: (Incompatible shapes"
        r"|All input arrays must have|operands could not be broadcast)",
        "the shapes of two arrays are incompatible",
        "print the shapes at the line above, and compare the batch and feature sizes",
        _PROGRAM,
        CAUSE,
    ),
    Symptom(
        r"(ValueError|IndivisibleError): .*(does not evenly divide|should evenly divide"
        r"|should be divisible by)",
        "the size of an array is not a multiple of the number of devices over which it is sharded",
        "make the size a multiple of the mesh axes that shard it: pad or drop the last batch",
        _PROGRAM,
        CAUSE,
    ),
    Symptom(
        r"ShardingTypeError: ",
        "JAX cannot infer how a result is sharded: the axes of jax.make_mesh are explicit",
        "pass axis_types=(jax.sharding.AxisType.Auto,) * AXES to jax.make_mesh, the default of"
        " older versions; or give the arrays one sharding with jax.sharding.reshard",
        _PROGRAM,
        CAUSE,
    ),
    Symptom(
        r"ValueError: Received incompatible devices for jitted computation",
        "the arguments of a jitted function are on different devices",
        "put all arguments on the same mesh with jax.device_put and a NamedSharding",
        _PROGRAM,
        CAUSE,
    ),
    Symptom(
        r"ValueError: Number of devices (?P<count>\d+) must be >= the product of mesh_shape",
        "the mesh needs more devices than JAX has ({count})",
        "derive the mesh from jax.device_count(), or request more GPUs",
        _PROGRAM,
        CAUSE,
    ),
    Symptom(
        r"RuntimeError: Array has been deleted",
        "the program used an array again after it was donated or deleted",
        "use the result of the function in place of a donated argument (donate_argnums)",
        _PROGRAM,
        CAUSE,
    ),
    Symptom(
        r"FloatingPointError: invalid value \((?P<value>nan|inf)\)",
        "jax_debug_nans or jax_debug_infs found a value {value}",
        "check the data, the learning rate, and functions such as log, sqrt and division",
        _PROGRAM,
        CAUSE,
    ),
    Symptom(
        r"UnexpectedTracerError: ",
        "a value from inside a jitted function was kept, and used outside it",
        "return the value from the function instead of keeping it; JAX_CHECK_TRACER_LEAKS=1 finds"
        " where",
        _PROGRAM,
        CAUSE,
    ),
    Symptom(
        r"(TracerBoolConversionError|TracerIntegerConversionError|TracerArrayConversionError"
        r"|ConcretizationTypeError): |TypeError: Shapes must be 1D sequences of concrete values",
        "a jitted function needs a value that is not known while JAX traces it",
        "use jax.lax.cond, jnp.where or jax.numpy, or name the argument in static_argnums",
        _PROGRAM,
        CAUSE,
    ),
    Symptom(
        r"TypeError: grad requires real- or complex-valued inputs",
        "jax.grad was given an integer argument",
        "convert the argument to float, or choose the arguments with argnums",
        _PROGRAM,
        CAUSE,
    ),
    Symptom(
        r"ValueError: Non-hashable static arguments",
        "a static argument of a jitted function is not hashable",
        "pass a tuple instead of a list, or a frozen dataclass instead of a dict",
        _PROGRAM,
        CAUSE,
    ),
    Symptom(
        r"An attempt has been made to start a new process before",
        "a multiprocessing worker ran the script again",
        'put the main program under `if __name__ == "__main__":`',
        "a-multiprocessing-worker-ran-the-script-again-an-attempt-has-been-made-to-start-a-new"
        "-process-before",
        CAUSE,
        ("new process",),
    ),
    Symptom(
        r".*RuntimeWarning: os\.fork\(\) was called\. os\.fork\(\) is incompatible with",
        "the program forks after JAX has started its threads, which may hang the child",
        'use the start method "spawn" or "forkserver", or start workers before JAX',
        _PROGRAM,
        EITHER,
        ("fork() was called",),
    ),
    Symptom(
        r"RecursionError: ",
        "functions call each other endlessly",
        "look in the traceback for the function that calls itself",
        _PROGRAM,
        CAUSE,
    ),
    # Files and limits
    Symptom(
        r".*(\[Errno 122\]|Disk quota exceeded)",
        "a disk quota is exhausted",
        "remove files, or write to another disk; the quota may count files, not only bytes",
        _FILES,
        CAUSE,
        ("rror: ", "quota"),
    ),
    Symptom(
        r".*(\[Errno 28\]|No space left on device)",
        "a disk is full",
        "remove files, or write to another disk; `df -h` and `df -i` show what is full",
        _FILES,
        CAUSE,
        ("rror: ", "space left"),
    ),
    Symptom(
        r".*(PermissionError: |\[Errno 13\])",
        "the program has no permission to read or write a file",
        "see who may use the file and the folders above it: namei -l PATH",
        _FILES,
        CAUSE,
    ),
    Symptom(
        r".*(\[Errno 30\]|Read-only file system)",
        "the program wrote to a file system that is read-only",
        "write to a folder of your own: an image is read-only, and shows only some of the node's"
        " folders; --bind PATH shows another one",
        _FILES,
        CAUSE,
        ("rror: ", "ile system"),
    ),
    Symptom(
        r".*(\[Errno 116\]|Stale file handle)",
        "a file on a shared disk was replaced or removed while it was in use",
        "run it again; do not replace files that a running job uses",
        _FILES,
        CAUSE,
        ("rror: ", "file handle"),
    ),
    Symptom(
        r".*(\[Errno 24\]|Too many open files)",
        "a process has reached its limit on open files",
        "close files, or raise the limit before starting the program: ulimit -n 65536",
        _FILES,
        CAUSE,
        ("rror: ", "open files"),
    ),
    Symptom(
        r".*(\[Errno 27\]|File too large)",
        "a file would exceed a limit on file size",
        "raise the limit before starting the program: ulimit -f unlimited; or write smaller files",
        _FILES,
        CAUSE,
        ("rror: ", "too large"),
    ),
    Symptom(
        r"RuntimeError: can't start new thread|OpenBLAS blas_thread_init: pthread_create failed",
        "the user or the job has reached a limit on processes and threads",
        "start fewer workers and threads (OPENBLAS_NUM_THREADS=1), or raise `ulimit -u`",
        _FILES,
        CAUSE,
        ("rror: ", "pthread_create"),
    ),
    Symptom(
        r"BlockingIOError: \[Errno 11\]",
        "a process cannot be started, or another one holds a lock",
        "if it was starting a process: start fewer, or raise `ulimit -u`; if it was taking a"
        " lock: see which process holds it",
        _FILES,
        CAUSE,
    ),
    Symptom(
        r"(.*: line \d+: +\d+ )?Bus error\b|srun: error: .*: Bus error",
        "a file mapped into a process's memory can no longer be read or written (SIGBUS)",
        "see `df -h /dev/shm`; if it is not full, a file was truncated, or the container was ended"
        " at the same time",
        "task-n-on-node-was-killed-by-sigbus",
        EITHER,
        ("Bus error",),
    ),
    Symptom(
        r"(_pickle\.)?UnpicklingError: |EOFError: Ran out of input|(zipfile\.)?BadZipFile: "
        r"|(msgpack\S*)?(UnpackValueError|OutOfData|FormatError)\b"
        r"|ValueError: Unpack failed",
        "a saved file is truncated, or is not of the expected kind",
        "make it again, or use an older checkpoint; write to another name and rename, so that no"
        " partial file is left",
        _FILES,
        CAUSE,
        ("rror: ", "BadZipFile", "OutOfData"),
    ),
    Symptom(
        r"ValueError: Object arrays cannot be loaded when allow_pickle=False",
        "a NumPy file contains Python objects",
        "save plain arrays; use allow_pickle=True only for files of your own",
        _FILES,
        CAUSE,
    ),
    Symptom(
        r"ValueError: (The target dict keys and state dict keys"
        r"|User-provided restore item and on-disk"
        r"|.*(tree structure|pytree|Pytree).*(mismatch|do not match|different))",
        "the structure of the checkpoint differs from what the program expects",
        "restore with the model and optimizer that saved it, or convert the checkpoint",
        _FILES,
        CAUSE,
    ),
    Symptom(
        r"FileNotFoundError: (.*[Cc]heckpoint|No steps? found)",
        "there is no checkpoint at this path or step",
        "check the path and the step; all nodes must see the folder",
        _FILES,
        CAUSE,
    ),
    # Slurm and the container
    TASK_PROLOG,
    NOT_EXECUTED,
    NO_IMAGE,
    NO_BIND,
    Symptom(
        r"FATAL: +\"(?P<program>.*)\": executable file not found in \$PATH",
        "the container has no program {program}",
        "check the name: the image has its own programs, not those of the host",
        _SLURM,
        CAUSE,
        ("FATAL: ",),
    ),
    Symptom(
        r"FATAL: .*(image format not recognized|trying to read the squashfs image"
        r"|Something went wrong trying)",
        "the image is damaged, truncated, or not a SIF file",
        "copy or download the image again, and compare its size",
        _SLURM,
        CAUSE,
        ("FATAL: ",),
    ),
    BAD_BIND,
    HIDING_BIND,
    CLOSED_BIND,
    NO_CONTAINER._replace(pattern=r"(?:FATAL: {2,}|Error for command )(?P<reason>.+)"),
    NO_JAXSIF,
    Symptom(
        r".*python\S{0,20}: can't open file '(?P<file>.*)'",
        "Python cannot open the script {file}",
        "check the path and its permissions; the container sees only what is bound: --bind",
        _SLURM,
        CAUSE,
        ("open file",),
    ),
    Symptom(
        r"(srun|sbatch|salloc): error: (?!Unable to create step)"
        r"(?P<reason>.*([Ii]nvalid partition|Invalid account|Requested node configuration is not"
        r" available|Invalid feature|can not be satisfied|Invalid qos|QOS|Only allocated \d+ nodes"
        r"|Batch job submission failed).*)",
        "Slurm refused the job: {reason}",
        "see `sinfo` for partitions and nodes, `sacctmgr show assoc user=$USER` for accounts",
        "slurm-refused-the-request-reason",
        CAUSE,
    ),
    STEP_REFUSED,
    EXCLUSIVE,
    BAD_VALUE,
    NO_OPTION,
    JOB_ENDED,
    NO_CONTROLLER,
    NOT_REACHED,
    NOT_LAUNCHED,
    NO_FOLDER,
    *CANCELLATIONS,
    Symptom(
        r"srun: error: Node failure on (?P<node>\S+)",
        "the job lost {node}",
        NODE_FAILURE.remedy,
        _REASONS_PAGE,
        CAUSE,
    ),
    SRUN_GAVE_UP,
    Symptom(
        r"(srun: error: .*: |.*: line \d+: +\d+ |Fatal Python error: )?Segmentation fault\b",
        "a process crashed in compiled code (SIGSEGV)",
        "look at the preceding lines; `--env PYTHONFAULTHANDLER=1` shows where it was",
        _SLURM,
        EITHER,
        ("tion fault",),
    ),
    TASK_ABORTED,
    TASK_TERMINATED,
    TASK_KILLED,
    Symptom(
        r"srun: First task exited \d+s ago",
        "a task ended long before the others, so srun ended the others",
        "see why the task ended before the others; --wait sets how long srun waits",
        _SLURM,
        EITHER,
        ("srun: ",),
    ),
    STEP_ABORTED,
    # Not of SIGTERM, by which srun ends the other tasks, or all after Ctrl-C.
    TASK_EXITED._replace(pattern=TASK_EXITED.pattern.replace("(?P<status>", "(?P<status>(?!143)")),
)

# What Slurm says of any step that ends early, by meaning: jaxsif knows better how its run ended.
ENDINGS = frozenset(
    row.meaning
    for row in (
        *(CANCELLED, TASK_FAILURE, STEP_ABORTED),
        *(TASK_ABORTED, TASK_TERMINATED, TASK_KILLED, TASK_EXITED),
    )
)

# --- The lines of standard error that diagnose/reports.py keeps

KEPT_LINES = re.compile(
    r"srun: (error|fatal|unrecognized|invalid)\b|slurmstepd: error: "
    r"|slurmstepd-\S+: error: (\*\*\*|couldn't chdir|execve\(\):|Detected \d+|StepId=\S+ exceeded"
    r"|--task-prolog|TaskProlog) "
    rf"|FATAL: |Error for command |{UNKNOWN_FLAGS.pattern}|{GAVE_UP.pattern}"
    rf"|{INTRUDED.pattern}|{SAME_ID.pattern}|{LOST_COORDINATOR.pattern}"
    rf"|{SIZES_DIFFER.pattern}|{NO_JAXSIF.pattern}"
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
    b"match expected size",
    b"can't open file",
    BARRIER_TEXT,
    OTHER_NAME_TEXT,
)
