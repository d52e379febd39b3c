"""`jaxsif shell`: on a node, in a job of its own, in an allocation, in a running job; on a terminal and without."""

from __future__ import annotations

import re

from harness import Cluster

LOOK = 'echo "$SLURM_JOB_ID on $SLURMD_NODENAME: $CUDA_VISIBLE_DEVICES"; exit 7'
DEVICES = 'python -c "import jax; print(jax.device_count(), jax.process_count())"\n'


def test_in_a_job_of_its_own_without_a_terminal(cluster: Cluster) -> None:
    """A Python there has the GPUs of the job; the exit status is the shell's, and nobody speaks of tasks."""
    done = cluster.run("module load jax/sif && exec jaxsif shell --gpus-per-node=2", stdin=DEVICES + LOOK)
    assert done.returncode == 7
    assert re.fullmatch(r"2 1\n\d+ on node1: 0,1\n", done.stdout)
    assert [line for line in done.stderr.splitlines() if not line.startswith("srun: ")] == []


# What somebody types, who reads the answer before the next line.
TYPED = r"""
send() { printf '%s\n' "$1"; }
seen() { until grep -q "$1" log; do sleep 0.1; done; }
send 'echo up$((20 + 1))'; seen up21
send 'sleep 60 &'; send jobs; seen Running
send 'kill %1'
send "sh -c 'echo busy\$((20 + 2)); exec sleep 60'"; seen busy22
printf '\003'
send 'echo "still $((40 + 2)) in $-"'; seen 'still 42'
send 'exit 7'; sleep 1
"""


def test_on_a_terminal(cluster: Cluster, folder: str) -> None:
    """Job control works, Ctrl-C reaches the program and not the step, the user's own shell is left alone."""
    cluster.write(f"{folder}/typed", TYPED)
    shell = "script --quiet --return --echo=never --flush --command 'jaxsif shell' log"
    done = cluster.run(
        f"module load jax/sif; echo 'exit 99' >~/.bashrc; cd {folder} && touch log && bash typed | {shell}; status=$?; "
        "rm ~/.bashrc; exit $status"
    )
    assert done.returncode == 7, done.stdout
    assert "Running" in done.stdout
    assert re.search(r"still 42 in \S*i\S*m", done.stdout), done.stdout


def test_a_job_that_is_not_running(cluster: Cluster) -> None:
    done = cluster.run("module load jax/sif; jaxsif shell --jobid=999999 </dev/null")
    assert done.returncode == 2
    assert done.stderr.startswith("jaxsif: error: job 999999 is not running, or is not yours\n  from: --jobid\n")


def test_in_an_allocation_and_in_a_running_job(cluster: Cluster, folder: str) -> None:
    """Beside a step that holds all of the job."""
    script = """module load jax/sif
salloc --quiet --nodes=2 --gpus-per-node=4 bash -c '
    srun --ntasks=2 --gpus-per-node=4 sleep 60 2>/dev/null &
    until squeue --steps --noheader | grep -q "\\.0"; do sleep 0.1; done
    jaxsif shell <look; echo "$?"
    (job=$SLURM_JOB_ID; unset "${!SLURM_@}"; jaxsif shell --jobid=$job <look; echo "$?")
    scancel $SLURM_JOB_ID.0; wait'
"""
    cluster.write(f"{folder}/look", LOOK)
    done = cluster.run(f"cd {folder} && {script}")
    assert re.fullmatch(r"(\d+) on node1: 0,1,2,3\n7\n\1 on node[12]: 0,1,2,3\n7\n", done.stdout), done
