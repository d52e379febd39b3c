"""Several steps of one job."""

from __future__ import annotations

import re
import shlex

from harness import Cluster, jaxsif_run, program_lines


def test_two_runs_at_once_in_one_job(cluster: Cluster, folder: str) -> None:
    """Both begin on node1, where JAX by itself would give both the same port, and the first would die."""
    one = "jaxsif run --ntasks-per-node=1 --gpus-per-node=2 -- python slow_sum.py"
    cluster.write(
        f"{folder}/slow_sum.py",
        "import time, jax, jax.numpy as jnp\njax.distributed.initialize()\ntime.sleep(3)\n"
        "y = jax.pmap(lambda x: jax.lax.psum(x, 'i'), axis_name='i')(jnp.ones(jax.local_device_count()))\n"
        "print('sum', y[0])\n",
    )
    script = (
        f"#!/bin/bash -l\nset -e\nmodule load jax/sif\n{one} >a 2>&1 & a=$!\n{one} >b 2>&1 & b=$!\nwait $a\nwait $b\n"
    )
    cluster.write(f"{folder}/job.sh", script)
    cluster.submit(folder, "--nodes=2 --ntasks-per-node=2 --gpus-per-node=4 --output=log job.sh", "log")
    for name in "ab":
        assert program_lines(cluster.check(f"cat {folder}/{name}")) == ["sum 4.0", "sum 4.0"]


def test_a_run_that_waits_for_another_one(cluster: Cluster) -> None:
    """srun itself says nothing."""
    first, second = ("jaxsif run -n2 -- sleep 25", "sleep 4; jaxsif run -n2 -- true")
    done = cluster.run(f'module load jax/sif && salloc --quiet -N1 -n2 bash -c "{first} & {second}; wait"')
    assert done.returncode == 0
    found = re.findall(r"^jaxsif: the tasks wait for .*$", done.stderr, re.MULTILINE)
    assert len(found) == 1, done.stderr
    what = r"jaxsif: the tasks wait for CPUs, GPUs or memory that other steps of job (\d+) use: "
    assert re.fullmatch(rf"{what}squeue --steps --jobs=\1", found[0])


def test_runs_one_after_the_other_in_one_allocation(cluster: Cluster) -> None:
    """salloc's shell is on the login node; the allocation's GPUs decide the number of tasks."""
    count = r"jaxsif run -- sh -c 'echo \$SLURM_NTASKS' | sort -u"
    for options in ("--nodes=2 --gpus-per-node=2", "--nodes=2 --gres=gpu:2"):
        done = cluster.run(f'module load jax/sif && salloc --quiet {options} bash -c "{count}; {count}"')
        assert (done.stdout, done.returncode) == ("4\n4\n", 0)
        # Such a job has one CPU on each node, and srun would refuse a second task there.
        assert done.stderr.startswith("jaxsif: warning: 2 tasks on a node share 1 CPU: allocate with --cpus-per")


def test_uneven_gpus_are_refused(cluster: Cluster) -> None:
    done = cluster.run("module load jax/sif && salloc --quiet --nodes=2 --gpus=4 jaxsif run -- true")
    assert done.returncode == 2
    assert "jaxsif: error: the job's GPUs are spread unevenly across its nodes: 3 + 1\n" in done.stderr


def test_job_decides_the_number_of_tasks_when_it_asked(cluster: Cluster) -> None:
    script = "salloc --quiet --nodes=2 --ntasks-per-node=1 --gpus-per-node=2 jaxsif run -- sh -c 'echo $SLURM_NTASKS'"
    assert cluster.check(f"module load jax/sif && {script}") == "2\n2\n"


def test_more_tasks_than_gpus_are_refused_on_the_node(cluster: Cluster) -> None:
    """Where only Slurm knows how many GPUs a node gives, the task itself looks, and speaks once."""
    options = ("--nodes=1", "--ntasks-per-node=3", "--srun-args=--gpus=2")
    done = cluster.run(jaxsif_run(*options, "--", "python", "-c", "pass"))
    assert done.returncode == 125
    assert done.stderr.count("jaxsif: error: 3 tasks share 2 of this node's GPUs") == 1


def test_label_names_the_task_of_each_line(cluster: Cluster) -> None:
    script = "import os, sys; print('out'); print('err', file=sys.stderr); sys.exit(os.environ['SLURM_PROCID'] == '9')"
    done = cluster.run(jaxsif_run("--nodes=2", "--ntasks-per-node=1", "--label", "--", "python", "-c", script))
    assert sorted(done.stdout.splitlines()) == ["0: out", "1: out"]
    assert sorted(done.stderr.splitlines()) == ["0: err", "1: err"]


def test_verbose_tells_what_is_started(cluster: Cluster) -> None:
    done = cluster.run(jaxsif_run("--verbose", "--nodes=2", "--gpus-per-node=2", "--", "true"))
    assert done.returncode == 0
    first, second, third = done.stderr.splitlines()
    assert first == (
        "jaxsif: 2 nodes, 2 tasks a node, 2 GPUs a node by srun (one task per GPU); image from JAX_IMAGE (environment)"
    )
    assert re.match(r"jaxsif: .*\bJAXSIF_STEP=\S+ .*\bsrun ", second), second
    assert re.fullmatch(r"jaxsif: the image: JAX [\d.]+, cpu", third)


def test_inside_of_a_step(cluster: Cluster) -> None:
    """As in `srun --pty bash`, whose own step has one task and holds all that a new one would wait for."""
    inner = "exec jaxsif run -- sh -c 'echo $SLURM_NTASKS'"
    options = "--nodes=1 --ntasks=1 --cpus-per-task=2 --gpus-per-node=2"
    done = cluster.run(f"module load jax/sif && srun {options} bash -c {shlex.quote(inner)}", timeout=30)
    assert (done.stdout, done.returncode) == ("2\n2\n", 0)


def test_output_in_a_file_for_each_task(cluster: Cluster, folder: str) -> None:
    """The files hold the program's own lines, and the exit status is the program's."""
    command = ("sh", "-c", "echo err >&2; exit 3")
    done = cluster.run(f"cd {folder} && " + jaxsif_run("--nodes=1", "--srun-args=--output=log-%t", "--", *command))
    assert done.returncode == 3
    assert cluster.check(f"cat {folder}/log-0").splitlines()[0] == "err"
    assert "jaxsif" not in cluster.check(f"cat {folder}/log-0")
    assert re.search(r"jaxsif: error: task 0 on node\d ended with exit status 3\n", done.stderr), done.stderr
