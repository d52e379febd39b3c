"""The first cause of a failure, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from kit.hosts import CONTAINER, SRUN, srun_words
from kit.reporting import GONE, STARTED, ended, feed_all, raised, report_line, started

from jaxsif.diagnose.culprit import find_failure, signal_name
from jaxsif.diagnose.facts import End
from jaxsif.diagnose.reports import Barrier, Report
from jaxsif.job.srun_options import split_options
from jaxsif.settings.options import Rank, RunOptions, Setting

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


class Cause(NamedTuple):
    """What is said of a run, and what it ended with and reported."""

    text: str
    status: int
    reports: Sequence[Report] = ()
    errors: Sequence[str] = ()
    code: int | None = None  # the exit status of jaxsif, if it is another one


CAUSES = {
    "an exception": Cause(
        "task 1 on node1 failed: ValueError: shapes\n  from: train.py:10",
        1,
        [started(), raised(1, "ValueError: shapes"), ended(1, 1)],
    ),
    "a neighbour's exception first": Cause(
        "task 1 on node1 failed: ValueError: shapes\n  from: train.py:10",
        1,
        [started(), raised(0, GONE, True), ended(0, 1), raised(1, "ValueError: shapes"), ended(1, 1)],
    ),
    "JAX's SIGABRT first": Cause(
        "task 1 on node1 was killed by SIGKILL\n"
        "  try:  if nobody killed it, the node ran out of memory: see the kernel's log there, and the job's --mem",
        134,
        [started(), ended(0, 134), ended(1, 137)],
        code=137,
    ),
    **{
        name: Cause(
            "task 0 on node0 was killed by SIGABRT\n  try:  if JAX ended the task, its reason is above; "
            "DEADLINE_EXCEEDED: a process did not connect, or cannot reach task 0",
            134,
            [started(), ended(0, 134), *srun_ends],
        )
        for name, srun_ends in (("SIGABRT alone", []), ("SIGABRT, then srun's SIGTERM", [ended(1, 143)]))
    },
    "a consequence alone": Cause(
        f"task 0 on node0 failed: {GONE}\n  from: train.py:00", 1, [started(), raised(0, GONE, True), ended(0, 1)]
    ),
    "a signal behind an exception": Cause(
        "task 1 on node1 was killed by SIGSEGV\n  from: train.py:10",
        139,
        [started(), raised(1, "ValueError: caught and shown"), ended(1, 139)],
    ),
    "a line where a signal came": Cause(
        "task 1 on node1 was killed by SIGSEGV\n  from: train.py:7",
        139,
        [started(), Report(1, "node1", "exit", 139, where="train.py:7")],
    ),
    "an iteration in which a signal came": Cause(
        "task 0 on node0 was killed by SIGKILL\n"
        "  from: it was in iteration 40 or later of the loop at train.py:16\n"
        "  try:  if nobody killed it, the node ran out of memory: see the kernel's log there, and the job's --mem",
        137,
        [started(), ended(0, 137)._replace(box="40 0.0 /home/ada/train.py:16||40")],
    ),
    "an exception's line says more than the iteration": Cause(
        "task 0 on node0 failed: ValueError\n  from: train.py:00",
        1,
        [started(), raised(0, "ValueError"), ended(0, 1)._replace(box="40 0.0 train.py:16|")],
    ),
    "an exit status": Cause("task 1 on node1 ended with exit status 3", 3, [started(), ended(1, 3)]),
    "sys.exit with a status beyond all signals": Cause(
        "task 1 on node1 failed: sys.exit(200)\n  from: train.py:10",
        200,
        [started(), raised(1, "sys.exit(200)"), ended(1, 200)],
    ),
    "no usable GPU": Cause(
        f"task 0 on node0 failed: {NO_GPU}\n"
        "  from: train.py:00\n"
        "  try:  the task was given GPUs, but JAX cannot use them: see nvidia-smi on the node, or set --env"
        " JAX_PLATFORMS=cpu to run on the CPU",
        1,
        [started(), raised(0, NO_GPU), ended(0, 1)],
    ),
    "refused": Cause(
        "port 61234 is taken\n  from: task 0 on node0",
        1,
        [started(), ended(1, 1), Report(0, "node0", "refused", text="port 61234 is taken")],
        code=125,
    ),
    "a taken port": Cause(
        "port 61234 is taken\n  from: task 0 on node0\n"
        "  try:  run it again to get another port, or pass --coordinator-ports",
        125,
        [Report(0, "node0", "port-taken", text="port 61234 is taken")],
    ),
    "refused by Slurm": Cause(
        "Slurm refused the request: Unable to allocate resources: Invalid qos\n"
        "  from: srun\n"
        "  try:  sinfo --format='%P %c %m %G %f %l %N' shows CPUs, memory, GPUs, features, times and nodes",
        1,
        errors=["srun: error: x", "srun: error: Unable to allocate resources: Invalid qos"],
        code=125,
    ),
    "refused for a reason before the last line": Cause(
        "Slurm refused the request: Memory specification can not be satisfied\n"
        "  from: srun\n"
        "  try:  sinfo --format='%P %c %m %G %f %l %N' shows CPUs, memory, GPUs, features, times and nodes",
        1,
        errors=[
            "srun: error: Memory specification can not be satisfied",
            "srun: error: Unable to allocate resources: Requested node configuration is not available",
        ],
        code=125,
    ),
    "a value of another form": Cause(
        "Slurm cannot read the value of --time\n  from: srun\n"
        "  try:  write minutes, as 120, hours, as 2:00:00, or days, as 1-12:00:00",
        255,
        errors=["srun: error: Invalid --time specification"],
        code=2,
    ),
    **{
        f"a value that is not one of {option}": Cause(
            f"Slurm cannot read the value of {option}\n  from: srun\n  try:  `man srun` shows the forms of {option}",
            1,
            errors=errors,
            code=2,
        )
        for option, errors in {
            "--mpi": [
                "srun: error: Couldn't find the specified plugin name for mpi/pmixx looking at all files",
                "srun: error: Invalid MPI type 'pmixx', --mpi=list for acceptable types",
            ],
            "--hint": ['srun: error: unrecognized --hint argument "foo", see --hint=help'],
            "--cpu-bind": [
                'srun: error: unrecognized --cpu-bind argument "foo"',
                "srun: fatal: Failed to parse --cpu-bind= values.",
            ],
            "--mincpus": ['srun: error: Invalid numeric value "abc" for --mincpus.'],
            "-B": ['srun: error: Invalid numeric value "/tmp" for first arg of -B.'],
        }.items()
    },
    "no controller": Cause(
        "Slurm's controller does not answer\n"
        "  from: srun\n"
        "  try:  `scontrol ping` shows its state; try again later, or ask your site's staff",
        1,
        errors=["srun: error: Unable to allocate resources: Unable to contact slurm controller (connect failure)"],
        code=125,
    ),
    "refused by srun itself": Cause(
        "Slurm refused the request: --gpus-per-node and --gres=gpu are mutually exclusive.\n"
        "  from: srun\n"
        "  try:  keep one of them: leave out an option or setting, or unset a variable of Slurm",
        1,
        errors=["srun: fatal: --gpus-per-node and --gres=gpu are mutually exclusive."],
        code=125,
    ),
    "refused by the runtime": Cause(
        "the container did not start: could not open image\n"
        "  from: the runtime, on a node\n"
        "  try:  run it there by hand",
        255,
        errors=["FATAL:   could not open image", "srun: error: node1: task 0: Exited with exit code 255"],
        code=125,
    ),
    "no image on a node without a name": Cause(
        "the image is not on the node: /tmp/my x.sif\n"
        "  from: the runtime, on a node\n"
        "  try:  put it on a disk that all nodes see, or take another one if it was removed;"
        " if other nodes have it, leave this one out with --exclude,"
        " and report it to the site",
        255,
        errors=[NO_IMAGE],
        code=125,
    ),
    "no bind on a node with one": Cause(
        "node1 has no /tmp/x, which the container needs\n"
        "  from: the runtime, on a node\n"
        "  try:  put it on a disk that all nodes see, or leave out the option or setting that names it",
        255,
        errors=[NO_BIND, "srun: error: node1: task 0: Exited with exit code 255"],
        code=125,
    ),
    "the first task by srun": Cause(
        "task 1 on node2 ended with exit status 3",
        143,
        errors=["srun: error: node2: task 1: Exited with exit code 3", f"{EXITED}s 0-1: Exited with exit code 143"],
        code=3,
    ),
    "the first task by srun that srun did not end": Cause(
        "task 4 on node2 ended with exit status 1",
        143,
        errors=[f"{EXITED} 0: Exited with exit code 143", "srun: error: node2: tasks 4-5,7: Exited with exit code 1"],
        code=1,
    ),
    "the signal of a task by srun": Cause(
        "task 2 on node1 was killed by SIGSEGV", 143, errors=[f"{EXITED} 2: Exited with exit code 139"], code=139
    ),
    "no task by srun but those that it ended": Cause(
        "the step ended with exit status 143, and no task said why\n"
        f"  from: {EXITED}s 0-3: Exited with exit code 143\n"
        "  try:  squeue and `scontrol show job` show time limits, cancelled jobs and lost nodes",
        143,
        errors=[f"{EXITED}s 0-3: Exited with exit code 143"],
    ),
    "nothing known": Cause("no task started (exit status 1)\n  from: srun", 1, code=125),
    "without Slurm": Cause(
        "process 2 ended with exit status 1", 1, [Report(0, "", "started"), Report(2, "", "exit", 1)]
    ),
}


@pytest.mark.parametrize("cause", CAUSES.values(), ids=CAUSES)
def test_first_cause(cause: Cause) -> None:
    failure = find_failure(End(cause.status, SRUN), cause.reports, cause.errors)
    assert failure.render() == f"jaxsif: error: {cause.text}"
    assert failure.exit_code == (cause.code or cause.status)


def test_a_bind_that_only_some_nodes_have() -> None:
    container = CONTAINER.add_binds(("/tmp/x",), "--bind")
    errors = [NO_BIND, "srun: error: node2: tasks 1-2: Exited with exit code 255"]
    failure = find_failure(End(255, SRUN, 3, container=container), [started(), ended(0, 143)], errors)
    assert (failure.what, failure.where) == ("node2 has no /tmp/x, which the container needs", "--bind")
    assert failure.cause.nodes == ("node2",)
    # srun ended that task, whose report is late.
    errors = [NO_BIND, "srun: error: node2: task 1: Exited with exit code 143"]
    failure = find_failure(End(143, SRUN, 2, container=container), [started(), ended(0, 3)], errors)
    assert failure.what == "task 0 on node0 ended with exit status 3"
    # A task that has started prints what it likes.
    failure = find_failure(End(3, SRUN, 3, container=container), [started(), ended(1, 3)], [NO_BIND])
    assert failure.what == "task 1 on node1 ended with exit status 3"


def test_a_job_that_is_over_is_named_by_its_source() -> None:
    errors = ["srun: error: Unable to confirm allocation for job 999999: Invalid job id specified"]
    around = find_failure(End(1, SRUN, options=RunOptions(("true",))), (), errors)
    assert (around.what, around.where) == ("job 999999 is not running", "srun")
    named = RunOptions(("true",), passed=srun_words("--jobid=999999"))
    failure = find_failure(End(1, SRUN, options=named), (), errors)
    assert (failure.what, failure.where) == ("job 999999 is not running", "--jobid")


def test_an_image_is_named_by_its_source() -> None:
    container = CONTAINER._replace(source="JAX_IMAGE (environment)")
    failure = find_failure(End(255, SRUN, container=container), (), [NO_IMAGE])
    assert (failure.what, failure.where) == ("the image is not on the node: /tmp/my x.sif", "JAX_IMAGE (environment)")


def test_a_bind_is_named_by_its_source() -> None:
    container = CONTAINER.add_binds(("/scratch", "/tmp/x/:/x:ro"), "run.binds in /sw/jaxsif/jaxsif.toml")
    failure = find_failure(End(255, SRUN, container=container), (), [NO_BIND])
    assert failure.where == "run.binds in /sw/jaxsif/jaxsif.toml"
    container = CONTAINER.add_binds(("/scratch,/tmp/x",), "run.binds in /sw/jaxsif/jaxsif.toml")
    assert find_failure(End(255, SRUN, container=container), (), [NO_BIND]).where == failure.where
    relative = "FATAL:   container creation failed: unable to add /scratch to mount list: not absolute"
    failure = find_failure(End(255, SRUN, container=container), (), [relative])
    assert failure.where == "run.binds in /sw/jaxsif/jaxsif.toml"


def test_a_bind_with_a_wrong_option_is_named_by_its_source() -> None:
    error = "FATAL:   While setting bind mount configuration: while parsing bind path: rx is not a valid bind option"
    container = CONTAINER.add_binds(("/scratch",), "--bind").add_binds(("/tmp:/data:rx",), "run.binds in a.toml")
    assert find_failure(End(255, SRUN, container=container), (), [error]).where == "run.binds in a.toml"


def test_an_address_that_no_node_knows_is_named_by_its_source() -> None:
    text = "no address is known for node1.ib: [Errno -2] Name or service not known"
    sources = {"node-address": Setting("%N.ib", "run.node-address in a.toml", Rank.SITE)}
    options = RunOptions(("true",), node_address="%N.ib", sources=sources)
    refused = Report(0, "node1", "refused", text=text)
    failure = find_failure(End(125, SRUN, options=options), [started(), refused, ended(0, 125)], ())
    assert (failure.what, failure.hint) == (text, "correct node-address")
    assert failure.where == "task 0 on node1; run.node-address in a.toml"


def test_a_refused_request_is_named_by_its_settings() -> None:
    """Only by those that the refusal names, or may mean."""
    file = "/sw/jaxsif/jaxsif.toml"
    values = {
        "partition": Setting("batsch", f"run.partition in {file}", Rank.SITE),
        "time": Setting("1", "JAXSIF_TIME (environment)", Rank.VARIABLE),
        "nodes": Setting("2", "--nodes", Rank.COMMAND_LINE),
        "account": Setting("phys", "--account", Rank.COMMAND_LINE),
        "gpus": Setting(None, "", Rank.DEFAULT),
    }
    passed = tuple(split_options(["--mpi=pmixx", "-B", "/tmp", "--nodelist=node7", "-dafterok:1", "--gres=gpu:2"]))
    end = End(1, SRUN, options=RunOptions(("true",), sources=values, passed=passed))
    failure = find_failure(end, (), ["srun: error: invalid partition specified: batsch"])
    assert failure.what == "Slurm refused the request: invalid partition specified: batsch"
    assert failure.where == f"srun; run.partition in {file}"
    for reason, where in (
        ("srun: error: Invalid --time specification", "JAXSIF_TIME (environment)"),
        ("srun: error: Unable to allocate resources: Invalid account phys", "--account"),
        ("srun: error: Invalid MPI type 'pmixx', --mpi=list for acceptable types", "--mpi"),
        ('srun: error: Invalid numeric value "/tmp" for first arg of -B.', "-B"),
        ("srun: error: Unable to allocate resources: Invalid node name specified", "--nodelist"),
        ("srun: error: Unable to allocate resources: Job dependency problem", "--dependency"),
        # In a job, those that ask for one have no effect.
        ("srun: error: Unable to create step for job 12: Invalid generic resource (gres) specification", "--gres"),
        (
            "srun: error: Unable to create step for job 12: Memory required by task is not available",
            "--nodelist; --nodes; --gres",
        ),
        (
            "srun: error: Unable to allocate resources: Requested node configuration is not available",
            f"--nodelist; --gres; --nodes; --account; JAXSIF_TIME (environment); run.partition in {file}",
        ),
        ("srun: error: Too few", f"--nodes; --account; JAXSIF_TIME (environment); run.partition in {file}"),
    ):
        found = find_failure(end, (), [reason]).where
        assert sorted(found.split("; ")) == sorted(["srun", *where.split("; ")])


def aborted(task: int, where: str) -> Report:
    return Report(task, f"node{task}", "exit", 134, where=where)


def terminated(task: int, where: str) -> Report:
    return Report(task, f"node{task}", "exit", 143, where=where)


GAVE_UP = "F1121 client.h:86] Terminating process because the JAX distributed service detected fatal errors. \
absl::Status: DEADLINE_EXCEEDED: Deadline Exceeded"
TIMED_OUT = raised(0, "JaxRuntimeError: Gloo: Timed out waiting 30000ms")


WAITED_FOR = {
    "JAX's coordinator": Cause(
        "task 2 on node2 never arrived, and task 1 on node1 timed out waiting at a.py:7\n"
        "  from: a.py:3, where task 2 on node2 was\n",
        134,
        [aborted(1, "a.py:7"), aborted(3, "a.py:7"), terminated(0, "a.py:7"), terminated(2, "a.py:3")],
        [GAVE_UP],
    ),
    "Gloo": Cause(
        "task 1 on node1 never arrived, and task 0 on node0 timed out waiting at train.py:00\n"
        "  from: b.py:4, where task 1 on node1 was\n"
        "  try:  see what is keeping it there; the other one raised "
        "JaxRuntimeError: Gloo: Timed out waiting 30000ms\n",
        134,
        [TIMED_OUT, ended(0, 1), terminated(1, "b.py:4")],
    ),
    "others further on": Cause(
        "task 3 on node3 never arrived, and task 0 on node0 timed out waiting at train.py:00\n",
        134,
        [TIMED_OUT, ended(0, 1), terminated(1, "b.py:4"), terminated(2, "b.py:4"), terminated(3, "load.py:3")],
    ),
    "nobody knows which": Cause(
        "task 0 on node0 failed: JaxRuntimeError: Gloo: Timed out waiting 30000ms\n",
        134,
        [TIMED_OUT, ended(0, 1), terminated(1, "b.py:4"), terminated(3, "load.py:3")],
    ),
    "not JAX's timeout": Cause(
        "task 0 on node0 failed: RpcError: DEADLINE_EXCEEDED: of the data\n",
        134,
        [raised(0, "RpcError: DEADLINE_EXCEEDED: of the data"), ended(0, 1), terminated(1, "b.py:4")],
    ),
    "all at one line": Cause(
        "task 1 on node1 was killed by SIGABRT\n  from: a.py:7\n",
        134,
        [aborted(1, "a.py:7"), terminated(2, "a.py:7")],
        [GAVE_UP],
    ),
    "an abort of another kind": Cause(
        "task 1 on node1 was killed by SIGABRT\n  from: a.py:7\n", 134, [aborted(1, "a.py:7"), terminated(2, "a.py:3")]
    ),
    "another failure": Cause(
        "task 0 on node0 failed: ValueError: x\n",
        134,
        [raised(0, "ValueError: x"), ended(0, 1), terminated(1, "a.py:3")],
    ),
}


@pytest.mark.parametrize("cause", WAITED_FOR.values(), ids=WAITED_FOR)
def test_the_one_that_others_waited_for(cause: Cause) -> None:
    failure = find_failure(End(cause.status, SRUN), [started(), *cause.reports], cause.errors)
    assert f"{failure.render()}\n".startswith(f"jaxsif: error: {cause.text}")


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
    source = "run.env in /sw/jaxsif/jaxsif.toml"
    options = RunOptions(("true",), env=(("XLA_FLAGS", "x"),), sources={"env": Setting((), source, Rank.SITE)})
    error = find_failure(End(1, SRUN, options=options), reports, errors)
    assert error.where == f"XLA_FLAGS of {source}, in task 0 on node1"


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
    "one came early": (
        Barrier("Shutdown", 1, 4, 3, (1, 0)),
        [*ALL_ABORTED, Report(3, "node3", "end", text="SystemExit: 0, at train.py:7")],
        "task 3 on node3 reached the end of the program, but 3 of 4 did not\n"
        "  from: SystemExit: 0, at train.py:7; train.py:10, where task 1 on node1 was" + HINT,
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
    "half of them came early": (
        Barrier("Shutdown", 2, 4, 1, (2, 3)),
        [*ALL_ABORTED, *(Report(task, f"node{task}", "end", text="SystemExit: 0, at train.py:7") for task in (0, 1))],
        "task 1 on node1 reached the end of the program, but 2 of 4 did not; it was the first of 2\n"
        "  from: SystemExit: 0, at train.py:7; train.py:20, where task 2 on node2 was" + HINT,
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
    "its line is known only from its status": (
        Barrier("Shutdown", 3, 4, 1, (0,)),
        [started(), ended(1, 134), ended(0, 134)._replace(box="2 10.0 skip.py:28|skip.py:31|")],
        "task 0 on node0 did not reach the end of the program, but 3 of 4 did\n"
        "  from: it was in iteration 2 or later of the loop at skip.py:28, at skip.py:31 for 10 s" + HINT,
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
