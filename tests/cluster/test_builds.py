"""Builds: the same inputs make the same bytes, whoever builds where; wheels that are not as locked; full disks."""

from __future__ import annotations

import hashlib
import http.server
import os
import re
import shlex
import signal
import subprocess
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from builds import CACHE, REPOSITORY, build, copy_source, link_bases
from harness import MINICLUSTER, Cluster

from jaxsif.builds.assemble import read_system
from jaxsif.builds.base import base_path, make_base
from jaxsif.builds.host_settings import host_variables
from jaxsif.builds.recipe import read_recipe
from jaxsif.images.file import digest

WHEEL = "jax-0.0.1-py3-none-any.whl"


def left_behind(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.suffix != ".log"]


def add_to_post(source: Path, before: str, line: str) -> None:
    """Have a build of `source` do something more, before the line that begins so."""
    definition = read_recipe(source, "cpu").definition
    text = definition.read_text()
    assert text.count(before) == 1
    definition.write_text(text.replace(before, f"    {line}\n{before}"))


@pytest.mark.timeout(1800)
def test_two_clones_make_the_same_bytes(cluster: Cluster, work: Path) -> None:
    """Each in its own folder, with its own base system and wheels, under another umask, and then with all cached."""
    images = []
    for name, umask in (("one", 0o022), ("another", 0o077)):
        clone = work / name
        subprocess.run(["git", "clone", "--quiet", REPOSITORY, clone], check=True, umask=umask)
        for folder in ("cold", "warm"):
            with build(clone, clone / folder, cache=clone / "cache", umask=umask) as process:
                out, err = process.communicate(timeout=400)
            assert process.returncode == 0, err
            images.append(next((clone / folder).glob("*.sif")))
        assert "compressed 0 parts" in out
    assert len({digest(str(image)) for image in images}) == 1
    assert len({image.read_bytes() for image in images}) == 1


def test_what_a_build_changes_of_its_base(cluster: Cluster, work: Path) -> None:
    """A file that is removed, one of another mode, and one with other content, whose time tells nothing of it."""
    source = copy_source(work / "source")
    change = "cd /usr/share/common-licenses; rm BSD; chmod 600 GPL-1; cat Artistic >GPL-2; touch -d @0 GPL-2; cd /"
    add_to_post(source, "    # Last, so that", change)
    with build(source, work / "images") as process:
        _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    folder = read_system(next((work / "images").glob("*.sif"))).root
    for name in (b"usr", b"share", b"common-licenses"):
        folder = folder.children[name]
    files = folder.children
    assert b"BSD" not in files
    assert (files[b"GPL-1"].mode, files[b"Artistic"].mode) == (0o600, 0o644)
    assert files[b"GPL-2"].size == files[b"Artistic"].size


def test_a_library_that_another_needs_is_missed(cluster: Cluster, work: Path) -> None:
    """The build ends before it writes an image; the wheel in the cache, where the links point to, still has it."""
    source = copy_source(work / "source")
    with (source / "containers/flavours/cpu.args").open("a") as arguments:
        arguments.write("LEAVE_OUT=numpy.libs/libscipy_openblas*\n")
    with build(source, work / "images") as process:
        _, err = process.communicate(timeout=200)
    assert process.returncode == 125
    assert re.search(r"numpy/_core/_multiarray_umath\.\S+ needs libscipy_openblas", err), err
    assert left_behind(work / "images") == []


def test_a_library_that_nothing_links_to_is_missed(cluster: Cluster, work: Path) -> None:
    """Programs load it by its name alone; the list of its wheel has it."""
    source = copy_source(work / "source")
    add_to_post(source, "    # Here, and not", 'rm "$site"/jaxlib/cpu/_sparse.so')
    with build(source, work / "images") as process:
        _, err = process.communicate(timeout=200)
    assert process.returncode == 125
    assert re.search(r"jaxlib/cpu/_sparse\.so of jaxlib-[\d.]+dist-info is not there", err), err
    assert left_behind(work / "images") == []


@pytest.fixture
def index(work: Path) -> Iterator[str]:
    """A package index on this machine with one file; its address."""
    folder = work / "simple/jax"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        wheel.writestr("jax/__init__.py", "__version__ = '0.0.1'\n")
        wheel.writestr("jax-0.0.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: jax\nVersion: 0.0.1\n")
        wheel.writestr("jax-0.0.1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("jax-0.0.1.dist-info/RECORD", "")
    (folder / "index.html").write_text(f'<a href="{WHEEL}">{WHEEL}</a>')
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(work))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()


def killed_build(work: Path) -> tuple[list[Path], list[str]]:
    """Kill a build when its engine works; return the folders that it leaves, and its engine's processes."""
    places = (work / "images", CACHE, Path("/dev/shm"))
    with build(REPOSITORY, work / "images", "--force") as process:
        deadline = time.monotonic() + 120
        while True:
            locks = [lock for place in places for lock in place.glob(".*.lock") if held_by(lock, process.pid)]
            engines = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=False)
            if len(locks) == len(places) and engines.stdout:
                break
            assert process.poll() is None
            assert time.monotonic() < deadline, locks
            time.sleep(0.1)
        process.kill()
    return [lock.with_suffix("") for lock in locks], engines.stdout.split()


def held_by(lock: Path, pid: int) -> bool:
    return any(os.path.samefile(one, lock) for one in Path(f"/proc/{pid}/fd").iterdir() if one.exists())


def test_what_a_killed_build_leaves_is_removed_by_the_next(cluster: Cluster, work: Path) -> None:
    left, engines = killed_build(work)
    try:
        assert all(folder.is_dir() for folder in left)
        with build(REPOSITORY, work / "images", "--force") as process:
            deadline = time.monotonic() + 120
            while any(folder.exists() for folder in left) and time.monotonic() < deadline:
                assert process.poll() is None
                time.sleep(0.1)
            process.terminate()
            process.communicate(timeout=60)
    finally:
        for engine in engines:
            with suppress(ProcessLookupError):
                os.killpg(int(engine), signal.SIGKILL)
    assert [
        path for folder in left for path in (folder, folder.with_name(f"{folder.name}.lock")) if path.exists()
    ] == []


@pytest.mark.parametrize(
    ("locked", "message"),
    [
        ("jax==0.0.1\n", r"must have a hash.*\bjax==0\.0\.1"),
        (
            f"jax==0.0.1 --hash=sha256:{hashlib.sha256(b'the real one').hexdigest()}\n",
            r"Hash mismatch for `jax==0\.0\.1`",
        ),
    ],
    ids=["a lock without a hash", "another file of the same name"],
)
def test_a_wheel_that_cannot_be_trusted(cluster: Cluster, work: Path, index: str, locked: str, message: str) -> None:
    """The build stops with the package's name, and nothing is left."""
    source = copy_source(work / "source")
    read_recipe(source, "cpu").lock.write_text(locked)
    local = {"UV_DEFAULT_INDEX": index, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    with build(source, work / "images", cache=link_bases(work / "cache"), **local) as process:
        _, err = process.communicate(timeout=120)
    assert process.returncode == 125
    assert re.search(message, err, re.DOTALL), err
    assert "Traceback" not in err
    assert left_behind(work / "images") == []


@pytest.mark.parametrize(
    ("full", "size"),
    [("memory", "4g,nr_inodes=1000"), ("output", "190m"), ("cache", "90m")],
    ids=["unpacking", "writing", "cache"],
)
def test_a_full_disk_is_named_and_nothing_is_left(cluster: Cluster, work: Path, full: str, size: str) -> None:
    """In the cluster's system, where a small file system can be mounted; with the base, which it cannot make."""
    recipe = read_recipe(REPOSITORY, "cpu")
    base = base_path(recipe.packages, recipe.block, CACHE)
    if not base.exists():
        make_base(base, recipe.packages, recipe.block, os.environ, print)
    small = "/dev/shm" if full == "memory" else work / "small"
    folders = {"output": work / "images", "cache": CACHE, full: small}
    argv = ["python3", "-m", "jaxsif", "image", "build", "--flavour=cpu", "--force"]
    argv += [f"--output={folders['output']}", f"--cache={folders['cache']}"]
    script = f"""
        mkdir -p {small} && mount -t tmpfs -o size={size} tmpfs {small} && cd {REPOSITORY} || exit 1
        [ {full} != cache ] || cp {base} {small}
        PATH=$PATH:{REPOSITORY}/build/venv/bin {shlex.join(argv)}
        echo "status $?"; find {small} -mindepth 1 -maxdepth 1 ! -name '*.log' -printf 'left %f\\n'
    """
    settings = {**os.environ, **host_variables(os.environ)}
    done = subprocess.run(
        [MINICLUSTER, "sandbox", "--", "bash", "-c", script],
        env=settings,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert "\nstatus 125\n" in done.stdout, done.stderr
    assert re.search("no space (is )?left", done.stderr, re.IGNORECASE), done.stderr
    assert "Traceback" not in done.stderr
    kept = {base.name, "uv", "compiled", "packed"} if full == "cache" else set()
    assert set(re.findall(r"^left (.*)$", done.stdout, re.MULTILINE)) <= kept
