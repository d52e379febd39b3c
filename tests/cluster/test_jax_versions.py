"""What the task package uses of JAX's own names: is it there in the image's JAX, the newest one, and JAX 0.10.2?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Cluster, jaxsif_run, sandbox
from wheels import download

TWO = ("--nodes=2", "--gpus-per-node=1", "--verbose", "--hang-timeout=5")
PLACE = "/sw/jax-versions"  # on all nodes
# Another JAX: a function has another name, and a parameter of another one has.
OTHER = r"""
find $folder/jax -name __pycache__ -prune -exec rm -r {} + && cd $folder/jax &&
grep -rlE 'compile_or_get_cached|clean_up' . | xargs sed -i -E 's/\b(compile_or_get_cached|clean_up)\b/\1_2/g' &&
sed -i -E '/^def get_executable_and_time/,/^def [^g]/s/\bcache_key\b/key/g' _src/compilation_cache.py
"""

Install = Callable[[str], str]


@pytest.fixture
def install(cluster: Cluster, work: Path) -> Iterator[Install]:
    """Puts JAX into a folder that a program can have on its path, and returns that; NumPy stays the image's."""
    python = cluster.check("module load jax/sif && exec apptainer -q exec $JAX_IMAGE python -V").split()[1]

    def install(version: str) -> str:
        packages = [f"{name}{version}" for name in ("jax", "jaxlib")]
        done = download(work, f"--python-version={python}", *packages)
        if done.returncode:
            pytest.skip(f"no such packages: {done.stderr.strip().rpartition(chr(10))[2]}")
        sandbox(f"for wheel in {work}/*.whl; do python3 -m zipfile -e $wheel {PLACE}; done")
        return PLACE

    yield install
    sandbox(f"rm -rf {PLACE}")


def run(cluster: Cluster, folder: str, *options: str) -> tuple[str, str]:
    """The version of JAX, and what was said on standard error, of a run in which all went well."""
    done = cluster.run(f"cd {folder} && {jaxsif_run(*TWO, *options, '--', 'python', 'versions.py')}")
    assert done.returncode == 0, done.stderr
    (version, total) = re.findall(r"(?m)^([\d.]+) ([\d.]+)$", done.stdout)[0]
    assert total == "2.0"
    return version, done.stderr


# Since JAX 0.11.
TLS = "jax._src.distributed.State.initialize(mtls_cert_file, mtls_key_file, mtls_ca_file, mtls_peer_uri_prefix)"


def check_watched(said: str, lacks: list[str]) -> None:
    """All that is told by what is changed in JAX: these names are missing, another program, a wait and its place."""
    assert re.findall(r"this JAX lacks (.*); features that use it", said) == lacks, said
    assert re.search(r"^jaxsif: warning: task [01] compiled jit_\w+ for .*: their results may be wrong$", said, re.M)
    assert re.search(r"^jaxsif: +1 task +is sleeping +versions\.py:\d+ ", said, re.M), said
    assert re.search(r"^jaxsif: the wait is over", said, re.M), said
    assert re.search(r"^jaxsif: compile cache: \d+ of \d+ programs", said, re.M), said


def test_the_jax_of_the_image(cluster: Cluster, folder: str) -> None:
    version, said = run(cluster, folder)
    assert version in cluster.check("module load jax/sif && echo $JAX_IMAGE")
    check_watched(said, [])


@pytest.mark.parametrize(("version", "lacks"), [("", []), ("==0.10.2", [TLS])], ids=["newest", "0.10.2"])
def test_another_jax(cluster: Cluster, folder: str, install: Install, version: str, lacks: list[str]) -> None:
    found, said = run(cluster, folder, f"--env=PYTHONPATH={install(version)}", f"--bind={PLACE}")
    assert version in ("", f"=={found}")
    check_watched(said, lacks)


def test_a_jax_with_other_names(cluster: Cluster, folder: str) -> None:
    """The program runs as ever; what is missing is told once, though there are two tasks."""
    jax = "$(apptainer -q exec $JAX_IMAGE python -c 'import jax; print(jax.__path__[0])')"
    copy = f"module load jax/sif && apptainer -q exec --bind {folder} $JAX_IMAGE cp -r {jax} {folder}"
    cluster.check(f"{copy} && chmod -R u+w {folder}/jax && folder={folder} && {OTHER}")
    _, said = run(cluster, folder, f"--env=PYTHONPATH={folder}")
    (names,) = re.findall(r"(?m)^jaxsif: this JAX lacks (.*); features that use it are off$", said)
    assert sorted(names.split(", ")) == [
        "jax._src.api.clean_up",
        "jax._src.compilation_cache.get_executable_and_time(cache_key)",
        "jax._src.compiler.compile_or_get_cached",
    ]
