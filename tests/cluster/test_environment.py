"""What of the host's environment must not disturb the program does not; what the user sets stands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import Cluster, jaxsif_run

TWO_PROCESSES = ("--nodes=2", "--gpus-per-node=1")


@pytest.fixture
def home_with_a_wrong_jax(cluster: Cluster) -> Iterator[None]:
    """~/.local holds a jax that cannot be used, for the image's Python and for the host's."""
    site = "~/.local/lib/python3.13/site-packages"
    cluster.check(f"mkdir -p {site}/jax && echo 'raise ImportError(\"the wrong jax\")' >{site}/jax/__init__.py")
    yield
    cluster.check("rm -rf ~/.local")


def test_dot_local_does_not_shadow_the_image(cluster: Cluster, folder: str, home_with_a_wrong_jax: None) -> None:
    program = ["python", "-c", "import jax; print(jax.__file__)"]
    expected = "/opt/jax/lib/python3.13/site-packages/jax/__init__.py\n"
    assert cluster.check(jaxsif_run("--nodes=1", "--", *program)) == expected
    bare = "module load jax/sif && srun singularity -q run $JAX_IMAGE python -c 'import jax; print(jax.__file__)'"
    assert cluster.check(bare) == expected


def test_proxies_do_not_reach_jax(cluster: Cluster, folder: str) -> None:
    """gRPC would go through them, even to a neighbour; other programs still find them."""
    proxies = "export http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9 grpc_proxy=http://127.0.0.1:9"
    cluster.check(f"module load jax/sif && cp $JAXSIF_HOME/slurm/allreduce.py {folder}")
    script = f"{proxies}; cd {folder} && " + jaxsif_run(*TWO_PROCESSES, "--", "python", "allreduce.py")
    lines = [line for line in cluster.check(script).splitlines() if line.startswith("Process")]
    assert sorted(lines) == ["Process 0 has y=[2.]", "Process 1 has y=[2.]"]
    show = ["python", "-c", "import urllib.request as u; print(sorted(u.getproxies().items()))"]
    assert cluster.check(f"{proxies}; " + jaxsif_run("--nodes=1", "--", *show)) == (
        "[('http', 'http://127.0.0.1:9'), ('https', 'http://127.0.0.1:9')]\n"
    )


def test_a_gpu_job_does_not_run_on_cpus_unnoticed(cluster: Cluster) -> None:
    """An image for GPUs, in a job with GPUs that JAX cannot use; the cpu image, told to be another, plays it."""
    options = (*TWO_PROCESSES, "--env=JAXSIF_FLAVOUR=cuda12")
    done = cluster.run(jaxsif_run(*options, "--", "python", "-c", "import jax; print(jax.devices())"))
    assert done.returncode == 1
    assert done.stdout == ""
    assert "  try:  the task was given GPUs, but JAX cannot use them" in done.stderr.splitlines()[-1]
    on_purpose = jaxsif_run(*options, "--env=JAX_PLATFORMS=cpu", "--", "python", "-c", "import jax; jax.devices()")
    assert cluster.check(on_purpose) == ""


def test_a_job_without_gpus_runs_on_cpus(cluster: Cluster) -> None:
    program = "import os, jax; print(os.environ.get('JAX_PLATFORMS'), jax.devices())"
    script = jaxsif_run("--nodes=1", "--env=JAXSIF_FLAVOUR=cuda12", "--", "python", "-c", program)
    assert cluster.check(script) == "None [CpuDevice(id=0)]\n"


@pytest.mark.parametrize("setting", ["JAX_NUM_CPU_DEVICES=3", "XLA_FLAGS=--xla_force_host_platform_device_count=3"])
def test_users_number_of_cpu_devices_wins(cluster: Cluster, setting: str) -> None:
    options = ("--nodes=1", "--gpus-per-node=1", f"--env={setting}")
    program = "import jax; print(jax.local_device_count())"
    assert cluster.check(jaxsif_run(*options, "--", "python", "-c", program)) == "3\n"


def test_bind_shows_a_folder(cluster: Cluster, folder: str) -> None:
    cluster.check(f"echo content >{folder}/file")
    options = ("--nodes=1", f"--bind={folder}:/data:ro")
    assert cluster.check(jaxsif_run(*options, "--", "cat", "/data/file")) == "content\n"


def test_export_none_of_the_job_is_not_inherited(cluster: Cluster, folder: str) -> None:
    """sbatch --export=NONE would hand on to every srun of the job that it passes no variables."""
    cluster.write(
        f"{folder}/job.sh", "#!/bin/bash -l\nmodule load jax/sif\nA=1 jaxsif run --env=B=2 -- sh -c 'echo $A$B'\n"
    )
    assert cluster.submit(folder, "--export=NONE --output=log job.sh", "log") == "12\n"
