"""Each message that jaxsif knows: as its author writes it, and what jaxsif makes of it."""

from __future__ import annotations

import re

import pytest

from jaxsif.diagnose import symptoms
from jaxsif.diagnose.culprit import signal_name
from jaxsif.diagnose.facts import match_symptoms
from jaxsif.diagnose.reports import ReportFilter
from jaxsif.diagnose.symptoms import Symptom

ROWS = {name: row for name, row in vars(symptoms).items() if isinstance(row, Symptom)}
CANCELLED = "slurmstepd-node1: error: *** STEP 7.0 ON node1 CANCELLED AT 2026-11-22T10:39:36"

# Lines of standard error.
LINES = {
    "NO_IMAGE": "FATAL:   While checking container encryption: could not open image /tmp/my x.sif: failed to retrieve"
    " path for /tmp/my x.sif: lstat /tmp/my x.sif: no such file or directory",
    "BAD_BIND": "FATAL:   While setting bind mount configuration: while parsing: rx is not a valid bind option",
    "NO_BIND": "FATAL:   container creation failed: mount hook function failure: mount /tmp/x->/tmp/x error: while"
    " mounting /tmp/x: mount source /tmp/x doesn't exist",
    "NO_CONTAINER": 'Error for command "exec": no user namespaces',
    "NO_FOLDER": "slurmstepd-node1: error: couldn't chdir to `/tmp/x': No such file or directory: going to /tmp"
    " instead",
    "TASK_EXITED": "srun: error: node2: tasks 4-5,7: Exited with exit code 1",
    "TASK_ABORTED": "srun: error: node2: task 3: Aborted (core dumped)",
    "TASK_TERMINATED": "srun: error: node2: task 3: Terminated",
    "TASK_KILLED": "srun: error: node2: task 3: Killed",
    "NOT_REACHED": "srun: error: Task launch for StepId=7.0 failed on node node4: Communication connection failure",
    "NOT_LAUNCHED": "srun: error: Task launch for StepId=7+1.0 failed on node node4: Invalid job credential",
    "BAD_VALUE": "srun: error: Invalid --mem specification",
    "JOB_ENDED": "srun: error: Slurm job 299 has expired",
    "NO_OPTION": "srun: unrecognized option '--bogus'",
    "STEP_REFUSED": "srun: error: Unable to create step for job 7: Invalid generic resource (gres) specification",
    "EXCLUSIVE": "srun: fatal: --gpus-per-node and --gres=gpu are mutually exclusive.",
    "NO_CONTROLLER": "srun: error: Unable to allocate resources: Unable to contact slurm controller (connect failure)",
    "TASKS_RAN": "srun: error: node2: tasks 3-4: Killed",
    "OUT_OF_MEMORY": "slurmstepd-node1: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks",
    "STEP_ABORTED": "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
    "TIME_LIMIT": f"{CANCELLED} DUE TO TIME LIMIT ***",
    "PREEMPTION": f"{CANCELLED} DUE TO PREEMPTION ***",
    "NODE_FAILURE": f"{CANCELLED} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
    "REQUEUE": f"{CANCELLED} DUE TO JOB REQUEUE ***",
    "TASK_FAILURE": f"{CANCELLED} DUE TO TASK FAILURE ***",
    "CANCELLED": f"{CANCELLED} DUE to SIGNAL Terminated ***",
    "SRUN_GAVE_UP": "srun: error: Aborting, io error with slurmstepd on node 1",
    "UNKNOWN_FLAGS": "F1121 10:00:00.000000 7 parse_flags_from_env.cc:234] Unknown flag in XLA_FLAGS: --xla_nothing",
    "LOST_COORDINATOR": "F1129 client.h:86] Terminating process because the JAX distributed service detected fatal"
    " errors. absl::Status: UNAVAILABLE: Failed to send RPC to coordination service.",
    "GAVE_UP": "F1121 client.h:86] Terminating process because the JAX distributed service detected fatal errors."
    " absl::Status: DEADLINE_EXCEEDED: Deadline Exceeded",
    "INTRUDED": "F1121 client.h:86] Terminating process because the JAX distributed service detected fatal errors."
    " absl::Status: ABORTED: 2 unexpectedly tried to connect with a different incarnation. It has likely restarted.",
    "SAME_ID": "F1121 client.h:86] Terminating process because the JAX distributed service detected fatal errors."
    " absl::Status: ALREADY_EXISTS: Aborted connect attempt as there is a request from a newer incarnation.",
    "DIFFERENT": "jaxsif: warning: task 3 compiled jit_f for (tensor<4xf32>) at a.py:5, 3 others for (tensor<8xf32>)"
    " at a.py:5: their results may be wrong",
    "SIZES_DIFFER": "  what():  [enforce fail at pair.cc] 16 vs 12. Received data size doesn't match expected size.",
    "NO_JAXSIF": "/usr/bin/python3: can't open file '/sw/jaxsif/0.1.0/lib/jaxsif/node/share.py': [Errno 2] No such",
    "CLOSED_BIND": "FATAL:   container creation failed: mount hook function failure: mount /root/a->/a error:"
    " while mounting /root/a: while getting stat for /root/a: stat /root/a: permission denied",
    "HIDING_BIND": "FATAL:   failed to open /bin/sh for inspection: failed to open elf binary /bin/sh: open /bin/sh",
    "TASK_PROLOG": "slurmstepd-node1: error: --task-prolog failed status=127",
    "NOT_EXECUTED": "slurmstepd-node1: error: execve(): apptainer: No such file or directory",
    "OTHER_NAME": "E1123 19:35:24.904707     451 ssl_transport_security.cc:3050] No match found for server name: node3",
    "BARRIER": "DEADLINE_EXCEEDED: Barrier timed out. Id: Shutdown::145846::0. This usually happens because",
}
# Texts of exceptions.
EXCEPTIONS = {
    "BROKEN_GPU": "XlaRuntimeError: INTERNAL: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered",
    "IMAGE_READ": "ModuleNotFoundError: No module named 'jax.numpy'",
    "NO_GPU": "RuntimeError: Unable to initialize backend 'cuda': no device",
    "TIMED_OUT": "JaxRuntimeError: Gloo: Timed out waiting 30000ms",
}
# In what mpirun prints.
MPIRUN = {
    "SSH": "x\nssh: connect to host n9 port 22: No route to host\n",
    "MPIRUN_ERROR": f"{'-' * 74}\nThere are not enough slots\n\n  sh\n{'-' * 74}",
    "MPIRUN_NOISE": "[login:258] plm:ssh: Warning: setpgid(262,262) failed in parent with errno=Permission denied(13)"
    "\n",
}
# Not among the errors of a run, because they are no errors, or read in another way.
NOT_KEPT = ("STEP_ABORTED", "BARRIER", "OTHER_NAME", "DIFFERENT")


@pytest.mark.parametrize("place", ["image /proc/self/fd/3: failed to find loop device: open /dev/loop0", "overlay"])
def test_not_all_that_cannot_be_mounted_is_a_bind(place: str) -> None:
    text = f"FATAL:   container creation failed: mount hook function failure: while mounting {place}: permission denied"
    (found,) = match_symptoms(symptoms.CONTAINER, [text])
    assert found.symptom is symptoms.NO_CONTAINER


def test_every_row_has_an_example() -> None:
    assert ROWS.keys() == {*LINES, *EXCEPTIONS, *MPIRUN}


@pytest.mark.parametrize(("name", "text"), {**LINES, **EXCEPTIONS, **MPIRUN}.items())
def test_a_row_matches_its_example(name: str, text: str) -> None:
    search = re.search if name in MPIRUN else re.match
    assert search(ROWS[name].pattern, text)


@pytest.mark.parametrize("name", [name for name in LINES if name not in NOT_KEPT])
def test_a_line_that_is_known_is_kept(name: str) -> None:
    seen = ReportFilter()
    seen.feed(f"loss 0.1\n{LINES[name]}\n".encode())
    assert seen.errors == [LINES[name]]


@pytest.mark.parametrize("rows", [symptoms.CONTAINER, symptoms.CANCELLATIONS])
def test_the_first_row_that_matches_counts(rows: tuple[Symptom, ...]) -> None:
    for row in rows:
        (text,) = [LINES[name] for name in LINES if ROWS[name] is row]
        assert [found.symptom for found in match_symptoms(rows, ["x", text], node="n1")] == [row]


@pytest.mark.parametrize(
    ("name", "what", "remedy"),
    [
        ("NO_BIND", "n9 has no /tmp/x, which the container needs", "put it on a disk that all nodes see, or"),
        ("NO_FOLDER", "", "work in a folder that all nodes see: /tmp/x is not on node1"),
        ("NOT_REACHED", "node4 cannot be reached", "list lost nodes with sinfo --list-reasons; leave the node out"),
        ("NOT_LAUNCHED", "srun could not start the tasks on node4: Invalid job credential", "read slurmd's log on"),
        (
            "CANCELLED",
            "the run was cancelled: step 7.0",
            "see by whom, if Slurm keeps accounts: sacct --jobs=7 --format=JobID,State%40",
        ),
        ("UNKNOWN_FLAGS", "XLA does not know --xla_nothing", "correct or remove them"),
    ],
)
def test_the_words_of_a_message_fill_in_the_error(name: str, what: str, remedy: str) -> None:
    (found,) = match_symptoms([ROWS[name]], [LINES[name]], node="n9")
    assert found.what == what
    assert found.remedy.startswith(remedy)


@pytest.mark.parametrize("number", symptoms.SIGNALS)
def test_signals_have_their_names(number: int) -> None:
    assert re.match(symptoms.SIGNALS[number].pattern, signal_name(number))
