"""Without Slurm: Open MPI's mpirun starts the tasks, over ssh and in a job, and all else is as with srun."""

from __future__ import annotations

import json
import shlex

import pytest
from harness import Cluster, jaxsif_run, processes_left, program_lines
from test_arguments import STRINGS

HOSTS = ("--hosts=node1:2,node2:2",)
pytestmark = pytest.mark.usefixtures("ssh")


def test_jax_over_two_nodes(cluster: Cluster, folder: str) -> None:
    """JAX itself finds coordinator and numbers; labels are srun's; each node has one container."""
    program = (
        "import os, jax; jax.distributed.initialize(); "
        "print(jax.process_index(), jax.process_count(), os.uname().nodename, jax.device_count(), "
        "os.environ['CUDA_VISIBLE_DEVICES'], os.environ['JAX_LOCAL_DEVICE_IDS'], os.stat('/').st_dev)"
    )
    options = ("--hosts=node2,node1", "--ntasks-per-node=2", "--gpus-per-node=4", "--label")
    done = cluster.run(f"cd {folder} && " + jaxsif_run(*options, "--", "python", "-c", program))
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in program_lines(done.stdout)]
    assert [words[:-1] for words in lines] == [
        [f"{rank}:", str(rank), "4", node, "8", "0,1,2,3", devices]
        for rank, node, devices in [(0, "node2", "0,1"), (1, "node2", "2,3"), (2, "node1", "0,1"), (3, "node1", "2,3")]
    ]
    assert lines[0][-1] == lines[1][-1]
    assert lines[2][-1] == lines[3][-1]


def test_variables_arguments_and_folder_arrive_unchanged(cluster: Cluster, folder: str) -> None:
    names = {f"TEXT{index}": text for index, text in enumerate(STRINGS.values())}
    env = [f"--env={name}={text}" for name, text in names.items()]
    shell = "".join(f"export SHELL_{name}={shlex.quote(text)}; " for name, text in names.items())
    asked = " ".join([*names, *(f"SHELL_{name}" for name in names)])
    script = jaxsif_run("--hosts=node1", *env, f"--env=NAMES={asked}", "--", "python", "echo.py", *STRINGS.values())
    done = cluster.run(f"cd {folder} && {shell}{script}")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "argv": ["echo.py", *STRINGS.values()],
        "environ": {**names, **{f"SHELL_{name}": text for name, text in names.items()}},
    }


def test_a_failure_ends_all_and_is_named(cluster: Cluster, folder: str) -> None:
    script = f"cd {folder} && " + jaxsif_run(*HOSTS, "--", "python", "fail.py", "raise", "2")
    done = cluster.run(f"({script}); status=$?; date +%s.%N; exit $status")
    *output, ended = done.stdout.splitlines()
    failed = [float(line.split()[-1]) for line in output if "fails at" in line]
    assert done.returncode == 1
    assert "jaxsif: error: task 2 on node2 failed: ValueError: boom, at step 3\n" in done.stderr
    assert float(ended) - failed[0] < 8
    assert processes_left(cluster, "[f]ail.py") == ""


def test_programs_that_hear_nothing_are_ended_too(cluster: Cluster) -> None:
    """Stuck in a collective, Python does not get to its handlers; here a program that ignores the signals."""
    stuck = "trap '' INT TERM; echo up; while :; do sleep 1; done"
    with cluster.start("echo $$; " + jaxsif_run(*HOSTS, "--", "sh", "-c", stuck)) as launcher:
        assert launcher.stdout is not None
        pid, *up = [launcher.stdout.readline().strip() for _ in range(5)]
        assert up == ["up"] * 4
        cluster.check(f"kill -INT {pid}")
        launcher.communicate(timeout=15)
    assert launcher.returncode == 130
    assert processes_left(cluster, "[e]cho up") == ""


def test_in_a_job_with_its_nodes_and_gpus(cluster: Cluster) -> None:
    """Open MPI takes them from Slurm, whose variables of the batch script and of Open MPI's own step mean others."""
    program = "echo $SLURM_PROCID $SLURM_STEP_NODELIST $SLURM_STEP_TASKS_PER_NODE $CUDA_VISIBLE_DEVICES; sleep 0.3"
    script = "module load jax/sif; " + jaxsif_run("--launcher=mpirun", "--", "sh", "-c", program)
    job = ["salloc", "--quiet", "--nodes=2", "--gpus-per-node=3", "--nodelist=node[3-4]", "bash", "-lc", script]
    done = cluster.run(job)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"{task} node3,node4 3(x2) 0,1,2" for task in range(6)]


def test_on_this_machine_alone_and_from_a_hostfile(cluster: Cluster, folder: str) -> None:
    program = ["--", "sh", "-c", "echo $SLURM_PROCID $SLURMD_NODENAME; sleep 0.3"]
    alone = cluster.check(jaxsif_run("--launcher=mpirun", "--ntasks-per-node=2", *program))
    assert sorted(alone.splitlines()) == ["0 login", "1 login"]
    cluster.write(f"{folder}/hosts", "# two\nnode2 slots=2\nnode1 slots=2\n")
    listed = cluster.check(f"cd {folder} && " + jaxsif_run("--hostfile=hosts", "--nodes=1", *program))
    assert sorted(listed.splitlines()) == ["0 node2", "1 node2"]


def test_bad_hosts(cluster: Cluster) -> None:
    unknown = cluster.run(jaxsif_run("--hosts=node9", "--", "true"))
    assert unknown.returncode == 125
    assert "jaxsif: error: mpirun refused the request: ssh: Could not resolve hostname node9" in unknown.stderr
    no_program = cluster.run(jaxsif_run("--hosts=node1", "--", "/no/such"))
    assert no_program.returncode == 127
    assert no_program.stderr.splitlines()[-2].startswith("jaxsif: error: task 0 on node1 ended with exit status 127")
    script = "module load jax/sif && launcher=$(command -v jaxsif) && PATH=/nowhere $launcher run --hosts=a -- true"
    missing = cluster.run(script)
    assert (missing.returncode, missing.stderr.splitlines()[0]) == (125, "jaxsif: error: mpirun is not on the PATH")
