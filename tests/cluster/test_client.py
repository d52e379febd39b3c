"""spython on the real runtime: what images tell of how they were made, and `jaxsif.client()` on a node."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Cluster
from registry import registry
from test_image_look import OURS, REPOSITORY, check, run
from test_pull import environ

INSPECT = ("jaxsif", "image", "inspect")


@pytest.fixture(scope="module")
def images() -> Iterator[Path]:
    """A folder that the runtime's sandbox sees, with our image unpacked."""
    folder = REPOSITORY / "build/test-client"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    check("apptainer", "build", "--sandbox", folder / "ours", OURS)
    yield folder
    shutil.rmtree(folder)


def test_our_image() -> None:
    """The runtime's own words, and labels as our reader of SIF files finds them."""
    definition = check("apptainer", "inspect", "--deffile", OURS)
    assert check(*INSPECT, "--definition", OURS).strip() == definition.strip()
    told = json.loads(check(*INSPECT, "--json", OURS))
    assert told["definition"].strip() == definition.strip()
    assert 'exec "$@"' in told["runscript"]
    assert "export PATH=/opt/jax/bin:$PATH" in "".join(told["environment"].values())
    assert (told["flavour"], told["jax"]) == (told["labels"]["io.jaxsif.flavour"], told["labels"]["io.jaxsif.jax"])
    assert "check.py" in told["test"]
    assert told["help"].strip().startswith("JAX ")


def test_unpacked_image(images: Path) -> None:
    """A definition of somebody else's moves no cursor, and keeps its tabs."""
    recipe = images / "ours/.singularity.d/Singularity"
    recipe.write_text("Bootstrap: docker\nFrom: a\n%post\n\tprintf '\x1b[2J'\n")
    assert check(*INSPECT, "--definition", images / "ours").splitlines()[-1] == "\tprintf '\\x1b[2J'"
    assert json.loads(check(*INSPECT, "--json", images / "ours"))["definition"].splitlines()[1] == "From: a"
    recipe.unlink()
    done = run(*INSPECT, "--definition", images / "ours")
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        125,
        f"jaxsif: error: image has no definition: {images}/ours",
    )


def test_broken_files(images: Path) -> None:
    """A file without the part that the runtime reads, and one whose part is no JSON: named, and never run."""
    content = OURS.read_bytes()
    renamed, damaged = images / "renamed.sif", images / "damaged.sif"
    renamed.write_bytes(content.replace(b"inspect-metadata.json", b"inspect-something.jsn", 1))
    done = run(*INSPECT, "--definition", renamed)
    assert done.returncode == 125
    assert done.stderr.startswith(
        "jaxsif: error: image has no inspect-metadata.json, so finding out more means running it: "
    )
    facts = json.loads(check(*INSPECT, "--json", renamed))
    assert (facts["flavour"], facts["definition"], facts["labels"]) == ("cpu", None, None)
    assert facts["notes"]["definition"].startswith("image has no inspect-metadata.json")
    damaged.write_bytes(content.replace(b'{"data":{"attributes"', b'{"data":["attributes"', 1))
    done = run(*INSPECT, "--definition", damaged)
    assert done.returncode == 125
    assert done.stderr.startswith(f"jaxsif: error: cannot parse the metadata of {damaged}: ")


def test_image_of_a_registry(cluster: Cluster, images: Path) -> None:
    with registry() as host:
        subprocess.run(["apptainer", "push", OURS, f"oras://{host}/site/jax:1"], env=environ(), check=True)
        pull = ("env", "APPTAINER_NOHTTPS=1", "NO_PROXY=127.0.0.1", "jaxsif", "image", "pull")
        check(*pull, f"oras://{host}/site/jax:1", "--output", images / "pulled.sif")
    assert check(*INSPECT, "--definition", images / "pulled.sif") == check(*INSPECT, "--definition", OURS)


# As docs/client.md says that Python finds it.
FIND = 'import os, sys\nsys.path.append(os.environ["JAXSIF_HOME"] + "/lib")\nimport jaxsif\nclient = jaxsif.client()\n'
FIRST = """\
print("nv" if "--nv" in client.options else "no GPUs")
program = "import jax, os; print(jax.device_count(), os.environ.get('SLURM_PROCID'), os.environ.get('MINE'))"
print(client.execute(["python", "-c", program]).strip())
print(client.execute(["sh", "-c", "exit 3"])["return_code"])
print([line.strip() for line in client.execute(["sh", "-c", "echo $LC_ALL; echo $NCCL_DEBUG"], stream=True)])
print(client.instance(name="server"))
try:
    client.instance("/missing.sif", name="other")
except jaxsif.errors.HostError as error:
    print(error.render().splitlines()[1].strip())
"""
SECOND = """\
server = client.instances("server")
print(server, client.execute(server, ["python", "-c", "import jax; print(jax.__version__)"]).strip())
print(server.stop(), client.instances())
client.instance(name="a"), client.instance(name="b")
print(len(client.instances()), client.instance_stopall(), client.instances())
"""


@pytest.mark.core
def test_client_in_a_job(cluster: Cluster, folder: str) -> None:
    """Two processes of one job: the instance of the first one is there for the second one."""
    cluster.write(f"{folder}/first.py", FIND + FIRST)
    cluster.write(f"{folder}/second.py", FIND + SECOND)
    script = "module load jax/sif\nMINE=1 NCCL_DEBUG=a,b python3 first.py\npython3 second.py\n"
    cluster.write(f"{folder}/job.sh", f"#!/bin/bash -l\n#SBATCH --gpus-per-node=2 --output=log\n{script}")
    jax = cluster.check("module load jax/sif && jaxsif image inspect --json | python3 -c "
                        "'import json, sys; print(json.load(sys.stdin)[\"jax\"])'").strip()  # fmt: skip
    lines = cluster.submit(folder, "job.sh", "log").splitlines()
    assert lines[:5] == ["nv", "1 None None", "3", "['C.UTF-8', 'a,b']", "instance://server"]
    assert "could not open image /missing.sif" in lines[5]
    assert lines[6:] == [f"instance://server {jax}", "0 []", "2 0 []"]


def test_client_without_gpus_or_runtime(cluster: Cluster, folder: str) -> None:
    cluster.write(f"{folder}/options.py", FIND + "print(client.options, client.version())")
    found = cluster.check(f"module load jax/sif && python3 {folder}/options.py")
    assert found.startswith("('--no-eval',) apptainer version ")
    done = cluster.run(f"module load jax/sif && JAXSIF_RUNTIME=/missing python3 {folder}/options.py")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("HostError: cannot execute the container runtime /missing")
