"""Failures that something hides: the error still names the task, the line and the exception, within a second."""

from __future__ import annotations

import re
import subprocess

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
    cluster.write(f"{folder}/train.py", "import jax\nraise ValueError('boom')\n")
    done = cluster.run(f"cd {folder} && " + jaxsif_run("--nodes=1", "--", "sh", "-c", command))
    assert done.returncode == 0
    assert re.match(HIDDEN, done.stderr.splitlines()[-1]), done.stderr
    assert " failed 0 " in cluster.check("module load jax/sif && jaxsif history --last 1")


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
    cluster.write(f"{folder}/train.py", "import jax\nraise ValueError('boom')\n")
    cluster.write(
        f"{folder}/workers.py",
        "import multiprocessing\ndef work():\n    import jax, sys\n    sys.exit(1)\n"
        "if __name__ == '__main__':\n"
        "    worker = multiprocessing.get_context('spawn').Process(target=work)\n    worker.start(), worker.join()\n",
    )
    done = cluster.run(f"cd {folder} && " + jaxsif_run("--nodes=1", "--", "sh", "-c", command))
    assert (done.returncode, "jaxsif: " in done.stderr) == (0, False), done.stderr
