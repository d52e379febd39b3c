"""`jaxsif image convert`: what it makes of a Dockerfile, built and run as a user."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from harness import Cluster
from registry import registry
from test_image_look import OURS, REPOSITORY, check
from test_pull import environ, push

CONTEXT = """\
mkdir src && echo 'import jax, os; print("hello from", os.getcwd(), jax.__version__)' >src/main.py
echo x >src/.hidden; echo one >a.txt; ln -s a.txt b.txt
"""
DOCKERFILE = """\
# syntax=docker/dockerfile:1
FROM python:3.11-slim AS base
ARG WHO="a b"
ENV GREETING="hello $WHO" \\
    # a comment
    LIST='x;y &z' PATH=/opt/tools/bin:$PATH
LABEL org.example.title="two words" tier=1
WORKDIR /app
COPY a.txt b.txt poetry.lock* ./
COPY src lib
COPY src/main.py /opt/tools/bin/
ADD src/. all/
RUN cd /opt && echo "$GREETING|$LIST" >greeting \\
 && pwd >>greeting
RUN pwd >where; for one in 1 2; do echo $one >>where; done
EXPOSE 80
CMD ["python", "lib/main.py"]
"""
# Unpacked: to pack it takes a minute, and shows nothing more.
BUILD = "apptainer --quiet build --sandbox lab lab.def >log 2>&1 || { cat log; exit 1; }"


def test_dockerfile(cluster: Cluster, folder: str) -> None:
    """Order, quotes, copies of files, folders and links, and what starts, as in Docker; JAX stays ours."""
    cluster.write(f"{folder}/Dockerfile", DOCKERFILE)
    begin = f"module load jax/sif && cd {folder} && "
    cluster.check(f"cd {folder} && {CONTEXT}")
    done = cluster.run(f"{begin} jaxsif image convert Dockerfile >lab.def")
    assert (done.returncode, done.stderr) == (
        0,
        "jaxsif: line 2: FROM python:3.11-slim is replaced by Debian with its own Python and packages\n"
        "jaxsif: line 16: EXPOSE is left out: a container uses the host's network\n"
        "jaxsif: poetry.lock* is left out: no file matches it\n",
    )
    cluster.check(f"{begin}{BUILD}", timeout=300)
    jax = json.loads(cluster.check(f"{begin} jaxsif image inspect --json"))["jax"]
    assert cluster.check(f"{begin}apptainer -q run lab") == f"hello from /app {jax}\n"
    look = "cat /opt/greeting /app/where; find /app -type f | sort; echo $LIST; echo $PATH; ls -d /.jaxsif-copy"
    assert cluster.run(f"{begin}apptainer -q run lab sh -c '{look}'").stdout.splitlines()[:-1] == [
        *("hello a b|x;y &z", "/opt", "/app", "1", "2", "/app/a.txt", "/app/all/.hidden", "/app/all/main.py"),
        *("/app/b.txt", "/app/lib/.hidden", "/app/lib/main.py", "/app/where", "x;y &z"),
    ]
    labels = json.loads(cluster.check(f"{begin}jaxsif image inspect --json lab"))["labels"]
    assert (labels["org.example.title"], labels["tier"]) == ("two words", "1")
    printed = cluster.check(f"{begin}jaxsif run --image ./lab --ntasks=2 -- python -c 'print(40 + 2)'")
    assert printed.split() == ["42", "42"]


@pytest.mark.core
def test_printed_as_rendered(cluster: Cluster, folder: str) -> None:
    """What cannot be seen is refused by line; all else is printed as it is, as in JSON."""
    begin = f"module load jax/sif && cd {folder} && jaxsif image convert"
    cluster.write(f"{folder}/Dockerfile", "# a\xa0b\nFROM a\nRUN echo é\t'日本' \\\n && b\n")
    found = json.loads(cluster.check(f"{begin} --json Dockerfile"))
    assert cluster.check(f"{begin} Dockerfile") == found["definition"]
    assert "echo é\t'\"'\"'日本'\"'\"'  && b" in found["definition"]
    cluster.write(f"{folder}/Dockerfile", "FROM a\nRUN echo c \\\n && d\xa0e\u2028f\n")
    done = cluster.run(f"{begin} Dockerfile")
    assert (done.returncode, done.stdout) == (2, "")
    reason = "has an invisible character (U+00A0): remove it"
    assert f"    Dockerfile:3: && d\\xa0e\\u2028f: {reason}\n" in done.stderr
    cluster.write(f"{folder}/a\u2028b", "FROM a\n")
    done = cluster.run(f"{begin} 'a\u2028b'")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'a\\u2028b' has an invisible character (U+2028)" in done.stderr


STAGES = """\
ARG VERSION=3.11
ARG LAST=final
FROM python:$VERSION AS base
ENV OUT=/opt/out
WORKDIR /app
CMD ["false"]
FROM base AS build
COPY src ./
RUN mkdir -p $OUT/sub && echo built >$OUT/sub/a.txt && ln -s a.txt $OUT/sub/link && ln -s /opt/out /opt/alias \\
 && echo "#!/bin/sh\\necho tool" >$OUT/tool && chmod 755 $OUT/tool && touch $OUT/.hidden /app/one.whl
FROM node:20 AS unused
SHELL ["/bin/sh"]
FROM base AS final
ARG VERSION
COPY --from=build $OUT /opt/copy
COPY --from=build --chown=me /app/*.whl wheels/
COPY --from=build /opt/alias/* flat/
COPY --from=1 /opt/out/tool /usr/local/bin/
COPY src/* here/
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN [[ -e /opt/copy/tool ]] && ! false | true && echo "$VERSION" >where
ENTRYPOINT ["python", "here/main.py"]
FROM $LAST
"""


def test_stages(cluster: Cluster, folder: str) -> None:
    """The last stage has what it is based on, and what it copies from another one: files, patterns and links."""
    cluster.write(f"{folder}/Dockerfile", STAGES)
    begin = f"module load jax/sif && cd {folder} && "
    cluster.check(f"cd {folder} && {CONTEXT}")
    done = cluster.run(f"{begin} jaxsif image convert Dockerfile >lab.def")
    assert done.returncode == 0, done.stderr
    assert "jaxsif: line 11: stage unused is left out: nothing uses it\n" in done.stderr
    cluster.check(f"{begin}{BUILD}", timeout=300)
    jax = json.loads(cluster.check(f"{begin} jaxsif image inspect --json"))["jax"]
    assert cluster.check(f"{begin}apptainer -q run lab") == f"hello from /app {jax}\n"
    look = "tool; cat /opt/copy/sub/link where; readlink /opt/copy/sub/link; find /opt/copy . -type f | sort"
    assert cluster.check(f"{begin}apptainer -q exec --cwd /app lab sh -c '{look}'").split("\n")[:-1] == [
        *("tool", "built", "3.11", "a.txt", "./flat/.hidden", "./flat/a.txt", "./flat/tool", "./here/.hidden"),
        *("./here/main.py", "./wheels/one.whl", "./where", "/opt/copy/.hidden", "/opt/copy/sub/a.txt"),
        "/opt/copy/tool",
    ]
    assert cluster.run(f"{begin}apptainer -q exec lab ls /.jaxsif-copy").returncode != 0


# A shell and the programs of %post, with their libraries.
_LIBRARIES = ("libc.so.6", "libselinux.so.1", "libacl.so.1", "libattr.so.1", "libpcre2-8.so.0")
SHELL = (
    *(f"usr/bin/{name}" for name in ("sh", "cp", "mkdir", "rm", "dirname")),
    *(f"usr/lib/x86_64-linux-gnu/{name}" for name in _LIBRARIES),
    "usr/lib64/ld-linux-x86-64.so.2",
)


def put_image(host: str, name: str, programs: Sequence[str], variables: Sequence[str]) -> None:
    """Put an image into a registry: programs of the cluster's nodes, and a file /one."""
    rootfs = next(one for one in (REPOSITORY / "build/cluster").glob("rootfs-*") if one.is_dir())
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", dereference=True) as layer:
        for program in programs:
            layer.add(rootfs / program, program)
        for link in ("bin", "lib", "lib64") if programs else ():
            entry = tarfile.TarInfo(link)
            entry.type, entry.linkname = tarfile.SYMTYPE, f"usr/{link}"
            layer.addfile(entry)
        one = tarfile.TarInfo("one")
        one.size = 2
        layer.addfile(one, io.BytesIO(b"1\n"))
    layers = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(archive.getvalue()).hexdigest()}"]}
    config = {"architecture": "amd64", "os": "linux", "config": {"Env": list(variables)}, "rootfs": layers}
    push(host, name, "1", json.dumps(config).encode(), archive.getvalue())


@pytest.fixture
def work() -> Iterator[Path]:
    """A folder that the runtime's sandbox sees."""
    with tempfile.TemporaryDirectory(dir=REPOSITORY / "build") as folder:
        yield Path(folder)


def test_stages_of_a_registry(work: Path) -> None:
    """A stage on another image runs its commands there; an image without a shell is only copied from."""
    with registry() as host:
        put_image(host, "site/tools", SHELL, ["PATH=/usr/bin", "MINE=yes"])
        put_image(host, "site/one", (), [])
        (work / "Dockerfile").write_text(
            f"FROM {host}/site/tools:1 AS tools\nWORKDIR /made\nCOPY Dockerfile ./\nRUN echo $MINE >said\n"
            f"FROM python\nCOPY --from=tools /made /opt/made\nCOPY --from={host}/site/one:1 /one /bin/\n"
        )
        definition = check("jaxsif", "image", "convert", "--image", OURS, work / "Dockerfile")
        (work / "lab.def").write_text(definition)
        argv = ("apptainer", "--quiet", "build", "--sandbox", work / "lab", work / "lab.def")
        done = subprocess.run(argv, env=environ(), cwd=REPOSITORY, text=True, stderr=subprocess.PIPE)
        assert done.returncode == 0, done.stderr
    assert (work / "lab/opt/made/said").read_text() == "yes\n"
    assert (work / "lab/opt/made/Dockerfile").read_text() == (work / "Dockerfile").read_text()
    assert (work / "lab/usr/bin/one").read_text() == "1\n"
    assert not (work / "lab/.jaxsif-copy").exists()
