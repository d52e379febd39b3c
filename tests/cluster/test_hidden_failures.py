"""Failures that something hides: the error still names the task, the line and the exception, within a second."""

from __future__ import annotations

import re
import subprocess
import time

import pytest
from harness import Cluster, jaxsif_run, processes_left

SHAPE = ("--nodes=2", "--ntasks-per-node=2", "--gpus-per-node=2", "--srun-args=--nodelist=node[1-2]")
RAISED = r"jaxsif: error: task 2 on node2 failed: ValueError: boom, at step 3\n  from: .*/hide\.py:\d+"
# Seconds from the failure to the launcher's end; the machine may have other work.
BOUND = 2.0


def run_timed(cluster: Cluster, folder: str, *argv: str) -> tuple[subprocess.CompletedProcess[str], float]:
    """How `jaxsif run` ended, and the seconds from the failure that the program prints to its end."""
    script = f"cd {folder} && " + jaxsif_run(*argv)
    done = cluster.run(f"({script}); status=$?; date +%s.%N; exit $status")
    *output, ended = done.stdout.splitlines()
    (failed,) = [float(line.split()[-1]) for line in output if "fails at" in line]
    return done, float(ended) - failed


@pytest.mark.parametrize("kind", ["threads", "output", "child", "daemon", "text"])
def test_a_failure_that_something_hides(cluster: Cluster, folder: str, kind: str) -> None:
    """A limit of processes, much output, children that live on, and text like Slurm's own."""
    done, seconds = run_timed(cluster, folder, *SHAPE, "--", "python", "hide.py", kind)
    said = "\n".join(done.stderr.splitlines()[-5:])
    error = r"jaxsif: error: task 2 on node2 ended with exit status 1" if kind == "output" else RAISED
    assert re.search(f"{RAISED}|{error}", said), said
    assert done.returncode == 1
    assert seconds < BOUND
    assert cluster.steps() == []
    assert processes_left(cluster, "[s]leep 30[01]") == ""


@pytest.mark.parametrize("options", [(), ("--containers=task",)])
def test_children_are_ended_with_a_failure_only(cluster: Cluster, options: tuple[str, ...]) -> None:
    """In one container on each node and in one of each task; whoever leaves a child and ends well has his reason."""
    two = ("--nodes=1", "--ntasks-per-node=2", *options)
    script = "sleep 302 & [ $SLURM_PROCID = 1 ] || sleep 30; echo $1 fails at $(date +%s.%N); exit 3"
    done, seconds = run_timed(cluster, ".", *two, "--", "sh", "-c", script)
    assert (done.returncode, seconds < BOUND) == (3, True)
    assert processes_left(cluster, "[s]leep 302") == ""
    done = cluster.run(jaxsif_run(*two, "--", "sh", "-c", "sleep 3 & exit 0"))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_of_the_output_ends_by_itself(cluster: Cluster, folder: str) -> None:
    """It is a child that its parent does not wait for, and has the last lines to write."""
    script = "exec > >(sleep 0.1; cat >log); echo last; exit 3"
    done = cluster.run(f"cd {folder} && " + jaxsif_run("--nodes=1", "--ntasks-per-node=2", "--", "bash", "-c", script))
    assert done.returncode == 3
    assert cluster.check(["cat", f"{folder}/log"]) == "last\n"


RAISING = "import jax\nraise ValueError('boom')\n"
HIDDEN = r"jaxsif: warning: task 0 on node\d: python failed \(ValueError: boom, train\.py:2\), but its command ended"


@pytest.mark.parametrize(
    "command",
    [
        "python train.py | tee log",
        "python train.py; echo done",
        'python -c \'import subprocess; subprocess.run(["python", "train.py"])\'',
    ],
    ids=["a pipe", "a script", "a parent that does not check"],
)
def test_a_failure_behind_exit_status_0(cluster: Cluster, folder: str, command: str) -> None:
    cluster.write(f"{folder}/train.py", RAISING)
    done = cluster.run(f"cd {folder} && " + jaxsif_run("--nodes=1", "--", "sh", "-c", command))
    assert done.returncode == 0
    assert re.match(HIDDEN, done.stderr.splitlines()[-1]), done.stderr
    assert " done* " in cluster.check("module load jax/sif && jaxsif history --last 1")


@pytest.mark.parametrize(
    "command",
    [
        "python train.py || python -c 'import jax; jax.devices()'",
        "python -c 'raise ValueError(1)' || echo fine",
        "python workers.py",
    ],
    ids=["an attempt that is repeated", "a probe without JAX", "a worker"],
)
def test_a_failure_that_the_program_handles(cluster: Cluster, folder: str, command: str) -> None:
    cluster.write(f"{folder}/train.py", RAISING)
    cluster.write(
        f"{folder}/workers.py",
        "import multiprocessing\ndef work():\n    import jax, sys\n    sys.exit(1)\n"
        "if __name__ == '__main__':\n"
        "    worker = multiprocessing.get_context('spawn').Process(target=work)\n    worker.start(), worker.join()\n",
    )
    done = cluster.run(f"cd {folder} && " + jaxsif_run("--nodes=1", "--", "sh", "-c", command))
    assert (done.returncode, "jaxsif: " in done.stderr) == (0, False), done.stderr


EARLY = """\
import os, sys
ends_early, fails = (os.environ["SLURM_PROCID"] == "2" and sys.argv[1] == kind for kind in ("ends", "fails"))
if ends_early:
    sys.exit(0)
import jax
jax.distributed.initialize()
if fails:
    raise ValueError("boom")
from jax.experimental.multihost_utils import sync_global_devices
sync_global_devices("all")
"""


def wait_for_early(cluster: Cluster, folder: str, kind: str) -> tuple[list[tuple[str, str]], str, int]:
    """What the first report shows of its groups, with all of standard error, and the exit status."""
    cluster.write(f"{folder}/train.py", EARLY)
    options = (*SHAPE, "--hang-timeout=5", "--on-hang=stop")
    command = jaxsif_run(*options, "--", "sh", "-c", f"python train.py {kind}; exit 0")
    done = cluster.run(f"cd {folder} && {command}")
    return re.findall("jaxsif:   ([13]) tasks? +(.+)", done.stderr)[:2], done.stderr, done.returncode


def test_others_wait_for_a_task_that_ended_with_exit_status_0(cluster: Cluster, folder: str) -> None:
    """It is the first one of its node, whose container goes on without it and is no task."""
    shown, err, status = wait_for_early(cluster, folder, "ends")
    assert [count for count, _ in shown] == ["3", "1"], err
    assert re.fullmatch(r"has ended .*task 2 on node2", shown[1][1]), err
    assert re.search(
        r"\njaxsif: error: task 2 on node2 kept the others waiting for [5-9] s: it has ended; the run ", err
    )
    assert "  try:  make every task call jax.distributed.initialize() before it can end; " in err
    assert status == 124


def test_a_wait_after_a_failure_that_a_shell_hides(cluster: Cluster, folder: str) -> None:
    """Whether the others need that task is not known: Gloo or a long wait ends the run."""
    shown, err, _ = wait_for_early(cluster, folder, "fails")
    assert [count for count, _ in shown] == ["3", "1"], err
    assert re.fullmatch(r"has failed +train\.py:8 .*task 2 on node2", shown[1][1]), err
    hidden = r"task 2 on node2: python failed \(ValueError: boom, train\.py:8\), but its command ended with status 0"
    assert re.search(rf"\njaxsif:   {hidden}\n", err), err


LEAVES = """\
import os, sys, jax
jax.distributed.initialize()
from jax.experimental.multihost_utils import sync_global_devices
sync_global_devices("all")
if jax.process_index() == int(sys.argv[2]):
    os._exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("status", [0, 4])
def test_others_wait_in_the_shutdown_that_a_task_leaves_out(cluster: Cluster, folder: str, status: int) -> None:
    cluster.write(f"{folder}/train.py", LEAVES)
    options = (*SHAPE, "--hang-timeout=5", "--on-hang=stop")
    command = jaxsif_run(*options, "--", "sh", "-c", f"python train.py {status} 2; exit 0")
    err = cluster.run(f"cd {folder} && {command}").stderr
    assert re.search(r"\njaxsif:   3 tasks have ended, and are waiting for the others +the end of the program ", err), (
        err
    )
    assert "\njaxsif:   likely: task 2 is keeping the others waiting\n" in err
    assert re.search(r"\njaxsif: error: task 2 on node2 kept the others waiting for [5-9] s: it has ended; ", err), err
    quoted = "task 2 on node2: python failed (os._exit(4), train.py:6), but its command ended with status 0"
    assert (quoted in err) == bool(status)


def test_the_first_task_leaves_out_the_shutdown(cluster: Cluster, folder: str) -> None:
    """JAX's service goes with it, and the others abort."""
    cluster.write(f"{folder}/train.py", LEAVES)
    done = cluster.run(f"cd {folder} && " + jaxsif_run(*SHAPE, "--", "python", "train.py", "0", "0"))
    told = [line for line in done.stderr.splitlines() if line.startswith("jaxsif: ")]
    assert told == ["jaxsif: error: task 0 on node1 ended with exit status 0, and 3 of 4 tasks did not"], done.stderr


HANDLES_SIGTERM = """\
import signal, sys, time
import jax, numpy as np
from jax.experimental import multihost_utils
def stop(*_):
    sys.exit(int(sys.argv[2]))
signal.signal(signal.SIGTERM, stop)
jax.distributed.initialize()
if sys.argv[1] == "late" and jax.process_index() == 0:
    time.sleep(60)  # line 9; Gloo waits for 30 s
for step in range(100):
    multihost_utils.process_allgather(np.ones(4))
    if sys.argv[1] == "raises" and step == 3 and jax.process_index() == 2:
        raise ValueError("boom")
    time.sleep(0.1)
"""


@pytest.mark.parametrize("status", [0, 1])
@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("late", r"task 0 on node1 never arrived, and .*\n  from: .*train\.py:9, where task 0 on node1 was\n"),
        ("raises", r"task 2 on node2 failed: ValueError: boom\n"),
    ],
)
def test_the_programs_own_handler_of_sigterm_is_no_cause(
    cluster: Cluster, folder: str, kind: str, error: str, status: int
) -> None:
    """JAX holds a task that it led to a clean end until Slurm kills it."""
    cluster.write(f"{folder}/train.py", HANDLES_SIGTERM)
    done = cluster.run(f"cd {folder} && " + jaxsif_run(*SHAPE, "--", "python", "train.py", kind, str(status)))
    assert re.search(f"^jaxsif: error: {error}", done.stderr, re.MULTILINE), done.stderr
    assert ("; task 0 has not ended after 5 s\n" in done.stderr) == (status == 0), done.stderr
    assert "the results may be wrong" not in done.stderr


GROUPS = """\
import os, sys, time
import jax
import jax.numpy as jnp
from jax.experimental.multihost_utils import process_allgather
group, rank = divmod(int(os.environ["SLURM_PROCID"]), 2)
jax.distributed.initialize(f"node{group + 1}:{26500 + group}", 2, rank)
for step in range(4):
    if step == 2 and sys.argv[1] == os.environ["SLURM_PROCID"]:
        time.sleep(8)
        os._exit(0)
    process_allgather(jnp.ones(2))
"""


@pytest.mark.parametrize("task", [0, 3])
def test_a_task_leaves_its_own_group(cluster: Cluster, folder: str, task: int) -> None:
    """The other group comes to its end meanwhile; the first process has the group's coordinator."""
    cluster.write(f"{folder}/train.py", GROUPS)
    shape = ("--nodelist=node1,node2", "--nodes=2", "--ntasks-per-node=2", "--gpus-per-node=2")
    done = cluster.run(f"cd {folder} && " + jaxsif_run(*shape, "--", "python", "train.py", str(task)))
    node = f"node{1 + task // 2}"
    what = f"jaxsif: error: task {task} on {node} ended with exit status 0, and 1 of 4 tasks did not"
    assert what in done.stderr.splitlines(), done.stderr


@pytest.mark.parametrize("number", [9, 11])
def test_a_signal_behind_a_pipe_is_not_silent(cluster: Cluster, folder: str, number: int) -> None:
    cluster.write(f"{folder}/train.py", f"import os, jax\njax.devices()\nos.kill(os.getpid(), {number})\n")
    done = cluster.run(f"cd {folder} && " + jaxsif_run("--nodes=1", "--", "sh", "-c", "python train.py 2>&1 | cat"))
    what = "task 0 on node1: python ended abruptly, but its command ended with status 0"
    assert (done.returncode, f"jaxsif: warning: {what}; " in done.stderr) == (0, True), done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        *("num_processes=8", "num_processes=1, process_id=0", "process_id=0"),
        "coordinator_address='a.invalid:23811', num_processes=4, process_id=rank",
    ],
)
def test_arguments_of_initialize_for_other_processes_are_named(cluster: Cluster, folder: str, arguments: str) -> None:
    rank = "rank = int(os.environ['SLURM_PROCID'])"
    cluster.write(f"{folder}/train.py", f"import os, jax\n{rank}\njax.distributed.initialize({arguments})\n")
    done = cluster.run(f"cd {folder} && " + jaxsif_run(*SHAPE, "--init-timeout=10", "--", "python", "train.py"))
    told = [line for line in done.stderr.splitlines() if line.startswith("jaxsif: ")]
    why = ", where not all its processes can connect" if "address" in arguments else " in a run of 4 tasks"
    what = rf"task \d on node\d called jax\.distributed\.initialize\({arguments.partition(',')[0]}.*\){why}"
    assert re.fullmatch(rf"jaxsif: error: {what}(; so did \d other tasks?)?", told[-1]), done.stderr
    assert done.returncode == 134


SETS_METHOD = """\
import multiprocessing
def work(number):
    return number
multiprocessing.set_start_method("spawn")
with multiprocessing.Pool(1) as pool:
    pool.map(work, [1, 2])
"""


def test_workers_that_set_the_start_method_again(cluster: Cluster, folder: str) -> None:
    """The pool starts new ones for ever."""
    cluster.write(f"{folder}/train.py", SETS_METHOD)
    program = ("timeout", "5", "python", "train.py")
    done = cluster.run(f"cd {folder} && " + jaxsif_run("--nodes=1", "--", *program))
    hint = 'put the program under `if __name__ == "__main__":`, because workers import the script'
    assert f"jaxsif: warning: RuntimeError: context has already been set: {hint} (task 0 on node1)\n" in done.stderr


CRASHES_WITH_WORKER = """\
import faulthandler, multiprocessing, os
if __name__ == "__main__":
    import jax
    queue = multiprocessing.get_context("spawn").Queue()
    worker = multiprocessing.get_context("spawn").Process(target=queue.get, daemon=True)
    worker.start()
    faulthandler.enable()
    os.kill(os.getpid(), 11)
"""


def test_a_crash_with_workers_left_has_no_place_in_them(cluster: Cluster, folder: str) -> None:
    """Absl's app.run, too, sends Python's stack to standard error; then no other place is known."""
    cluster.write(f"{folder}/train.py", CRASHES_WITH_WORKER)
    done = cluster.run(f"cd {folder} && " + jaxsif_run("--nodes=1", "--", "python", "train.py"))
    assert 'train.py", line 8 in <module>' in done.stderr
    assert done.stderr.endswith("jaxsif: error: task 0 on node1 was killed by SIGSEGV\n"), done.stderr


SPAWNING = """\
import multiprocessing, time, jax
def work(number):
    return number
if multiprocessing.parent_process() is None and not getattr(multiprocessing.current_process(), "_inheriting", False):
    print(f"starts at {time.time()}", flush=True)
jax.distributed.initialize()
with multiprocessing.get_context("spawn").Pool(2) as pool:
    pool.map(work, [1, 2])
"""


def test_a_worker_that_runs_the_script_again(cluster: Cluster, folder: str) -> None:
    """It is named, and not the abort of another task; only the worker's import of JAX takes time."""
    cluster.write(f"{folder}/train.py", SPAWNING)
    begin = time.monotonic()
    done = cluster.run(f"cd {folder} && " + jaxsif_run(*SHAPE, "--", "python", "train.py"))
    text = "RuntimeError: a multiprocessing worker ran the script again, up to jax.distributed.initialize"
    error = rf"jaxsif: error: task \d on node\d failed: {text}\n  from: {folder}/train.py:6\n  try:  put the program "
    assert re.search(error, done.stderr), done.stderr
    assert done.returncode == 134
    assert time.monotonic() - begin < 45
    assert cluster.steps() == []


LOSES_IMAGE = """\
for p in /proc/[0-9]*; do read -r name <$p/comm; [ $name != squashfuse_ll ] || kill -KILL ${p#/proc/}; done
echo fails at $(/usr/bin/env date +%s.%N); exit 1
"""


def test_an_image_whose_file_system_has_ended(cluster: Cluster) -> None:
    argv = ("--nodes=1", "--ntasks-per-node=2", "--srun-args=--nodelist=node2", "--", "sh", "-c")
    script = "[ $SLURM_PROCID = 0 ] && sleep 60; " + LOSES_IMAGE
    done = cluster.run(jaxsif_run(*argv, script))
    assert done.returncode in (1, 126, 127)  # if task 0 is late, its `sleep` is not found, or not executed
    error = f"task [01] on node2 ended with exit status {done.returncode}; the image on node2 can no longer be read\n"
    assert re.search(f"jaxsif: error: {error}  try:  read the ", done.stderr), done.stderr


STUCK = """\
mkdir -p {folder}/bin && cat >{folder}/bin/apptainer <<'END' && chmod +x {folder}/bin/apptainer
#!/bin/sh
[ "$SLURMD_NODENAME" != node2 ] || sleep $STUCK
exec /usr/bin/apptainer "$@"
END
export PATH={folder}/bin:$PATH STUCK={seconds}
"""
INITIALIZE = ("--", "python", "-c", "import jax; jax.distributed.initialize()")


def test_tasks_that_do_not_start_are_named(cluster: Cluster, folder: str) -> None:
    stuck = STUCK.format(folder=folder, seconds=100)
    done = cluster.run(stuck + jaxsif_run(*SHAPE, "--init-timeout=25", *INITIALIZE))
    assert "\njaxsif: tasks 2-3 on node2 have not started, 15 s after the first one\n" in f"\n{done.stderr}"
    error = r"jaxsif: error: tasks 2-3 on node2 have not started, and task [01] on node1 timed out waiting"
    assert re.search(error, done.stderr), done.stderr
    assert done.returncode not in (0, 143)


def test_tasks_that_start_late_are_well(cluster: Cluster, folder: str) -> None:
    stuck = STUCK.format(folder=folder, seconds=18)
    done = cluster.run(stuck + jaxsif_run(*SHAPE, *INITIALIZE))
    first, second = (line for line in done.stderr.splitlines() if line.startswith("jaxsif: "))
    assert first == "jaxsif: tasks 2-3 on node2 have not started, 15 s after the first one"
    assert re.fullmatch(r"jaxsif: all tasks have started, \d\d s after the first one", second)
    assert done.returncode == 0
