"""A SIF image that is not ours: Debian's Python with JAX beside it, no label, no task shim, no environment."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest
from harness import Cluster, jaxsif_run, program_lines
from wheels import put_wheel, serve_index

FOUR = ("--nodes=2", "--gpus-per-node=2")
# As somebody would make it who installs JAX with pip into a system of his own.
_BUILD = """
module load jax/sif && cd {folder} && apptainer --quiet build --sandbox system $JAX_IMAGE && cd system &&
mv opt/jax/lib/python3.*/site-packages/* usr/local/lib/python3.13/dist-packages/ && chmod -R u+w opt &&
rm -rf opt/jax opt/jaxsif usr/local/lib/python3.13/dist-packages/jaxsif* && cd .singularity.d &&
rm -f labels.json Singularity && printf 'export PATH=/usr/local/bin:/usr/bin:/bin' >env/90-environment.sh &&
cd {folder} && apptainer --quiet build --mksquashfs-args '-comp zstd -Xcompression-level 1' foreign.sif system &&
chmod -R u+w system && rm -rf system
"""


@pytest.fixture(scope="module")
def image(cluster: Cluster) -> Iterator[str]:
    folder = cluster.check("mktemp -d ~/foreign.XXXXXX").strip()
    try:
        cluster.check(_BUILD.format(folder=folder))
        yield f"{folder}/foreign.sif"
    finally:
        cluster.check(f"chmod -R u+w {folder} && rm -rf {folder}")


def run(cluster: Cluster, *argv: str) -> list[str]:
    """The lines of a program in four tasks. The image does not tell that it is for CPUs."""
    return program_lines(cluster.check(jaxsif_run(*FOUR, "--env=JAX_PLATFORMS=cpu", *argv)))


def test_it_is_foreign(cluster: Cluster, image: str) -> None:
    """Nothing of ours is in it, or the other tests show nothing."""
    look = "ls -d /opt/jax*; grep jaxsif /.singularity.d/labels.json; env | grep -i jax; command -v pip"
    done = cluster.run(f"module load jax/sif && apptainer --quiet exec --cleanenv {image} sh -c '{look}; true'")
    assert (done.stdout, done.returncode) == ("", 0)


@pytest.mark.parametrize("containers", ["node", "task"])
def test_runs_and_shares_the_gpus(cluster: Cluster, image: str, containers: str) -> None:
    """The tasks find each other, and each has its own device; the image starts once on a node, or once a task."""
    program = "import jax; from jax.experimental import multihost_utils as m; jax.distributed.initialize(); "
    program += "print(jax.__file__, sum(m.process_allgather(jax.numpy.array(jax.process_index()))), jax.device_count())"
    found = run(cluster, f"--image={image}", f"--containers={containers}", "--", "python3", "-c", program)
    assert found == ["/usr/local/lib/python3.13/dist-packages/jax/__init__.py 6 4"] * 4


def test_staged(cluster: Cluster, image: str) -> None:
    program = "import os, jax; print(os.environ['APPTAINER_CONTAINER'], jax.__name__)"
    command = f"jaxsif run --stage --image={image} -- python3 -c {shlex.quote(program)}"
    job = f"module load jax/sif && salloc --quiet --nodes=2 --ntasks-per-node=2 {command}"
    try:
        lines = program_lines(cluster.check(job))
        assert len(lines) == 4
        assert all(re.fullmatch(r"/tmp/jaxsif-1000/\w+ jax", line) for line in lines), lines
    finally:
        for node in ("node1", "node2"):
            cluster.check("rm -rf /tmp/jaxsif-1000", node=node, user="root")


def test_who_failed_is_named(cluster: Cluster, image: str, folder: str) -> None:
    """By the line of the program, and not by one in the image's dist-packages; here, JAX finds no GPU."""
    cluster.write(f"{folder}/fails.py", "import jax\n\njax.devices()\n")
    done = cluster.run(f"cd {folder} && {jaxsif_run(*FOUR, f'--image={image}', '--', 'python3', 'fails.py')}")
    assert done.returncode == 1
    error, source = done.stderr.splitlines()[-3:-1]
    assert re.fullmatch(r"jaxsif: error: task \d on node\d failed: JAX cannot use any platform in \S+=cuda", error)
    assert source == f"  from: {folder}/fails.py:3"


def test_what_is_not_known_is_said(cluster: Cluster, image: str) -> None:
    done = cluster.run(jaxsif_run("--nodes=1", "--verbose", f"--image={image}", "--", "true"))
    assert done.stderr.splitlines()[-1].startswith("jaxsif: the image: JAX and driver versions unknown (it has no")
    facts = cluster.check(f"module load jax/sif && jaxsif image inspect {image}")
    assert re.search(r"^flavour +unknown \(no label\)$", facts, re.MULTILINE)
    assert re.search(r"^JAX +[\d.]+ \(no label; according to its package list\)$", facts, re.MULTILINE)
    assert re.search(r"^digest +sha256:[0-9a-f]{64}$", facts, re.MULTILINE)


def test_layer(cluster: Cluster, image: str, folder: str) -> None:
    """It is seen by the image's own Python; JAX stays the image's."""
    data = f"export JAX_IMAGE={image} XDG_DATA_HOME={folder}/data && module load jax/sif"
    put_wheel(cluster, folder, "hello", "1.0", {"hello.py": "who = 'hello'"})
    put_wheel(cluster, folder, "jax", "0.1.0", {"jax.py": ""})
    with serve_index(cluster, folder) as index:
        create = f"{data} && export UV_DEFAULT_INDEX={index} && jaxsif layer create --image {image}"
        cluster.check(f"{create} greeting hello")
        other = cluster.run(f"{create} other jax==0.1.0")
    assert other.returncode == 2, other.stderr
    program = "import hello, jax; print(hello.who, jax.__file__)"
    command = jaxsif_run(*FOUR, f"--image={image}", "--layer=greeting", "--", "python3", "-c", program)
    lines = program_lines(cluster.check(f"{data} && {command}"))
    assert lines == ["hello /usr/local/lib/python3.13/dist-packages/jax/__init__.py"] * 4


def test_a_runscript_that_does_not_run_the_program(cluster: Cluster, image: str, folder: str) -> None:
    """srun ends with 0: nothing else tells that nothing has run."""
    head = f"Bootstrap: localimage\nFrom: {image}\n%runscript\n    echo Welcome\n"
    cluster.write(f"{folder}/own.def", head)
    cluster.check(f"apptainer --quiet build {folder}/own.sif {folder}/own.def")
    done = cluster.run(f"module load jax/sif && jaxsif run -n 2 --image {folder}/own.sif -- false")
    assert (done.returncode, "Welcome" in done.stdout) == (125, True)
    told = 'no task started (exit status 0)\n  from: --image\n  try:  end the image\'s %runscript with exec "$@"'
    assert f"jaxsif: error: {told}" in done.stderr
    done = cluster.run(f"module load jax/sif && jaxsif doctor -N 1 --image {folder}/own.sif")
    assert "no task has started" in done.stdout + done.stderr
    assert "%runscript" in done.stdout + done.stderr
