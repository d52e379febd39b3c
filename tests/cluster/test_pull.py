"""The command `jaxsif image pull`: cut off by signals, on a full disk, and from a registry that Apptainer speaks to."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import HERE, Cluster
from kit.siffile import sif_header
from kit.webserver import Served, serve
from registry import registry

from jaxsif.images.file import digest

REPOSITORY = HERE.parents[1]
JAXSIF = REPOSITORY / "build/venv/bin/jaxsif"


@pytest.fixture(scope="module")
def image() -> Path:
    return next((REPOSITORY / "build/images").glob("jax-*-cpu.sif"))


@pytest.fixture
def served(image: Path) -> Iterator[Served]:
    with serve(image.read_bytes()) as one:
        yield one


@pytest.fixture
def work() -> Iterator[Path]:
    """A folder that the runtime's sandbox sees: below this clone, like all that it builds."""
    folder = REPOSITORY / "build/test-pull"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    yield folder
    shutil.rmtree(folder)


def environ() -> dict[str, str]:
    """With the cluster's Apptainer where there is none."""
    tools = "" if shutil.which("apptainer") or shutil.which("singularity") else f"{HERE}/bin:"
    own = {"PATH": f"{tools}{os.environ['PATH']}", "NO_PROXY": "127.0.0.1", "APPTAINER_NOHTTPS": "1"}
    return {**os.environ, **own}


def start(*argv: object) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([str(word) for word in argv], env=environ(), stdout=pipe, stderr=pipe, text=True)


def pull(*arguments: object) -> subprocess.Popen[str]:
    """`jaxsif image pull` on this machine."""
    return start(JAXSIF, "image", "pull", *arguments)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    with process:
        out, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    return process.returncode, out, err


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_pull_and_pull_again(served: Served, work: Path, image: Path) -> None:
    wanted = digest(str(image))
    target = work / "jax.sif"
    assert ended(pull(served.address, "--output", work)) == (0, f"{target} was pulled, digest {wanted}\n", "")
    before = target.stat().st_ctime_ns
    status, out, err = ended(pull(served.address, "--output", target, "--digest", wanted))
    assert (status, out, err) == (0, f"{target} already exists, digest {wanted}\n", "")
    assert target.stat().st_ctime_ns == before
    status, _, err = ended(pull(served.address, "--output", target))
    assert (status, err.splitlines()[0]) == (2, f"jaxsif: error: {target} already exists")
    assert len(served.requests) == 1
    assert ended(pull(served.address, "--output", target, "--force"))[0] == 0
    assert names(work) == ["jax.sif"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ended_and_called_again(served: Served, work: Path, image: Path, number: signal.Signals) -> None:
    served.stall.set()
    served.cut_after = [90_000_000]
    process = pull(served.address, "--output", work)
    part = work / ".jax.sif.part"
    deadline = time.monotonic() + 20
    while not part.exists() or part.stat().st_size < 89_000_000:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    status, out, _ = ended(process)
    assert (status, out) == (128 + number, "")
    assert names(work) == [".jax.sif.part", ".jax.sif.part.json"]
    there = part.stat().st_size
    served.stall.clear()
    assert ended(pull(served.address, "--output", work, "--digest", digest(str(image))))[0] == 0
    assert served.requests == ["", f"bytes={there}-"]
    assert names(work) == ["jax.sif"]


@pytest.mark.parametrize("size", ["told", "not told", "told too small"])
def test_disk_without_room(served: Served, work: Path, size: str) -> None:
    served.tells_length = size == "told"
    if size == "told too small":  # by the image's header, behind whose end more comes
        served.content = sif_header(4096, 20_800_000 - 4096, rows=0) + bytes(25_000_000)
    small = work / "small"
    small.mkdir()
    script = f"""
        mount -t tmpfs -o size=20m tmpfs {small} && cd {small} && echo old >jax.sif
        {JAXSIF} image pull {served.address} --output {small} --force
        status=$?
        ls -A && cat jax.sif
        exit $status
    """
    status, out, err = ended(start("unshare", "--map-root-user", "--mount", "sh", "-c", script))
    assert (status, out) == (125, "jax.sif\nold\n")
    if size == "told too small":
        assert err.startswith(f"jaxsif: error: cannot write {small}/.jax.sif.part: No space left on device\n")
    else:
        assert re.match(rf"jaxsif: error: no room for \d+ MB in {small}: \d+ MB are free\n", err)


def test_progress_in_a_log(served: Served, work: Path) -> None:
    """After five seconds of a download that stalls and is taken up again, a line, without control characters."""
    served.cut_after = [90_000_000, 1_000_000, 1_000_000]
    status, _, err = ended(pull(served.address, "--output", work))
    assert status == 0
    assert "\r" not in err
    assert "jaxsif: the connection ended after 90000000 of " in err


def test_certificate_authority_of_the_site(image: Path, work: Path) -> None:
    key, certificate = work / "key.pem", work / "ca.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate]
    make += ["-subj", "/CN=site", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(make, check=True, stderr=subprocess.DEVNULL)
    with serve(image.read_bytes(), certificate, key) as served:
        begin = time.monotonic()
        status, _, err = ended(pull(served.address, "--output", work))
        assert status == 125
        assert time.monotonic() - begin < 3  # no second try
        assert f"jaxsif: error: cannot download {served.address}: " in err
        assert "certificate verify failed" in err
        known = start(
            "env", f"REQUESTS_CA_BUNDLE={certificate}", JAXSIF, "image", "pull", served.address, "--output", work
        )
        assert ended(known)[0] == 0
    assert names(work) == ["ca.pem", "jax.sif", "key.pem"]


def test_registry(cluster: Cluster, work: Path, image: Path) -> None:
    with registry() as host:
        subprocess.run(["apptainer", "push", image, f"oras://{host}/site/jax:1"], env=environ(), check=True)
        wanted = digest(str(image))
        status, out, err = ended(pull(f"oras://{host}/site/jax:1", "--output", work, "--digest", wanted))
        assert (status, out) == (0, f"{work}/jax_1.sif was pulled, digest {wanted}\n"), err
        assert (work / "jax_1.sif").read_bytes() == image.read_bytes()
        status, _, err = ended(pull(f"oras://{host}/site/jax:1", "--output", work / "b.sif", "--digest", "0" * 64))
        assert status == 125
        assert f": its digest is {wanted}\n" in err
        status, _, err = ended(pull(f"oras://{host}/site/jax:2", "--output", work))
        assert status == 125
        assert f"jaxsif: error: apptainer pull failed (exit status 255): oras://{host}/site/jax:2\n" in err
    assert names(work) == ["jax_1.sif"]


def test_layers_of_a_registry(cluster: Cluster, work: Path) -> None:
    """An image as Docker knows it, of one layer with one file."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as layer:
        layer.addfile(tarfile.TarInfo("hello"))
    rootfs = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(archive.getvalue()).hexdigest()}"]}
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": rootfs}).encode()
    with registry() as host:
        push(host, "site/hello", "1", config, archive.getvalue())
        status, out, err = ended(pull(f"docker://{host}/site/hello:1", "--output", work / "hello.sif"))
        assert status == 0, err
        assert out == f"{work}/hello.sif was pulled, digest {digest(str(work / 'hello.sif'))}\n"
    assert names(work) == ["hello.sif"]


def push(host: str, name: str, tag: str, config: bytes, layer: bytes) -> None:
    """Put an image of one layer into a registry."""
    kind = "application/vnd.oci.image"
    described = []
    for media_type, data in ((f"{kind}.config.v1+json", config), (f"{kind}.layer.v1.tar", layer)):
        found = f"sha256:{hashlib.sha256(data).hexdigest()}"
        described.append({"mediaType": media_type, "digest": found, "size": len(data)})
        upload = send("POST", f"http://{host}/v2/{name}/blobs/uploads/")
        send("PUT", f"{upload}&digest={found}", data)
    manifest = {"schemaVersion": 2, "mediaType": f"{kind}.manifest.v1+json", "config": described[0]}
    content = json.dumps({**manifest, "layers": described[1:]}).encode()
    send("PUT", f"http://{host}/v2/{name}/manifests/{tag}", content, f"{kind}.manifest.v1+json")


def send(method: str, url: str, data: bytes = b"", kind: str = "application/octet-stream") -> str:
    """Send data to a registry, and return the Location of its answer."""
    without_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, data, {"Content-Type": kind}, method=method)
    with without_proxy.open(request) as answer:
        return str(answer.headers["Location"])
