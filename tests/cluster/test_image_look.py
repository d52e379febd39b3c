"""`jaxsif image sbom` and `inspect`: on our image, on images of others, on unpacked ones, signed and not."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from harness import HERE, Cluster

REPOSITORY = HERE.parents[1]
TOOLS = "" if shutil.which("apptainer") or shutil.which("singularity") else f"{HERE}/bin:"
OURS = next((REPOSITORY / "build/images").glob("jax-*-cpu.sif"), REPOSITORY / "build/images/missing.sif")
_FOREIGN = """\
Bootstrap: localimage
From: {base}
{more}
"""


def start(*argv: object) -> subprocess.Popen[str]:
    """A command, with a runtime on its PATH, from the clone."""
    path = f"{TOOLS}{REPOSITORY}/build/venv/bin:{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(REPOSITORY / "build/test-look/cache")}
    pipe = subprocess.PIPE
    return subprocess.Popen(list(map(str, argv)), stdout=pipe, stderr=pipe, text=True, env=environ, cwd=REPOSITORY)


def run(*argv: object) -> subprocess.CompletedProcess[str]:
    """As `start`, to its end."""
    with start(*argv) as process:
        out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def check(*argv: object) -> str:
    done = run(*argv)
    assert done.returncode == 0, f"{argv}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build_foreign(image: Path, more: str) -> Path:
    """An image that is not ours: our base system, and what `more` of a definition file adds."""
    base = min((REPOSITORY / "build/cache").glob("base-*.sqfs"), key=lambda path: path.stat().st_size)
    definition = image.with_suffix(".def")
    definition.write_text(_FOREIGN.format(base=base, more=more))
    check("apptainer", "build", "--mksquashfs-args", "-comp zstd -Xcompression-level 1", image, definition)
    return image


@pytest.fixture(scope="module")
def images() -> Iterator[Path]:
    """A folder that the runtime's sandbox sees, with other people's images."""
    folder = REPOSITORY / "build/test-look"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    check(sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--target", folder / "site", "jax==0.7.1")
    build_foreign(folder / "plain.sif", "")
    build_foreign(folder / "with-jax.sif", f"%files\n    {folder}/site/* /usr/local/lib/python3.13/dist-packages/")
    build_foreign(folder / "without-python.sif", "%post\n    rm -f /usr/bin/python3*")
    check("apptainer", "build", "--sandbox", folder / "ours", OURS)
    yield folder
    shutil.rmtree(folder)


def rows(*argv: object) -> dict[str, str]:
    """The table of `inspect`."""
    return dict(re.findall(r"^(.+?)  +(.+)$", check("jaxsif", "image", "inspect", *argv), re.MULTILINE))


def test_sbom_is_valid_and_complete(images: Path) -> None:
    """By the official schema, dpkg, and uv's list of the image's Python packages; the same bytes as the image keeps."""
    sbom = check("jaxsif", "image", "sbom", OURS)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(sbom) is None
    assert check("apptainer", "-q", "exec", OURS, "cat", "/opt/jaxsif/sbom.cdx.json") == sbom
    components = json.loads(sbom)["components"]
    by_kind = {kind: [one for one in components if one["purl"].startswith(f"pkg:{kind}/")] for kind in ("deb", "pypi")}
    listed = check("apptainer", "-q", "exec", OURS, "dpkg", "-l")
    debian = re.findall(r"^ii +([^ :]+)(?::\S+)? +(\S+)", listed, re.MULTILINE)
    assert {(one["name"], one["version"]) for one in by_kind["deb"]} == set(debian)
    uv = f"{shutil.which('uv', path=f'{REPOSITORY}/build/venv/bin')}:/mnt/uv"
    listed = check("apptainer", "-q", "exec", "--bind", uv, OURS, "/mnt/uv", "pip", "list", "-q", "--format", "json")
    assert {(one["name"], one["version"]) for one in by_kind["pypi"]} == {
        (one["name"], one["version"]) for one in json.loads(listed)
    }
    licences = {one["name"]: one.get("licenses") for one in components}
    assert licences["jax"] == [{"license": {"name": "Apache-2.0"}}]
    assert {"license": {"name": "GPL-2+"}} in licences["ca-certificates"]


def test_sbom_of_a_foreign_image(images: Path) -> None:
    sbom = check("jaxsif", "image", "sbom", images / "with-jax.sif")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(sbom) is None
    assert "pkg:pypi/jax@0.7.1" in {one["purl"] for one in json.loads(sbom)["components"]}
    assert check("jaxsif", "image", "sbom", images / "with-jax.sif") == sbom


def test_image_without_python(images: Path) -> None:
    image = images / "without-python.sif"
    done = run("jaxsif", "image", "sbom", image)
    assert done.returncode == 125
    assert done.stderr.startswith(f"jaxsif: error: cannot run python3 in {image}: ")
    assert "not found" in done.stderr
    assert re.fullmatch(rf"unknown \(no label; cannot run python3 in {image}: .*not found.*\)", rows(image)["JAX"])


def test_inspect_our_image(images: Path) -> None:
    facts = json.loads(check("jaxsif", "image", "inspect", "--json", OURS))
    assert list(facts) == [
        *("path", "flavour", "jax", "python", "cuda", "nccl", "cudnn", "driver", "architecture", "digest", "signers"),
        *("size", "created", "file_system", "revision"),
        *("definition", "runscript", "environment", "help", "test", "labels", "notes"),
    ]
    assert OURS.name == f"jax-{facts['jax']}-{facts['flavour']}.sif"
    assert (facts["cuda"], facts["driver"], facts["signers"]) == ("none", "none", [])
    assert (facts["file_system"], facts["architecture"], facts["size"]) == ("squashfs", "x86_64", OURS.stat().st_size)
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", facts["digest"])
    python = check("apptainer", "-q", "exec", OURS, "python", "--version")
    assert python == f"Python {facts['python']}\n"


def test_inspect_foreign_images(images: Path) -> None:
    plain, with_jax = rows(images / "plain.sif"), rows(images / "with-jax.sif")
    assert plain["JAX"] == "none (no label; not in its package list)"
    assert with_jax["JAX"] == "0.7.1 (no label; according to its package list)"
    assert with_jax["flavour"] == with_jax["driver"] == "unknown (no label)"
    assert with_jax["signed by"] == "nobody"
    assert re.fullmatch(r"20\S+", with_jax["created"])


def test_inspect_unpacked_image(images: Path) -> None:
    """Its labels are in it; what was installed since is told."""
    found = rows(images / "ours")
    assert found["flavour"] == "cpu"
    assert found["digest"] == found["signed by"] == "unknown (an unpacked image has none)"
    assert (found["file system"], found["architecture"]) == ("folder", "x86_64")
    site = next((images / "ours/opt/jax/lib").glob("python3.*/site-packages"))
    jax = next(site.glob("jax-*.dist-info"))
    metadata = (jax / "METADATA").read_text()
    (jax / "METADATA").write_text(re.sub(r"^Version: .*", "Version: 0.1.2", metadata, count=1, flags=re.MULTILINE))
    assert re.fullmatch(r"\S+ \(its package list says 0\.1\.2\)", rows(images / "ours")["JAX"])
    (jax / "METADATA").write_text(metadata)


def test_signers(images: Path, tmp_path: Path) -> None:
    image, home = images / "signed.sif", images / "home"
    shutil.copy(images / "plain.sif", image)
    home.mkdir()
    apptainer = ("env", f"HOME={home}", f"APPTAINER_CONFIGDIR={home}", "apptainer")
    check(*apptainer, "key", "newpair", *("--name", "a", "--email", "a@b.c", "--password", "", "--push=false"))
    check(*apptainer, "sign", image)
    fingerprint = re.search(r"Fingerprint: +([0-9A-F]{40})", check(*apptainer, "key", "list"))
    assert fingerprint
    before = rows(images / "plain.sif")
    assert rows(image)["signed by"] == fingerprint[1]
    check("openssl", "genpkey", "-algorithm", "RSA", "-out", images / "key.pem")
    check(*apptainer, "sign", "--key", images / "key.pem", image)
    assert rows(image)["signed by"] == f"{fingerprint[1]}, a PEM key"
    assert rows(image)["digest"] == before["digest"]


def test_as_a_user_of_the_installed_launcher(cluster: Cluster) -> None:
    facts = json.loads(cluster.check("module load jax/sif && jaxsif image inspect --json"))
    assert (facts["flavour"], facts["path"]) == ("cpu", cluster.check("module load jax/sif && echo $JAX_IMAGE").strip())
    sbom = json.loads(cluster.check("module load jax/sif && jaxsif image sbom"))
    assert f"pkg:pypi/jax@{facts['jax']}" in {one["purl"] for one in sbom["components"]}
