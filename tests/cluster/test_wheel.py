"""The wheel in an empty environment, outside of any clone: an image is built, its module made, JAX run with it."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builds import CACHE, REPOSITORY
from harness import MINICLUSTER, Cluster

# Below the cluster's /sw, which its nodes and the sandbox see.
PLACE = "/sw/wheel"
# In the nodes' system, with the network of this machine: the parts of images come from the cache of this clone.
INSTALL = f"""\
set -e
umask 022
rm -rf {PLACE}
mkdir {PLACE} && cd {PLACE}
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check "$0[image]"
PATH={PLACE}/venv/bin:$PATH
jaxsif home
jaxsif image build --flavour cpu --cache {CACHE} >&2
jaxsif image lock --flavour cpu --platform x86_64 --check >&2
image=$(ls build/images/*.sif)
jaxsif image sbom $image >sbom.json && grep -q '"pkg:pypi/jax@' sbom.json
jaxsif module add --prefix {PLACE}/site $image
jaxsif module list --prefix {PLACE}/site >&2
"""
USE = f"MODULEPATH={PLACE}/site/modulefiles && module load jax/sif"


def run(argv: list[Any], **options: Any) -> str:
    """What a command on this machine prints that must succeed."""
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel() -> Iterator[Path]:
    """The wheel, built of this clone."""
    folder = REPOSITORY / "build/test-wheel"
    shutil.rmtree(folder, ignore_errors=True)
    run([REPOSITORY / "build/venv/bin/pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, "."])
    (path,) = folder.glob("*.whl")
    yield path
    shutil.rmtree(folder)


def test_what_git_knows_is_in_it(wheel: Path) -> None:
    listed = run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "jaxsif"])
    folders = ["CHANGELOG.md", "CONTRIBUTING.md", "containers", "docs", "modulefiles", "slurm", "LICENSE", "README.md"]
    data = run(["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders])
    expected = {*listed.splitlines(), *(f"jaxsif/share/{name}" for name in data.splitlines())}
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert found == expected


@pytest.mark.timeout(900)
def test_in_an_empty_environment(cluster: Cluster, wheel: Path, folder: str) -> None:
    installed = run([MINICLUSTER, "sandbox", "--", "bash", "-c", INSTALL, wheel], timeout=800)
    home, module = installed.splitlines()
    assert home.startswith(f"{PLACE}/venv/lib/python3")
    assert module.startswith("jax/")

    script = f"""{USE} && cd {folder} && cp -r "$JAXSIF_HOME/slurm" . && which jaxsif && cmp -s $(jaxsif home)/LICENSE \
        {home}/LICENSE && exec jaxsif run --nodes=2 --gpus-per-node=2 -- python slurm/allreduce.py"""
    path, *said = cluster.check(script).splitlines()
    assert path.startswith(f"{PLACE}/site/jaxsif/")
    assert [line for line in sorted(said) if line.startswith("Process")] == [
        f"Process {number} has y=[4.]" for number in range(4)
    ]
    # Without the module, by pip's own command; a failure is named as with the installed launcher.
    own = f"{PLACE}/venv/bin/jaxsif run --image {PLACE}/build/images/*.sif"
    done = cluster.run(f"cd {folder} && exec {own} --nodes=2 -- python fail.py raise 1")
    assert done.returncode == 1
    assert "jaxsif: error: task 1 on node2 failed: ValueError: boom" in done.stderr
