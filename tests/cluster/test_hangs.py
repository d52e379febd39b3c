"""Tasks that keep others waiting: named, with what the injector (programs/drill.py) has written down of itself."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from drills import (
    BUSY_TIMEOUT,
    COMPUTES,
    ENDED,
    ENDLESS,
    FAULTS,
    HABITS,
    HANG,
    LARGE,
    LOCAL,
    OVER,
    PATIENCE,
    SAID,
    SHAPE,
    Case,
    Drill,
    Told,
    check_blame,
    drill,
    stop,
)
from harness import Cluster

# Seconds from the fault: the first look may miss a task of a busy node. docs/faults.md has what is usual.
SAID_WITHIN = 2 * PATIENCE + 5.0
HANG_WITHIN = 10 * PATIENCE + 5.0
ENDED_WITHIN = 5 * PATIENCE + 5.0
AT_ONCE = 3  # runs; with more, the tests' machine is what is slow


CORE_STOPS = ("leave", "sleep", "stop", "hold")
STOPS = [Case(kind, (*SHAPE, *stop(kind))) for kind in FAULTS]
# Those that compute are called a hang only where that is asked for.
REPORTS = [Case(kind, (*SHAPE, *stop(kind)[1:]), HANG) for kind in FAULTS]
# Three times sixteen tasks, side by side, do not start within 5 s of each other where few cores are.
LARGES = [Case(kind, (*LARGE, *stop(kind), f"--hang-timeout={3 * PATIENCE}")) for kind in ("skip", "pipe", "spin")]
# All but the first task have an empty input there.
LOCALS = [Case(kind, (*LOCAL, *stop(kind)), node="node1") for kind in FAULTS if kind != "stdin"]
HARMLESS = [Case(kind, SHAPE) for kind in HABITS]


def marked(cases: list[Case], core: tuple[str, ...]) -> list[object]:
    return [
        pytest.param(
            one, id=f"{one.kind}{'-core' if one.kind in core else ''}", marks=[pytest.mark.core] * (one.kind in core)
        )
        for one in cases
    ]


Get = Callable[[Case], Told]


@pytest.fixture(scope="module")
def get(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Get]:
    """What a case has told; all cases that are wanted in this session run side by side, a few at once."""
    wanted = [item.callspec.params["case"] for item in request.session.items if "case" in _params(item)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        told: dict[Case, Future[Told]] = {case: pool.submit(drill, cluster, case) for case in wanted}
        yield lambda case: told[case].result()
        pool.shutdown(cancel_futures=True)  # of tests that were left out


def _params(item: pytest.Item) -> dict[str, object]:
    return item.callspec.params if hasattr(item, "callspec") else {}


def check_stopped(told: Told, times: float = 1) -> None:
    """It was said in time of whom it was, the run was ended in time, and the last error names the task."""
    record = told.record
    assert told.status == 124, told.text
    assert told.seconds_to(SAID) < times * SAID_WITHIN, told.text
    assert told.seconds_to(ENDED) < times * ENDED_WITHIN, told.text
    check_blame(told, SAID)
    error, where, hint = [line.text for line in told.lines[-3:]]
    words = FAULTS[record["kind"]].format(folder=told.folder)
    kept = rf"task {record['task']} on {record['node']} kept the others waiting for \d+ s"
    assert re.fullmatch(rf"jaxsif: error: {kept}: it {re.escape(words)}; the run was ended", error), told.text
    named = record["place"] if record["kind"] != "stop" else ""
    loop = rf"(?:last in )?iteration (?:\d+-)?\d+(?: or later)? of the loop at {record['loop']}"
    place = (
        rf"{named} \S+(?:; the others are at drill\.py:.+)?" if named else rf"{loop}; the others are at drill\.py:.+"
    )
    left = r"sys\.exit\(.*\), at \S+/drill\.py:\d+; " if record["kind"] == "end" else ""
    assert re.fullmatch(f"  from: {left}{place}", where), told.text
    assert hint.startswith("  try:  "), told.text


@pytest.mark.parametrize("case", marked(STOPS, CORE_STOPS))
def test_a_run_that_hangs_is_ended(get: Get, case: Case) -> None:
    check_stopped(get(case))


@pytest.mark.parametrize("case", marked(REPORTS, ("pipe",)))
def test_a_run_that_hangs_goes_on(get: Get, case: Case) -> None:
    """First that tasks wait, then that it is a hang; at once where nobody can come back."""
    told = get(case)
    assert told.status == 143, told.text  # ours
    assert told.seconds_to(SAID) < SAID_WITHIN, told.text
    assert told.seconds_to(HANG) < (SAID_WITHIN if case.kind in ENDLESS else HANG_WITHIN), told.text
    check_blame(told, SAID)
    check_blame(told, HANG)
    assert [len(told.find(pattern)) for pattern in (HANG, OVER)] == [1, 0], told.text


@pytest.mark.parametrize("case", LARGES, ids=lambda case: case.kind)
def test_sixteen_tasks_on_four_nodes(get: Get, case: Case) -> None:
    told = get(case)
    check_stopped(told, 3)
    assert ": 16 tasks on 4 nodes" in told.find(SAID)[0].text


@pytest.mark.parametrize("case", LOCALS, ids=lambda case: case.kind)
def test_without_slurm(get: Get, case: Case) -> None:
    check_stopped(get(case))


@pytest.mark.parametrize("case", marked(HARMLESS, ("evaluate",)))
def test_a_habit_is_no_hang(get: Get, case: Case) -> None:
    told = get(case)
    assert told.status == 0, told.text
    assert told.find(HANG) == [], told.text
    said = [len(told.find(pattern)) for pattern in (SAID, OVER)]
    assert said == ([0, 0] if case.kind == "all-slow" else [1, 1]), told.text


@pytest.mark.parametrize("kind", COMPUTES)
def test_a_task_that_computes_is_named_and_not_ended(started: Callable[..., Drill], kind: str) -> None:
    run = started(kind, *SHAPE, "--on-hang=stop")
    told = run.wait_until(lambda told: told.find(SAID), 60)
    check_blame(told, SAID)
    time.sleep(2 * BUSY_TIMEOUT)
    told = run.look()
    assert (told.status, told.find(HANG)) == (None, []), told.text


@pytest.fixture
def started(cluster: Cluster) -> Iterator[Callable[..., Drill]]:
    """Starts runs which a test watches itself; they end with it."""
    drills: list[Drill] = []

    def start(kind: str, *options: str, **where: str) -> Drill:
        drills.append(Drill(cluster, kind, 7, *options, **where))
        return drills[-1]

    yield start
    for one in drills:
        one.end()


NODES = "--srun-args=--nodelist=node[1-2]"


@pytest.fixture
def cut(cluster: Cluster) -> Iterator[str]:
    """The script that cuts node2 off; undone in the end."""
    links = [f"ip link set eth{number}" for number in (0, 1)]
    yield "; ".join(f"{link} down" for link in links)
    cluster.run("; ".join(f"{link} up" for link in links), node="node2", user="root")
    is_idle = "sinfo --noheader --nodes=node2 --states=idle --format=%n | grep -q ."
    wait = f"for i in $(seq 100); do {is_idle} && break; sleep 0.2; done"
    cluster.check(f"scontrol update NodeName=node2 State=RESUME; {wait}", user="root")


def test_a_node_that_is_cut_off_is_named(cluster: Cluster, started: Callable[..., Drill], cut: str) -> None:
    run = started("none", *SHAPE, NODES)
    run.wait_alive()
    cluster.check(cut, node="node2", user="root")
    begin = time.time()
    told = run.wait_until(lambda told: told.find("no answer from node2$"), 40)
    found = told.find("no answer from node2$")
    assert found, told.text
    assert found[0].time - begin < 30, told.text


END = "pkill {0} -x {1}; while pgrep -x {1}; do sleep 0.1; done"
START = "setsid {0} >>/var/log/minicluster/{1}.log 2>&1 </dev/null &"


def end_slurmctld(cluster: Cluster) -> None:
    """As `systemctl stop` does."""
    cluster.check(END.format("-TERM", "slurmctld"), user="root")


def start_slurmctld(cluster: Cluster) -> None:
    cluster.check(START.format("slurmctld -D", "slurmctld"), user="root")


def test_the_controller_may_start_again_during_a_run(cluster: Cluster, started: Callable[..., Drill]) -> None:
    run = started("pipe", *SHAPE)
    run.wait_alive()
    end_slurmctld(cluster)
    start_slurmctld(cluster)
    told = run.wait_until(lambda told: told.find(SAID), 60)
    assert told.status is None, told.text
    check_blame(told, SAID)


def test_a_run_outlives_the_daemon_of_a_node(cluster: Cluster, started: Callable[..., Drill]) -> None:
    """Nobody needs it until the tasks are looked at."""
    run = started("pipe", *SHAPE, NODES)
    run.wait_alive()
    cluster.check(END.format("-KILL", "slurmd"), node="node2", user="root")
    try:
        told = run.wait_until(lambda told: told.find("no answer from node2$"), 60)
        assert (told.status, len(told.find(SAID))) == (None, 1), told.text
    finally:
        cluster.check(START.format("slurmd -D -N node2", "slurmd"), node="node2", user="root")
    told = run.wait_until(lambda told: told.find(HANG), 60)
    assert told.status is None, told.text
    check_blame(told, HANG)


def test_the_controller_may_be_away_when_it_is_asked(cluster: Cluster, started: Callable[..., Drill]) -> None:
    run = started("sleep", *SHAPE)
    run.wait_alive()  # seconds before the fault
    end_slurmctld(cluster)
    try:
        blind = "^jaxsif: cannot inspect the waiting tasks: "
        run.wait_until(lambda told: told.find(blind), 40)
        time.sleep(8)  # it is asked again meanwhile
        told = run.look()
        assert len(told.find(blind)) == 1, told.text
        assert (told.status, told.find(SAID)) == (None, []), told.text
    finally:
        start_slurmctld(cluster)
        back = time.time()
    told = run.wait_until(lambda told: told.find(SAID), 40)
    assert told.status is None, told.text
    assert told.find(SAID)[0].time - back < 15, told.text
    check_blame(told, SAID)


@pytest.mark.usefixtures("ssh")
def test_with_mpirun_nobody_looks(started: Callable[..., Drill]) -> None:
    """Where the tasks are not Slurm's, other hosts cannot be asked: what the tasks say themselves is shown."""
    run = started("sleep", "--hosts=node1:2,node2:2")
    told = run.wait_until(lambda told: told.find(SAID), 60)
    assert told.status is None, told.text
    rows = told.rows_of(SAID)
    assert len(rows) == 2, told.text
    assert re.fullmatch(r"  3 tasks are waiting +drill\.py:\d+ +tasks .+ on node1, node2", rows[0]), told.text
    odd = rf"  1 task +is waiting +{told.record['place']} +task {told.record['task']} on {told.record['node']}"
    assert re.fullmatch(odd, rows[1]), told.text
