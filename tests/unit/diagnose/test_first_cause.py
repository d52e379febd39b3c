"""The first cause of a failure, in words."""

from __future__ import annotations

import pytest
from hosts import SRUN
from reporting import GONE, STARTED, ended, feed_all, raised, report_line, started

from jaxsif.diagnose.culprit import find_failure, signal_name
from jaxsif.diagnose.facts import End
from jaxsif.diagnose.reports import Report

NO_GPU = "RuntimeError: Unable to initialize backend 'cuda': no device"


@pytest.mark.parametrize(
    ("status", "reports", "errors", "code", "text"),
    [
        (
            1,
            [started(), raised(1, "ValueError: shapes"), ended(1, 1)],
            [],
            1,
            "task 1 on node1 failed: ValueError: shapes\n  from: train.py:10",
        ),
        (
            1,
            [started(), raised(0, GONE, True), ended(0, 1), raised(1, "ValueError: shapes"), ended(1, 1)],
            [],
            1,
            "task 1 on node1 failed: ValueError: shapes\n  from: train.py:10",
        ),
        (
            134,
            [started(), ended(0, 134), ended(1, 137)],
            [],
            137,
            "task 1 on node1 was killed by SIGKILL\n"
            "  try:  if nobody killed it, the node ran out of memory: see the kernel's log there, and --mem of the job",
        ),
        *(
            (
                134,
                [started(), ended(0, 134), *srun_ends],
                [],
                134,
                "task 0 on node0 was killed by SIGABRT\n  try:  JAX ended it, and says why above; DEADLINE_EXCEEDED: "
                "a process did not come, or cannot reach task 0",
            )
            for srun_ends in ([], [ended(1, 143)])
        ),
        (
            1,
            [started(), raised(0, GONE, True), ended(0, 1)],
            [],
            1,
            f"task 0 on node0 failed: {GONE}\n  from: train.py:00",
        ),
        (
            139,
            [started(), raised(1, "ValueError: caught and shown"), ended(1, 139)],
            [],
            139,
            "task 1 on node1 was killed by SIGSEGV\n  from: train.py:10",
        ),
        (3, [started(), ended(1, 3)], [], 3, "task 1 on node1 ended with exit status 3"),
        (
            3,
            [started(), raised(1, "sys.exit(3)"), ended(1, 3)],
            [],
            3,
            "task 1 on node1 failed: sys.exit(3)\n  from: train.py:10",
        ),
        (
            200,
            [started(), raised(1, "sys.exit(200)"), ended(1, 200)],
            [],
            200,
            "task 1 on node1 failed: sys.exit(200)\n  from: train.py:10",
        ),
        (255, [started(), ended(1, 255)], [], 255, "task 1 on node1 ended with exit status 255"),
        (
            128,
            [started(), raised(1, "sys.exit(128)"), ended(1, 128)],
            [],
            128,
            "task 1 on node1 failed: sys.exit(128)\n  from: train.py:10",
        ),
        (
            127,
            [started(), ended(0, 127)],
            [],
            127,
            "task 0 on node0 ended with exit status 127",
        ),
        (
            1,
            [started(), raised(0, NO_GPU), ended(0, 1)],
            [],
            1,
            f"task 0 on node0 failed: {NO_GPU}\n"
            "  from: train.py:00\n"
            "  try:  the task was given GPUs, but JAX cannot use them: see nvidia-smi on the node, or set --env"
            " JAX_PLATFORMS=cpu to run on the CPU",
        ),
        (
            1,
            [started(), ended(1, 1), Report(0, "node0", "refused", text="port 61234 is taken")],
            [],
            125,
            "port 61234 is taken\n  from: task 0 on node0",
        ),
        (
            125,
            [Report(0, "node0", "port-taken", text="port 61234 is taken")],
            [],
            125,
            "port 61234 is taken\n  from: task 0 on node0\n"
            "  try:  run it again for another port, or --coordinator-ports",
        ),
        (
            1,
            [],
            ["srun: error: x", "srun: error: Unable to allocate resources: Invalid qos"],
            125,
            "Slurm refused the request: Unable to allocate resources: Invalid qos\n"
            "  from: srun\n"
            "  try:  sinfo and sacctmgr show what there is",
        ),
        (
            1,
            [],
            ["srun: fatal: --gpus-per-node and --gres=gpu are mutually exclusive."],
            125,
            "Slurm refused the request: --gpus-per-node and --gres=gpu are mutually exclusive.\n"
            "  from: srun\n"
            "  try:  sinfo and sacctmgr show what there is",
        ),
        (
            255,
            [],
            ["FATAL:   could not open image", "srun: error: node1: task 0: Exited with exit code 255"],
            125,
            "the container did not start: could not open image\n"
            "  from: the runtime, on a node\n"
            "  try:  run it there by hand",
        ),
        (1, [], [], 125, "no task started (exit status 1)\n  from: srun"),
        (
            143,
            [started()],
            ["slurmstepd: error: *** STEP 7.0 CANCELLED DUE TO TIME LIMIT ***"],
            143,
            "the step ended with exit status 143, and no task said why\n"
            "  from: slurmstepd: error: *** STEP 7.0 CANCELLED DUE TO TIME LIMIT ***\n"
            "  try:  squeue and scontrol show job tell of time limits, cancelled jobs and lost nodes",
        ),
        (
            1,
            [Report(0, "", "started"), Report(2, "", "exit", 1)],
            [],
            1,
            "process 2 ended with exit status 1",
        ),
    ],
    ids=[
        "an exception",
        "a neighbour's exception first",
        "JAX's SIGABRT first",
        "SIGABRT alone",
        "SIGABRT, then srun's SIGTERM",
        "a consequence alone",
        "a signal behind an exception",
        "an exit status",
        "sys.exit",
        "sys.exit with a status beyond all signals",
        "a status beyond all signals",
        "sys.exit(128)",
        "no program",
        "no usable GPU",
        "refused",
        "a taken port",
        "refused by Slurm",
        "refused by srun itself",
        "refused by the runtime",
        "nothing known",
        "ended by Slurm",
        "without Slurm",
    ],
)
def test_first_cause(status: int, reports: list[Report], errors: list[str], code: int, text: str) -> None:
    failure = find_failure(End(status, SRUN), reports, errors)
    assert failure is not None
    assert failure.render() == f"jaxsif: error: {text}"
    assert failure.exit_code == code


def aborted(task: int, where: str) -> Report:
    return Report(task, f"node{task}", "exit", 134, where=where)


def terminated(task: int, where: str) -> Report:
    return Report(task, f"node{task}", "exit", 143, where=where)


GAVE_UP = "F1121 client.h:86] Terminating process because the JAX distributed service detected fatal errors. \
absl::Status: DEADLINE_EXCEEDED: Deadline Exceeded"
TIMED_OUT = raised(0, "JaxRuntimeError: Gloo: Timed out waiting 30000ms")


@pytest.mark.parametrize(
    ("reports", "errors", "text"),
    [
        (
            [aborted(1, "a.py:7"), aborted(3, "a.py:7"), terminated(0, "a.py:7"), terminated(2, "a.py:3")],
            [GAVE_UP],
            "task 2 on node2 never came, and task 1 on node1 timed out waiting at a.py:7\n"
            "  from: a.py:3, where task 2 on node2 was\n",
        ),
        (
            [TIMED_OUT, ended(0, 1), terminated(1, "b.py:4")],
            [],
            "task 1 on node1 never came, and task 0 on node0 timed out waiting at train.py:00\n"
            "  from: b.py:4, where task 1 on node1 was\n"
            "  try:  see what keeps it there; what the other one said: "
            "JaxRuntimeError: Gloo: Timed out waiting 30000ms\n",
        ),
        (
            [TIMED_OUT, ended(0, 1), terminated(1, "b.py:4"), terminated(2, "b.py:4"), terminated(3, "load.py:3")],
            [],
            "task 3 on node3 never came, and task 0 on node0 timed out waiting at train.py:00\n",
        ),
        (
            [TIMED_OUT, ended(0, 1), terminated(1, "b.py:4"), terminated(3, "load.py:3")],
            [],
            "task 0 on node0 failed: JaxRuntimeError: Gloo: Timed out waiting 30000ms\n",
        ),
        (
            [raised(0, "RpcError: DEADLINE_EXCEEDED: of the data"), ended(0, 1), terminated(1, "b.py:4")],
            [],
            "task 0 on node0 failed: RpcError: DEADLINE_EXCEEDED: of the data\n",
        ),
        (
            [aborted(1, "a.py:7"), terminated(2, "a.py:7")],
            [GAVE_UP],
            "task 1 on node1 was killed by SIGABRT\n  from: a.py:7\n",
        ),
        (
            [aborted(1, "a.py:7"), terminated(2, "a.py:3")],
            [],
            "task 1 on node1 was killed by SIGABRT\n  from: a.py:7\n",
        ),
        (
            [raised(0, "ValueError: x"), ended(0, 1), terminated(1, "a.py:3")],
            [],
            "task 0 on node0 failed: ValueError: x\n",
        ),
    ],
    ids=[
        "JAX's coordinator",
        "Gloo",
        "others further on",
        "nobody knows which",
        "not JAX's timeout",
        "all at one line",
        "an abort of another kind",
        "another failure",
    ],
)
def test_the_one_that_others_waited_for(reports: list[Report], errors: list[str], text: str) -> None:
    failure = find_failure(End(134, SRUN), [started(), *reports], errors)
    assert failure is not None
    assert f"{failure.render()}\n".startswith(f"jaxsif: error: {text}")


def test_a_line_where_a_signal_came() -> None:
    failure = find_failure(End(139, SRUN), [started(), Report(1, "node1", "exit", 139, where="train.py:7")], [])
    assert failure is not None
    assert failure.render() == "jaxsif: error: task 1 on node1 was killed by SIGSEGV\n  from: train.py:7"


def test_sigkill_of_a_whole_task_is_the_cause_of_the_others_sigterm() -> None:
    """The parent of the program, which would report, is killed too; Slurm says which one was."""
    killed, cancelled = "srun: error: node2: task 3: Killed", "slurmstepd-node1: error: *** STEP 7.0 CANCELLED AT ***"
    failure = find_failure(End(137, SRUN), [started(), ended(0, 143)], [killed, cancelled])
    assert failure is not None
    assert failure.render().startswith("jaxsif: error: task 3 on node2 was killed by SIGKILL\n")
    for reports in ([ended(0, 134)], [raised(0, GONE, True), ended(0, 1)]):
        failure = find_failure(End(137, SRUN), [started(), *reports], [killed, cancelled])
        assert failure is not None
        assert failure.what == "task 3 on node2 was killed by SIGKILL"
    ended_by_slurm = find_failure(End(137, SRUN), [started(), ended(0, 143)], [cancelled, killed])
    assert ended_by_slurm is not None
    assert ended_by_slurm.what == "task 0 on node0 was killed by SIGTERM"


def test_success_has_no_cause_whatever_was_said() -> None:
    assert find_failure(End(0, SRUN), [started(), ended(1, 3)], ["srun: error: x"]) is None


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (15, "SIGTERM"), (33, "signal 33"), (70, "signal 70")])
def test_signal_name(number: int, name: str) -> None:
    assert signal_name(number) == name


@pytest.mark.parametrize(
    ("line", "flags"),
    [
        ("Unknown flag in XLA_FLAGS: --xla_foo=1", "--xla_foo=1"),
        ("Unknown flags in XLA_FLAGS: --xla_foo --xla_bar=2", "--xla_foo --xla_bar=2"),
    ],
)
@pytest.mark.parametrize("label", [False, True])
def test_an_unknown_flag_of_xla_is_named(line: str, flags: str, label: bool) -> None:
    said = f"{'1: ' if label else ''}F1120 17:02:42.966399    1537 parse_flags_from_env.cc:234] {line}\n".encode()
    ended = report_line(event="exit", status=1)
    shown, reports, errors = feed_all([STARTED, said, b"0: " * label + ended], label)
    assert said in shown
    error = find_failure(End(1, SRUN), reports, errors)
    assert error is not None
    assert (error.what, error.where) == (f"XLA does not know {flags}", "XLA_FLAGS, in task 0 on node1")
    assert error.exit_code == 1
