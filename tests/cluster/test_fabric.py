"""Fabric profiles and `jaxsif config`, with the box's own site file: variables, libraries, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Cluster, jaxsif_run, program_lines

SITE = (Path(__file__).parents[2] / "docs/sites/box.toml").read_text()
# A library of the host that the image lacks. Its second copy was built, as far as it says, for a glibc to come.
PROJECT = """
[profile.libraries]
inherits = "box"
env = ["SITES_OWN=profile"]
libraries = ["/usr/lib/x86_64-linux-gnu/libhwloc.so.15"]

[profile.newer]
inherits = "box"
libraries = ["{folder}/lib"]

[profile.missing]
inherits = "box"
devices = ["/dev/fabric*"]
"""
SHOW = "import os; print(*(os.environ.get(n) for n in ('JAXSIF_FABRIC', 'NCCL_NET', 'NCCL_SOCKET_IFNAME')))"


@pytest.fixture(scope="module")
def project(cluster: Cluster) -> Iterator[str]:
    """A folder whose site is the box: `docs/sites/box.toml` is the user's file, with more profiles in the project's."""
    path = cluster.check("mktemp -d ~/test.XXXXXX").strip()
    cluster.check(f"mkdir -p {path}/config/jaxsif {path}/lib && cp /usr/lib/*/libhwloc.so.15 {path}/lib")
    cluster.check(f"sed -i 's/GLIBC_2[.]38/GLIBC_2.99/' {path}/lib/libhwloc.so.15")
    cluster.write(f"{path}/config/jaxsif/jaxsif.toml", SITE)
    cluster.write(f"{path}/jaxsif.toml", PROJECT.format(folder=path))
    yield path
    cluster.check(f"rm -rf {path}")


def run(project: str, *argv: str) -> str:
    return f"cd {project} && export XDG_CONFIG_HOME=$PWD/config && " + jaxsif_run(*argv)


def test_config_tells_what_holds_and_why(cluster: Cluster, project: str) -> None:
    script = run(project, "--", "true").replace("jaxsif run -- true", "jaxsif config --json")
    told = json.loads(cluster.check(script))
    settings = {row["key"]: row for row in told["settings"]}
    assert settings["run.fabric"]["value"] == "box"
    assert settings["run.fabric"]["source"] == f"run.fabric in {project}/config/jaxsif/jaxsif.toml"
    assert settings["run.image"]["source"] == "JAX_IMAGE (environment)"
    assert settings["profile.ib"]["source"].startswith("/sw/jaxsif/")
    assert [file["path"] for file in told["files"] if file["read"]][-1] == f"{project}/jaxsif.toml"


def test_jax_runs_with_the_sites_fabric(cluster: Cluster, project: str) -> None:
    cluster.check(f"module load jax/sif && cp $JAXSIF_HOME/slurm/allreduce.py {project}")
    program = f'python -c "{SHOW}" && python allreduce.py'
    script = run(project, "--nodes=2", "--gpus-per-node=2", "--", "sh", "-c", program)
    lines = program_lines(cluster.check(script))
    assert lines == [f"Process {n} has y=[4.]" for n in range(4)] + ["box Socket =eth0"] * 4


def test_the_users_own_values_stand(cluster: Cluster, project: str) -> None:
    script = "export NCCL_SOCKET_IFNAME=lo; " + run(
        project, "--nodes=1", "--env=NCCL_NET=Mine", "--", "python", "-c", SHOW
    )
    done = cluster.run(script)
    assert done.stdout == "box Mine lo\n"
    assert "jaxsif: keeping your NCCL_SOCKET_IFNAME=lo (profile.box.env in " in done.stderr
    assert "jaxsif: keeping your NCCL_NET=Mine (profile.tcp.env in " in done.stderr


def test_a_variable_that_cleanenv_drops_does_not_stand(cluster: Cluster, project: str) -> None:
    options = ("--fabric=libraries", "--cleanenv", "--nodes=1")
    script = "export SITES_OWN=mine; " + run(project, *options, "--", "sh", "-c", "echo $SITES_OWN $NCCL_NET")
    assert cluster.check(script) == "profile Socket\n"


def test_on_one_machine_there_is_no_fabric(cluster: Cluster, project: str) -> None:
    local = ("--launcher=local", "--gpus-per-node=1")
    assert cluster.check(run(project, *local, "--", "python", "-c", SHOW)) == "None None None\n"
    done = cluster.run(run(project, *local, "--fabric=missing", "--", "true"))
    assert (done.returncode, done.stderr) == (0, "jaxsif: warning: --fabric has no effect on a single machine\n")


def test_libraries_of_the_host_are_loaded(cluster: Cluster, project: str) -> None:
    program = "import ctypes; print(ctypes.CDLL('libhwloc.so.15').hwloc_get_api_version() > 0)"
    command = ("--nodes=1", "--ntasks-per-node=2", "--", "python", "-c", program)
    assert cluster.check(run(project, "--fabric=libraries", *command)) == "True\n" * 2
    assert "libhwloc.so.15: cannot open shared object file" in cluster.run(run(project, *command)).stderr


def test_a_library_for_a_newer_system_is_refused_before_the_step(cluster: Cluster, project: str) -> None:
    done = cluster.run(run(project, "--fabric=newer", "--nodes=1", "--", "true"))
    assert done.returncode == 125
    told, error, *_ = done.stderr.splitlines()
    assert told == f"jaxsif: {project}/jaxsif.toml sets profile.newer"
    assert error.startswith(f"jaxsif: error: {project}/lib/libhwloc.so.15 needs glibc 2.99, but the image has 2.")
    assert f"  from: profile.newer.libraries in {project}/jaxsif.toml; the image is /sw/" in done.stderr
    without = cluster.run(
        run(
            project,
            "--nodes=1",
            f"--env=LD_LIBRARY_PATH={project}/lib",
            "--",
            "python",
            "-c",
            "import ctypes as c; c.CDLL('libhwloc.so.15')",
        )
    )
    assert "version `GLIBC_2.99' not found" in without.stderr  # the loader agrees


def test_a_node_without_the_device_is_named(cluster: Cluster, project: str) -> None:
    cluster.check("touch /dev/fabric0", node="node1", user="root")
    try:
        nodes = ("--nodes=2", "--ntasks-per-node=2", "--srun-args=--nodelist=node1,node2")
        done = cluster.run(run(project, "--fabric=missing", *nodes, "--", "sh", "-c", "sleep 60 && echo ran"))
    finally:
        cluster.check("rm /dev/fabric0", node="node1", user="root")
    assert (done.stdout, done.returncode) == ("", 125)
    error = done.stderr[done.stderr.index("jaxsif: error: ") :].splitlines()
    assert error[0] == "jaxsif: error: no /dev/fabric* on this node, which the fabric missing needs"
    assert error[1] in ("  from: task 2 on node2; --fabric", "  from: task 3 on node2; --fabric")
    assert error[2].startswith(
        "  try:  pass another --fabric, such as tcp, or --exclude=NODE; see jaxsif config profile.missing"
    )
