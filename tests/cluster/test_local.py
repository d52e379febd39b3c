"""One machine without Slurm: N local processes, in the container, or in this machine's Python where there is none."""

from __future__ import annotations

from harness import Cluster, jaxsif_run, program_lines

WAITS = "import os, time; open('ready' + os.environ['SLURM_PROCID'], 'w')\ntime.sleep(60)"
LOCAL = ("--launcher=local", "--gpus-per-node=4")


def test_four_processes_in_the_container(cluster: Cluster, folder: str) -> None:
    cluster.check(f"module load jax/sif && cp $JAXSIF_HOME/slurm/*.py {folder}")
    done = cluster.run(f"cd {folder} && " + jaxsif_run(*LOCAL, "--", "python", "count_devices.py"))
    assert done.stderr == ""
    assert program_lines(done.stdout) == [f"I am {process}, I see 1/4 devices" for process in range(4)]


def test_one_process_with_all_devices(cluster: Cluster, folder: str) -> None:
    program = "import jax; print(jax.process_count(), jax.local_device_count())"
    assert cluster.check(jaxsif_run(*LOCAL, "--ntasks-per-node=1", "--", "python", "-c", program)) == "1 4\n"


def test_a_failure_ends_the_others_and_is_named(cluster: Cluster, folder: str) -> None:
    script = f"cd {folder} && " + jaxsif_run(*LOCAL, "--", "python", "fail.py", "raise", "2")
    done = cluster.run(f"({script}); status=$?; date +%s.%N; exit $status")
    *output, ended = done.stdout.splitlines()
    failed = [float(line.split()[-1]) for line in output if "fails at" in line]
    assert done.returncode == 1
    assert float(ended) - failed[0] < 3
    assert "jaxsif: error: task 2 on login failed: ValueError: boom, at step 3\n" in done.stderr
    assert cluster.run("pgrep -f fail.py").stdout == ""


def test_without_slurm_and_without_a_runtime(cluster: Cluster, folder: str) -> None:
    """Chosen by itself, and said; the program is this machine's own Python's."""
    tools = "mkdir bin && ln -s $(command -v python3) bin/python3 && launcher=$(command -v jaxsif)"
    program = "import os; print(os.environ['SLURM_NTASKS'], 'jaxsif_task' in __import__('sys').modules)"
    script = f'cd {folder} && module load jax/sif && {tools} && PATH=$PWD/bin $launcher run -- python3 -c "{program}"'
    done = cluster.run(script)
    assert (done.returncode, done.stdout) == (0, "1 True\n")
    assert done.stderr == (
        "jaxsif: no Slurm here: starting 1 local process\n"
        "jaxsif: warning: no container runtime here: running in this machine's own Python\n"
    )


def test_without_slurm_in_the_container(cluster: Cluster, folder: str) -> None:
    tools = "mkdir bin && ln -s $(command -v apptainer) $(command -v python3) bin && launcher=$(command -v jaxsif)"
    program = "import jax; jax.distributed.initialize(); print(jax.process_index(), jax.process_count())"
    run = f'PATH=$PWD/bin $launcher run --ntasks-per-node=2 -- python -c "{program}"'
    done = cluster.run(f"cd {folder} && module load jax/sif && {tools} && {run}")
    assert (done.returncode, program_lines(done.stdout)) == (0, ["0 2", "1 2"]), done.stderr
    assert done.stderr == "jaxsif: no Slurm here: starting 2 local processes\n"


def test_one_gpu_is_handed_out(cluster: Cluster) -> None:
    script = jaxsif_run("--launcher=local", "--gpus-per-node=1", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert cluster.check(script) == "0\n"
    assert cluster.check(f"export CUDA_VISIBLE_DEVICES=3,2; {script}") == "3\n"
    assert cluster.check(f"export CUDA_VISIBLE_DEVICES=NoDevFiles; {script}") == "0\n"


def test_ctrl_c_prints_no_tracebacks(cluster: Cluster, folder: str) -> None:
    script = f"cd {folder} && echo $$ >pid && " + jaxsif_run(*LOCAL, "--", "python", "-c", WAITS)
    with cluster.start(script) as launcher:
        ready = " && ".join(f"[ -e ready{task} ]" for task in range(4))
        cluster.check(f"cd {folder} && until {ready}; do sleep 0.1; done; sleep 0.5; kill -INT $(cat pid)")
        _, err = launcher.communicate(timeout=15)
    assert (launcher.returncode, err) == (130, "jaxsif: tasks were at <string>:2 (tasks 0-3)\n")


def test_processes_that_hear_nothing_are_ended_too(cluster: Cluster, folder: str) -> None:
    """Stuck in a collective, Python does not get to its handlers; here a program that ignores the signals."""
    stuck = "trap '' INT TERM; touch ready; while :; do sleep 1; done"
    script = f"cd {folder} && echo $$ >pid && " + jaxsif_run(
        "--launcher=local", "--ntasks-per-node=2", "--", "sh", "-c", stuck
    )
    with cluster.start(script) as launcher:
        cluster.check(f"cd {folder} && until [ -e ready ]; do sleep 0.1; done; kill -INT $(cat pid)")
        launcher.communicate(timeout=15)
    assert launcher.returncode == 130
    assert cluster.run(["pgrep", "-fa", "touch ready|apptainer|squashfuse"]).stdout == ""
