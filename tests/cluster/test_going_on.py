"""jaxsif run --max-restarts: what starts again inside a job, what does not, and on which nodes."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from harness import MINICLUSTER, Cluster, processes_left

END = re.compile(r"^end ([0-9a-f]+)$", re.MULTILINE)
START = re.compile(r"^start (\d+) from step (\d+) with 4 processes on (\S+)$", re.MULTILINE)
AGAIN = "starting again in"


class Done(NamedTuple):
    """How a run ended."""

    status: int
    out: str
    err: str

    @property
    def starts(self) -> list[tuple[int, str]]:
        """The step and the nodes of each start."""
        return [(int(step), nodes) for _, step, nodes in START.findall(self.out)]

    def times(self, event: str) -> list[float]:
        """When the program said so, in seconds since 1970."""
        return [float(time) for time in re.findall(rf"^{event} (\S+)$", self.out, re.MULTILINE)]

    @property
    def text(self) -> str:
        return f"status {self.status}\n{self.out}\n{self.err}"


class Run:
    """A run of programs/again.py on two nodes of a job."""

    def __init__(
        self,
        cluster: Cluster,
        folder: str,
        nodes: int,
        options: str,
        program: str,
        job: str = "--no-kill",
        variables: str = "",
    ) -> None:
        self.cluster = cluster
        self.folder = folder
        inner = (
            f"echo $$ >pid; exec env {variables} jaxsif run {options} -- python again.py . {program} 2>err </dev/null"
        )
        salloc = f"salloc -Q {job} -N{nodes} --ntasks-per-node=2 --gpus-per-node=2 -t 10 bash -c {shlex.quote(inner)}"
        self.process = cluster.start(f"cd {folder} && module load jax/sif && exec {salloc}")

    @property
    def err(self) -> str:
        return self.cluster.run(["cat", f"{self.folder}/err"]).stdout

    def wait_for(self, words: str, timeout: float = 90) -> float:
        """Wait until the run has said this; return when that was seen."""
        deadline = time.monotonic() + timeout
        while words not in self.err:
            assert time.monotonic() < deadline, self.err
            assert self.process.poll() is None, self.end().text
            time.sleep(0.1)
        return time.monotonic()

    def wait_saved(self, step: int = 10) -> None:
        """Wait for a checkpoint."""
        path = f"{self.folder}/checkpoints/step_{step}.npy"
        self.cluster.check(["sh", "-c", f"until [ -e {path} ]; do sleep 0.2; done"], timeout=90)

    def send(self, name: str) -> None:
        """Signal jaxsif itself."""
        self.cluster.check(f"kill -{name} $(cat {self.folder}/pid)")

    def end(self, timeout: float = 240) -> Done:
        out, _ = self.process.communicate("", timeout)
        return Done(self.process.returncode, out, self.err)


Start = Callable[..., Run]


@pytest.fixture
def start(cluster: Cluster, folder: str) -> Iterator[Start]:
    """Starts runs in the folder; what is left of them is ended."""
    runs: list[Run] = []

    def begin(nodes: int, options: str, program: str, **more: str) -> Run:
        runs.append(Run(cluster, folder, nodes, options, program, **more))
        return runs[-1]

    yield begin
    for run in runs:
        if run.process.poll() is None:
            cluster.run("scancel --me")
            run.process.communicate("", 60)


@pytest.fixture(scope="module")
def undisturbed(cluster: Cluster) -> str:
    """The final state of a run without faults."""
    folder = cluster.check("mktemp -d ~/again.XXXXXX").strip()
    with open(f"{__file__.rpartition('/')[0]}/programs/again.py") as program:
        cluster.write(f"{folder}/again.py", program.read())
    done = Run(cluster, folder, 2, "", "none").end()
    assert done.status == 0, done.text
    cluster.check(["rm", "-r", folder])
    return state_of(done)


def state_of(done: Done) -> str:
    found = END.findall(done.out)
    assert len(found) == 1, done.text
    return str(found[0])


def read_ledger(cluster: Cluster) -> list[dict[str, object]]:
    """The findings about nodes of the newest job that has any."""
    text = cluster.run("cat $(ls -t ~/.local/state/jaxsif/nodes/* | head -1)").stdout
    return [json.loads(line) for line in text.splitlines()]


def clear_ledgers(cluster: Cluster) -> None:
    cluster.check("rm -rf ~/.local/state/jaxsif/nodes")


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("fault", ["kill", "term"])
def test_a_killed_task_resumes_to_the_bit(
    start: Start, undisturbed: str, fault: str, seed: int, record_property: Callable[[str, object], None]
) -> None:
    done = start(2, "--max-restarts=1 --checkpoints=checkpoints", f"{fault} --seed={seed}").end()
    assert done.status == 0, done.text
    assert len(done.starts) == 2, done.text
    assert state_of(done) == undisturbed
    seconds = done.times("went on")[1] - done.times("fails")[0]
    record_property("seconds", seconds)
    assert seconds < 30, done.text


def test_the_history_has_the_cost_of_each_failure(start: Start, cluster: Cluster, folder: str) -> None:
    """The first start fails in iteration 25, after checkpoint 20; the second goes from 20 to 38, after 30."""
    done = start(2, "--max-restarts=2 --checkpoints=checkpoints", "error --starts=2 --at=25 --grow=13").end()
    assert done.status == 0, done.text
    assert [step for step, _ in done.starts] == [0, 20, 30], done.text
    found = json.loads(cluster.check("module load jax/sif; jaxsif history show --json"))["attempts"]
    assert [attempt["repeated"] for attempt in found] == [4, 8]  # the first may have begun with step 1
    times = cluster.check(f"cd {folder}/checkpoints && stat -c %.6Z step_20.npy step_30.npy").split()
    for attempt, saved, failed, went_on in zip(found, times, done.times("fails"), done.times("went on")[1:]):
        assert attempt["end"] + 5 < float(saved) + attempt["lost"] < went_on, attempt
        assert failed <= attempt["end"] < failed + 8, attempt
    shown = cluster.check("module load jax/sif; jaxsif history show")
    assert re.search(r"^ {12}\S+s lost, at least 4 iterations computed twice$", shown, re.MULTILINE), shown


def test_without_checkpoints_the_cost_is_not_known(start: Start, cluster: Cluster) -> None:
    done = start(2, "--max-restarts=1", "error --at=25").end()
    assert done.status == 0, done.text
    (attempt,) = json.loads(cluster.check("module load jax/sif; jaxsif history show --json"))["attempts"]
    assert (attempt["lost"], attempt["repeated"]) == (None, None)
    assert " lost" not in cluster.check("module load jax/sif; jaxsif history show")


def test_a_kill_is_not_read_as_the_time_limit(start: Start) -> None:
    """Somebody's SIGTERM, after which a task ends with 143, too."""
    done = start(2, "--max-restarts=1", "term --seed=3").end()
    assert "attempt 1 failed: task " in done.err, done.err
    assert done.status == 0, done.text


def test_the_same_error_twice_is_not_started_again(start: Start, cluster: Cluster) -> None:
    """Its numbers and addresses differ."""
    clear_ledgers(cluster)
    done = start(3, "--max-restarts=5 --spare-nodes=1", "error --starts=9 --at=7").end()
    assert done.status == 93, done.text
    assert done.starts == [(0, "node[1-2]"), (0, "node[1-2]")], done.text
    assert "not starting again: the same failure twice, without progress in between" in done.err
    assert re.search(r"^jaxsif: error: task \d on node\d failed: ValueError: shapes ", done.err, re.MULTILINE)
    assert read_ledger(cluster) == []


@pytest.mark.parametrize(
    ("options", "fault"),
    [("--checkpoints=checkpoints", "--at=15 --later"), ("", "--at=15 --grow=3 --every=99")],
    ids=["newer checkpoints", "more iterations"],
)
def test_an_error_after_progress_is_started_again(start: Start, options: str, fault: str) -> None:
    """At the same line, each time later; in the end, with the program's own status."""
    done = start(2, f"--max-restarts=2 {options}", f"error --starts=9 {fault} --steps=200").end()
    assert done.status == 1, done.text
    assert [step for step, _ in done.starts] == ([0, 10, 20] if options else [0, 0, 0])
    assert "not starting again: that was attempt 3 of 3" in done.err


def test_the_same_lack_of_memory_twice_is_not_started_again(start: Start) -> None:
    done = start(2, "--max-restarts=5", "memory --starts=9 --seed=1").end()
    assert done.status == 93, done.text
    assert len(done.starts) == 2, done.text


def test_a_full_disk_at_a_save_leaves_no_node_out(start: Start, cluster: Cluster) -> None:
    clear_ledgers(cluster)
    done = start(3, "--max-restarts=5 --spare-nodes=1", "disk --starts=9 --at=12 --task=3").end()
    assert done.status == 93, done.text
    assert [nodes for _, nodes in done.starts] == ["node[1-2]", "node[1-2]"], done.text
    assert "OSError: [Errno 28]" in done.err
    assert read_ledger(cluster) == []


def test_the_swap_of_a_node_has_an_effect(start: Start, cluster: Cluster, undisturbed: str) -> None:
    """After a SIGBUS, with a spare."""
    clear_ledgers(cluster)
    done = start(3, "--max-restarts=1 --spare-nodes=1", "bus --task=2 --at=33").end()
    assert done.status == 0, done.text
    assert [nodes for _, nodes in done.starts] == ["node[1-2]", "node[1,3]"], done.text
    assert "jaxsif: node2 is left out: SIGBUS" in done.err
    assert [(row["node"], row["source"], row["evidence"]) for row in read_ledger(cluster)] == [
        ("node2", "run", "SIGBUS")
    ]
    assert state_of(done) == undisturbed
    shown = cluster.check("module load jax/sif; jaxsif history show")
    assert re.search(
        r"^  failed    after [\d.ms]+: status 135, .*task 2 on node2 was killed by SIGBUS$", shown, re.MULTILINE
    )
    assert "            without node2: SIGBUS" in shown


def test_a_suspect_node_is_used_where_there_is_no_other(start: Start, cluster: Cluster) -> None:
    done = start(2, "--max-restarts=1", "bus --task=2 --at=33").end()
    assert done.status == 0, done.text
    assert [nodes for _, nodes in done.starts] == ["node[1-2]", "node[1-2]"], done.text


@pytest.mark.parametrize("fault", ["stop", "sleep"])
def test_a_hang_is_started_again(start: Start, undisturbed: str, fault: str) -> None:
    options = "--max-restarts=1 --on-hang=restart --hang-timeout=5 --checkpoints=checkpoints"
    done = start(2, options, f"{fault} --seed=5").end()
    assert done.status == 0, done.text
    assert len(done.starts) == 2, done.text
    assert re.search(r"attempt 1 failed: task \d on node\d kept the others waiting for \d+ s", done.err), done.err
    assert state_of(done) == undisturbed


def test_a_stall_that_passes_is_not_touched(start: Start, undisturbed: str) -> None:
    """A task that reads slowly for ten timeouts."""
    options = "--max-restarts=1 --on-hang=restart --hang-timeout=5 --env=SLOW=55"
    done = start(2, options, "slow --seed=5").end()
    assert done.status == 0, done.text
    assert len(done.starts) == 1, done.text
    assert state_of(done) == undisturbed


@pytest.mark.parametrize("name", ["INT", "TERM"])
def test_a_signal_in_the_pause_ends_all_at_once(start: Start, cluster: Cluster, name: str) -> None:
    run = start(2, "--max-restarts=3", "kill --seed=1")
    begin = run.wait_for(AGAIN)
    run.send(name)
    done = run.end(20)
    assert time.monotonic() - begin < 3, done.text
    assert done.status == {"INT": 130, "TERM": 143}[name], done.text
    assert len(done.starts) == 1
    assert processes_left(cluster, "[a]gain.py") == ""


def test_a_signal_during_a_restart_ends_all_at_once(start: Start, cluster: Cluster) -> None:
    run = start(2, "--max-restarts=3", "kill --seed=1")
    run.wait_for("attempt 2 on node1,node2")
    begin = time.monotonic()
    run.send("INT")
    done = run.end(30)
    assert time.monotonic() - begin < 8, done.text
    assert done.status == 130, done.text
    assert processes_left(cluster, "[a]gain.py") == ""


def test_scancel_in_the_pause_ends_the_run(start: Start, cluster: Cluster) -> None:
    run = start(2, "--max-restarts=3", "kill --seed=1")
    run.wait_for(AGAIN)
    begin = time.monotonic()
    cluster.check("scancel --me")
    done = run.end(20)
    assert time.monotonic() - begin < 10, done.text
    assert done.status != 0
    assert len(done.starts) == 1
    assert processes_left(cluster, "[a]gain.py") == ""


def test_a_draining_node_is_not_taken_again(start: Start, cluster: Cluster, undisturbed: str) -> None:
    run = start(3, "--max-restarts=1 --spare-nodes=1", "kill --task=0 --at=40")
    run.wait_saved()
    cluster.check("scontrol update nodename=node2 state=drain reason=test", user="root")
    try:
        done = run.end()
    finally:
        cluster.check("scontrol update nodename=node2 state=resume", user="root")
    assert done.status == 0, done.text
    assert [nodes for _, nodes in done.starts] == ["node[1-2]", "node[1,3]"], done.text
    assert "jaxsif: node2 is left out: draining" in done.err, done.err
    assert state_of(done) == undisturbed


def test_a_failed_query_does_not_count_as_clean(start: Start, cluster: Cluster, undisturbed: str) -> None:
    """While Slurm's controller is stopped, nothing starts again."""
    run = start(2, "--max-restarts=1", "kill --task=0 --at=40")
    run.wait_for(AGAIN)
    cluster.check("pkill -STOP slurmctld", user="root")
    try:
        time.sleep(20)
        assert "attempt 2 on" not in run.err
        assert run.process.poll() is None
    finally:
        cluster.check("pkill -CONT slurmctld", user="root")
    done = run.end()
    assert done.status == 0, done.text
    assert state_of(done) == undisturbed


def test_options_that_the_user_keeps_in_variables_do_not_hide_the_job(start: Start) -> None:
    variables = "SQUEUE_STATES=PENDING SQUEUE_PARTITION=other SINFO_PARTITION=other"
    done = start(2, "--max-restarts=1", "kill --seed=1", variables=variables).end()
    assert done.status == 0, done.text
    assert len(done.starts) == 2, done.text


def test_a_suspended_job_is_waited_for(start: Start, cluster: Cluster) -> None:
    run = start(2, "--max-restarts=1", "kill --seed=1")
    run.wait_for(AGAIN)
    job = cluster.check("squeue --me --noheader --format=%A").strip()
    cluster.check(f"scontrol suspend {job}", user="root")
    try:
        time.sleep(15)
        assert "attempt 2 on" not in run.err
        assert run.process.poll() is None
    finally:
        cluster.check(f"scontrol resume {job}", user="root")
    done = run.end()
    assert done.status == 0, done.text
    assert len(done.starts) == 2, done.text


ARRAY = """\
#!/bin/bash -l
#SBATCH --array=1-2 --nodes=2 --ntasks-per-node=2 --gpus-per-node=2 --no-kill --time=10 --output=log-%a
module load jax/sif
cd $SLURM_ARRAY_TASK_ID
exec jaxsif run --max-restarts=1 --checkpoints=checkpoints -- python again.py . kill --seed=4 >out 2>err
"""


def test_the_jobs_of_an_array_start_again_side_by_side(cluster: Cluster, folder: str, undisturbed: str) -> None:
    """The last one has the number of the array."""
    cluster.write(f"{folder}/array.sbatch", ARRAY)
    for index in (1, 2):
        cluster.check(f"mkdir {folder}/{index} && cp {folder}/again.py {folder}/{index}")
    status = cluster.run(f"cd {folder} && exec sbatch --wait array.sbatch", timeout=240).returncode
    for index in (1, 2):
        run = Done(status, *(cluster.check(f"cat {folder}/{index}/{name}") for name in ("out", "err")))
        assert run.status == 0, run.text
        assert len(run.starts) == 2, run.text
        assert state_of(run) == undisturbed


def test_a_bad_spare_is_not_taken(start: Start, cluster: Cluster, undisturbed: str) -> None:
    """The first one's slurmd has died, which Slurm has not noticed."""
    run = start(4, "--max-restarts=1 --spare-nodes=2", "bus --task=2 --at=40")
    run.wait_saved()
    cluster.check("pkill -KILL slurmd", node="node3", user="root")
    try:
        done = run.end()
    finally:
        for verb in ("down", "up"):  # `up` alone would repair nothing that Slurm has not noticed
            subprocess.run([MINICLUSTER, verb], check=True, capture_output=True)
    assert done.status == 0, done.text
    assert [nodes for _, nodes in done.starts] == ["node[1-2]", "node[1,4]"], done.text
    assert "jaxsif: node3 is left out: no answer" in done.err, done.err
    assert state_of(done) == undisturbed


def test_two_runs_of_one_job_start_again_side_by_side(cluster: Cluster, folder: str, undisturbed: str) -> None:
    """Each is failed once; each has half of the GPUs, and tells its own processes from the other's."""
    cluster.check(f"mkdir {folder}/other && cp {folder}/again.py {folder}/other")
    one = "jaxsif run --max-restarts=2 --gpus-per-node=2 --per-gpu"
    program = "python again.py . kill --task=1"
    first, second = (f"{one} -- {program} --at={at} >out 2>err" for at in (20, 40))
    both = f"{first} & cd other; {second}; status=$?; wait $! && exit $status"
    salloc = (
        f"salloc -Q --no-kill -N2 --ntasks-per-node=4 --gpus-per-node=4 --mem=8000 -t 10 bash -c {shlex.quote(both)}"
    )
    done = cluster.run(f"cd {folder} && module load jax/sif && exec {salloc} </dev/null", timeout=240)
    for path in (folder, f"{folder}/other"):
        run = Done(done.returncode, *(cluster.check(f"cat {path}/{name}") for name in ("out", "err")))
        assert run.status == 0, run.text
        assert len(run.starts) == 2, run.text
        assert state_of(run) == undisturbed


def test_outside_a_job_it_is_refused(cluster: Cluster, folder: str) -> None:
    run = "jaxsif run --max-restarts=1 -N2 -- python again.py . none"
    done = cluster.run(f"cd {folder} && module load jax/sif && {run}")
    assert done.returncode == 2
    assert "  try:  salloc --no-kill …, then jaxsif run\n" in done.stderr, done.stderr


def test_what_cannot_work_is_not_started_again(start: Start) -> None:
    done = start(2, "--max-restarts=3 --env XLA_FLAGS=--xla_no_such_flag", "none").end()
    assert done.status == 93, done.text
    assert "not starting again: the same request would fail again" in done.err
