"""The image: what it says of itself, what it must not hold, and builds that fail or are cut off."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from builds import REPOSITORY, build, copy_source
from harness import Cluster

from jaxsif.builds.assemble import read_system

IMAGES = REPOSITORY / "build/images"


def test_image_that_is_there_is_not_built_again(cluster: Cluster) -> None:
    image = next(IMAGES.glob("jax-*-cpu.sif"))
    before = image.stat()
    with build(REPOSITORY, IMAGES) as process:
        out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == (f"{image} is up to date\n", "", 0)
    assert image.stat() == before


def test_labels_help_and_test(cluster: Cluster) -> None:
    labels = json.loads(cluster.check("module load jax/sif && apptainer inspect --json $JAX_IMAGE"))
    labels = labels["data"]["attributes"]["labels"]
    version = labels["io.jaxsif.jax"]
    assert re.fullmatch(r"[\d.]+", version)
    assert labels["org.opencontainers.image.version"] == version
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert labels["io.jaxsif.flavour"] == "cpu"
    assert labels["io.jaxsif.cuda"] == "none"
    assert labels["org.opencontainers.image.revision"] != "unknown"
    assert f"JAX {version}" in cluster.check("module load jax/sif && apptainer run-help $JAX_IMAGE")
    assert cluster.run("module load jax/sif && apptainer test $JAX_IMAGE", timeout=60).returncode == 0


def test_a_library_that_lacks_another_is_found_out(cluster: Cluster, folder: str) -> None:
    """The check that ends each build, on a library taken away from those that it was linked with."""
    check = "import sys; sys.path.insert(0, '/opt/jaxsif'); import check, pathlib; "
    check += "print(*check.check_libraries(pathlib.Path('lib')), sep='|')"
    take = "mkdir lib && cp /opt/jax/lib/python3.*/site-packages/numpy/_core/_multiarray_umath.*.so lib/"
    script = f'{take} && python -c "{check}"'
    found = cluster.check(
        f"cd {folder} && module load jax/sif && apptainer --quiet exec $JAX_IMAGE sh -c {shlex.quote(script)}"
    )
    assert re.fullmatch(r"lib/_multiarray_umath\.\S+ needs libscipy_openblas64_\S+\n", found)


def test_run_without_a_command_says_how_to_use_it(cluster: Cluster) -> None:
    said = cluster.check("module load jax/sif && apptainer --quiet run $JAX_IMAGE")
    assert said.startswith("JAX ")
    assert "jaxsif run --image IMAGE -- python program.py" in said


def test_no_trace_of_the_build_host(cluster: Cluster) -> None:
    """Neither its name, nor the clone's path, nor the settings of the build are in any file of the image."""
    words = [str(REPOSITORY), "ca.pem", "UV_CACHE_DIR", "/mnt/settings.sh"]
    if len(socket.gethostname()) > 4:  # a short name is a part of other words
        words.append(socket.gethostname())
    for name in ("http_proxy", "https_proxy", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "PIP_INDEX_URL"):
        if os.environ.get(name):
            words.append(os.environ[name])
    patterns = " ".join(f"-e '{word}'" for word in words)
    grep = f"apptainer exec $JAX_IMAGE grep -rlF {patterns} / --exclude-dir=proc --exclude-dir=sys --exclude-dir=dev"
    grep += " --exclude-dir=home --exclude-dir=tmp --exclude-dir=run"
    found = cluster.run(f"cd /tmp && module load jax/sif && {grep} 2>/dev/null", timeout=120).stdout.split()
    # The definition file is kept in the image as a matter of record; it names /mnt/settings.sh, not what was in it.
    assert [path for path in found if path != "/.singularity.d/Singularity"] == []
    definition = cluster.check("module load jax/sif && apptainer exec $JAX_IMAGE cat /.singularity.d/Singularity")
    assert str(REPOSITORY) not in definition
    # A runtime hides these two behind the node's own; and the mirror may be one of this host's network.
    etc = read_system(next(IMAGES.glob("jax-*-cpu.sif"))).root.children[b"etc"].children
    assert (etc[b"hostname"].size, etc[b"resolv.conf"].size) == (0, 0)
    assert b"sources.list" not in etc[b"apt"].children
    assert list(etc[b"apt"].children[b"sources.list.d"].children) == [b"debian.sources"]


def test_wheels_are_checked_against_the_lock(cluster: Cluster, work: Path) -> None:
    """One digit of one hash changed: the build stops with the package's name, and nothing is left."""
    source = copy_source(work / "source")
    lock = source / "containers/locks/cpu.txt"
    text = lock.read_text()
    block = re.search(r"^opt-einsum==.*\n(?:    --hash.*\n)+", text, re.MULTILINE)
    assert block
    lock.write_text(text.replace(block[0], re.sub(r"sha256:.", "sha256:x", block[0]).replace(":x", ":0")))
    with build(source, work / "images") as process:
        _, err = process.communicate(timeout=120)
    assert process.returncode == 125
    assert "opt-einsum" in err
    assert "Traceback" not in err
    assert [path.name for path in (work / "images").iterdir() if path.suffix != ".log"] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stage", ["running post scriptlet", "creating SIF file"])
def test_interrupted_build_leaves_nothing(cluster: Cluster, work: Path, number: signal.Signals, stage: str) -> None:
    source = copy_source(work / "source")
    (source / "LICENSE").write_text("another input, so another image\n")
    memory = set(Path("/dev/shm").glob("*.jaxsif"))
    with build(source, work / "images") as process:
        assert process.stdout is not None
        while stage not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert "Traceback" not in err
    assert [path.name for path in (work / "images").iterdir() if path.suffix != ".log"] == []
    assert set(Path("/dev/shm").glob("*.jaxsif")) <= memory
    deadline = time.monotonic() + 5
    while left := subprocess.run(["pgrep", "-fa", str(work)], capture_output=True, text=True, check=False).stdout:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def test_bad_requests(cluster: Cluster, work: Path) -> None:
    for options, status, message in (
        (
            ["--flavour", "tpu"],
            2,
            "jaxsif: error: no flavour tpu\n  from: --flavour\n  try:  one of cpu, cuda12, cuda13",
        ),
        (["--source", str(work)], 2, f"jaxsif: error: no definition files in {work / 'containers'}\n"),
    ):
        with build(REPOSITORY, work / "images", *options) as process:
            _, err = process.communicate(timeout=30)
        assert process.returncode == status
        assert err.startswith(message)
