"""Options, host and allocation -> what is started; whole lines are in tests/golden, single decisions here."""

from __future__ import annotations

import pytest
from kit.caught import catch
from kit.hosts import CONTAINER, LAPTOP, LOGIN_NODE, WORKSTATION, launch_words, plan_for, srun_words

from jaxsif.errors import HostError, JaxsifError
from jaxsif.job.allocation import Allocation
from jaxsif.launch.probe import choose_launcher
from jaxsif.plan.container import Container, Staged
from jaxsif.plan.host import Host
from jaxsif.plan.launcher import LOCAL, SRUN
from jaxsif.plan.plan import Plan, move_to_port
from jaxsif.settings.options import RunOptions

JOB = Allocation("4711", 2, None, None, 4)
ITS_OWN_TASKS = JOB._replace(ntasks=8, ntasks_per_node=4)
PROGRAM = RunOptions(("python", "train.py"))


def plan_of(
    host: Host, allocation: Allocation | None = None, container: Container = CONTAINER, **options: object
) -> Plan:
    asked = PROGRAM._replace(**options)  # type: ignore[arg-type]
    return plan_for(asked, host._replace(allocation=allocation), container)


@pytest.mark.parametrize(
    ("asked", "has_srun", "allocation", "launcher"),
    [
        (None, True, None, SRUN),
        (None, True, JOB, SRUN),
        (None, False, None, LOCAL),
        (SRUN, True, None, SRUN),
        (LOCAL, True, None, LOCAL),
        (LOCAL, False, JOB, LOCAL),
    ],
)
def test_launcher(asked: str | None, has_srun: bool, allocation: Allocation | None, launcher: str) -> None:
    assert choose_launcher(asked, has_srun, allocation).name == launcher


@pytest.mark.parametrize(
    ("asked", "allocation", "origin"),
    [(SRUN, None, "--launcher srun"), (SRUN, JOB, "--launcher srun"), (None, JOB, "SLURM_JOB_ID")],
    ids=["asked for", "asked for in a job", "in a job"],
)
def test_srun_missing(asked: str | None, allocation: Allocation | None, origin: str) -> None:
    assert catch(HostError, choose_launcher, asked, False, allocation).render() == (
        f"jaxsif: error: srun is not on the PATH\n  from: {origin}\n  try:  load Slurm"
    )


ALWAYS = ("srun", "--export=ALL", "--kill-on-bad-exit=1")


OPTIONS_OF_SRUN = {
    "in a job, where an allocation's options mean nothing": (
        JOB,
        {"time": "5", "partition": "p", "account": "a", "constraint": "c"},
        ("--nodes=2", "--ntasks-per-node=4"),
    ),
    "tasks of the job, which srun inherits": (JOB._replace(ntasks=8), {}, ("--nodes=2",)),
    "tasks per node of the job, which srun inherits": (JOB._replace(ntasks_per_node=2), {}, ("--nodes=2",)),
    "tasks given before those of the job": (
        ITS_OWN_TASKS,
        {"ntasks_per_node": 1},
        ("--nodes=2", "--ntasks-per-node=1", "--ntasks=2"),
    ),
    "a part of a job with its own tasks": (ITS_OWN_TASKS, {"nodes": 1}, ("--nodes=1", "--ntasks=4")),
    "a part of a job whose tasks its nodes cannot share evenly": (
        JOB._replace(nodes=3, ntasks=8),
        {"nodes": 1},
        ("--nodes=1",),
    ),
}


@pytest.mark.parametrize(("allocation", "options", "argv"), OPTIONS_OF_SRUN.values(), ids=OPTIONS_OF_SRUN)
def test_options_of_srun(allocation: Allocation | None, options: dict[str, object], argv: tuple[str, ...]) -> None:
    assert launch_words(plan_of(LOGIN_NODE, allocation, **options)) == (*ALWAYS, *argv)


SPARE = JOB._replace(cpus=((2, 2),))  # fewer CPUs than GPUs
ROOMY = JOB._replace(cpus=((64, 2),))


OPTIONS_FOR_CPUS = {
    "some GPUs and one task": (SPARE, {"gpus_per_node": "2", "ntasks_per_node": 1}, ("--exact", "--cpus-per-task=1")),
    "some GPUs": (ROOMY, {"gpus_per_node": "2"}, ("--exact", "--cpus-per-task=16")),
    "some GPUs of a type and one task": (
        ROOMY,
        {"gpus_per_node": "a100:2", "ntasks_per_node": 1},
        ("--exact", "--cpus-per-task=32"),
    ),
    "some GPUs, and CPUs that the tasks cannot share evenly": (
        JOB._replace(cpus=((15, 2),)),
        {"gpus_per_node": "3"},
        ("--exact", "--cpus-per-task=3"),
    ),
    "one task per GPU on one CPU": (JOB._replace(gpus_per_node=2, cpus=((1, 2),)), {}, ("--overcommit",)),
    "more tasks of the job than CPUs": (SPARE._replace(ntasks_per_node=4), {}, ("--overcommit",)),
    "all GPUs, enough CPUs": (ROOMY, {}, ()),
    "all GPUs, given": (ROOMY, {"gpus_per_node": "4"}, ()),
    "all GPUs, a CPU for each": (JOB._replace(cpus=((4, 2),)), {}, ()),
    "more tasks than the share of the CPUs": (SPARE, {"gpus_per_node": "2"}, ()),
    "more tasks than the share of the CPUs, and than all of them": (SPARE, {"gpus_per_node": "3"}, ("--overcommit",)),
    "no GPUs": (ROOMY, {"gpus_per_node": "0", "ntasks_per_node": 2}, ()),
    "GPUs of the job unknown": (ROOMY._replace(gpus_per_node=None), {"gpus_per_node": "2"}, ()),
    "tasks unknown": (ROOMY._replace(nodes=3, ntasks=8), {"gpus_per_node": "2"}, ()),
    "CPUs unknown": (JOB, {"gpus_per_node": "2"}, ()),
    "outside a job": (None, {"gpus_per_node": "2"}, ()),
}


@pytest.mark.parametrize(("allocation", "options", "cpu_options"), OPTIONS_FOR_CPUS.values(), ids=OPTIONS_FOR_CPUS)
def test_options_for_cpus(
    allocation: Allocation | None, options: dict[str, object], cpu_options: tuple[str, ...]
) -> None:
    argv = launch_words(plan_of(LOGIN_NODE, allocation, **options))
    others = ("srun", "--export", "--kill", "--quit", "--nodes", "--ntasks", "--gpus-per-node", "--job-name")
    assert tuple(option for option in argv if not option.startswith(others)) == cpu_options


def test_a_job_that_srun_makes_has_the_name_of_its_program() -> None:
    options = RunOptions(("python", "-u", "train.py"))
    assert "--job-name=train" in plan_for(options, LOGIN_NODE).argv
    named = options._replace(srun_args=srun_words("-J", "mine"))
    assert not [word for word in plan_for(named, LOGIN_NODE).argv if word.startswith("--job-name")]
    for host in (LOGIN_NODE._replace(allocation=JOB), LOGIN_NODE._replace(environ={"SLURM_JOB_NAME": "mine"})):
        assert "--job-name=train" not in plan_for(options, host).argv
    other_job = options._replace(srun_args=srun_words("--jobid=77"))
    assert "--job-name=train" not in plan_for(other_job, LOGIN_NODE).argv


def test_the_users_own_words_replace_options_for_cpus() -> None:
    options = {"gpus_per_node": "2", "ntasks_per_node": 1, "srun_args": srun_words("--cpus-per-task=2")}
    plan = plan_of(LOGIN_NODE, SPARE, **options)
    assert plan.srun_option("--cpus-per-task") == "2"
    assert launch_words(plan)[-3:] == ("--ntasks=2", "--exact", "--cpus-per-task=2")


@pytest.mark.parametrize(
    ("host", "options", "tasks", "gpus"),
    [
        (WORKSTATION, {"gpus_per_node": "1"}, 1, 1),
        (WORKSTATION, {"ntasks_per_node": 1}, 1, 2),
        (LAPTOP, {"ntasks_per_node": 3, "nodes": 1}, 3, 0),
    ],
    ids=["one GPU", "one process", "processes on CPUs"],
)
def test_local_layout(host: Host, options: dict[str, object], tasks: int, gpus: int) -> None:
    layout = plan_of(host, **options).layout
    assert (layout.nodes, layout.ntasks_per_node, layout.gpus_per_node) == (1, tasks, gpus)


def test_a_lone_colon_would_part_sruns_components() -> None:
    with pytest.raises(JaxsifError, match="':' as the beginning of another program"):
        plan_of(LOGIN_NODE, command=("echo", "a", ":", "b"))


def test_local_nodes_refused() -> None:
    assert catch(JaxsifError, plan_of, LAPTOP, nodes=2).render() == (
        "jaxsif: error: 2 nodes without Slurm\n  from: --nodes\n  try:  --nodes=1, or run it where srun is"
    )
    error = catch(JaxsifError, plan_of, LAPTOP._replace(srun=True), nodes=2, launcher="local")
    assert (error.what, error.where, error.hint) == (
        *("2 nodes without srun", "--launcher"),
        "--launcher srun, or --nodes=1 for this machine alone",
    )


def test_env_comes_over_jaxsifs_own_variables_and_its_last_value_counts() -> None:
    env = (("JAXSIF_COORDINATOR_PORT", "7"), ("A", "1"), ("A", "2"))
    variables = plan_of(LOGIN_NODE, env=env).variables
    assert variables["APPTAINERENV_JAXSIF_COORDINATOR_PORT"] == "7"
    assert variables["APPTAINERENV_A"] == "2"


def test_on_one_machine_there_is_no_other_network() -> None:
    """Whatever a variable or a file says."""
    assert plan_of(WORKSTATION, node_address="%N-ib").variables["APPTAINERENV_JAXSIF_NODE_ADDRESS"] == ""


def test_cpus_per_task_of_the_job_is_asked_for_again() -> None:
    """Slurm's srun inherits it no more, and would confine each process to one core."""
    job = JOB._replace(ntasks_per_node=4, cpus=((32, 2),), cpus_per_task=8)
    assert "--cpus-per-task=8" in launch_argv(job, {})
    assert "--cpus-per-task=4" in launch_argv(job._replace(cpus=((16, 2),)), {})


def test_a_part_of_the_gpus_takes_its_part_of_the_memory() -> None:
    job = JOB._replace(cpus=((32, 2),), mem_per_node=64000)
    argv = launch_argv(job, {"gpus_per_node": "2"})
    assert argv[-3:] == ("--exact", "--cpus-per-task=8", "--mem=32000")


def test_in_a_step_others_are_overlapped() -> None:
    argv = launch_argv(JOB._replace(in_step=True), {})
    assert argv[-2:] == ("--ntasks=8", "--overlap")


@pytest.mark.parametrize("word", ["--output=log-%t.txt", "--error", "-o", "-elog", "--pty"])
def test_no_reports_into_files_and_terminals(word: str) -> None:
    """Nobody would take them out there."""
    plan = plan_for(RunOptions(("x",), srun_args=srun_words(word)), LOGIN_NODE._replace(allocation=JOB))
    assert plan.variables["APPTAINERENV_JAXSIF_REPORT"] == ""
    assert plan.nonces == ()


@pytest.mark.parametrize(("value", "is_hidden"), [("log", True), ("all", False)])
def test_no_reports_into_files_that_variables_name(value: str, is_hidden: bool) -> None:
    host = LOGIN_NODE._replace(allocation=JOB, environ={"SLURM_STDERRMODE": value})
    assert (plan_for(RunOptions(("x",)), host).nonces == ()) == is_hidden


@pytest.mark.parametrize("environ", [{}, {"APPTAINERENV_JAXSIF_REPORT": "0:1"}, {"JAXSIF_REPORT": "1"}])
def test_tasks_get_the_nonces_that_the_reader_knows(environ: dict[str, str]) -> None:
    """A run in a run has its own; --env does not change them."""
    options = RunOptions(("x",), srun_args=srun_words("--overlap"), env=(("JAXSIF_REPORT", "1"),))
    plan = plan_for(options, LOGIN_NODE._replace(allocation=JOB, environ=environ))
    assert plan.variables["APPTAINERENV_JAXSIF_REPORT"] == ":".join(plan.nonces) == "2c3d:4e5f"


def launch_argv(job: Allocation, options: dict[str, object]) -> tuple[str, ...]:
    """srun and its options, for a program in `job`."""
    asked = RunOptions(("x",), **options)  # type: ignore[arg-type]
    return launch_words(plan_for(asked, LOGIN_NODE._replace(allocation=job)))


STAGED = CONTAINER._replace(staged=Staged("/tmp/jaxsif-1/0a", "sha256:0a"))


@pytest.mark.parametrize(
    ("container", "options", "words"),
    [
        (CONTAINER, {"ntasks_per_node": 2}, ["share.py", "apptainer"]),
        (CONTAINER, {"ntasks_per_node": 1}, ["apptainer"]),
        (CONTAINER, {"ntasks_per_node": 2, "containers": "task"}, ["apptainer"]),
        (STAGED, {"ntasks_per_node": 1}, ["share.py", "--staged", "apptainer"]),
        (STAGED, {"ntasks_per_node": 2, "containers": "task"}, ["share.py", "--alone", "--staged", "apptainer"]),
    ],
)
def test_what_starts_the_container(container: Container, options: dict[str, object], words: list[str]) -> None:
    """A staged image is looked at, also where each task has a container of its own."""
    found = [word.rpartition("/")[2] for word in plan_of(LOGIN_NODE, JOB, container, **options).argv]
    assert [word for word in found if word in ("share.py", "--alone", "--staged", "apptainer")] == words


def test_on_another_port_what_the_user_set_stays() -> None:
    asked = PROGRAM._replace(init_timeout=100, env=(("JAXSIF_INIT_TIMEOUT", "600"),))
    plan = plan_for(asked)
    moved = move_to_port(plan, plan.coordinator._replace(port=61999))
    assert moved.environment.container["JAXSIF_COORDINATOR_PORT"] == "61999"
    assert moved.environment.container["JAXSIF_INIT_TIMEOUT"] == "600"
    assert {**moved.variables, "APPTAINERENV_JAXSIF_COORDINATOR_PORT": "61234"} == plan.variables


@pytest.mark.parametrize(
    ("allocation", "options", "live"),
    [
        (None, {}, True),  # Slurm's default
        (None, {"nodes": 1, "ntasks_per_node": 1}, True),
        (JOB._replace(ntasks=1, ntasks_per_node=1, nodes=1), {}, True),
        (None, {"nodes": 2}, False),
        (None, {"nodes": 1, "gpus_per_node": "2"}, False),
        (None, {"ntasks": 2}, False),
        (ITS_OWN_TASKS, {}, False),
        (None, {"label": True}, False),
        (None, {"srun_args": srun_words("--pty")}, False),
    ],
)
def test_on_a_terminal_one_task_is_live(allocation: Allocation | None, options: dict[str, object], live: bool) -> None:
    in_file = plan_of(LOGIN_NODE, allocation, **options)
    on_terminal = plan_of(LOGIN_NODE._replace(window=(100, 30)), allocation, **options)
    assert ("--unbuffered" in on_terminal.argv, on_terminal.is_live) == (live, live)
    assert "--unbuffered" not in in_file.argv
    size = {name: on_terminal.environment.container.get(name) for name in ("COLUMNS", "LINES")}
    assert size == ({"COLUMNS": "100", "LINES": "30"} if live else {"COLUMNS": None, "LINES": None})
    assert on_terminal.shows_whole_lines is not live


CREDENTIALS = "0a1b,-----BEGIN EC PRIVATE KEY-----,MHcC"


def test_credentials_are_those_of_the_run_on_each_port() -> None:
    """Whatever --env and the runtime's own variables say."""
    asked = PROGRAM._replace(env=(("JAXSIF_CREDENTIALS", "of another run"),))
    environ = {"APPTAINERENV_JAXSIF_CREDENTIALS": "mine", "JAXSIF_COORDINATOR_TLS": "on"}
    plan = plan_for(asked, environ=environ, credentials=CREDENTIALS)
    for one in (plan, move_to_port(plan, plan.coordinator._replace(port=61235))):
        assert one.variables["APPTAINERENV_JAXSIF_CREDENTIALS"] == CREDENTIALS
        assert one.variables["APPTAINERENV_JAXSIF_COORDINATOR_TLS"] == "auto"
