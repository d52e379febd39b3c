"""What of the host's environment must not disturb the program does not; what the user sets stands."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from harness import Cluster, jaxsif_run, program_lines

from jaxsif.container.environment import find_rule

TWO_PROCESSES = ("--nodes=2", "--gpus-per-node=1")


@pytest.fixture
def home_with_a_wrong_jax(cluster: Cluster) -> Iterator[None]:
    """~/.local holds a jax that cannot be used, for the image's Python and for the host's."""
    site = "~/.local/lib/python3.13/site-packages"
    cluster.check(f"mkdir -p {site}/jax && echo 'raise ImportError(\"the wrong jax\")' >{site}/jax/__init__.py")
    yield
    cluster.check("rm -rf ~/.local/lib")


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
    assert "  try:  the JAX here has no CUDA: use an image with CUDA" in done.stderr.splitlines()[-1]
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


def test_the_import_of_jax_is_made_cheap(cluster: Cluster) -> None:
    program = """
import gc, os
before = gc.get_stats()[2]["collections"], gc.get_threshold()
import jax
print((gc.get_stats()[2]["collections"], gc.get_threshold()) == before, len(gc.get_objects()) > 100_000)
print(os.environ["OPENBLAS_THREAD_TIMEOUT"])
"""
    words = ("--", "python", "-c", program)
    assert cluster.check(jaxsif_run("--nodes=1", *words)) == "True True\n20\n"
    assert cluster.check(jaxsif_run("--nodes=1", "--env=OPENBLAS_THREAD_TIMEOUT=28", *words)).endswith("\n28\n")


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


# As a login shell, a module and an mpirun may leave it.
POISON = """
mkdir -p poison/site-packages && echo broken >poison/libstdc++.so.6
export LD_LIBRARY_PATH=$PWD/poison PYTHONHOME=/nowhere PYTHONPATH=$PWD/poison/site-packages LD_PRELOAD=libnowhere.so
export TMPDIR=/local/tmp SSL_CERT_FILE=/etc/nowhere.pem XDG_RUNTIME_DIR=/run/user/9 LANG=de_DE.UTF-8 LC_ALL=de_DE.UTF-8
export OMPI_MCA_orte_hnp_uri='1531576320.0;tcp://10.0.0.9:34911' OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_RANK=5
export OMPI_COMM_WORLD_LOCAL_RANK=5 PMIX_RANK=5 PMI_RANK=5 OMPI_MCA_btl=self NCCL_DEBUG=WARN MINE=1
"""
USE = """
import json, locale, os, tempfile, jax
jax.distributed.initialize()
locale.setlocale(locale.LC_ALL, "")
y = jax.numpy.ones(jax.device_count())
number = jax.process_index()
print("\u00e4")
with open(f"{number}.json", "w") as file:
    json.dump([number, jax.process_count(), tempfile.gettempdir(), dict(os.environ)], file)
"""


@pytest.fixture
def local_disk(cluster: Cluster) -> Iterator[None]:
    """node1 has a folder that the runtime does not show in containers."""
    cluster.check("mkdir -p /local/tmp && chmod 1777 /local/tmp", node="node1", user="root")
    yield
    cluster.check("rm -r /local", node="node1", user="root")


def test_a_poisoned_environment_breaks_nothing(cluster: Cluster, folder: str, local_disk: None) -> None:
    cluster.write(f"{folder}/use.py", USE)
    run = jaxsif_run("--ntasks-per-node=2", "--srun-args=-wnode1", "--", "python", "use.py")
    done = cluster.run(f"cd {folder}; module load jax/sif; {POISON}\n{run.replace('module load jax/sif && ', '')}")
    assert done.returncode == 0, done.stderr
    assert program_lines(done.stdout) == ["\u00e4"] * 2
    found = [json.loads(cluster.check(f"cat {folder}/{number}.json")) for number in range(2)]
    assert [one[:3] for one in found] == [[0, 2, "/tmp"], [1, 2, "/tmp"]]
    environ = found[1][3]
    gone = {"PYTHONHOME", "LD_PRELOAD", "TMPDIR", "SSL_CERT_FILE", "XDG_RUNTIME_DIR", "PMIX_RANK", "PMI_RANK"}
    assert {name for name in environ if name in gone or name.startswith(("OMPI_COMM", "OMPI_MCA_orte"))} == set()
    assert "poison" not in environ["LD_LIBRARY_PATH"]
    expected = {"LC_ALL": "C.UTF-8", "OMPI_MCA_btl": "self", "NCCL_DEBUG": "WARN", "MINE": "1", "PYTHONNOUSERSITE": "1"}
    assert {name: environ.get(name) for name in expected} == expected
    warnings = sorted(line for line in done.stderr.splitlines() if line.startswith("jaxsif: "))
    assert warnings == [
        f"jaxsif: warning: PYTHONPATH={folder}/poison/site-packages: packages for another Python may hide those of the"
        " image",
        "jaxsif: warning: SSL_CERT_FILE names a path that is not in the container, and is ignored (task 0 on node1)",
        "jaxsif: warning: TMPDIR names a path that is not in the container, and is ignored (task 0 on node1)",
    ]


def test_cleanenv_passes_what_jax_needs_and_no_more(cluster: Cluster, folder: str) -> None:
    cluster.write(f"{folder}/use.py", USE)
    options = ("--cleanenv", "--env=SEED=1", "--env=CUDA_VISIBLE_DEVICES=1", "--nodes=2", "--ntasks-per-node=2")
    run = jaxsif_run(*options, "--gpus-per-node=2", "--", "python", "use.py")
    variables = "export MINE=1 NCCL_DEBUG=WARN XLA_FLAGS=--xla_dump_max_hlo_modules=1 TERM=vt100"
    cluster.check(f"{variables}; cd {folder}; {run}")
    for number in range(4):
        seen, count, _, environ = json.loads(cluster.check(f"cat {folder}/{number}.json"))
        assert (seen, count) == (number, 4)
        assert (environ["SLURM_PROCID"], environ["SLURM_NTASKS"]) == (str(number), str(count))
        expected = {"SEED": "1", "CUDA_VISIBLE_DEVICES": "1", "NCCL_DEBUG": "WARN", "TERM": "vt100"}
        assert {name: environ.get(name) for name in expected} == expected
        assert {"MINE", "LOADEDMODULES", "MANPATH", "BASH_FUNC_module%%"}.isdisjoint(environ)
        # What Slurm and the runtime add on the node, and the shells that start the program.
        added = (
            "HYDRA_",
            "I_MPI_",
            "TPU_",
            "USER_PATH",
            "PS1",
            "PROMPT_COMMAND",
            "SHLVL",
            "OLDPWD",
            "_",
            "LANG",
            "LC_",
        )
        assert [name for name in environ if not find_rule(name) and not name.startswith(added)] == ["SEED"]


@pytest.fixture
def tiny_shm(cluster: Cluster) -> Iterator[None]:
    """node3 has next to no /dev/shm."""
    cluster.check("mount -t tmpfs -o size=1m,mode=1777 none /dev/shm", node="node3", user="root")
    yield
    cluster.check("umount /dev/shm", node="node3", user="root")


def test_a_tiny_shm_is_named(cluster: Cluster, tiny_shm: None) -> None:
    image_for_gpus = ("--env=JAXSIF_FLAVOUR=cuda12", "--env=JAX_PLATFORMS=cpu")
    options = ("--ntasks-per-node=2", "--gpus-per-node=2", "--srun-args=-wnode3")
    done = cluster.run(jaxsif_run(*image_for_gpus, *options, "--", "python", "-c", "pass"))
    assert (done.returncode, done.stdout) == (0, "")
    assert [line for line in done.stderr.splitlines() if "shm" in line] == [
        "jaxsif: warning: /dev/shm has 1 MiB free, and NCCL may need 256 for 2 tasks (task 0 on node3)"
    ]


def test_an_unknown_flag_of_xla_is_named(cluster: Cluster) -> None:
    program = ("--", "python", "-c", "import jax; jax.distributed.initialize(); jax.devices()")
    done = cluster.run(
        "export XLA_FLAGS=--xla_gpu_enable_async_all_reduce=true; " + jaxsif_run(*TWO_PROCESSES, *program)
    )
    assert done.returncode == 1
    what, where, hint = done.stderr.splitlines()[-3:]
    assert what == "jaxsif: error: XLA does not know --xla_gpu_enable_async_all_reduce=true"
    assert where.startswith("  from: XLA_FLAGS, in task ")
    assert hint.startswith("  try:  correct or remove them")


def test_a_users_value_stands_with_a_warning(cluster: Cluster) -> None:
    show = ("--", "sh", "-c", "echo $JAX_PLATFORMS")
    done = cluster.run("export JAX_PLATFORMS=cpu; " + jaxsif_run(*TWO_PROCESSES, *show))
    assert (done.returncode, done.stdout) == (0, "cpu\ncpu\n")
    assert done.stderr == "jaxsif: warning: JAX_PLATFORMS=cpu: JAX will not use the requested GPUs\n"
