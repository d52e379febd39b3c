"""Jobs of `jaxsif submit`: what they print, their scripts without jaxsif, requeue, arrays, exit status, Ctrl-C."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from harness import Cluster

pytestmark = pytest.mark.core
# The first time it waits to be put back into the queue; the second time it ends well.
REQUEUED = """
echo "at $JAXSIF_COORDINATOR_PORT"
[ -e again ] || { touch again; exec sleep 60; }
"""


def submit(*argv: str, folder: str) -> str:
    """The bash script that loads the module and executes `jaxsif submit` in a folder."""
    return f"module load jax/sif && cd {folder} && exec jaxsif submit --time=2 {shlex.join(argv)}"


def test_the_script_runs_with_and_without_jaxsif(cluster: Cluster, folder: str) -> None:
    """Two nodes, several GPUs a task, a file for each task's output, words that a shell would take apart."""
    words = ["two words", "$HOME", "a'b\"c", "two\nlines", "*", ""]
    program = "import sys, jax, json; jax.distributed.initialize()\nnumbers = jax.process_index(), "
    program += "jax.process_count(), jax.local_device_count(), jax.device_count()\n"
    program += "print(json.dumps([sys.argv, numbers]))"
    options = ("--nodes=2", "--ntasks-per-node=2", "--gpus-per-node=4", "--task-output=%x-%j-%t.out", "--job-name=odd")
    argv = (*options, "--wait", "--", "python", "-c", program, *words)
    done = cluster.run(submit(*argv, folder=folder))
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    assert f"jaxsif: submitted jaxsif-jobs/odd.sbatch as job {job}; its output: odd-{job}.out\n" in done.stderr
    assert done.stderr.endswith(f"jaxsif: job {job} ended: COMPLETED, exit status 0\n")
    # A shell that knows no jaxsif, and a script that names nothing of it but the image.
    script = cluster.check(f"cat {folder}/jaxsif-jobs/odd.sbatch")
    assert "/sw/" not in re.sub(r"/sw/jaxsif/images/\S+\.sif", "", script)
    cluster.submit(folder, "jaxsif-jobs/odd.sbatch", f"odd-{int(job) + 1}.out")
    outputs = [line for line in cluster.check(f"cat {folder}/odd-*-*.out").splitlines() if line.startswith("[[")]
    expected = [[["-c", *words], [task, 4, 2, 8]] for task in range(4) for _ in range(2)]
    assert sorted((json.loads(line) for line in outputs), key=lambda said: said[1]) == expected


def test_a_requeued_job_meets_at_another_port(cluster: Cluster, folder: str) -> None:
    job = cluster.check(submit("--requeue", "--nodes=1", "--", "sh", "-c", REQUEUED, folder=folder)).strip()
    cluster.check(f"cd {folder}; until [ -e again ]; do sleep 0.1; done; scontrol requeue {job}")
    # Slurm would let it wait for two minutes. In the same second, the node refuses it: "Job credential revoked".
    hurry = f"scontrol show job {job} | grep -q BeginTime && scontrol update job {job} StartTime=now"
    cluster.check(f"sleep 2; until {hurry}; do sleep 0.2; done")
    cluster.check(f"until scontrol show job {job} | grep -q COMPLETED; do sleep 0.2; done", timeout=60)
    ports = re.findall(r"^at (\d+)$", cluster.check(f"cat {folder}/sh-{job}.out"), re.MULTILINE)
    assert len(ports) == len(set(ports)) == 2


def test_exit_status_of_an_array(cluster: Cluster, folder: str) -> None:
    """The highest; one job of it is killed. SLURM_ARRAY_TASK_ID reaches the program."""
    program = 'echo "I am $SLURM_ARRAY_TASK_ID of $A"; [ $SLURM_ARRAY_TASK_ID = 1 ] || kill -9 $$'
    argv = ("--array=1-2", "--env=A", "--wait", "--", "sh", "-c", program)
    done = cluster.run("export A=b; " + submit(*argv, folder=folder))
    job = done.stdout.strip()
    assert done.returncode == 137, done.stderr
    assert done.stderr.splitlines()[-2:] == [
        f"jaxsif: job {job}_1 ended: COMPLETED, exit status 0",
        f"jaxsif: job {job}_2 ended: FAILED, exit status 137",
    ]
    assert cluster.check(f"grep -h ^I {folder}/sh-{job}_*.out") == "I am 1 of b\nI am 2 of b\n"


def test_ctrl_c_leaves_the_job_alone(cluster: Cluster, folder: str) -> None:
    script = f"module load jax/sif && cd {folder} && jaxsif submit --wait -- sleep 60 2>{folder}/said & "
    script += f"until grep -q 'its state' {folder}/said 2>/dev/null && squeue --me --noheader | grep -q ' R '; "
    script += f"do sleep 0.2; done; kill -INT -$!; wait $!; status=$?; cat {folder}/said >&2; exit $status"
    done = cluster.run(["bash", "-lc", f"set -m; {script}"])  # with job control, what runs behind hears SIGINT
    job = done.stdout.strip()
    assert done.returncode == 130, done
    assert f"jaxsif: job {job} continues; to end it: scancel {job}\n" in done.stderr
    assert job in cluster.check("squeue --me --noheader --format=%i")


def test_a_job_of_a_chain_names_its_end(cluster: Cluster, folder: str) -> None:
    """Slurm ends the shell of the script, and all that it has started as soon as it is gone."""
    argv = ("--chain=2", "--checkpoints=ck", "--nodes=1", "--gpus-per-node=1", "--", "sh", "-c", "echo runs; sleep 600")
    jobs = json.loads(cluster.check(submit("--json", *argv, folder=folder)))["jobs"]
    first, last = (job["job"] for job in jobs)
    output = f"{folder}/{jobs[0]['output']}"
    cluster.check(f"until grep -q ^runs {output}; do sleep 0.2; done; scancel {last}; scancel {first}", timeout=60)
    ended = f"jaxsif: error: the run was cancelled: step {first}"
    cluster.check(f"until grep -q '^{ended}' {output}; do sleep 0.2; done", timeout=30)


def test_what_slurm_refuses(cluster: Cluster, folder: str) -> None:
    done = cluster.run(submit("--partition=nowhere", "--", "true", folder=folder))
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr == (
        "jaxsif: error: sbatch refused the job: invalid partition specified: nowhere\n"
        "    sbatch: error: Batch job submission failed: Invalid partition name specified\n"
        "  from: sbatch; --partition\n"
        "  try:  see sbatch(1) for the options, and sinfo for partitions, nodes and their GPUs\n"
    )
    assert cluster.check(f"ls {folder}/jaxsif-jobs") == ""


def test_words_that_sbatch_does_not_know(cluster: Cluster, folder: str) -> None:
    """The script has the name that the user gave, and stays."""
    done = cluster.run(submit("--sbatch-args=--nonsense", "--script=mine.sbatch", "--", "true", folder=folder))
    assert done.returncode == 2
    assert "sbatch refused the job: unrecognized option '--nonsense'\n" in done.stderr
    cluster.check(f"test -f {folder}/mine.sbatch")
