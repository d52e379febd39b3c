"""Wheels for tests: small ones, an index that serves them in the cluster, and those of the host's index."""

from __future__ import annotations

import base64
import io
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness import Cluster


def download(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Have pip fetch the wheels of packages, without what they need, into a folder."""
    where = ("--no-deps", "--only-binary=:all:", f"--dest={folder}")
    pip = (sys.executable, "-m", "pip", "download", "-qq", *where, *words)
    return subprocess.run(pip, capture_output=True, text=True, check=False)


def make_wheel(
    name: str, version: str, files: Mapping[str, str], requires: Sequence[str] = (), script: str = ""
) -> bytes:
    """A wheel of pure Python; `script` is a console script's 'name = module:function'."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    content = {
        **files,
        f"{info}/METADATA": metadata + "".join(f"Requires-Dist: {one}\n" for one in requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if script:
        content[f"{info}/entry_points.txt"] = f"[console_scripts]\n{script}\n"
    record = "".join(f"{path},,\n" for path in [*content, f"{info}/RECORD"])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in {**content, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)
    return buffer.getvalue()


def put_wheel(cluster: Cluster, folder: str, name: str, version: str, *content: object, **options: object) -> str:
    """Write a wheel to folder/simple/NAME in the cluster, as indexes are laid out; return its path."""
    wheel = make_wheel(name, version, *content, **options)  # type: ignore[arg-type]
    project = f"{folder}/simple/{name.replace('_', '-')}"
    path = f"{project}/{name}-{version}-py3-none-any.whl"
    cluster.check(f"mkdir -p {project} && base64 -d >{path}", stdin=base64.b64encode(wheel).decode())
    return path


@contextmanager
def serve_index(cluster: Cluster, folder: str) -> Iterator[str]:
    """The address of an index of the wheels below folder/simple, on the login node."""
    argv = ["python3", "-u", "-m", "http.server", "--bind", "127.0.0.1", "--directory", f"{folder}/simple", "0"]
    with cluster.start(argv) as server:
        assert server.stdout is not None
        port = server.stdout.readline().split()[5]
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            cluster.check(["pkill", "-f", f"http.server .*{folder}/simple"])
            server.communicate(timeout=10)
