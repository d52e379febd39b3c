"""The first cause of a failure, in words."""

from __future__ import annotations

import pytest
from kit.hosts import SRUN
from kit.reporting import GONE, STARTED, ended, feed_all, raised, report_line, started

from jaxsif.diagnose.culprit import find_failure, signal_name
from jaxsif.diagnose.facts import End
from jaxsif.diagnose.reports import Barrier, Report

NO_IMAGE = (
    "FATAL:   While checking container encryption: could not open image /tmp/my x.sif: failed to retrieve path for"
    " /tmp/my x.sif: lstat /tmp/my x.sif: no such file or directory"
)
NO_BIND = (
    "FATAL:   container creation failed: mount hook function failure: mount /tmp/x->/tmp/x error: while mounting"
    " /tmp/x: mount source /tmp/x doesn't exist"
)
EXITED = "srun: error: node1: task"
NO_GPU = "RuntimeError: Unable to initialize backend 'cuda': no device"


CAUSES = {
    "an exception": (
        1,
        [started(), raised(1, "ValueError: shapes"), ended(1, 1)],
        [],
        1,
        "task 1 on node1 failed: ValueError: shapes\n  from: train.py:10",
    ),
    "a neighbour's exception first": (
        1,
        [started(), raised(0, GONE, True), ended(0, 1), raised(1, "ValueError: shapes"), ended(1, 1)],
        [],
        1,
        "task 1 on node1 failed: ValueError: shapes\n  from: train.py:10",
    ),
    "JAX's SIGABRT first": (
        134,
        [started(), ended(0, 134), ended(1, 137)],
        [],
        137,
        "task 1 on node1 was killed by SIGKILL\n"
        "  try:  if nobody killed it, the node ran out of memory: see the kernel's log there, and the job's --mem",
    ),
    **{
        name: (
            134,
            [started(), ended(0, 134), *srun_ends],
            [],
            134,
            "task 0 on node0 was killed by SIGABRT\n  try:  JAX ended it and gave the reason above; DEADLINE_EXCEEDED: "
            "a process did not connect, or cannot reach task 0",
        )
        for name, srun_ends in (("SIGABRT alone", []), ("SIGABRT, then srun's SIGTERM", [ended(1, 143)]))
    },
    "a consequence alone": (
        1,
        [started(), raised(0, GONE, True), ended(0, 1)],
        [],
        1,
        f"task 0 on node0 failed: {GONE}\n  from: train.py:00",
    ),
    "a signal behind an exception": (
        139,
        [started(), raised(1, "ValueError: caught and shown"), ended(1, 139)],
        [],
        139,
        "task 1 on node1 was killed by SIGSEGV\n  from: train.py:10",
    ),
    "a line where a signal came": (
        139,
        [started(), Report(1, "node1", "exit", 139, where="train.py:7")],
        [],
        139,
        "task 1 on node1 was killed by SIGSEGV\n  from: train.py:7",
    ),
    "an iteration in which a signal came": (
        137,
        [started(), ended(0, 137)._replace(box="40 0.0 /home/ada/train.py:16|")],
        [],
        137,
        "task 0 on node0 was killed by SIGKILL\n"
        "  from: it was in iteration 40 of the loop at train.py:16\n"
        "  try:  if nobody killed it, the node ran out of memory: see the kernel's log there, and the job's --mem",
    ),
    "an exception's line says more than the iteration": (
        1,
        [started(), raised(0, "ValueError"), ended(0, 1)._replace(box="40 0.0 train.py:16|")],
        [],
        1,
        "task 0 on node0 failed: ValueError\n  from: train.py:00",
    ),
    "an exit status": (3, [started(), ended(1, 3)], [], 3, "task 1 on node1 ended with exit status 3"),
    "sys.exit with a status beyond all signals": (
        200,
        [started(), raised(1, "sys.exit(200)"), ended(1, 200)],
        [],
        200,
        "task 1 on node1 failed: sys.exit(200)\n  from: train.py:10",
    ),
    "no usable GPU": (
        1,
        [started(), raised(0, NO_GPU), ended(0, 1)],
        [],
        1,
        f"task 0 on node0 failed: {NO_GPU}\n"
        "  from: train.py:00\n"
        "  try:  the task was given GPUs, but JAX cannot use them: see nvidia-smi on the node, or set --env"
        " JAX_PLATFORMS=cpu to run on the CPU",
    ),
    "refused": (
        1,
        [started(), ended(1, 1), Report(0, "node0", "refused", text="port 61234 is taken")],
        [],
        125,
        "port 61234 is taken\n  from: task 0 on node0",
    ),
    "a taken port": (
        125,
        [Report(0, "node0", "port-taken", text="port 61234 is taken")],
        [],
        125,
        "port 61234 is taken\n  from: task 0 on node0\n"
        "  try:  run it again to get another port, or pass --coordinator-ports",
    ),
    "refused by Slurm": (
        1,
        [],
        ["srun: error: x", "srun: error: Unable to allocate resources: Invalid qos"],
        125,
        "Slurm refused the request: Unable to allocate resources: Invalid qos\n"
        "  from: srun\n"
        "  try:  sinfo and sacctmgr show what is available",
    ),
    "a value of another form": (
        255,
        [],
        ["srun: error: Invalid --time specification"],
        2,
        "Slurm cannot read the value of --time\n  from: srun\n  try:  `man srun` shows the forms of --time",
    ),
    "no controller": (
        1,
        [],
        ["srun: error: Unable to allocate resources: Unable to contact slurm controller (connect failure)"],
        125,
        "Slurm's controller does not answer\n"
        "  from: srun\n"
        "  try:  `scontrol ping` shows its state; try again later, or ask your site's staff",
    ),
    "refused by srun itself": (
        1,
        [],
        ["srun: fatal: --gpus-per-node and --gres=gpu are mutually exclusive."],
        125,
        "Slurm refused the request: --gpus-per-node and --gres=gpu are mutually exclusive.\n"
        "  from: srun\n"
        "  try:  sinfo and sacctmgr show what is available",
    ),
    "refused by the runtime": (
        255,
        [],
        ["FATAL:   could not open image", "srun: error: node1: task 0: Exited with exit code 255"],
        125,
        "the container did not start: could not open image\n"
        "  from: the runtime, on a node\n"
        "  try:  run it there by hand",
    ),
    "no image on a node without a name": (
        255,
        [],
        [NO_IMAGE],
        125,
        "the image is not on the node: /tmp/my x.sif\n"
        "  from: the runtime, on a node\n"
        "  try:  put it on a disk that all nodes see",
    ),
    "no bind on a node with one": (
        255,
        [],
        [NO_BIND, "srun: error: node1: task 0: Exited with exit code 255"],
        125,
        "node1 has no /tmp/x, which --bind asks for\n"
        "  from: the runtime, on a node\n"
        "  try:  put it on a disk that all nodes see, or leave out --bind",
    ),
    "the first task by srun": (
        143,
        [],
        ["srun: error: node2: task 1: Exited with exit code 3", f"{EXITED}s 0-1: Exited with exit code 143"],
        3,
        "task 1 on node2 ended with exit status 3",
    ),
    "the first task by srun that srun did not end": (
        143,
        [],
        [f"{EXITED} 0: Exited with exit code 143", "srun: error: node2: tasks 4-5,7: Exited with exit code 1"],
        1,
        "task 4 on node2 ended with exit status 1",
    ),
    "the signal of a task by srun": (
        143,
        [],
        [f"{EXITED} 2: Exited with exit code 139"],
        139,
        "task 2 on node1 was killed by SIGSEGV",
    ),
    "no task by srun but those that it ended": (
        143,
        [],
        [f"{EXITED}s 0-3: Exited with exit code 143"],
        143,
        "the step ended with exit status 143, and no task said why\n"
        f"  from: {EXITED}s 0-3: Exited with exit code 143\n"
        "  try:  squeue and `scontrol show job` show time limits, cancelled jobs and lost nodes",
    ),
    "nothing known": (1, [], [], 125, "no task started (exit status 1)\n  from: srun"),
    "without Slurm": (
        1,
        [Report(0, "", "started"), Report(2, "", "exit", 1)],
        [],
        1,
        "process 2 ended with exit status 1",
    ),
}


@pytest.mark.parametrize(("status", "reports", "errors", "code", "text"), CAUSES.values(), ids=CAUSES)
def test_first_cause(status: int, reports: list[Report], errors: list[str], code: int, text: str) -> None:
    failure = find_failure(End(status, SRUN), reports, errors)
    assert failure.render() == f"jaxsif: error: {text}"
    assert failure.exit_code == code


def aborted(task: int, where: str) -> Report:
    return Report(task, f"node{task}", "exit", 134, where=where)


def terminated(task: int, where: str) -> Report:
    return Report(task, f"node{task}", "exit", 143, where=where)


GAVE_UP = "F1121 client.h:86] Terminating process because the JAX distributed service detected fatal errors. \
absl::Status: DEADLINE_EXCEEDED: Deadline Exceeded"
TIMED_OUT = raised(0, "JaxRuntimeError: Gloo: Timed out waiting 30000ms")


WAITED_FOR = {
    "JAX's coordinator": (
        [aborted(1, "a.py:7"), aborted(3, "a.py:7"), terminated(0, "a.py:7"), terminated(2, "a.py:3")],
        [GAVE_UP],
        "task 2 on node2 never came, and task 1 on node1 timed out waiting at a.py:7\n"
        "  from: a.py:3, where task 2 on node2 was\n",
    ),
    "Gloo": (
        [TIMED_OUT, ended(0, 1), terminated(1, "b.py:4")],
        [],
        "task 1 on node1 never came, and task 0 on node0 timed out waiting at train.py:00\n"
        "  from: b.py:4, where task 1 on node1 was\n"
        "  try:  see what is keeping it there; the other one raised "
        "JaxRuntimeError: Gloo: Timed out waiting 30000ms\n",
    ),
    "others further on": (
        [TIMED_OUT, ended(0, 1), terminated(1, "b.py:4"), terminated(2, "b.py:4"), terminated(3, "load.py:3")],
        [],
        "task 3 on node3 never came, and task 0 on node0 timed out waiting at train.py:00\n",
    ),
    "nobody knows which": (
        [TIMED_OUT, ended(0, 1), terminated(1, "b.py:4"), terminated(3, "load.py:3")],
        [],
        "task 0 on node0 failed: JaxRuntimeError: Gloo: Timed out waiting 30000ms\n",
    ),
    "not JAX's timeout": (
        [raised(0, "RpcError: DEADLINE_EXCEEDED: of the data"), ended(0, 1), terminated(1, "b.py:4")],
        [],
        "task 0 on node0 failed: RpcError: DEADLINE_EXCEEDED: of the data\n",
    ),
    "all at one line": (
        [aborted(1, "a.py:7"), terminated(2, "a.py:7")],
        [GAVE_UP],
        "task 1 on node1 was killed by SIGABRT\n  from: a.py:7\n",
    ),
    "an abort of another kind": (
        [aborted(1, "a.py:7"), terminated(2, "a.py:3")],
        [],
        "task 1 on node1 was killed by SIGABRT\n  from: a.py:7\n",
    ),
    "another failure": (
        [raised(0, "ValueError: x"), ended(0, 1), terminated(1, "a.py:3")],
        [],
        "task 0 on node0 failed: ValueError: x\n",
    ),
}


@pytest.mark.parametrize(("reports", "errors", "text"), WAITED_FOR.values(), ids=WAITED_FOR)
def test_the_one_that_others_waited_for(reports: list[Report], errors: list[str], text: str) -> None:
    failure = find_failure(End(134, SRUN), [started(), *reports], errors)
    assert f"{failure.render()}\n".startswith(f"jaxsif: error: {text}")


def test_sigkill_of_a_whole_task_is_the_cause_of_the_others_sigterm() -> None:
    """The parent of the program, which would report, is killed too; Slurm says which one was."""
    killed, cancelled = "srun: error: node2: task 3: Killed", "slurmstepd-node1: error: *** STEP 7.0 CANCELLED AT ***"
    failure = find_failure(End(137, SRUN), [started(), ended(0, 143)], [killed, cancelled])
    assert failure.render().startswith("jaxsif: error: task 3 on node2 was killed by SIGKILL\n")
    for reports in ([ended(0, 134)], [raised(0, GONE, True), ended(0, 1)]):
        follows = "srun: error: node0: task 0: Exited with exit code 1"
        failure = find_failure(End(137, SRUN), [started(), *reports], [follows, killed, cancelled])
        assert failure.what == "task 3 on node2 was killed by SIGKILL"
    ended_by_slurm = find_failure(End(137, SRUN), [started(), ended(0, 143)], [cancelled, killed])
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
    assert (error.what, error.where) == (f"XLA does not know {flags}", "XLA_FLAGS, in task 0 on node1")
    assert error.exit_code == 1


ALL_ABORTED = [started(), *(Report(task, f"node{task}", "exit", 134, where=f"train.py:{task}0") for task in range(4))]
HINT = "\n  try:  all processes must run the same computations the same number of times: see slurm/mistakes"
INIT_HINT = (
    "\n  try:  see what it does before that, and whether it can reach task 0;"
    " --init-timeout sets how long the others wait"
)


AT_BARRIERS = {
    "one came": (
        Barrier("Shutdown", 1, 4, 3, (1, 0)),
        ALL_ABORTED,
        "task 3 on node3 reached the end of the program, but 3 of 4 did not\n"
        "  from: train.py:10, where task 1 on node1 was" + HINT,
    ),
    "two came": (
        Barrier("Shutdown", 2, 8, 3, (1, 0)),
        ALL_ABORTED,
        "task 3 on node3 reached the end of the program, but 6 of 8 did not; it was the first of 2\n"
        "  from: train.py:10, where task 1 on node1 was" + HINT,
    ),
    "half of them came": (
        Barrier("Shutdown", 2, 4, 3, (1, 0)),
        ALL_ABORTED,
        "task 1 on node1, task 0 on node0 did not reach the end of the program, but 2 of 4 did\n"
        "  from: train.py:10, where task 1 on node1 was" + HINT,
    ),
    "one is missing": (
        Barrier("Shutdown", 3, 4, 1, (0,)),
        ALL_ABORTED,
        "task 0 on node0 did not reach the end of the program, but 3 of 4 did\n"
        "  from: train.py:00, where task 0 on node0 was" + HINT,
    ),
    "initialize": (
        Barrier("[Init]Wait_for_all_tasks_to_register", 6, 8, 1, (5, 7)),
        [started(), raised(1, "JaxRuntimeError: DEADLINE_EXCEEDED: Barrier timed out"), ended(1, 1)],
        "task 5, task 7 did not reach jax.distributed.initialize, but 6 of 8 did" + INIT_HINT,
    ),
    "its neighbours were faster": (
        Barrier("Shutdown", 3, 4, 1, (0,)),
        [started(), ended(1, 134), raised(0, GONE, True), ended(0, 1)],
        "task 0 on node0 did not reach the end of the program, but 3 of 4 did\n"
        "  from: train.py:00, where task 0 on node0 was" + HINT,
    ),
    "another barrier": (
        Barrier("save", 3, 4, 1, (2,)),
        [started(), raised(0, "JaxRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: save::0."), ended(0, 1)],
        "task 2 did not reach the barrier save, but 3 of 4 did" + HINT,
    ),
    "many are missing": (
        Barrier("Shutdown", 60, 64, 1, (1, 2)),
        ALL_ABORTED,
        "task 1 on node1, task 2 on node2 and 2 more did not reach the end of the program, but 60 of 64 did\n"
        "  from: train.py:10, where task 1 on node1 was" + HINT,
    ),
}


@pytest.mark.parametrize(("barrier", "reports", "text"), AT_BARRIERS.values(), ids=AT_BARRIERS)
def test_the_odd_one_at_a_barrier(barrier: Barrier, reports: list[Report], text: str) -> None:
    failure = find_failure(End(134, SRUN), reports, [], [barrier])
    assert failure.render() == f"jaxsif: error: {text}"


@pytest.mark.parametrize(
    ("barrier", "reports", "what"),
    [
        (Barrier("save", 3, 4, 1, (2,)), [], "task 0 on node0 was killed by SIGABRT"),
        (Barrier("", 3, 4, 1, (2,)), [], "task 0 on node0 was killed by SIGABRT"),  # a program may print one
        (
            Barrier("Shutdown", 3, 4, 1, (2,)),
            [raised(2, "ValueError: shapes"), ended(2, 1)],
            "task 2 on node2 failed: ValueError: shapes",
        ),
    ],
    ids=["the program went on from it", "no name", "a task failed by itself"],
)
def test_a_barrier_that_is_no_cause(barrier: Barrier, reports: list[Report], what: str) -> None:
    failure = find_failure(End(134, SRUN), [*ALL_ABORTED, *reports], [], [barrier])
    assert failure.what == what
